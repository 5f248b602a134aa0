"""What something on disk must still be like when it is taken; the plan notes it.

A plan carries these as `Action.expected` and the journal in its column `before`, by the same keys,
so fields keep their names. No content and no working directory is in them.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from exporter.hermes.prunable_names import project_files
from exporter.pruner.models import State


class ExpectedFile(Struct, frozen=True, omit_defaults=True, gc=False):
    """A file."""

    inode: int
    size: int
    mtime_ns: int
    session: str | None = None
    """The file is taken only after this session was deleted."""

    @classmethod
    def of(cls, found: os.stat_result) -> ExpectedFile:
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)


class ExpectedFolder(Struct, frozen=True, gc=False):
    """A shadow repository or archive, by its folder: git replaces a file in it each time."""

    inode: int
    mtime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> ExpectedFolder:
        return cls(found.st_ino, found.st_mtime_ns)


class ExpectedProject(Struct, frozen=True, gc=False):
    """The files of a store project. Hermes writes one of them before each snapshot."""

    projects_inode: int | None
    projects_mtime_ns: int | None
    indexes_inode: int | None
    indexes_mtime_ns: int | None
    ledgers_inode: int | None
    ledgers_mtime_ns: int | None

    @classmethod
    def of(cls, store: str, name: str) -> ExpectedProject:
        known: dict[str, int | None] = {}
        for file in project_files(name):
            kind = file.partition("/")[0]
            try:
                found = os.lstat(os.path.join(store, file))
            except OSError:
                found = None
            known[f"{kind}_inode"] = found.st_ino if found else None
            known[f"{kind}_mtime_ns"] = found.st_mtime_ns if found else None
        return cls(**known)


ExpectedSession = bytes
"""The state of a session by `hermes.session_state`, as JSON: there may be 100,000 of them."""
ExpectedOnDisk = ExpectedFile | ExpectedFolder | ExpectedProject


def as_keys(expected: ExpectedOnDisk) -> State:
    """Return it as plans and journals have it."""
    found: State = msgspec.to_builtins(expected)
    return found
