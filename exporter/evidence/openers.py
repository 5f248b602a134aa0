"""The other processes that have a database open at the moment it is written.

The agent's survey saw every process that had it open, each with its locks. Since then one may have
lost its locks, and another may have opened the database. So the worker checks again, before it
opens the database and again under the write lock. Under the write lock no other process can change
a row: earlier changes are visible, later ones follow our commit.

That is true only of processes with the same WAL. SQLite finds the WAL by the name of the database.
So a process that opened it by another name (a hard link, or the file alone mounted into a
container) has a WAL and a -shm of its own, and our write lock is not on them. Two WALs of one
database destroy it. Such a process has its lock on the database, and none on the -shm beside our
name.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Final

from msgspec import Struct, structs

from exporter.evidence.descriptor_scan import read_open_files
from exporter.evidence.lock_table import LockTable, locks_are_shown
from exporter.evidence.lost_locks import lost_at_every_check, lost_now
from exporter.evidence.models import HIDES_LOCKS, Holder, HomeEvidence, HomeFiles
from exporter.evidence.process import PinnedProcess
from exporter.evidence.procfs import GONE, ancestors, own_pid, read_stat
from exporter.hermes.small_files import file_identity

_PAUSE_SECONDS: Final = 0.003


class KnownOpeners(Struct, frozen=True):
    """The processes that were known to have the database open when it was decided to write."""

    pids: tuple[int, ...] = ()
    """Those that must have locks of their own: no forked copies, no processes of other users."""
    lockless: bool = False
    """At that time one of them had lost a lock already, or wrote into deleted files."""
    started: dict[int, int] = {}
    """Their start ticks, by PID: a process that got the PID of an ended one is a new opener.

    PID and ticks name a process only within one boot. That is enough: a survey is used for the
    writes right after it, and no surveyed process outlives a boot.
    """

    locks_seen: bool = False
    """True if the kernel shows us every process that has a lock on it."""
    ours: dict[int, int] = {}
    """The start ticks of all workers of this agent, by PID: they may read it at any time."""

    @classmethod
    def of(cls, evidence: HomeEvidence) -> KnownOpeners:
        """Return the known openers by a survey of one database."""
        known = cls.of_holders(evidence.holders)
        locks_seen = HIDES_LOCKS.isdisjoint(evidence.blind)
        return structs.replace(known, locks_seen=locks_seen, ours=evidence.ours)

    def forgotten(self) -> KnownOpeners:
        """The same with no process known: each one that has the database open is a new opener."""
        return structs.replace(self, pids=(), started={})

    @classmethod
    def of_holders(cls, holders: Sequence[Holder]) -> KnownOpeners:
        owners = [each for each in holders if not each.forked_copy and not each.outsider]
        return cls(
            pids=tuple(holder.pid for holder in owners),
            lockless=any(
                holder.lockless_database or holder.lockless_shm or holder.deleted_wal
                for holder in holders
            ),
            started={holder.pid: holder.start_ticks for holder in owners},
        )


class OpenerCheck(Struct, frozen=True):
    """The processes that have the database open now, compared with the known ones."""

    lost: tuple[int, ...]
    """A known process that uses the database without its locks, or uses deleted files.

    At most one: checking each takes several pauses, and Hermes may be waiting for our lock.
    """
    new_openers: tuple[int, ...]
    """Processes with a lock on the database that were not known, and are not ours."""
    our_readers: tuple[int, ...] = ()
    """Workers of this agent that opened it since, and their children: no session runs in them."""
    other_wal: tuple[int, ...] = ()
    """A process that may write the database, and has another WAL than the one beside our name.

    At most one, and not looked for if one has lost its locks.
    """

    @property
    def opened_since(self) -> bool:
        """True if any process opened it since the survey."""
        return bool(self.new_openers or self.our_readers)


def compare_openers(
    known: KnownOpeners,
    files: HomeFiles,
    *,
    proc: str = "/proc",
    pause: Callable[[], None] = lambda: time.sleep(_PAUSE_SECONDS),
) -> OpenerCheck | None:
    """Compare the processes that have the database open now with the known ones.

    None if this system does not show locks. A process with another WAL is looked for only if
    `files` is known to be in WAL mode: with a rollback journal no process needs a lock on -shm.
    """
    table = LockTable(files.lock_inodes, proc)
    database, shm = table.owners(files)
    if table.failed:
        return None
    own = own_pid(proc)
    suspects = [pid for pid in known.pids if pid not in database & shm and pid != own]
    lost = _first(
        pid for pid in suspects if lost_at_every_check(partial(lost_now, files, pid, proc), pause)
    )
    # A lock on the database alone is no proof: a process that opens the database takes this lock
    # before the one on -shm, and one that closes it gives it back after that.
    alone = sorted(database - shm - {own}) if files.wal_mode and not lost else ()
    other_wal = _first(
        pid
        for pid in alone
        if lost_at_every_check(partial(_other_shm_now, files, pid, proc), pause)
    )
    opened = [
        pid
        for pid in sorted((database | shm) - {own})
        if pid not in known.pids or _is_pid_reused(pid, known.started, proc)
        if _uses(pid, files, proc)
    ]
    our_readers = tuple(pid for pid in opened if _is_ours(pid, known.ours, proc))
    return OpenerCheck(
        lost=lost,
        new_openers=tuple(pid for pid in opened if pid not in our_readers),
        our_readers=our_readers,
        other_wal=other_wal,
    )


def _first(pids: Iterable[int]) -> tuple[int, ...]:
    return tuple(islice(pids, 1))


def _other_shm_now(files: HomeFiles, pid: int, proc: str) -> frozenset[str]:
    """Return "-shm" if a process has its lock on the database now, and none on the -shm beside it.

    Its own open files cannot tell: in a container they have any path, also the same one. So only
    locks count. Nothing if it cannot write the database, as a reader of this agent without -shm.
    """
    # Looked up each time: a process that opens the database may have made -shm since the last look.
    shm = file_identity(os.path.join(files.directory, f"{files.name}-shm"))
    files = structs.replace(files, shm=shm)
    with suppress(OSError), PinnedProcess(proc, pid) as process:
        found = set(process.identities(files.lock_inodes).values())
        # The lock table names a file by inode alone; this one is on another filesystem.
        if found and not found & files.files:
            return frozenset()
        if files.database is not None and process.only_reads(files.database):
            return frozenset()
    table = LockTable(files.lock_inodes, proc)
    database_owners, shm_owners = table.owners(files)
    if table.failed:
        raise OSError(errno.EIO, "the locks cannot be read", proc)
    return frozenset({"-shm"} if pid in database_owners - shm_owners else ())


def still_locks(pid: int, files: HomeFiles, proc: str) -> bool:
    """True if a process has a lock on this database that no open file of another one explains.

    The lock table names a file by inode alone: a file of another filesystem may have the same one.
    Raise OSError if that is not known.
    """
    try:
        with PinnedProcess(proc, pid) as process:
            found = set(process.identities(files.lock_inodes).values())
    except GONE:
        found = set()  # the table shows if it is: an ended process has no lock
    if found and not found & files.files:
        return False
    table = LockTable(files.lock_inodes, proc)  # it may have closed the database since
    database, shm = table.owners(files)
    if table.failed:
        raise OSError(errno.EIO, "the locks cannot be read", proc)
    return pid in database | shm


def _uses(pid: int, files: HomeFiles, proc: str) -> bool:
    """True if it has this database open, or its lock and no open file that explains the lock."""
    try:
        with PinnedProcess(proc, pid) as process:
            if read_open_files(process, files).any:
                return True
        return still_locks(pid, files, proc)
    except GONE:
        return False
    except OSError:
        return True


def _is_pid_reused(pid: int, started: Mapping[int, int], proc: str) -> bool:
    """True if a known PID was used again, so that it names another process now."""
    try:
        stat = read_stat(proc, pid) if pid in started else None
    except OSError:
        return True
    return stat is not None and stat.start_ticks != started[pid]


def _is_ours(pid: int, ours: Mapping[int, int], proc: str) -> bool:
    """True for a worker of this agent, and for a process that it forked to plan."""
    try:
        stat = read_stat(proc, pid) if ours else None
    except OSError:
        return False
    if stat is None:
        return False
    line = ((pid, stat), *ancestors(proc, stat))
    return any(ours.get(each) == found.start_ticks for each, found in line)


class KnownHolder(Struct, frozen=True):
    """A process that the agent saw with -shm open and its lock on it.

    It must still hold that lock when we open the database.
    """

    pid: int
    shm_inode: int


def may_open(
    holders: Sequence[KnownHolder],
    *,
    proc: str = "/proc",
    pause: Callable[[], None] = lambda: time.sleep(_PAUSE_SECONDS),
) -> bool:
    """True if every known holder still has its lock, or has closed -shm or ended.

    Otherwise opening the database would kill a holder. Where locks are not shown it is True too.
    """
    if not locks_are_shown(proc):
        return True
    locks = LockTable({holder.shm_inode for holder in holders}, proc)
    return not any(
        lost_at_every_check(partial(_lost_shm, holder, proc), pause)
        and holder.pid not in locks.shm_owners(holder.shm_inode)
        for holder in holders
    )


def _lost_shm(holder: KnownHolder, proc: str) -> frozenset[str]:
    with PinnedProcess(proc, holder.pid) as process:
        return frozenset({"-shm"} if process.lacks_shm_lock(holder.shm_inode) else ())
