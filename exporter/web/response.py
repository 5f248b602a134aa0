"""Responses, and how they are written to a connection."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from email.utils import formatdate
from http import HTTPStatus

from msgspec import Struct

CHUNK_BYTES = 65536
"""A body up to this size is written at once, a larger one in pieces of this size."""

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

_GZIP_WINDOW = 31  # zlib's largest window, in a gzip wrapper
_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n" for s in HTTPStatus}
_NOTHING_BUT_TEXT = "default-src 'none'; frame-ancestors 'none'"
_ALWAYS = (
    "Server: hermes-exporter\r\n"
    "Cache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
)


def http_date(now: int) -> str:
    """Return a time as HTTP writes it, such as `Sun, 06 Nov 1994 08:49:37 GMT`."""
    return formatdate(now, usegmt=True)


class Packed(Struct, frozen=True):
    """A large text that is kept compressed, and unpacked in pieces for clients without gzip."""

    data: bytes
    """One gzip member."""
    unpacked_bytes: int

    def unpack(self) -> Iterator[bytes]:
        """Yield the text in pieces of at most CHUNK_BYTES."""
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        waiting = self.data
        while piece := unpacker.decompress(waiting, CHUNK_BYTES):
            yield piece
            waiting = unpacker.unconsumed_tail


def pack(parts: Iterable[bytes]) -> Packed:
    """Compress the parts as one text; only one part at a time is in memory."""
    packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP_WINDOW)
    packed: list[bytes] = []
    unpacked_bytes = 0
    for part in parts:
        unpacked_bytes += len(part)
        packed.append(packer.compress(part))
    packed.append(packer.flush())
    return Packed(b"".join(packed), unpacked_bytes)


class Response(Struct, frozen=True):
    """Status, body, and the headers that not every response has."""

    status: int
    body: bytes | Packed
    """A Packed body is sent unpacked; to send it compressed, give its `data` as the body."""
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()
    security_policy: str = _NOTHING_BUT_TEXT
    frame_options: str = "DENY"

    @property
    def length(self) -> int:
        """The size of the body as it is sent."""
        return len(self.body) if isinstance(self.body, bytes) else self.body.unpacked_bytes

    def head(self, date: str, connection: str) -> bytes:
        """Return status line and headers, with the empty line that ends them."""
        extra = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        return (
            f"{_STATUS_LINES[self.status]}Date: {date}\r\n{_ALWAYS}"
            f"X-Frame-Options: {self.frame_options}\r\n"
            f"Content-Security-Policy: {self.security_policy}\r\n"
            f"Content-Type: {self.content_type}\r\nContent-Length: {self.length}\r\n"
            f"{extra}Connection: {connection}\r\n\r\n"
        ).encode("latin-1")

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield the body in pieces of at most CHUNK_BYTES."""
        if isinstance(self.body, Packed):
            yield from self.body.unpack()
            return
        view = memoryview(self.body)
        for start in range(0, len(view), CHUNK_BYTES):
            yield view[start : start + CHUNK_BYTES]


def message(status: int, text: str, *headers: tuple[str, str]) -> Response:
    """Return a response with one line of text for a person."""
    return Response(status, f"{text}\n".encode(), headers=headers)
