"""Deleting a tree for good, by name and descriptor: never through a link, never beyond a mount.

The only place of the pruner that deletes more than one file.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from typing import Final

from exporter.evidence.statx import is_mount_root
from exporter.runs.folder import DIRECTORY

_MOST_LEVELS: Final = 200
"""Each level is a recursion and keeps a descriptor open; both are limited."""
_MOST_PROBLEMS: Final = 20


@dataclass(slots=True)
class Removed:
    """What a deletion came to."""

    freed_bytes: int = 0
    """Allocated bytes that came free. A file that has other hard links frees nothing."""
    files: int = 0
    problems: list[str] = field(default_factory=list)
    """What could not be deleted, and why; only the first `_MOST_PROBLEMS`."""

    def note(self, what: bytes, why: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(f"{ascii(os.fsdecode(what))[1:-1]}: {why}")


def remove_tree(folder: int, name: bytes) -> Removed:
    """Delete a file, or a folder with everything below it; do nothing if it does not exist.

    It can be repeated after an interruption.
    """
    removed = Removed()
    _remove(folder, name, os.fstat(folder).st_dev, removed, 0)
    return removed


def measure_tree(folder: int, name: bytes) -> int:
    """Allocated bytes that deleting it would free."""
    measured = Removed()
    _measure(folder, name, os.fstat(folder).st_dev, measured, 0)
    return measured.freed_bytes


def _remove(folder: int, name: bytes, device: int, removed: Removed, level: int) -> None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if found.st_dev != device or level > _MOST_LEVELS:
            removed.note(name, "it is mounted" if found.st_dev != device else "it is too deep")
            return
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=folder)
        else:
            _empty(folder, name, found, device, removed, level)
            os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except OSError as error:
        removed.note(name, error.strerror or "it cannot be deleted")
        return
    removed.files += not stat.S_ISDIR(found.st_mode)
    if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
        removed.freed_bytes += found.st_blocks * 512


def _empty(
    folder: int, name: bytes, found: os.stat_result, device: int, removed: Removed, level: int
) -> None:
    below = _open(folder, name)
    try:
        # A bind mount of the same filesystem has the same st_dev.
        if is_mount_root(below):
            raise OSError(errno.EBUSY, "it is mounted")
        # Without write permission not even the owner can remove a name from a folder.
        if found.st_mode & 0o700 != 0o700:
            os.fchmod(below, 0o700)
        for entry in os.listdir(below):
            _remove(below, os.fsencode(entry), device, removed, level + 1)
    finally:
        os.close(below)


def _open(folder: int, name: bytes) -> int:
    """Open a folder, even one that its own owner may not read."""
    try:
        return os.open(name, DIRECTORY, dir_fd=folder)
    except PermissionError:
        if not hasattr(os, "O_PATH"):  # only Linux has it
            raise
    # O_PATH needs no permission to read. fchmod refuses such a descriptor, but its path in /proc
    # names the same folder, whatever has its name by now.
    unread = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{unread}", 0o700)
    finally:
        os.close(unread)
    return os.open(name, DIRECTORY, dir_fd=folder)


def _measure(folder: int, name: bytes, device: int, measured: Removed, level: int) -> None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if found.st_dev != device or level > _MOST_LEVELS:
            return
        if stat.S_ISDIR(found.st_mode) or found.st_nlink == 1:
            measured.freed_bytes += found.st_blocks * 512
        if not stat.S_ISDIR(found.st_mode):
            return
        below = os.open(name, DIRECTORY, dir_fd=folder)
    except OSError:
        return
    try:
        for entry in os.listdir(below):
            _measure(below, os.fsencode(entry), device, measured, level + 1)
    except OSError:
        pass
    finally:
        os.close(below)
