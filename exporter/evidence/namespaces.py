"""How much of this host a /proc shows: its PID namespaces, and the mounts of its processes.

A home may be in the writable layer of an overlay mount. A process that uses the merged view and an
agent that uses the layer itself share neither inodes nor locks. So the agent cannot see the
processes that use such a home.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from exporter.evidence.lock_table import locks_are_shown
from exporter.evidence.models import Blindness
from exporter.evidence.process import PinnedProcess
from exporter.evidence.procfs import KTHREADD, READ_MAX, read_file, read_stat

_OPTION: Final = b"upperdir="
_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")
_INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
"""The kernel's fixed number of the namespace in which every process is visible."""


def pid_namespace(proc: str = "/proc") -> int | None:
    """Return the inode that names our PID namespace; None if it is not known."""
    try:
        return os.stat(f"{proc}/self/ns/pid").st_ino
    except OSError:
        return None


def our_processes(proc: str, started: Collection[int]) -> dict[int, int | None]:
    """Return the processes that this one started, by their PIDs in this /proc.

    Each with its start ticks, None if it is gone. In a container with the host's /proc they have
    other PIDs there. Not every child of ours is one of them: the first process of a container gets
    the processes whose parent has ended.
    """
    try:
        own = int(os.readlink(f"{proc}/self"))
        pids = started if own == os.getpid() else _by_namespace_pid(proc, own, started)
        found = {pid: read_stat(proc, pid) for pid in pids}
    except (OSError, ValueError):
        return {}
    return {
        pid: None if stat is None else stat.start_ticks
        for pid, stat in found.items()
        # If another process has got this PID, it is not our child.
        if stat is None or own in (pid, stat.parent)
    }


def _by_namespace_pid(proc: str, parent: int, started: Collection[int]) -> list[int]:
    """Return the children that have these PIDs in their own namespace."""
    with PinnedProcess(proc, parent) as process:
        children = process.children() or []
    found = []
    for pid in children:
        with suppress(OSError), PinnedProcess(proc, pid) as child:
            if child.user_and_namespace_pid()[1] in started:
                found.append(pid)
    return found


def blindness(proc: str = "/proc") -> list[Blindness]:
    """Return all reasons why we cannot see every process and every lock."""
    if not os.path.isdir(f"{proc}/self"):
        return [Blindness.NO_PROC]
    found = [] if locks_are_shown(proc) else [Blindness.NO_PROC]
    if not _is_shown(proc, 1):
        found.append(Blindness.HIDEPID)  # PID 1 always exists
    # The initial PID namespace contains all others. If /proc is of our own namespace, the number of
    # that namespace tells. A container may have the host's /proc mounted instead: then /proc shows
    # the kernel's own threads, and no nested namespace does.
    if pid_namespace(proc) != _INITIAL_PID_NAMESPACE and not _is_shown(proc, KTHREADD, kernel=True):
        found.append(Blindness.PID_NAMESPACE)
    return found


def _is_shown(proc: str, pid: int, *, kernel: bool = False) -> bool:
    try:
        stat = read_stat(proc, pid)
    except OSError:
        return False
    return stat is not None and (stat.kernel_thread or not kernel)


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
