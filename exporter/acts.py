"""Asking a home's worker to act: plan, reap, undo, and the history of it.

Each function is one exchange. Raise RefusedError if nothing was done for a reason, WorkerError or
TimeoutError if what was done is not known: the home's journal knows, and the next run finds out.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec import structs

from exporter import wire
from exporter.config.settings import HomeSettings
from exporter.evidence.bystanders import Bystanders
from exporter.evidence.findings import HomeEvidence
from exporter.homes import Home
from exporter.pool import Worker
from exporter.reaper.orders import ReapOrder, Report, Skipped, Undone
from exporter.reaper.plan import HomePlan, ReapAction, ReapLimits
from exporter.runs import Run

_PLAN_SECONDS: Final = 60.0
_ACT_SECONDS: Final = 900.0
"""A run goes on in steps, between which Hermes gets its turn."""


def reap_order(
    home: Home,
    evidence: HomeEvidence,
    own: HomeSettings,
    *,
    sources: Collection[str] = (),
    by_hand: bool = False,
    only: Collection[str] | None = None,
    run: str = "",
    plan: str = "",
) -> ReapOrder:
    """An order to reap one home by its settings; the evidence is that of the verdicts."""
    return ReapOrder(
        home=home.path,
        owner=home.owner,
        limits=ReapLimits.of(own.reaper),
        sources=tuple(sources),
        by_hand=by_hand,
        bystanders=Bystanders.of(evidence),
        only=None if only is None else tuple(only),
        run=run,
        plan=plan,
        end_reason=own.reaper.end_reason,
        lock_budget_seconds=own.prune.lock_budget_seconds,
        undoable_seconds=own.prune.trash.keep_seconds,
    )


def plan_reap(worker: Worker, order: ReapOrder) -> HomePlan:
    """What the order would do now."""
    actions: list[ReapAction] = []
    for reply in worker.ask(wire.PlanReapRequest(order), _PLAN_SECONDS):
        match reply:
            case wire.ReapActionsPage(items):
                actions.extend(items)
            case wire.PlanReapReply(plan):
                return structs.replace(plan, actions=tuple(actions))
    raise AssertionError("an answer ends with its last reply")


def reap(worker: Worker, order: ReapOrder) -> Report:
    """Carry out an order."""
    done: list[str] = []
    skipped: list[Skipped] = []
    for reply in worker.ask(wire.ReapRequest(order), _ACT_SECONDS):
        match reply:
            case wire.OutcomePage():
                done.extend(reply.done)
                skipped.extend(reply.skipped)
            case wire.ReapReply(report):
                outcome = structs.replace(report.outcome, done=tuple(done), skipped=tuple(skipped))
                return structs.replace(report, outcome=outcome)
    raise AssertionError("an answer ends with its last reply")


def undo(worker: Worker, home: Home, evidence: HomeEvidence, own: HomeSettings, run: str) -> Undone:
    """Give back what a run took from one home."""
    restored: list[str] = []
    failed: list[Skipped] = []
    request = wire.UndoRequest(
        home.path, home.owner, run, Bystanders.of(evidence), own.prune.lock_budget_seconds
    )
    for reply in worker.ask(request, _ACT_SECONDS):
        match reply:
            case wire.OutcomePage():
                restored.extend(reply.done)
                failed.extend(reply.skipped)
            case wire.UndoReply(why):
                return Undone(run, tuple(restored), tuple(failed), why)
    raise AssertionError("an answer ends with its last reply")


def history(worker: Worker, home: Home) -> list[Run]:
    """The runs in one home, the newest first."""
    runs: list[Run] = []
    for reply in worker.ask(wire.HistoryRequest(home.path, home.owner), _PLAN_SECONDS):
        if isinstance(reply, wire.HistoryPage):
            runs.extend(reply.items)
    return runs
