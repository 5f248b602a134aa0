"""Find holders that have lost their locks, as opposed to holders that need none.

A process that opens and closes a database's file without SQLite loses all POSIX locks that it had
on the file, and SQLite in that process does not notice. The next process that opens the database in
the usual way destroys the holder's work. So a missing lock must be found. But two kinds of
processes must not be reported: those that are just opening or closing their connection, and those
that only inherited the descriptors.

A missing lock is named by the suffix of its file: empty for the database, or "-shm".
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from exporter.evidence.descriptor_scan import OpenFiles, read_open_files
from exporter.evidence.models import HomeFiles
from exporter.evidence.process import PinnedProcess
from exporter.evidence.procfs import GONE, ProcessStat, ancestors

_CHECKS: Final = 4
_DELETED: Final = "deleted"
"""Stands among the missing locks for files that were deleted while the process has them open."""
_ALL: Final = frozenset({"", "-shm", _DELETED})


def missing_locks(home: HomeFiles, has: OpenFiles) -> frozenset[str]:
    """Return the locks that a holder's fdinfo does not show; without WAL mode it needs none."""
    if home.wal_mode is False or has.outsider:  # None is unknown, and may be WAL mode
        return frozenset()
    needed = (has.database if has.in_wal_mode else None, has.shm)
    return frozenset(file.suffix for file in needed if file is not None and not file.locked)


def is_forked_copy(suspect: ProcessStat, owners: Collection[int], proc: str) -> bool:
    """True if a living owner of the lock forked this process, without an exec since.

    An exec closes SQLite's descriptors. A child that opened the database itself is not a copy, even
    if its parent has the locks. Only fork copies the program image, so the image must be the same.
    """
    for pid, ancestor in ancestors(proc, suspect):
        # `start_stack` is 0 for a process that we may not inspect: then equal values mean nothing.
        if not suspect.start_stack or ancestor.start_stack != suspect.start_stack:
            return False
        if pid in owners:
            return True
    return False


def lost_now(
    home: HomeFiles, pid: int, proc: str, start_ticks: int | None = None
) -> frozenset[str]:
    """Return the locks that a process lacks now, and `_DELETED` if it uses deleted files.

    Empty if another process has got its PID since. Raise OSError if it is gone or unreadable.
    """
    with PinnedProcess(proc, pid) as process:
        if start_ticks not in (None, process.stat().start_ticks):
            return frozenset()
        has = read_open_files(process, home)
        missing = missing_locks(home, has)
        # A backup may have -shm open read-only and needs no lock. Only SQLite maps the file.
        shm = has.shm if "-shm" in missing else None
        if shm is not None and shm.read_only and not process.maps(shm.identity.inode):
            missing -= {"-shm"}
        return missing | {_DELETED} if has.deleted else missing


def lost_at_every_check(
    look: Callable[[], frozenset[str]], pause: Callable[[], None]
) -> frozenset[str]:
    """Return what is lost at every one of several checks, a moment apart.

    A connection has its descriptors for some microseconds before and after it has its locks.
    """
    try:
        lost = look()
        for _ in range(_CHECKS - 1):
            if not lost:
                break
            pause()
            lost &= look()
    except GONE:
        return frozenset()
    except OSError:
        return _ALL  # it exists, and cannot be read now: what the caller saw missing stays so
    return lost
