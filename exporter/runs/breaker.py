"""The breaker of a home, which stops automatic reaping until a person reaps by hand.

The journal keeps it; a journal that was lost or replaced opens it.
"""

from __future__ import annotations

from typing import Final

from exporter.hermes import database
from exporter.runs.journal import journal_of, journal_was_lost, running_on
from exporter.runs.models import RunKind
from exporter.text import counted
from exporter.writing.session_end import count_ended
from exporter.writing.target import Target

_SLICE: Final = 500
"""Sessions that are read at once: their rows are long, and no read transaction may last."""


def close_breaker(target: Target, end_reason: str) -> None:
    """A hand-made reap closes the breaker, and accepts reaped rows that no journal lists."""
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is not None and (journal.tripped() or journal.has_forgotten_trip()):
            journal.close_breaker()
            journal.accept_unrecorded_reaps(end_reason)


def stop_if_journal_lost(target: Target, end_reason: str) -> str:
    """Open the breaker if the journal of earlier runs was lost; return why.

    Without the journal it is not known what an undo restored, nor that the breaker was open. The
    journal was lost if other traces of a run exist, or if sessions have our end reason and the
    journal has no reap. Another tool may have written those ends; so a person is asked, once.
    """
    is_older = False
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is not None:
            is_older = journal.has_forgotten_trip()
            knows_reaps = journal.has_runs(RunKind.REAP)
            if not is_older and (knows_reaps or journal.accepts_unrecorded_reaps(end_reason)):
                return ""
    ended = 0 if is_older else _count_ended(target, end_reason)
    if not (is_older or ended or journal_was_lost(target.home, target.owner)):
        return ""
    with running_on(target, "breaker") as runs:
        if ended:
            runs.trip(
                f"{counted(ended, 'session')} ended as {end_reason} by no run that is known: "
                "the run journal was lost, or another tool reaps here"
            )
        return runs.tripped() or ""


def _count_ended(target: Target, end_reason: str) -> int:
    if database.file_state(target.database) is None:
        return 0
    ended, after = 0, 0
    while True:
        with target.reading() as connection:
            found, last = count_ended(connection, end_reason, after, _SLICE)
        if last is None:
            return ended
        ended, after = ended + found, last
