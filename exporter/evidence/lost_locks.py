"""Holders that have lost their locks, told apart from those that need none.

A process that opens and closes a database's file by hand loses all POSIX locks it had on it, and
SQLite in that process never learns of it. Whoever then opens the database the usual way destroys
what the holder does. So a missing lock must be found, and must not be cried over a process that is
just opening or closing its connection, or that only inherited the descriptors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from exporter.evidence.descriptor_scan import OpenFiles, SeenProcess, open_files
from exporter.evidence.models import HomeFiles
from exporter.evidence.process import PinnedProcess
from exporter.evidence.procfs import ProcessStat, ancestors, is_gone


class Locks(NamedTuple):
    """SQLite's two lasting locks: on the database, and on -shm."""

    database: bool
    shm: bool

    def __and__(self, other: Locks) -> Locks:
        return Locks(self.database and other.database, self.shm and other.shm)

    def without(self, other: Locks) -> Locks:
        return Locks(self.database and not other.database, self.shm and not other.shm)


NO_LOCKS: Final = Locks(database=False, shm=False)


def missing_locks(home: HomeFiles, has: OpenFiles, held: Locks) -> Locks:
    """What a holder should have and has not; a DELETE journal needs no lasting lock."""
    if home.wal_mode is False or has.stranger:
        return NO_LOCKS
    needed = Locks(database=has.database is not None and has.in_wal_mode, shm=has.shm is not None)
    return needed.without(held)


def is_forked_copy(suspect: ProcessStat, owners: Collection[int], proc: str) -> bool:
    """Whether a process was forked, without an exec since, by a living owner of the lock.

    An exec closes SQLite's descriptors. A child that opened the database itself is no heir, however
    many locks its parent has: only the same program image, which fork copies, makes it one.
    """
    for pid, ancestor in ancestors(proc, suspect):
        if not suspect.start_stack or ancestor.start_stack != suspect.start_stack:
            return False
        if pid in owners:
            return True
    return False


def confirm_missing(
    home: HomeFiles,
    seen_process: SeenProcess,
    *,
    proc: str,
    checks: int,
    pause: Callable[[], None],
) -> Locks:
    """What is missing at every one of some checks a moment apart.

    A connection has its descriptors for some microseconds before and after its locks.
    """
    missing = Locks(database=True, shm=True)
    for check in range(checks):
        if check:
            pause()
        missing &= _look_again(home, seen_process, proc)
        if missing == NO_LOCKS:
            break
    return missing


def _look_again(home: HomeFiles, seen_process: SeenProcess, proc: str) -> Locks:
    try:
        with PinnedProcess(proc, seen_process.pid) as process:
            stat = process.stat()
            if stat.dead or stat.start_ticks != seen_process.stat.start_ticks:
                return NO_LOCKS
            uid, _ = process.user_and_namespace_pid()
            has = open_files(home, process.descriptors({home.name}), uid)
            missing = missing_locks(home, has, own_locks(has))
            if has.shm is not None and has.shm.read_only and missing.shm:
                missing = Locks(missing.database, process.maps(has.shm.identity.inode))
            return missing
    except OSError as error:
        if is_gone(error):
            return NO_LOCKS
        return Locks(database=True, shm=True)  # seen without them once, and not to be seen again


def own_locks(has: OpenFiles) -> Locks:
    """The locks that a process has by its own account."""
    return Locks(
        database=has.database is not None and has.database.locked,
        shm=has.shm is not None and has.shm.locked,
    )
