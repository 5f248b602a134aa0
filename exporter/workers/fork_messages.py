"""What the agent and the fork server say to each other, and where there is a fork server."""

from __future__ import annotations

import os
import struct
import sys
from typing import Final, Literal

from msgspec import Struct

FORK: Final = "fork"
CLONE_NUMBERS: Final = {"x86_64": 56, "aarch64": 220}
"""The system call `clone` by machine. On others each process is started as a program."""

Program = Literal["worker", "path_probe"]


class ForkRequest(Struct, frozen=True):
    """The program to run; the descriptor of its channel comes with the request."""

    program: Program
    uid: int | None = None
    """The user that it becomes; None: it stays what the agent is."""
    gid: int | None = None


class ForkReply(Struct, frozen=True):
    pid: int
    errno: int = 0
    """Why there is no process."""


def can_fork() -> bool:
    """True if this machine can fork a child for the parent of the calling process."""
    return (
        sys.platform == "linux"
        and struct.calcsize("P") == 8
        and os.uname().machine in CLONE_NUMBERS
    )
