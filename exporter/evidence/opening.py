"""The last look before a database is opened, by the worker that is about to open it.

The agent has found every holder in possession of its lock. Between that and the opening a holder
can lose it, so the worker, who is the owner of the home, asks each of them once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Final, Protocol

from exporter.evidence.lock_table import LockReader, locks_are_shown
from exporter.evidence.process import PinnedProcess
from exporter.evidence.procfs import is_gone

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


def lock_owners(inodes: Collection[int], proc: str = "/proc") -> LockReader | None:
    """The locks on these -shm files, to be read if need be; None where locks are not shown."""
    return LockReader(inodes, proc) if locks_are_shown(proc) else None


def may_open(
    holders: Sequence[KnownHolder],
    owners: LockReader | None,
    *,
    proc: str = "/proc",
    pause: Callable[[], None] = lambda: time.sleep(_PAUSE_SECONDS),
) -> OpenAnswer:
    """Whether every known holder still has its lock, or has closed -shm or ended."""
    if owners is None:
        return OpenAnswer.BLIND
    for holder in holders:
        if _lost(holder, proc, pause) and not _is_listed(holder, owners):
            return OpenAnswer.LOCK_LOST
    return OpenAnswer.YES


def _lost(holder: KnownHolder, proc: str, pause: Callable[[], None]) -> bool:
    """By its own account, at every one of some checks a moment apart."""
    for check in range(_CHECKS):
        if check:
            pause()
        try:
            with PinnedProcess(proc, holder.pid) as process:
                if process.has_shm_lock(holder.shm_inode) is not False:
                    return False
        except OSError as error:
            return not is_gone(error)  # if it is there, its account is closed to us
    return True


def _is_listed(holder: KnownHolder, owners: LockReader) -> bool:
    return holder.pid in owners.table.shm_owners(holder.shm_inode)
