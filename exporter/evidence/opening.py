"""The last look before a database is opened, by the worker that is about to open it.

The agent has found every holder in possession of its lock. Between that and the opening a holder
can lose it, so the worker asks once more, which takes a tenth of a millisecond.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Final, Protocol

from exporter.evidence.locks import read_lock_table
from exporter.evidence.pinned import PinnedProcess

_CHECKS: Final = 4
_PAUSE_SECONDS: Final = 0.003


class OpenAnswer(StrEnum):
    YES = "yes"
    LOCK_LOST = "lock_lost"
    """A process has -shm open without its lock: opening the database would kill it."""
    BLIND = "blind"
    """This platform does not show locks."""


class KnownHolder(Protocol):
    """A process that the agent saw with -shm open and its lock on it."""

    @property
    def pid(self) -> int: ...
    @property
    def shm_inode(self) -> int: ...


def lock_owners(inodes: Collection[int], proc: str = "/proc") -> dict[int, frozenset[int]] | None:
    """For each -shm inode the processes that hold SQLite's lock on it now; None if unseen."""
    table = read_lock_table(inodes, proc)
    return None if table is None else {inode: table.shm_owners(inode) for inode in inodes}


def may_open(
    holders: Sequence[KnownHolder],
    owners: dict[int, frozenset[int]] | None,
    *,
    proc: str = "/proc",
    pause: Callable[[], None] = lambda: time.sleep(_PAUSE_SECONDS),
) -> OpenAnswer:
    """Whether every known holder still has its lock, or has closed -shm or ended."""
    if owners is None:
        return OpenAnswer.BLIND
    for holder in holders:
        if holder.pid not in owners.get(holder.shm_inode, ()) and _lost(holder, proc, pause):
            return OpenAnswer.LOCK_LOST
    return OpenAnswer.YES


def _lost(holder: KnownHolder, proc: str, pause: Callable[[], None]) -> bool:
    for check in range(_CHECKS):
        if check:
            pause()
        if not _without_lock(holder, proc):
            return False
    return True


def _without_lock(holder: KnownHolder, proc: str) -> bool:
    try:
        with PinnedProcess(proc, holder.pid) as process:
            return process.has_shm_lock(holder.shm_inode) is False
    except PermissionError:
        return True  # not ours to see: as good as lost
    except OSError:
        return False
