"""What the scanner has found, pinned up where the HTTP side reads it."""

from __future__ import annotations

from msgspec import Struct

from exporter.collectors.exposition import Rendered
from exporter.web.response import Packed


class HomeRow(Struct, frozen=True):
    """One home on the landing page."""

    home: str
    up: bool
    sessions_open: int | None
    """None where the database was never read."""
    sessions_ended: int | None
    disk_bytes: int
    trouble: str = ""
    """Why it is down."""
    blind: tuple[str, ...] = ()
    """What the agent cannot see of it."""
    verdicts: tuple[tuple[str, int], ...] = ()
    """On its open sessions; none where they could not be read."""
    scanned_at: float | None = None
    """When it was last read to the end."""


class Content(Struct, frozen=True):
    """All that HTTP shows, of one moment."""

    metrics: Rendered | None = None
    status: bytes | None = None
    """JSON of /api/v1/status."""
    sessions: Packed | None = None
    """JSON of /api/v1/sessions: tens of thousands of sessions, so it is kept compressed."""
    homes: tuple[HomeRow, ...] = ()
    ready: bool = False
    refused: int = 0
    """Directories that look like homes and are not watched."""


class Published:
    """One thread publishes, any may read; replacing a reference is atomic and needs no lock."""

    def __init__(self) -> None:
        self._content = Content()

    @property
    def content(self) -> Content:
        """The newest content; what it holds never changes, so an answer is never half new."""
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
        self._content = Content(metrics, status, sessions, homes, ready, refused)
