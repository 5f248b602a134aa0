"""One reap of one home: heal, check the breaker, then end the sessions of the plan."""

from __future__ import annotations

from typing import Protocol

from msgspec import structs

from exporter.reaper import breaker
from exporter.reaper.execute import execute
from exporter.reaper.plan import Blocked
from exporter.reaper.reopen import HealedReaps, reopen_active
from exporter.reaper.requests import ReapRequest
from exporter.runs.journal import journal_of
from exporter.runs.models import Outcome, RunOutcome
from exporter.writing.target import Target


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
    suspects = seen.suspects
    healed = (
        HealedReaps()
        if suspects == frozenset()
        else reopen_active(
            target.unstoppable(),
            order.processes,
            suspects,
            end_reason=order.end_reason,
            enforcing=order.enforcing,
        )
    )
    if healed.complete:
        seen.healed()
    reopened, resumed = healed.mistakes, healed.resumed

    def nothing(blocked: str = "", why: str = "") -> Outcome:
        return Outcome(
            None,
            RunOutcome.DONE,
            why=why,
            blocked=blocked,
            reopened=reopened,
            resumed=resumed,
        )

    if order.heal_only:
        return nothing()
    tripped = _tripped(target)
    if tripped and not order.by_hand:
        return nothing(Blocked.TRIPPED, tripped)
    plan = order.plan
    if plan.blocked:
        return nothing(plan.blocked, plan.why)
    if not order.by_hand and plan.actions:
        why = breaker.stop_if_journal_lost(target, order.end_reason)
        if why:
            return nothing(Blocked.TRIPPED, why)
    if order.by_hand and not reopened:  # mistakes found just now were not yet seen by a person
        breaker.close(target, order.end_reason)
    outcome = execute(
        plan,
        target,
        end_reason=order.end_reason,
        run_id=order.run,
        by_hand=order.by_hand,
        undoable_seconds=order.undoable_seconds,
        processes=order.processes,
        silent=order.silent,
    )
    return structs.replace(
        outcome,
        deferred=plan.deferred,
        reopened=reopened,
        resumed=resumed,
    )


def _tripped(target: Target) -> str:
    """Return why automatic reaping has stopped, by this healing or before; empty if it has not."""
    with journal_of(target.home, target.owner) as runs:
        return (runs.tripped() if runs is not None else None) or ""
