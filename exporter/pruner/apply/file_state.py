"""What something on disk must still be like when it is taken: noted by the plan, compared again.

The keys of `PruneAction.expected`, and so of `Intent.before`, for everything that is no session. No
content and no working directory is in them: they are kept in the journal.
"""

from __future__ import annotations

import os
from typing import Any, Final

from exporter.hermes.prunable_names import project_files
from exporter.pruner.apply.home_folder import SkipError

Marks = dict[str, str | int | float | None]
_FILE: Final = ("inode", "size", "mtime_ns")
_REPO: Final = ("inode", "mtime_ns")


def file_marks(found: os.stat_result) -> Marks:
    """Of a file."""
    return {"inode": found.st_ino, "size": found.st_size, "mtime_ns": found.st_mtime_ns}


def repo_marks(found: os.stat_result) -> Marks:
    """Of a shadow repository or an archive, by its folder: git replaces a file in it each time."""
    return {"inode": found.st_ino, "mtime_ns": found.st_mtime_ns}


def project_marks(store: str, name: str) -> Marks:
    """Of a project of the store: its files, of which Hermes writes one before each snapshot."""
    marks: Marks = {}
    for file in project_files(name):
        try:
            found = os.lstat(os.path.join(store, file))
        except OSError:
            found = None
        kind = file.partition("/")[0]
        marks[f"{kind}_inode"] = found.st_ino if found else None
        marks[f"{kind}_mtime_ns"] = found.st_mtime_ns if found else None
    return marks


def refuse_other_file(expected: dict[str, Any], found: os.stat_result) -> None:
    """Raise SkipError unless this file is as it was planned."""
    _compare(expected, file_marks(found), _FILE)


def refuse_other_repo(expected: dict[str, Any], found: os.stat_result) -> None:
    _compare(expected, repo_marks(found), _REPO)


def refuse_other_project(expected: dict[str, Any], found: Marks) -> None:
    _compare(expected, found, tuple(found))


def _compare(expected: dict[str, Any], found: Marks, needed: tuple[str, ...]) -> None:
    for key in needed:
        if key not in expected:
            raise SkipError(f"the plan does not say what its {key} was")
        if expected[key] != found[key]:
            raise SkipError("it has changed since it was planned")
