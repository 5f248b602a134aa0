"""What the server grants a client."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True):
    """What one client may ask of the server."""

    request_line_bytes: int = 4096
    head_bytes: int = 16384
    headers: int = 64
    body_bytes: int = 4096
    """A body is read only to be dropped, so that the next request is found."""
    connections: int = 512
    silent_seconds: float = 0.1
    """When all connections are taken, one that has sent no request for so long gives way."""
    stalled_seconds: float = 1.0
    """The same for one that has not taken the last 64 KiB of its answer."""
    unused_seconds: float = 5.0
    """The same for one that has been served before."""
    request_seconds: float = 10.0
    """From the first wait or byte to the last byte of a request."""
    idle_seconds: float = 150.0
    """Between requests; above the usual scrape intervals, so that connections are reused."""
    response_seconds: float = 30.0
    """For each 64 KiB of a response to be taken."""
    linger_seconds: float = 2.0
    """For a refused client to stop sending, so that it can read why."""


DEFAULT_LIMITS = Limits()
