"""The start of each child process: tied to the agent, with few rights and one channel.

Also the capabilities that the agent needs to start and end workers of other users.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import socket
import sys
from typing import Final

from exporter.scan.fork_pool import die_with_parent

LIBC: Final = ctypes.CDLL(None)
"""Loaded once, before any fork: each `CDLL` makes a class, which takes memory in every process."""
_malloc_trim: Final = getattr(LIBC, "malloc_trim", None)
_PR_SET_NO_NEW_PRIVS: Final = 38
MEMORY_BYTES_MAX: Final = 1 << 30
"""Memory limit of a child, without files that it maps to read. It is ten times what the largest
home needs. Only a home built to fill it reaches it, and loses its own metrics.
"""
_OOM_SCORE: Final = "500"
"""If memory runs short, the kernel should end a child, not the agent or Hermes."""
CHANNEL: Final = 0
"""The descriptor of the channel to the agent: standard input, the only one a child inherits."""


def start_child(parent: int) -> socket.socket:
    """Give up all ways to gain privileges, end with the agent, and return the channel to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent handles Ctrl-C of a terminal
    die_with_parent()
    _limit_memory()
    if sys.platform == "linux":
        LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:  # the agent ended before die_with_parent took effect
        raise SystemExit(0)
    gc.freeze()  # objects loaded so far stay: no collection visits them, no fork copies them
    return socket.socket(fileno=os.dup(CHANNEL))


def _limit_memory() -> None:
    """Limit the memory of this process: a hostile home must not use up the host's memory."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = MEMORY_BYTES_MAX if most == resource.RLIM_INFINITY else min(most, MEMORY_BYTES_MAX)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(_OOM_SCORE)
    except OSError:
        pass  # not Linux, or a sandbox without it


def release_memory() -> None:
    """Return unused memory to the system after rare, large work."""
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Return free memory to the system: glibc keeps what lies between pieces that are in use."""
    if _malloc_trim is not None:
        _malloc_trim(0)


_NEEDED: Final = {"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
"""Bits of `CapEff`: needed to become another user, and to end a worker that did."""


def missing_capabilities(status: str = "/proc/self/status") -> tuple[str, ...]:
    """Return the capabilities that this process lacks; none if the system does not say."""
    try:
        with open(status, encoding="ascii", errors="replace") as file:
            held = next((line.split()[1] for line in file if line.startswith("CapEff:")), "")
        bits = int(held, 16)
    except (OSError, ValueError, IndexError):
        return ()
    return tuple(name for name, bit in _NEEDED.items() if not bits >> bit & 1)
