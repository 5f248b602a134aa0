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
_AT_EMPTY_PATH: Final = 0x1000
"""Stat the open descriptor itself."""
_AT_SYMLINK_NOFOLLOW: Final = 0x100
_STATX_INO: Final = 0x100
"""Ask for the inode number."""
_STATX_ATTR_MOUNT_ROOT: Final = 0x2000
"""Set if the file is the root of a mount."""
_BUFFER_BYTES: Final = 256
_LAYOUT: Final = struct.Struct("8xQ16xQ96xII")
"""Of `struct statx`: attributes, inode, major and minor number of the device."""

_statx: Final = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def identity_of(path: str, directory: int) -> FileIdentity:
    """Return the identity of the file behind a link below an open directory; raise like stat."""
    return _call_statx(directory, os.fsencode(path), _AT_STATX_DONT_SYNC, _STATX_INO)[1]


def device_of(path: str, directory: int) -> int:
    """Return only the device; even a filesystem that is private to its user does not deny it."""
    return _call_statx(directory, os.fsencode(path), _AT_STATX_DONT_SYNC, 0)[1].device


def is_mount_root(descriptor: int, name: bytes = b"") -> bool:
    """True if this is a mount point, also of the same filesystem; False if that is not known.

    Give an open file, or an open folder and a name in it.
    """
    flags = _AT_SYMLINK_NOFOLLOW if name else _AT_SYMLINK_NOFOLLOW | _AT_EMPTY_PATH
    try:
        attributes, _ = _call_statx(descriptor, name, flags, 0)
    except OSError:
        return False
    return bool(attributes & _STATX_ATTR_MOUNT_ROOT)


def _call_statx(directory: int, path: bytes, flags: int, mask: int) -> tuple[int, FileIdentity]:
    """Return the attributes of a file, and its identity as far as the mask asks for it."""
    if _statx is None:  # the C library is older than statx
        found = os.stat(path, dir_fd=directory)
        return 0, FileIdentity(found.st_dev, found.st_ino)
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    if _statx(directory, path, flags, mask, buffer) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    attributes, inode, major, minor = _LAYOUT.unpack_from(buffer)
    return attributes, FileIdentity(os.makedev(major, minor), inode)
