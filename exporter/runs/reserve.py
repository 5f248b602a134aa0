"""A little space in the home's folder, released when the disk is full.

What frees space must be noted first, and on a full disk not even that fits. So a run leaves some
space occupied for the next one, which lets go of it when there is no other.
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
"""Times the size: below the first it is released, above the second it is made again."""


def has_reserve(folder: RunFolder) -> bool:
    """True if an earlier run has ended here; False also if the reserve was released."""
    try:
        os.stat(NAME, dir_fd=folder.descriptor, follow_symlinks=False)
    except OSError:
        return False
    return True


def release_reserve(folder: RunFolder) -> None:
    """If the disk is full, release the space that was kept for that."""
    if _free_bytes(folder) < _SCARCE * SIZE_BYTES:
        try:
            os.unlink(NAME, dir_fd=folder.descriptor)
        except OSError:
            pass  # there is none


def make_reserve(folder: RunFolder) -> None:
    """Keep some space, unless that is done or there is little."""
    if not hasattr(os, "posix_fallocate") or _free_bytes(folder) < _PLENTY * SIZE_BYTES:
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(NAME, flags, 0o600, dir_fd=folder.descriptor)
    except OSError:
        return  # most often because it exists
    try:
        os.posix_fallocate(descriptor, 0, SIZE_BYTES)
    except OSError:
        os.unlink(NAME, dir_fd=folder.descriptor)
    finally:
        os.close(descriptor)


def _free_bytes(folder: RunFolder) -> int:
    found = os.fstatvfs(folder.descriptor)
    return found.f_bavail * found.f_frsize
