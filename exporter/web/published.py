"""What the scanner has published for the HTTP server to read."""

from __future__ import annotations

from msgspec import Struct

from exporter.collectors.exposition import Rendered
from exporter.web.response import Packed


class HomeRow(Struct, frozen=True):
    """One home on the landing page."""

    home: str
    up: bool
    sessions_open: int | None
    """None if the database was never read."""
    sessions_ended: int | None
    disk_bytes: int
    trouble: str = ""
    """Why the home is down."""
    blind: tuple[str, ...] = ()
    """What the agent cannot see of the home."""
    verdicts: tuple[tuple[str, int], ...] = ()
    """Verdicts on its open sessions and their counts; empty if they could not be read."""
    scanned_at: float | None = None
    """When the last complete scan ended."""


class PublishedContent(Struct, frozen=True):
    """Everything that HTTP shows, as of one moment."""

    metrics: Rendered | None = None
    status: bytes | None = None
    """JSON of /api/v1/status."""
    sessions: Packed | None = None
    """JSON of /api/v1/sessions; compressed, because there may be tens of thousands."""
    homes: tuple[HomeRow, ...] = ()
    ready: bool = False
    refused: int = 0
    """Directories that look like homes and are not watched."""


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
        homes: tuple[HomeRow, ...] = (),
        ready: bool = True,
        refused: int = 0,
    ) -> None:
        """Replace everything at once."""
        self._content = PublishedContent(metrics, status, sessions, homes, ready, refused)
