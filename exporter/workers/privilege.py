"""How each child process begins: bound to the agent, with few rights and one channel.

Also which capabilities the agent itself needs to start and end workers of other users.
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

_PR_SET_NO_NEW_PRIVS: Final = 38
MEMORY_BYTES_MAX: Final = 1 << 30
"""What a child may take for itself; files that it maps to read them are not in it. Ten times what
the largest home needs: only one that was made for it fills it, and loses its own metrics by it."""
_OOM_SCORE_ADJ: Final = "500"
"""Where memory runs short all the same the kernel shall end a child, not the agent or a Hermes."""
CHANNEL: Final = 0
"""The descriptor that leads to the agent: standard input, the only one a child inherits."""


def start_child(parent: int) -> socket.socket:
    """Give up every way to gain privileges, die with the agent, and return the channel to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's ^C is for the agent to handle
    die_with_parent()
    _limit_memory()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(0)
    gc.freeze()  # what is loaded by now stays: no collection need look at it, no fork copy it
    return socket.socket(fileno=os.dup(CHANNEL))


def _limit_memory() -> None:
    """A home that makes its reader grow without end must not cost the host its memory."""
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = MEMORY_BYTES_MAX if most == resource.RLIM_INFINITY else min(most, MEMORY_BYTES_MAX)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(_OOM_SCORE_ADJ)
    except OSError:
        pass  # not Linux, or a sandbox without it


def release_memory() -> None:
    """Return to the system what a rare and large piece of work has left unused."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


_NEEDED: Final = {"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
"""Bits of `CapEff`: to end a worker that has become another user, and to become one."""


def missing_capabilities(status: str = "/proc/self/status") -> tuple[str, ...]:
    """Those that this process lacks; none where the system does not tell."""
    try:
        with open(status, encoding="ascii", errors="replace") as file:
            held = next((line.split()[1] for line in file if line.startswith("CapEff:")), "")
        bits = int(held, 16)
    except (OSError, ValueError, IndexError):
        return ()
    return tuple(name for name, bit in _NEEDED.items() if not bits >> bit & 1)
