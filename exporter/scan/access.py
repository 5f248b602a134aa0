"""Parts of a home that its owner may not read: they cause many other problems; chmod mends them."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import Meta, Struct

_PARTS: Final = (
    "state.db",
    "state.db-wal",
    "state.db-shm",
    "sessions",
    "sessions/sessions.json",
    "checkpoints",
    "runtime",
    "runtime/active_sessions.json",
    ".hermes-exporter",
    ".hermes-exporter/journal.db",
    ".hermes-exporter/run.lock",
)
"""Parts that verdicts and runs rely on, a folder before what is in it."""


class DeniedPart(Struct, frozen=True):
    """A part that its owner may not read, or a folder on the way that the owner may not enter."""

    name: Annotated[str, Meta(max_length=64)] = ""
    """Below the home; empty for the home itself."""
    levels_up: Annotated[int, Meta(ge=0, le=4096)] = 0
    """If it is a folder above the home: how far above."""
    is_folder: bool = True
    mode: Annotated[int, Meta(ge=0, le=0o7777)] = 0
    is_own: bool = True
    """False if it belongs to another user than the home."""

    def path(self, home: str) -> str:
        found = os.path.join(home, self.name) if self.name else home
        for _ in range(self.levels_up):
            found = os.path.dirname(found)
        return found


def denied_parts(home: str) -> list[DeniedPart]:
    """Return what this process may not read, in a process of the home's owner.

    Without the outer ones: what is in a folder that cannot be entered is not known.
    """
    above = _closed_folder_above(home)
    if above is not None:
        return [above]
    found = _denied(home, "")
    return [found] if found is not None else list(_denied_below(home))


def _closed_folder_above(home: str) -> DeniedPart | None:
    levels, closed = 0, None
    folder = home
    while folder != os.path.dirname(folder):
        folder, levels = os.path.dirname(folder), levels + 1
        if not os.access(folder, os.X_OK):
            # The outermost is the one to open first.
            closed = DeniedPart(levels_up=levels, is_own=_is_own(folder))
    return closed


def _is_own(folder: str) -> bool:
    try:
        return os.lstat(folder).st_uid == os.geteuid()
    except OSError:
        return False  # below a folder that is closed too


def _denied_below(home: str) -> Iterator[DeniedPart]:
    closed: list[str] = []
    for name in _PARTS:
        if any(name.startswith(f"{folder}/") for folder in closed):
            continue
        found = _denied(home, name)
        if found is not None:
            closed.append(name)
            yield found


def _denied(home: str, name: str) -> DeniedPart | None:
    path = os.path.join(home, name) if name else home
    try:
        found = os.lstat(path)
    except OSError as error:
        return DeniedPart(name) if error.errno == errno.EACCES else None
    is_folder = stat.S_ISDIR(found.st_mode)
    if stat.S_ISLNK(found.st_mode) or os.access(path, os.R_OK | (os.X_OK if is_folder else 0)):
        return None
    return DeniedPart(name, is_folder=is_folder, mode=stat.S_IMODE(found.st_mode))
