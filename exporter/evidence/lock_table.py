"""File locks: their holders, and which of them are SQLite's.

In WAL mode every connection holds two shared POSIX locks as long as it is open: one on byte 128 of
-shm, and one on the 510 bytes at 0x40000002 of the database.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import cached_property
from typing import Final, NamedTuple

from exporter.evidence.models import HomeFiles
from exporter.hermes.sqlite_locks import SHARED_BYTES, SHARED_FIRST, SHM_BYTE

_SHARED_LAST: Final = SHARED_FIRST + SHARED_BYTES - 1
_WITHOUT_END: Final = 2**63 - 1


class LockEntry(NamedTuple):
    """One lock that is held.

    The PID is -1 for an open-file lock, 0 if we cannot see the process.
    """

    kind: str
    pid: int
    inode: int
    first: int
    last: int

    @property
    def of_shm(self) -> bool:
        return self.kind != "FLOCK" and self.first <= SHM_BYTE <= self.last

    @property
    def of_database(self) -> bool:
        return self.kind != "FLOCK" and self.first <= _SHARED_LAST and self.last >= SHARED_FIRST


class LockTable:
    """The locks on some files, by /proc/locks: read when it is first needed, and preferably never.

    The kernel waits for all running lock operations before it shows the table: about ten
    milliseconds. Reading fdinfo of a process's own descriptors takes microseconds.

    Files are identified by inode, not by device: on btrfs and overlayfs the device that the kernel
    prints here is not the st_dev of the file. Inode and PID together, or inode and SQLite's own
    byte ranges, make a mistake very unlikely.
    """

    def __init__(self, inodes: Collection[int], proc: str = "/proc") -> None:
        self._inodes, self._proc = inodes, proc
        self.failed = False
        """True if the table was needed and could not be read: then locks may be missing in it."""

    def owners(self, files: HomeFiles) -> tuple[frozenset[int], frozenset[int]]:
        """Return the processes with SQLite's lock on a database, and those with it on its -shm."""
        return (
            self.database_owners(files.database.inode) if files.database else frozenset(),
            self.shm_owners(files.shm.inode) if files.shm else frozenset(),
        )

    def database_owners(self, inode: int) -> frozenset[int]:
        return frozenset(lock.pid for lock in self._locks.get(inode, ()) if lock.of_database)

    def shm_owners(self, inode: int) -> frozenset[int]:
        return frozenset(lock.pid for lock in self._locks.get(inode, ()) if lock.of_shm)

    def flock_owners(self, inode: int) -> frozenset[int]:
        return frozenset(lock.pid for lock in self._locks.get(inode, ()) if lock.kind == "FLOCK")

    @cached_property
    def _locks(self) -> dict[int, list[LockEntry]]:
        found: dict[int, list[LockEntry]] = {}
        try:
            with open(f"{self._proc}/locks", "rb") as lines:
                for lock in map(parse_lock, lines):
                    if lock is not None and lock.inode in self._inodes:
                        found.setdefault(lock.inode, []).append(lock)
        except OSError:
            self.failed = True
        return found


def locks_are_shown(proc: str = "/proc") -> bool:
    """True if this system has such a table."""
    return os.path.exists(f"{proc}/locks")


def parse_lock(line: bytes) -> LockEntry | None:
    """Parse `1: POSIX  ADVISORY  READ 1234 fe:00:2377057 128 128`; None for any other line."""
    fields = line.split()
    if len(fields) != 8 or fields[1] not in {b"POSIX", b"OFDLCK", b"FLOCK"}:
        # also the line of a process that waits for a lock: it has an arrow in this field
        return None
    try:
        return LockEntry(
            kind=fields[1].decode(),
            pid=int(fields[4]),
            inode=int(fields[5].rpartition(b":")[2]),
            first=int(fields[6]),
            last=_WITHOUT_END if fields[7] == b"EOF" else int(fields[7]),
        )
    except ValueError:
        return None
