"""The identity of an open file, without a word to its filesystem.

A plain stat of another process's file asks the filesystem it is on. Whoever has a FUSE mount, or an
NFS server that stopped, could so hang the agent for every home. statx can be told to answer from
what the kernel knows already.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

from exporter.snapshot import FileIdentity

_AT_STATX_DONT_SYNC: Final = 0x4000
"""AT_STATX_DONT_SYNC"""
_STATX_INO: Final = 0x100
"""STATX_INO"""
_BUFFER_BYTES: Final = 256
_INODE_OFFSET: Final = 32
_DEVICE_OFFSET: Final = 136
_AT_EMPTY_PATH: Final = 0x1000
"""AT_EMPTY_PATH"""
_AT_SYMLINK_NOFOLLOW: Final = 0x100
"""AT_SYMLINK_NOFOLLOW"""
_STATX_ATTR_MOUNT_ROOT: Final = 0x2000
"""STATX_ATTR_MOUNT_ROOT"""
_ATTRIBUTES_OFFSET: Final = 8

_statx: Final = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def identity_of(path: str, directory: int) -> FileIdentity:
    """The file that a link below an open directory leads to; raise OSError as stat does."""
    return _ask(path, directory, _STATX_INO)


def device_of(path: str, directory: int) -> int:
    """The device alone, which even a filesystem that is private to its user does not withhold."""
    return _ask(path, directory, 0).device


def _ask(path: str, directory: int, mask: int) -> FileIdentity:
    if _statx is None:  # a C library older than the call
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
    """Whether something is mounted here, even if from the same filesystem; False if nothing tells.

    Either at an open file or at a name below an open folder.
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
