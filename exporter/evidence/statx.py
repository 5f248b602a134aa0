"""The identity of an open file, without asking its filesystem.

A plain stat of another process's file asks the filesystem of that file. A user with a FUSE mount,
or an NFS server that stopped, could then hang the agent for every home. statx can answer from data
that the kernel already has.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

from exporter.snapshot import FileIdentity

_AT_STATX_DONT_SYNC: Final = 0x4000
"""Use the kernel's cached data; do not ask the filesystem."""
_STATX_INO: Final = 0x100
"""Ask for the inode number."""
_BUFFER_BYTES: Final = 256
_INODE_OFFSET: Final = 32
_DEVICE_OFFSET: Final = 136
_AT_EMPTY_PATH: Final = 0x1000
"""Stat the open descriptor itself."""
_AT_SYMLINK_NOFOLLOW: Final = 0x100
"""Do not follow a symlink."""
_STATX_ATTR_MOUNT_ROOT: Final = 0x2000
"""Set if the file is the root of a mount."""
_ATTRIBUTES_OFFSET: Final = 8

_statx: Final = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def identity_of(path: str, directory: int) -> FileIdentity:
    """Return the identity of the file behind a link below an open directory; raise like stat."""
    return _call_statx(path, directory, _STATX_INO)


def device_of(path: str, directory: int) -> int:
    """Return only the device; even a filesystem that is private to its user does not deny it."""
    return _call_statx(path, directory, 0).device


def _call_statx(path: str, directory: int, mask: int) -> FileIdentity:
    if _statx is None:  # the C library is older than statx
        found = os.stat(path, dir_fd=directory)
        return FileIdentity(found.st_dev, found.st_ino)
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    if _statx(directory, os.fsencode(path), _AT_STATX_DONT_SYNC, mask, buffer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    (inode,) = struct.unpack_from("Q", buffer, _INODE_OFFSET)
    major, minor = struct.unpack_from("II", buffer, _DEVICE_OFFSET)
    return FileIdentity(os.makedev(major, minor), inode)


def is_mount_root(descriptor: int, name: bytes = b"") -> bool:
    """True if this is a mount point, also of the same filesystem; False if that is not known.

    Give an open file, or an open folder and a name in it.
    """
    if _statx is None:
        return False
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    if (
        _statx(descriptor, name, _AT_SYMLINK_NOFOLLOW | (0 if name else _AT_EMPTY_PATH), 0, buffer)
        != 0
    ):
        return False
    (attributes,) = struct.unpack_from("Q", buffer, _ATTRIBUTES_OFFSET)
    return bool(attributes & _STATX_ATTR_MOUNT_ROOT)
