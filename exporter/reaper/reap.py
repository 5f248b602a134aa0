"""One reap of one home: heal, look at the breaker, then end what the plan names."""

from __future__ import annotations

from typing import Protocol

from exporter.reaper import breaker
from exporter.reaper.execute import execute
from exporter.reaper.orders import Outcome, ReapOrder, Report
from exporter.reaper.plan import Blocked
from exporter.reaper.reopen import Healed, heal
from exporter.runs.journal import journal_of
from exporter.runs.models import RunOutcome
from exporter.writing.target import Site


class Suspicious(Protocol):
    """Knows from the last scan which reaped sessions may have gone on."""

    @property
    def suspects(self) -> frozenset[str] | None:
        """Reaped sessions that may have gone on; None: any of them."""

    def healed(self) -> None:
        """What was seen to have gone on after a reap has been put right."""


def reap(order: ReapOrder, site: Site, seen: Suspicious) -> Report:
    """Take back what was wrong, then end what is dead; raise HomeError, RunError, DatabaseError.

    The plan was made from the scan just before; each session is compared again when it is ended.
    """
    suspects = seen.suspects
    healed = Healed() if suspects == frozenset() else heal(site, order.processes, suspects)
    if healed.complete:
        seen.healed()
    reopened, resumed = healed.mistakes, healed.resumed
    if order.heal_only:
        return Report(Outcome(None, RunOutcome.DONE), Blocked.NO, 0, reopened, resumed)
    tripped = _tripped(site)
    if tripped and not order.by_hand:
        outcome = Outcome(None, RunOutcome.DONE, why=tripped)
        return Report(outcome, Blocked.TRIPPED, 0, reopened, resumed)
    plan = order.plan
    if plan.blocked in (Blocked.COUNT, Blocked.RATIO):
        breaker.trip(site, plan.why)
    if plan.blocked is not Blocked.NO:
        outcome = Outcome(None, RunOutcome.DONE, why=plan.why)
        return Report(outcome, plan.blocked, 0, reopened, resumed)
    if not order.by_hand and plan.actions:
        why = breaker.trip_if_forgotten(site, order.end_reason)
        if why:
            return Report(Outcome(None, RunOutcome.DONE, why=why), Blocked.TRIPPED)
    if order.by_hand and not reopened:  # what came to light just now no person has looked at
        breaker.close(site, order.end_reason)
    outcome = execute(
        plan,
        site,
        end_reason=order.end_reason,
        run_id=order.run,
        plan_hash=order.plan_hash,
        by_hand=order.by_hand,
        undoable_seconds=order.undoable_seconds,
        processes=order.processes,
        silent=order.silent,
    )
    return Report(outcome, Blocked.NO, plan.deferred, reopened, resumed)


def _tripped(site: Site) -> str:
    """Why automatic reaping has stopped, by this very healing or before."""
    with journal_of(site.home, site.owner) as runs:
        found = runs.tripped() if runs is not None else None
    return found.why if found is not None else ""
