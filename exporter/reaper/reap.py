"""One reap of one home: heal, check the breaker, then end the sessions of the plan.

The breaker stops automatic reaping of a home until a person reaps by hand.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import structs

from exporter.hermes import database
from exporter.reaper.execute import execute
from exporter.reaper.plan import Blocked, ReapRequest
from exporter.reaper.reopen import HealedReaps, reopen_active
from exporter.runs.journal import journal_of, journal_was_lost, running_on
from exporter.runs.models import Outcome, RunKind, RunOutcome
from exporter.text import counted
from exporter.writing.session_end import count_ended
from exporter.writing.target import Target

_SLICE: Final = 500
"""Sessions that are read at once: their rows are long, and no read transaction may last."""


class PossiblyResumed(Protocol):
    """Knows from the last scan which reaped sessions may have been used since."""

    @property
    def suspects(self) -> frozenset[str] | None:
        """Reaped sessions that may have been used since; None: any of them."""

    def healed(self) -> None:
        """Called when sessions that were used after a reap have been corrected."""


def reap(order: ReapRequest, target: Target, seen: PossiblyResumed) -> Outcome:
    """Correct wrong reaps, then end dead sessions; raise HomeError, RunError, DatabaseError.

    The plan was made from the scan just before. Each session is compared again when it is ended.
    """
    healed = HealedReaps()
    if seen.suspects != frozenset():
        healed = reopen_active(
            target.unstoppable(),
            order.processes,
            seen.suspects,
            end_reason=order.end_reason,
            enforcing=order.enforcing,
        )
    if healed.complete:
        seen.healed()
    outcome = Outcome(None, RunOutcome.DONE)
    if not order.heal_only:
        blocked, why = _find_block(order, target)
        if blocked:
            outcome = Outcome(None, RunOutcome.DONE, blocked=blocked, why=why)
        else:
            # Mistakes that were found just now were not yet seen by a person.
            if order.by_hand and not healed.mistakes:
                close_breaker(target, order.end_reason)
            outcome = _end_dead(order, target)
    return structs.replace(outcome, reopened=healed.mistakes, resumed=healed.resumed)


def _end_dead(order: ReapRequest, target: Target) -> Outcome:
    outcome = execute(
        order.plan,
        target,
        end_reason=order.end_reason,
        run_id=order.run,
        by_hand=order.by_hand,
        undoable_seconds=order.undoable_seconds,
        processes=order.processes,
        silent=order.silent,
    )
    return structs.replace(outcome, deferred=order.plan.deferred)


def _find_block(order: ReapRequest, target: Target) -> tuple[str, str]:
    """Return why nothing may be ended, as a label value and in a sentence; empty if it may."""
    if not order.by_hand:
        # The breaker may have opened since the plan was made, also by the healing just now.
        with journal_of(target.home, target.owner) as runs:
            why = runs.tripped() if runs is not None else None
        if why:
            return Blocked.TRIPPED, why
    if order.plan.blocked:
        return order.plan.blocked, order.plan.why
    if not order.by_hand and order.plan.actions:
        why = stop_if_journal_lost(target, order.end_reason)
        if why:
            return Blocked.TRIPPED, why
    return "", ""


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
