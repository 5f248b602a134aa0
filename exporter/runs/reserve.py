"""A file that reserves a little space in a home that an agent enforces, for a full disk.

A run must be recorded before it frees space, and on a full disk even the record does not fit. So
the agent reserves some space early. A run truncates the file when it needs that space, and the next
run that ends with enough free space fills it again. An empty file says that this home has a
reserve. Homes that are only pruned by hand have none.
"""

from __future__ import annotations

import os
from typing import Final

from exporter.runs.folder import RunFolder

NAME: Final = "reserve"
SIZE_BYTES: Final = 4 * 1024 * 1024
"""Enough to note as much as `prune.caps.items` allows, and for the folders of the trash."""
_SCARCE: Final = 1
_PLENTY: Final = 8
"""Times the size: below the first it is released, above the second it is filled again."""


def has_reserve(folder: RunFolder) -> bool:
    """True if space is kept here, or was until a full disk needed it."""
    try:
        os.stat(NAME, dir_fd=folder.descriptor, follow_symlinks=False)
    except OSError:
        return False
    return True


def release_reserve(folder: RunFolder) -> None:
    """If the disk is full, release the space that was kept for that."""
    if _free_bytes(folder) >= _SCARCE * SIZE_BYTES:
        return
    try:
        descriptor = os.open(NAME, _FLAGS | os.O_TRUNC, dir_fd=folder.descriptor)
    except OSError:
        return  # there is none
    os.close(descriptor)


def make_reserve(folder: RunFolder) -> None:
    """Begin to keep some space; it is filled now if there is plenty, else after a later run."""
    try:
        os.close(os.open(NAME, _FLAGS | os.O_CREAT, 0o600, dir_fd=folder.descriptor))
    except OSError:
        return  # no inode is free, or the folder is read-only
    refill_reserve(folder)


def refill_reserve(folder: RunFolder) -> None:
    """Take the space of a reserve, if there is one, it is empty and the disk has plenty."""
    if not hasattr(os, "posix_fallocate") or _free_bytes(folder) < _PLENTY * SIZE_BYTES:
        return
    try:
        descriptor = os.open(NAME, _FLAGS, dir_fd=folder.descriptor)
    except OSError:
        return  # there is none
    try:
        if os.fstat(descriptor).st_size < SIZE_BYTES:
            os.posix_fallocate(descriptor, 0, SIZE_BYTES)
    except OSError:
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


_FLAGS: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _free_bytes(folder: RunFolder) -> int:
    found = os.fstatvfs(folder.descriptor)
    return found.f_bavail * found.f_frsize
