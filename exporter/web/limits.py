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
    """When all are taken, the one that has been inactive longest gives way to a new one."""
    request_seconds: float = 10.0
    """For a request to arrive: the first since the connection, others since their first byte."""
    idle_seconds: float = 150.0
    """Between requests; longer than usual scrape intervals, so that connections are reused."""
    response_seconds: float = 30.0
    """For the client to take each 64 KiB of a response."""
    linger_seconds: float = 2.0
    """For a refused client to stop sending, so that it can read why it was refused."""


DEFAULT_LIMITS = Limits()
