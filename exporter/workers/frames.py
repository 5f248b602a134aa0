"""How the agent and its child processes put messages on a socket.

A frame is a length, a name, a newline and a JSON body. The name says how to decode the body, before
it is decoded. All child processes use frames; the messages of workers are in `protocol`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from exporter.errors import WorkerError

FRAME_BYTES_MAX: Final = 1024 * 1024
READY: Final = "ready"
"""The process has started. Only from now on is a missing answer the fault of the home."""
_LENGTH: Final = struct.Struct(">I")
_NAME_BYTES_MAX: Final = 32
_encoder: Final = msgspec.json.Encoder()


class Frame(NamedTuple):
    name: str
    body: bytes


def pack(name: str, message: object) -> bytes:
    body = b"%b\n%b" % (name.encode(), encode(message))
    return _LENGTH.pack(len(body)) + body


def encode(message: object) -> bytes:
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError:  # a name in it is not UTF-8, which JSON cannot express
        return _encoder.encode(_as_text(msgspec.to_builtins(message)))


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_as_text(each) for each in value]
    if isinstance(value, dict):
        return {_as_text(key): _as_text(each) for key, each in value.items()}
    return value


def receive(stream: socket.socket) -> Frame | None:
    """Return the next frame from the agent, which is trusted; None if the agent is gone."""
    head = _receive_exactly(stream, _LENGTH.size)
    if head is None:
        return None
    body = _receive_exactly(stream, *_LENGTH.unpack(head))
    return None if body is None else _split(body)


def _split(content: bytes) -> Frame:
    name, _, body = content.partition(b"\n")
    return Frame(name[:_NAME_BYTES_MAX].decode("ascii", "replace"), body)


def _receive_exactly(stream: socket.socket, size: int) -> bytes | None:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = stream.recv(min(size - len(chunks), 65536))
        if not chunk:
            return None
        chunks += chunk
    return bytes(chunks)


class FrameReader:
    """Collects bytes from a child process and yields complete frames. It trusts no child."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes, bytes_max: int = FRAME_BYTES_MAX) -> Iterator[Frame]:
        """Yield the frames that are complete now; raise WorkerError if one is too long."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > bytes_max:
                raise WorkerError(f"a worker sent a frame of {length} bytes; it is ended")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            content = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield _split(content)
