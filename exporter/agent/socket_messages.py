"""What a command and an agent say to each other over the Unix socket.

One request and one reply for each connection; each is a length of 4 bytes and JSON. What is said in
between while the agent acts for a command is in `run_messages`.
"""

from __future__ import annotations

import socket
import struct
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

REQUEST_BYTES_MAX: Final = 64 * 1024
REPLY_BYTES_MAX: Final = 256 * 1024 * 1024
LENGTH: Final = struct.Struct("!I")
_CREDENTIALS: Final = struct.Struct("3i")


class Question(Struct, frozen=True):
    """What a command asks."""

    version: Annotated[str, Meta(max_length=64)]
    command: Annotated[str, Meta(max_length=32)]
    arguments: dict[str, Any] = {}
    homes: Annotated[list[Annotated[str, Meta(max_length=4096)]], Meta(max_length=256)] = []
    """Paths of the homes that the person named; empty: all that this user may see."""
    fresh: bool = False
    """Scan first."""


class Reply(Struct, frozen=True, tag="reply"):
    """What the agent answers: a result, or an error of this kind."""

    version: str
    kind: str = ""
    """Empty: `result` is the answer. `unwatched`, `unwritable`, `version`, `busy`: the command
    must do it by itself. `failed`, `usage`: the command fails with `error`."""
    error: str = ""
    exit_status: int = 1
    """Of the error."""
    result: Any = None
    seen_at: float = 0.0
    """When the agent finished the scan that this shows."""


class OpenSessions(Struct, frozen=True):
    """The open sessions of a host."""

    rows: list[dict[str, Any]]
    incomplete: list[str]
    """Homes with an incomplete list, with the reason."""
    notes: list[str]
    homes: int
    """How many homes were read."""


def frame(message: Struct) -> bytes:
    """Return a message as it is sent."""
    body = msgspec.json.encode(message)
    return LENGTH.pack(len(body)) + body


class Peer(NamedTuple):
    """The process at the other end of a connection."""

    pid: int
    """0 if it is in a PID namespace that this process cannot see."""
    uid: int


def peer_of(connection: socket.socket) -> Peer | None:
    """Return the process at the other end, as the kernel noted it; None if unknown."""
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except (OSError, AttributeError):  # only Linux has it
        return None
    pid, uid, _gid = _CREDENTIALS.unpack(found)
    return Peer(pid, uid)


def peer_uid(connection: socket.socket) -> int | None:
    """Return the uid of the process at the other end; None if unknown."""
    peer = peer_of(connection)
    return None if peer is None else peer.uid
