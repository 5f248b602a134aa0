"""Rename without replacing an existing name, also on systems without a call for that."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from typing import Final

_NO_REPLACE: Final = {"linux": 1, "darwin": 4}
"""RENAME_NOREPLACE, RENAME_EXCL"""
_CALLS: Final = {"linux": "renameat2", "darwin": "renameatx_np"}
_UNSUPPORTED: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)

_rename: Final = getattr(
    ctypes.CDLL(None, use_errno=True), _CALLS.get(sys.platform, "renameat2"), None
)


def rename_no_replace(source_folder: int, source: bytes, folder: int, name: bytes) -> None:
    """Rename; raise FileExistsError if the new name exists, whatever it is."""
    if _rename is not None:
        if _rename(source_folder, source, folder, name, _NO_REPLACE.get(sys.platform, 1)) == 0:
            return
        code = ctypes.get_errno()
        if code not in _UNSUPPORTED:
            raise OSError(code, os.strerror(code))
    rename_step_by_step(source_folder, source, folder, name)


def put_back(source_folder: int, source: bytes, folder: int, name: bytes) -> None:
    """Do the same for a file that may have both names, after an interrupted step-by-step rename."""
    try:
        rename_no_replace(source_folder, source, folder, name)
    except FileExistsError:
        kept = os.stat(source, dir_fd=source_folder, follow_symlinks=False)
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if (kept.st_dev, kept.st_ino) != (there.st_dev, there.st_ino):
            raise
        os.unlink(source, dir_fd=source_folder)


def rename_step_by_step(source_folder: int, source: bytes, folder: int, name: bytes) -> None:
    """The same on filesystems that cannot do it at once.

    A file has two names for a moment. A folder is renamed after a look, but the kernel replaces
    nothing but an empty folder by it.
    """
    found = os.stat(source, dir_fd=source_folder, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        os.link(source, name, src_dir_fd=source_folder, dst_dir_fd=folder, follow_symlinks=False)
        os.unlink(source, dir_fd=source_folder)
        return
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(source, name, src_dir_fd=source_folder, dst_dir_fd=folder)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
