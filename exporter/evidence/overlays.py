"""Folders that are the writable layer of an overlay mount.

A process that uses the merged view and an agent that uses the layer itself share neither inodes nor
locks. So the agent cannot see the processes that use such a home.
"""

from __future__ import annotations

import errno
import re
from typing import Final

from exporter.evidence.procfs import READ_MAX, read_file, read_stat

_OPTION: Final = b"upperdir="
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


def mount_table(proc: str, pid: int) -> bytes | None:
    """Return the mounts that a process sees; None if there are too many.

    Raise OSError if they cannot be read, ProcessLookupError if it is gone.
    """
    try:
        content = read_file(f"{proc}/{pid}/mountinfo", at_most=READ_MAX)
    except OSError as error:
        # A thread that ends gives up its mounts after its files. So one that was the last has no
        # file open any more, also before the kernel calls it a zombie.
        stat = read_stat(proc, pid) if error.errno == errno.EINVAL else None
        if error.errno == errno.EINVAL and (stat is None or stat.threads <= 1):
            raise ProcessLookupError(errno.ESRCH, "it is ending", str(pid)) from error
        raise
    return content if len(content) < READ_MAX else None


def upper_folders(mounts: bytes) -> set[str]:
    """Return the writable layers among these mounts, with their names at mount time."""
    if _OPTION not in mounts:
        return set()
    options = (
        option.removeprefix(_OPTION)
        for line in mounts.splitlines()
        for option in line.rpartition(b" ")[2].split(b",")
        if option.startswith(_OPTION)
    )
    return {
        _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), option).decode(
            errors="surrogateescape"
        )
        for option in options
    }


def is_below(folder: str, upper: str) -> bool:
    """True if a folder is such a layer, or is inside one."""
    if upper.startswith("/"):
        return f"{folder}/".startswith(f"{upper.rstrip('/')}/")
    # It was mounted by a relative name, and nothing tells relative to which folder.
    return f"/{upper.removeprefix('./').rstrip('/')}/" in f"{folder}/"
