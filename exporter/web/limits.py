"""The limits of the HTTP server."""

from __future__ import annotations

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Sizes and times that a client must not exceed."""

    request_line_bytes: int = 4096
    head_bytes: int = 16384
    headers: int = 64
    body_bytes: int = 4096
    """No path reads a body. A body is received and dropped, to find the next request after it."""
    connections: int = 512
    """When all are taken, a new one replaces the one that has been inactive longest."""
    request_seconds: float = 10.0
    """Time for a request to arrive: the first from the connection on, others from their first byte.
    """
    idle_seconds: float = 150.0
    """Time between requests; longer than usual scrape intervals, so that connections are reused."""
    response_seconds: float = 30.0
    """Time for the client to take each 64 KiB of a response."""
    linger_seconds: float = 2.0
    """Time for a refused client to stop sending; a reset would hide from it why it was refused."""


DEFAULT_LIMITS = Limits()
