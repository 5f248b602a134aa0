"""A file in the home that reserves some disk space, for runs on a full disk.

A run must be recorded before it frees space, and on a full disk even the record does not fit. So
the agent reserves space early:

- An agent in the mode `enforce` makes the file. Homes that are only pruned by hand have none.
- A run on a full disk truncates the file and uses that space.
- The next run that ends with enough free space fills the file again. Until then the empty file
  shows that this home has a reserve.
"""

from __future__ import annotations

import os
from typing import Final

from exporter.runs.folder import RunFolder

NAME: Final = "reserve"
SIZE_BYTES: Final = 4 * 1024 * 1024
"""Room for the records of as many items as `prune.caps.items` allows, and for folders of trash."""
_RELEASE_BELOW_BYTES: Final = SIZE_BYTES
_FILL_ABOVE_BYTES: Final = 8 * SIZE_BYTES
"""Free space of the disk. The two are far apart, so that the file is not filled and emptied by
turns.
"""


def has_reserve(folder: RunFolder) -> bool:
    """True if the file exists, filled or empty."""
    try:
        os.stat(NAME, dir_fd=folder.descriptor, follow_symlinks=False)
    except OSError:
        return False
    return True


def release_reserve(folder: RunFolder) -> None:
    """Release the reserved space if the disk is full."""
    if _free_bytes(folder) >= _RELEASE_BELOW_BYTES:
        return
    try:
        descriptor = os.open(NAME, _FLAGS | os.O_TRUNC, dir_fd=folder.descriptor)
    except OSError:
        return  # there is none
    os.close(descriptor)


def make_reserve(folder: RunFolder) -> None:
    """Make the file. It is filled now if the disk has enough space, else after a later run."""
    try:
        os.close(os.open(NAME, _FLAGS | os.O_CREAT, 0o600, dir_fd=folder.descriptor))
    except OSError:
        return  # no inode is free, or the folder is read-only
    refill_reserve(folder)


def refill_reserve(folder: RunFolder) -> None:
    """Fill the file, if there is one, it is empty and the disk has enough space."""
    if not hasattr(os, "posix_fallocate") or _free_bytes(folder) < _FILL_ABOVE_BYTES:
        return
    try:
        descriptor = os.open(NAME, _FLAGS, dir_fd=folder.descriptor)
    except OSError:
        return  # there is none
    try:
        if os.fstat(descriptor).st_size < SIZE_BYTES:
            os.posix_fallocate(descriptor, 0, SIZE_BYTES)
    except OSError:
        os.ftruncate(descriptor, 0)  # a part may be allocated already
    finally:
        os.close(descriptor)


_FLAGS: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A link or a named pipe in place of the file is not followed and does not block."""


def _free_bytes(folder: RunFolder) -> int:
    found = os.fstatvfs(folder.descriptor)
    return found.f_bavail * found.f_frsize
