"""How each process that the agent starts begins: bound to the agent, with one way to talk to it."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38
CHANNEL: Final = 0
"""The descriptor that leads to the agent: standard input, the only one a child inherits."""


def begin(parent: int) -> socket.socket:
    """Give up every way to gain privileges, die with the agent, and return the channel to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's ^C is for the agent to handle
    die_with_parent()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(0)
    return socket.socket(fileno=os.dup(CHANNEL))


def die_with_parent() -> None:
    """A child without its agent has no business here. A change of uid takes this back."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
