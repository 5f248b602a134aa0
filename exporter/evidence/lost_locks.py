"""Find holders that have lost their locks, as opposed to holders that need none.

A process that opens and closes a database's file itself loses all POSIX locks that it had on the
file, and SQLite in that process does not notice. The next process that opens the database in the
usual way destroys the holder's work. So a missing lock must be found. But two kinds of processes
must not be reported: those that are just opening or closing their connection, and those that only
inherited the descriptors.
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
    """Return the locks that a holder should have and lacks; a DELETE journal needs none."""
    if home.wal_mode is False or has.stranger:
        return NO_LOCKS
    needed = Locks(database=has.database is not None and has.in_wal_mode, shm=has.shm is not None)
    return needed.without(held)


def is_forked_copy(suspect: ProcessStat, owners: Collection[int], proc: str) -> bool:
    """True if a living owner of the lock forked this process, without an exec since.

    An exec closes SQLite's descriptors. A child that opened the database itself is not a copy, even
    if its parent has the locks. Only fork copies the program image, so the image must be the same.
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
    """Return the locks that are missing at every one of several checks, a moment apart.

    A connection has its descriptors for some microseconds before and after it has its locks.
    """
    missing = Locks(database=True, shm=True)
    for check in range(checks):
        if check:
            pause()
        missing &= _missing_now(home, seen_process, proc)
        if missing == NO_LOCKS:
            break
    return missing


def _missing_now(home: HomeFiles, seen_process: SeenProcess, proc: str) -> Locks:
    try:
        with PinnedProcess(proc, seen_process.pid) as process:
            stat = process.stat()
            if stat.dead or stat.start_ticks != seen_process.stat.start_ticks:
                return NO_LOCKS
            uid, _ = process.user_and_namespace_pid()
            has = open_files(home, process.descriptors({home.name}), uid)
            missing = missing_locks(home, has, own_locks(has))
            # A backup may have -shm open read-only and needs no lock. Only SQLite maps the file.
            if has.shm is not None and has.shm.read_only and missing.shm:
                missing = Locks(missing.database, process.maps(has.shm.identity.inode))
            return missing
    except OSError as error:
        if is_gone(error):
            return NO_LOCKS
        return Locks(database=True, shm=True)  # it lacked them once and cannot be read again


def own_locks(has: OpenFiles) -> Locks:
    """Return the locks that a process has by its own fdinfo."""
    return Locks(
        database=has.database is not None and has.database.locked,
        shm=has.shm is not None and has.shm.locked,
    )
