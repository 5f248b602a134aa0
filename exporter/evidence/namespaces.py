"""How much of this host a /proc shows."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Final

from exporter.evidence.lock_table import locks_are_shown
from exporter.evidence.models import Blindness
from exporter.evidence.process import PinnedProcess
from exporter.evidence.procfs import KTHREADD, read_stat

_INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
"""The kernel's fixed number of the namespace in which every process is visible."""


def pid_namespace(proc: str = "/proc") -> int | None:
    """Return the inode that names our PID namespace; None if it is not known."""
    try:
        return os.stat(f"{proc}/self/ns/pid").st_ino
    except OSError:
        return None


def our_processes(proc: str, started: Collection[int]) -> frozenset[int]:
    """Return the processes that this one started, by their PIDs in this /proc.

    In a container with the host's /proc they have other PIDs there. Not every child of ours is one
    of them: the first process of a container gets the processes whose parent has ended.
    """
    try:
        own = int(os.readlink(f"{proc}/self"))
        if own == os.getpid():
            return frozenset(pid for pid in started if _is_child_or_gone(proc, pid, own))
        with PinnedProcess(proc, own) as process:
            children = process.children() or []
        return frozenset(pid for pid in children if _namespace_pid(proc, pid) in started)
    except (OSError, ValueError):
        return frozenset()


def _is_child_or_gone(proc: str, pid: int, parent: int) -> bool:
    """True unless another process has got this PID: what this one started is its child."""
    stat = read_stat(proc, pid)
    return stat is None or parent in (pid, stat.parent)


def _namespace_pid(proc: str, pid: int) -> int | None:
    try:
        with PinnedProcess(proc, pid) as process:
            return process.user_and_namespace_pid()[1]
    except OSError:
        return None


def sees_whole_host(proc: str = "/proc") -> bool:
    """True if this /proc belongs to the initial PID namespace, which contains all others.

    If /proc is of our own namespace, the number of that namespace tells. A container may have the
    host's /proc mounted instead. Then /proc shows the kernel's own threads, and no nested namespace
    does.
    """
    if pid_namespace(proc) == _INITIAL_PID_NAMESPACE:
        return True
    try:
        threads = read_stat(proc, KTHREADD)
    except OSError:
        return False
    return threads is not None and threads.kernel_thread


def hides_processes(proc: str = "/proc") -> bool:
    """True if other users' processes are hidden. Then PID 1 is hidden too, and it always exists."""
    try:
        return read_stat(proc, 1) is None
    except OSError:
        return True


def blindness(proc: str = "/proc") -> list[Blindness]:
    """Return all reasons why we cannot see every process and every lock."""
    if not os.path.isdir(f"{proc}/self"):
        return [Blindness.NO_PROC]
    found = [] if locks_are_shown(proc) else [Blindness.NO_PROC]
    if hides_processes(proc):
        found.append(Blindness.HIDEPID)
    if not sees_whole_host(proc):
        found.append(Blindness.PID_NAMESPACE)
    return found
