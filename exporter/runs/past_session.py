"""What became of a session that is not open any more: who ended or deleted it, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from exporter.runs.models import DELETE_SESSION, ENDS, Run
from exporter.snapshot import Timestamp, Word
from exporter.text import escape_control, format_time

if TYPE_CHECKING:  # the agent and its commands read no journal
    from exporter.runs.journal_reader import JournalReader


class PastSession(Struct, frozen=True):
    """A session that has ended, or that a run of ours deleted."""

    end_reason: Word | None
    """None if its row is gone."""
    run: Run | None = None
    """The run of ours that ended or deleted it; None if it was not one of those."""
    at: Timestamp | None = None
    """When that run did so."""

    def sentence(self, session_id: str, home: str) -> str:
        """Return what became of it, and how it comes back."""
        of = f"session {escape_control(session_id)} of {escape_control(home)}"
        if self.run is None:
            reason = escape_control(self.end_reason or "") or "no reason is noted"
            return f"{of} was ended by Hermes ({reason}); only open sessions have a verdict"
        when = format_time(self.at if self.at is not None else self.run.started_at)
        did = "pruned" if self.end_reason is None else "ended"
        said = f"{of} was {did} at {when} by {self.run.label} {self.run.id}"
        if self.run.undoable_until is None or self.run.is_undone:
            return f"{said}; its trash is gone" if did == "pruned" else said
        back = "gives back all that it took" if did == "pruned" else "opens all that it ended"
        return f"{said}; `hermes-exporter undo {self.run.id}` {back}"


def past_session(
    journal: JournalReader | None, session_id: str, end_reason: str | None
) -> PastSession | None:
    """Return what became of a session that is not open; None if nothing is known of it.

    `end_reason` is that of its row; None if there is no row, or only an emptied one.
    """
    wanted = (DELETE_SESSION,) if end_reason is None else ENDS
    done = journal.last_done(session_id, *wanted) if journal is not None else None
    if journal is None or done is None:
        return None if end_reason is None else PastSession(end_reason)
    return PastSession(end_reason, journal.find(done.run), done.settled_at)
