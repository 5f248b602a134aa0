"""Ask the kernel whether anybody has a WAL database open, without opening it.

The answer covers every process on this kernel, in any container and of any user. Only for a process
without a connection of its own: closing the probe's descriptor drops all POSIX locks that the
caller has on the file, SQLite's included.
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
"""Of -shm: every open connection in WAL mode holds a shared lock on it."""
SHARED_FIRST: Final = 0x40000002
SHARED_BYTES: Final = 510
"""Of the database file: every open connection in WAL mode holds a shared lock on these bytes."""


class FlockLayout(NamedTuple):
    """How `struct flock` lies in memory; the order of its fields differs between systems."""

    layout: struct.Struct
    type_index: int
    pid_index: int
    query: bytes


def _layout(platform: str, pointer_bytes: int) -> FlockLayout | None:
    """None where the layout is not known for certain: a wrong one would answer nonsense."""
    if pointer_bytes != 8:
        return None
    if platform == "linux":
        layout = struct.Struct("hhqqi4x")
        query = layout.pack(fcntl.F_WRLCK, os.SEEK_SET, SHM_BYTE, 1, 0)
        return FlockLayout(layout, type_index=0, pid_index=4, query=query)
    if platform == "darwin":
        layout = struct.Struct("qqihh")
        query = layout.pack(SHM_BYTE, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
        return FlockLayout(layout, type_index=3, pid_index=2, query=query)
    return None


_NATIVE: Final = _layout(sys.platform, struct.calcsize("P"))


def probe_shm(path: str, *, directory: int | None = None) -> LockAnswer:
    """Who holds SQLite's lock on this -shm file; `path` is relative to `directory`, if given.

    A missing or strange file is BLIND: without a -shm nobody can be asked, and a database may be
    opened the next moment.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, dir_fd=directory)
    except OSError:
        return LockAnswer.BLIND
    try:
        return _ask(descriptor, _NATIVE)
    except OSError:
        return LockAnswer.BLIND
    finally:
        os.close(descriptor)


def _ask(descriptor: int, layout: FlockLayout | None) -> LockAnswer:
    if layout is None or not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return LockAnswer.BLIND
    answer = layout.layout.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, layout.query))
    if answer[layout.type_index] == fcntl.F_UNLCK:
        return LockAnswer.FREE
    return LockAnswer.HELD if answer[layout.pid_index] > 0 else LockAnswer.HELD_UNSEEN
