"""Ask the kernel if any process has a WAL database open, without opening the database.

The answer covers every process on this kernel, in any container and of any user. Use it only in a
process without a connection of its own: closing the probe's descriptor drops all POSIX locks that
the process has on the file, SQLite's locks included.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
from typing import Final, NamedTuple

from exporter.snapshot import LockAnswer

SHM_BYTE: Final = 128
"""A byte of -shm. Every open connection in WAL mode holds a shared lock on it."""
SHARED_FIRST: Final = 0x40000002
SHARED_BYTES: Final = 510
"""Bytes of the database file. Every open connection in WAL mode holds a shared lock on them."""


class FlockLayout(NamedTuple):
    """The memory layout of `struct flock`. The order of its fields differs between systems."""

    layout: struct.Struct
    type_index: int
    pid_index: int
    bytes_first: bool
    """True if start and length come before type and whence."""

    def query(self, first: int, count: int) -> bytes:
        """Return the question who holds a lock on these bytes."""
        if self.bytes_first:
            return self.layout.pack(first, count, 0, fcntl.F_WRLCK, os.SEEK_SET)
        return self.layout.pack(fcntl.F_WRLCK, os.SEEK_SET, first, count, 0)


def _layout(platform: str, pointer_bytes: int) -> FlockLayout | None:
    """Return the layout; None if it is not certain, because a wrong one gives wrong answers."""
    if pointer_bytes != 8:
        return None
    if platform == "linux":
        return FlockLayout(struct.Struct("hhqqi4x"), type_index=0, pid_index=4, bytes_first=False)
    if platform == "darwin":
        return FlockLayout(struct.Struct("qqihh"), type_index=3, pid_index=2, bytes_first=True)
    return None


_NATIVE: Final = _layout(sys.platform, struct.calcsize("P"))


def probe_shm(path: str, *, directory: int | None = None) -> LockAnswer:
    """Ask the kernel if a process holds SQLite's lock on this -shm file.

    `path` is relative to `directory`, if that is given.

    A missing file, or one that is not a regular file, is BLIND. Without a -shm the kernel cannot be
    asked, and another process may open the database at the next moment.
    """
    return _probe(path, SHM_BYTE, 1, directory)


def probe_database(path: str) -> LockAnswer:
    """Ask the same of a database in WAL mode, by the lock on the file itself.

    A process that came by another name of the file (a hard link, a file that is mounted) has a -shm
    of that name.
    """
    return _probe(path, SHARED_FIRST, SHARED_BYTES)


def _probe(path: str, first: int, count: int, directory: int | None = None) -> LockAnswer:
    # The home's owner may have put a FIFO or a symlink here: never block on it, never follow it.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, dir_fd=directory)
    except OSError:
        return LockAnswer.BLIND
    try:
        return _query_lock(descriptor, _NATIVE, first, count)
    except OSError:
        return LockAnswer.BLIND
    finally:
        os.close(descriptor)


def _query_lock(descriptor: int, layout: FlockLayout | None, first: int, count: int) -> LockAnswer:
    if layout is None or not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return LockAnswer.BLIND
    query = layout.query(first, count)
    answer = layout.layout.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, query))
    if answer[layout.type_index] == fcntl.F_UNLCK:
        return LockAnswer.FREE
    return LockAnswer.HELD if answer[layout.pid_index] > 0 else LockAnswer.HELD_UNSEEN
