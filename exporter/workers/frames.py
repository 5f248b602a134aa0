"""How the agent and its children put messages on the wire, and what all children say alike.

Apart from the messages of workers, so that the scout need not load what those are made of.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

import msgspec
from msgspec import Struct

from exporter.discovery.inspection import Inspection

FRAME_BYTES_MAX: Final = 1024 * 1024
LENGTH: Final = struct.Struct(">I")
"""In front of each frame."""
_encoder: Final = msgspec.json.Encoder()


class Ready(Struct, frozen=True, tag="ready"):
    """A process has started; only from now on is it the home's doing if no answer comes."""


class InspectRequest(Struct, frozen=True, tag="inspect"):
    """For the scout: what is at this path?"""

    number: int
    """Comes back with the answer, which may be long in coming."""
    path: str
    as_uid: int | None = None
    """Look with this user's rights; None: with the scout's own."""


class InspectReply(Struct, frozen=True, tag="inspect"):
    number: int
    inspection: Inspection


def encode(message: Struct) -> bytes:
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:  # a name in it is not UTF-8, and JSON has no way to write that
        return _encoder.encode(_as_text(msgspec.to_builtins(message)))


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_as_text(each) for each in value]
    if isinstance(value, dict):
        return {_as_text(key): _as_text(each) for key, each in value.items()}
    return value


def send_frame(stream: socket.socket, body: bytes) -> None:
    stream.sendall(LENGTH.pack(len(body)) + body)


def receive_frame(stream: socket.socket) -> bytes | None:
    """The next frame, None when the other end is gone."""
    head = _receive_exactly(stream, LENGTH.size)
    if head is None:
        return None
    (length,) = LENGTH.unpack(head)
    return _receive_exactly(stream, length)


def _receive_exactly(stream: socket.socket, size: int) -> bytes | None:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = stream.recv(min(size - len(chunks), 65536))
        if not chunk:
            return None
        chunks += chunk
    return bytes(chunks)
