"""A worker's part in a reap: to plan from what it has just read and judged, and to carry it out.

Nothing is planned from an older reading, and nothing is done that such a plan does not hold. So a
plan need not travel to the worker: the agent says which of its sessions it still wants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Protocol

from msgspec import structs

from exporter.reaper import breaker
from exporter.reaper.execute import execute
from exporter.reaper.orders import ReapOrder, Report
from exporter.reaper.plan import Blocked, HomePlan, JudgedHome, ReapAction, ReapLimits, plan_reap
from exporter.reaper.reopen import Healed, heal
from exporter.runs.journal import journal_of
from exporter.runs.models import END_SESSION, Outcome, RunOutcome
from exporter.writing.target import Target

_MINUTE = 60.0


class Judged(Protocol):
    """Who knows the verdicts of one home."""

    def judged_home(self, limits: ReapLimits, reaped_in_last_minute: int) -> JudgedHome: ...

    @property
    def suspects(self) -> frozenset[str] | None:
        """Reaped sessions that may have gone on; None: any of them."""

    def healed(self) -> None:
        """What was seen to have gone on after a reap has been put right."""


def plan(order: ReapOrder, judged: Judged, clock: Callable[[], float] = time.time) -> HomePlan:
    """What would be done; raise HomeError if the verdicts are not of the last reading."""
    now = clock()
    home = judged.judged_home(order.limits, _reaped_since(order, now - _MINUTE))
    made = plan_reap([home], now, sources=order.sources, by_hand=order.by_hand)
    return made.of(order.home)


def reap(order: ReapOrder, judged: Judged, clock: Callable[[], float] = time.time) -> Report:
    """Take back what was wrong, then end what is dead; raise HomeError, RunError, DatabaseError."""
    site = Target(
        order.home,
        order.owner,
        order.openers,
        lock_budget_seconds=order.lock_budget_seconds,
        clock=clock,
    )
    suspects = judged.suspects
    healed = Healed() if suspects == frozenset() else heal(site, order.processes, suspects)
    if healed.complete:
        judged.healed()
    reopened, resumed = healed.mistakes, healed.resumed
    if order.heal_only:
        return Report(Outcome(None, RunOutcome.DONE), Blocked.NO, 0, reopened, resumed)
    tripped = _tripped(order)
    if tripped and not order.by_hand:
        outcome = Outcome(None, RunOutcome.DONE, why=tripped)
        return Report(outcome, Blocked.TRIPPED, 0, reopened, resumed)
    made = plan(order, judged, clock)
    if made.blocked in (Blocked.COUNT, Blocked.RATIO):
        breaker.trip(site, made.why)
    if made.blocked is not Blocked.NO:
        outcome = Outcome(None, RunOutcome.DONE, why=made.why)
        return Report(outcome, made.blocked, 0, reopened, resumed)
    if not order.by_hand and made.actions:
        why = breaker.trip_if_forgotten(site, order.end_reason)
        if why:
            return Report(Outcome(None, RunOutcome.DONE, why=why), Blocked.TRIPPED)
    if order.by_hand and not reopened:  # what came to light just now nobody has looked at
        breaker.close(site, order.end_reason)
    chosen = structs.replace(made, actions=_chosen(made, order.only))
    outcome = execute(
        chosen,
        site,
        end_reason=order.end_reason,
        run_id=order.run,
        plan_hash=order.plan,
        by_hand=order.by_hand,
        undoable_seconds=order.undoable_seconds,
        processes=order.processes,
        silent=order.silent,
    )
    return Report(outcome, Blocked.NO, made.deferred, reopened, resumed)


def _tripped(order: ReapOrder) -> str:
    """Why automatic reaping has stopped, by this very healing or before."""
    with journal_of(order.home, order.owner) as runs:
        found = runs.tripped() if runs is not None else None
    return found.why if found is not None else ""


def _chosen(made: HomePlan, only: Collection[str] | None) -> tuple[ReapAction, ...]:
    if only is None:
        return made.actions
    wanted = set(only)
    return tuple(action for action in made.actions if action.target in wanted)


def _reaped_since(order: ReapOrder, moment: float) -> int:
    with journal_of(order.home, order.owner) as runs:
        return runs.done_since(END_SESSION, moment) if runs is not None else 0
