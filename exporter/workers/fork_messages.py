"""What the agent and the fork server say to each other."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

FORK: Final = "fork"

Program = Literal["worker", "path_probe"]


class ForkRequest(Struct, frozen=True):
    """The program to run; the descriptor of its channel comes with the request."""

    program: Program
    uid: int | None = None
    """The user that the program becomes; None: it keeps the user of the agent."""
    gid: int | None = None


class ForkReply(Struct, frozen=True):
    pid: int
    errno: int = 0
    """Why no process was forked; 0 if one was."""
