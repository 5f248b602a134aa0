"""What pages may ask the agent beyond what it has published."""

from __future__ import annotations

from typing import Any, Protocol


class QueryError(Exception):
    """The agent cannot answer now; the text says why and is safe to show."""


class HostQueries(Protocol):
    """Answers that take time, from a worker or from the state directory.

    Each raises QueryError if the answer does not come in time.
    """

    async def session(self, session_id: str) -> dict[str, Any] | None:
        """Return what `explain --json` prints of an open session; None if there is none."""

    async def run(self, run: str) -> list[dict[str, Any]] | None:
        """Return what `history RUN --json` prints; None if no home has this run."""

    async def trends(self) -> dict[str, Any]:
        """Return the figures of the last days; see `agent.trends`."""
