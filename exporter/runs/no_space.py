"""The advice for a disk so full that no run can be recorded: one line with a command to paste."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from exporter.runs.folder import RunFullError
from exporter.text import format_size
from exporter.writing.space import enough

_LOGS: Final = "logs"


@contextmanager
def telling_what_to_free(home: str, needed_bytes: int) -> Iterator[None]:
    """Replace a message that there is no space by one that says how much to make, and how."""
    try:
        yield
    except RunFullError as error:
        raise RunFullError(_what_to_free(home, needed_bytes)) from error


def _what_to_free(home: str, needed_bytes: int) -> str:
    said = f"the disk of {home} is full, and no space was kept to note a run; nothing was done. "
    size, path = max(_logs(home), default=(0, ""))
    if size < needed_bytes:
        look = f"du -xah {shlex.quote(_mount_point(home))} | sort -h | tail"
        return f"{said}Free {enough(needed_bytes)} there first; `{look}` shows what is large"
    command = f"truncate -s 0 {shlex.quote(path)}"
    return f"{said}First free a log of {format_size(size)}: `{command}`; then repeat the command"


def _mount_point(path: str) -> str:
    """Return the folder at which the filesystem of a path is mounted."""
    path = os.path.realpath(path)
    while not os.path.ismount(path) and path != "/":
        path = os.path.dirname(path)
    return path


def _logs(home: str) -> Iterator[tuple[int, str]]:
    """Yield logs with their allocated size: Hermes never reads one again."""
    folder = os.path.join(home, _LOGS)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if entry.is_file(follow_symlinks=False) and found.st_blocks:
                    yield found.st_blocks * 512, os.path.join(folder, entry.name)
    except OSError:
        return
