"""Files of a home that collectors count by pattern: how many, how large, how new.

A pattern is a path below the home: `skills/*/SKILL.md`. `*`, `?` and `[...]` match within one name,
`**` matches any number of folders, and a slash at the end matches folders instead of files. As in a
shell, none of them matches a name that begins with a dot.

Patterns come with the scan request, so a collector needs no code in a worker. Links are not
followed and other filesystems are not entered. A pattern that takes too long, or finds a folder
that cannot be read, has no result: its metric is missing rather than wrong. Where a folder does not
exist there are 0 files.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from exporter.snapshot import MatchedFiles

PATTERN_LENGTH_MAX: Final = 128
"""As long as a `Word` of the snapshot, which names the pattern."""
_RECOUNT_SECONDS: Final = 60.0
"""Patterns are matched at most this often: a scan of an unchanged home must stay cheap."""
_NAMES_MAX: Final = 10_000
"""Limit on names read for one pattern."""
_SECONDS_MAX: Final = 1.0
"""Time limit for all patterns of a home."""


class _TooMuchError(Exception):
    """A pattern needs more names or time than allowed."""


def check_pattern(pattern: str) -> None:
    """Raise ValueError unless this is a pattern of something below the home."""
    parts = _parts(pattern)
    is_below = all(parts) and not {".", ".."} & set(parts)
    counts_once = parts.count("**") <= 1 and parts[-1] != "**"  # two `**` would count a file twice
    if not is_below or not counts_once or len(pattern) > PATTERN_LENGTH_MAX:
        raise ValueError(
            f"{pattern!r} is no pattern of files below a home (one `**` at most, and not last)"
        )


class FileCounter:
    """Counts the files of one home that match patterns, and keeps the counts for a minute."""

    def __init__(self, home: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._home = home
        self._monotonic = monotonic
        self._counted_at = float("-inf")
        self._counted: dict[str, MatchedFiles] = {}

    def count(self, patterns: Sequence[str]) -> dict[str, MatchedFiles]:
        """Return what each pattern matches; patterns not matched completely are missing."""
        now = self._monotonic()
        if patterns and now - self._counted_at >= _RECOUNT_SECONDS:
            self._counted_at = now
            found = ((pattern, self._match(pattern, now + _SECONDS_MAX)) for pattern in patterns)
            self._counted = {pattern: files for pattern, files in found if files is not None}
        return self._counted

    def _match(self, pattern: str, until: float) -> MatchedFiles | None:
        files, size, newest = 0, 0, None
        try:
            for found in self._walk(pattern, until):
                files += 1
                size += found.st_size
                newest = max(newest or 0.0, found.st_mtime)
        except (OSError, _TooMuchError):
            return None
        return MatchedFiles(files, size, newest)

    def _walk(self, pattern: str, until: float) -> Iterator[os.stat_result]:
        """Yield every file, or folder, that the pattern matches."""
        is_wanted = stat.S_ISDIR if pattern.endswith("/") else stat.S_ISREG
        device = os.lstat(self._home).st_dev
        names_left = _NAMES_MAX
        folders = [(self._home, _parts(pattern))]
        while folders:
            folder, parts = folders.pop()
            part, rest = parts[0], parts[1:]
            if part == "**":
                folders.append((folder, rest))  # `**` also matches zero folders
            for name, may_be_folder in _names(folder, part):
                names_left -= 1
                if not names_left or self._monotonic() > until:
                    raise _TooMuchError
                if not _matches(name, part) or (rest and not may_be_folder):
                    continue
                path = os.path.join(folder, name)
                found = _lstat(path)
                if found is None:
                    continue
                if not rest:
                    if is_wanted(found.st_mode):
                        yield found
                elif stat.S_ISDIR(found.st_mode) and found.st_dev == device:
                    folders.append((path, parts if part == "**" else rest))


def _parts(pattern: str) -> list[str]:
    return pattern.removesuffix("/").split("/")


def _names(folder: str, part: str) -> Iterator[tuple[str, bool]]:
    """Yield names in a folder that may match one part of a pattern, and if each may be a folder."""
    if not set(part) & set("*?["):
        yield part, True  # a name without wildcards needs no listing
        return
    try:
        with os.scandir(folder) as entries:  # not listdir: a folder may have millions of names
            for entry in entries:
                yield entry.name, entry.is_dir(follow_symlinks=False)
    except FileNotFoundError:
        pass  # removed since it was seen


def _matches(name: str, part: str) -> bool:
    if name.startswith(".") and not part.startswith("."):
        return False
    return part == "**" or fnmatchcase(name, part)


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
