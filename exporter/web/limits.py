"""The limits of the server."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Sizes and times that clients have to keep to."""

    request_line_bytes: int = 4096
    head_bytes: int = 16384
    headers: int = 64
    body_bytes: int = 4096
    """No path reads a body; it is dropped, so that the next request is found."""
    connections: int = 512
    silent_seconds: float = 0.1
    """When all connections are taken, one that sends no request for so long gives way."""
    stalled_seconds: float = 1.0
    """The same for one that does not take the next 64 KiB of its response for so long."""
    unused_seconds: float = 5.0
    """The same for one that was served before and sends no further request for so long."""
    request_seconds: float = 10.0
    """For a request to arrive: the first since the connection, others since their first byte."""
    idle_seconds: float = 150.0
    """Between requests; longer than usual scrape intervals, so that connections are reused."""
    response_seconds: float = 30.0
    """For the client to take each 64 KiB of a response."""
    linger_seconds: float = 2.0
    """For a refused client to stop sending, so that it can read why it was refused."""


DEFAULT_LIMITS = Limits()
