"""What the scanner has published for the HTTP server to read."""

from __future__ import annotations

from msgspec import Struct

from exporter.collectors.exposition import Rendered
from exporter.web.response import Packed


class PublishedContent(Struct, frozen=True):
    """Everything that HTTP shows, as of one moment."""

    metrics: Rendered | None = None
    status: bytes | None = None
    """JSON of /api/v1/status."""
    sessions: Packed | None = None
    """JSON of /api/v1/sessions; compressed, because there may be tens of thousands."""
    runs: bytes = b"[]"
    """JSON of /api/v1/runs."""
    ready: bool = False


class Published:
    """The newest content. One thread publishes, any thread may read.

    There is no lock: replacing a reference is atomic.
    """

    def __init__(self) -> None:
        self._content = PublishedContent()

    @property
    def content(self) -> PublishedContent:
        """The newest content. It never changes, so a response is never partly old, partly new."""
        return self._content

    def publish(
        self,
        *,
        metrics: Rendered,
        status: bytes,
        sessions: Packed,
        runs: bytes = b"[]",
        ready: bool = True,
    ) -> None:
        """Replace everything at once."""
        self._content = PublishedContent(metrics, status, sessions, runs, ready)
