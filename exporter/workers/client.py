"""Asking a home's worker to act: plan, reap, undo, and the history of it.

Each function is one exchange. Raise RefusedError if nothing was done for a reason, WorkerError or
TimeoutError if what was done is not known: the home's journal knows, and the next run finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec
from msgspec import Struct, structs

from exporter.config.settings import HomeSettings
from exporter.discovery.homes import Home
from exporter.errors import WorkerError
from exporter.evidence.models import HomeEvidence
from exporter.evidence.openers import KnownOpeners
from exporter.hermes.process_kinds import ProcessKind
from exporter.pruner.beside import Beside
from exporter.pruner.decide.thresholds import Pressure
from exporter.pruner.models import (
    HomePrunePlan,
    PruneAction,
    PruneMemory,
    PruneOutcome,
    PruneReport,
)
from exporter.pruner.orders import Narrowed, PlanOrder, PruneOrder
from exporter.reaper.orders import ReapOrder, Report, Undone
from exporter.reaper.plan import HomePlan, ReapAction, ReapLimits
from exporter.reaper.possible_hosts import Line, base_line, key_of
from exporter.runs.models import Run, Skipped
from exporter.workers import protocol
from exporter.workers.pool import Worker

_PLAN_SECONDS: Final = 60.0
_ACT_SECONDS: Final = 900.0
"""A run goes on in steps, between which Hermes gets its turn."""
_STOCK_SECONDS: Final = 300.0
_EVERYTHING: Final = Narrowed()
Progress = Callable[[int, int], None]
"""Told how many of how many actions are settled."""


def _quietly(settled: int, total: int) -> None:
    """Tell nobody."""


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
    heal_only: bool = False,
) -> ReapOrder:
    """An order to reap one home by its settings; the evidence is that of the verdicts."""
    return ReapOrder(
        home=home.path,
        owner=home.owner,
        limits=ReapLimits.of(own.reaper),
        sources=tuple(sources),
        by_hand=by_hand,
        openers=KnownOpeners.of(evidence),
        only=None if only is None else tuple(only),
        run=run,
        plan=plan,
        end_reason=own.reaper.end_reason,
        lock_budget_seconds=own.prune.lock_budget_seconds,
        undoable_seconds=own.prune.trash.keep_seconds,
        processes=tuple(
            key_of(holder) for holder in evidence.holders if base_line(holder) is not Line.CLEARED
        ),
        silent=tuple(
            (holder.pid, holder.written)
            for holder in evidence.holders
            if holder.kind is ProcessKind.CLI and holder.written is not None and not holder.ours
        ),
        heal_only=heal_only,
    )


def plan_reap(worker: Worker, order: ReapOrder) -> HomePlan:
    """What the order would do now."""
    actions: list[ReapAction] = []
    for reply in worker.ask(protocol.PlanReapRequest(order), _PLAN_SECONDS):
        match reply:
            case protocol.ReapActionsPage(items):
                actions.extend(items)
            case protocol.PlanReapReply(plan):
                return structs.replace(plan, actions=tuple(actions))
    raise AssertionError("an answer ends with its last reply")


def reap(worker: Worker, order: ReapOrder) -> Report:
    """Carry out an order."""
    done: list[str] = []
    skipped: list[Skipped] = []
    for reply in worker.ask(protocol.ReapRequest(order), _ACT_SECONDS):
        match reply:
            case protocol.OutcomePage():
                done.extend(reply.done)
                skipped.extend(reply.skipped)
            case protocol.ReapReply(report):
                outcome = structs.replace(report.outcome, done=tuple(done), skipped=tuple(skipped))
                return structs.replace(report, outcome=outcome)
    raise AssertionError("an answer ends with its last reply")


class PrunePlanned(Struct, frozen=True):
    """A plan, the figures it comes with, and what to remember for the next one."""

    plan: HomePrunePlan
    report: PruneReport
    memory: PruneMemory
    pressure: Pressure


class Pruned(Struct, frozen=True):
    """What became of a prune or a purge."""

    outcome: PruneOutcome
    done: tuple[str, ...]
    skipped: tuple[Skipped, ...]


def plan_prune(
    worker: Worker,
    home: Home,
    own: HomeSettings,
    memory: PruneMemory,
    *,
    by_hand: bool = False,
    by_pressure: bool = True,
    narrowed: Narrowed = _EVERYTHING,
) -> PrunePlanned:
    """What a prune would do now; the worker must have read the home just before."""
    order = PlanOrder(
        home=home.path,
        owner=home.owner,
        settings=own.prune,
        memory=memory,
        end_reason=own.reaper.end_reason,
        by_hand=by_hand,
        by_pressure=by_pressure,
        narrowed=narrowed,
    )
    actions: list[PruneAction] = []
    request = protocol.PlanPruneRequest(home.path, msgspec.Raw(msgspec.json.encode(order)))
    for reply in worker.ask(request, _STOCK_SECONDS):
        match reply:
            case protocol.PruneActionsPage(items):
                actions.extend(items)
            case protocol.PlanPruneReply(plan, report, remember, raw):
                whole = structs.replace(plan, home=home.path, actions=tuple(actions))
                return PrunePlanned(whole, report, remember, _pressure(raw))
    raise AssertionError("an answer ends with its last reply")


def _pressure(raw: msgspec.Raw) -> Pressure:
    try:
        return msgspec.json.decode(raw, type=Pressure)
    except msgspec.DecodeError as error:
        raise WorkerError(f"a worker sent nonsense ({error}); it is ended") from error


def prune(
    worker: Worker,
    home: Home,
    planned: PrunePlanned,
    evidence: HomeEvidence,
    own: HomeSettings,
    *,
    by_hand: bool = False,
    only: Collection[str] | None = None,
    run: str = "",
    progress: Progress = _quietly,
) -> Pruned:
    """Execute a plan, in a worker that need not be the one that made it."""
    order = PruneOrder(
        plan=planned.plan,
        owner=home.owner,
        openers=KnownOpeners.of(evidence),
        by_hand=by_hand,
        only=None if only is None else tuple(only),
        run=run,
        keep_seconds=own.prune.trash.keep_seconds,
        lock_budget_seconds=own.prune.lock_budget_seconds,
        beside=Beside.of(evidence.holders, own.reaper.presume_after.beside_servers()),
        emergency=planned.pressure.emergency,
    )
    request = protocol.PruneRequest(home.path, msgspec.Raw(msgspec.json.encode(order)))
    return _pruned(worker, request, progress)


def purge(worker: Worker, home: Home, evidence: HomeEvidence, run: str | None) -> Pruned:
    """Empty the trash of one run, or all of it."""
    request = protocol.PurgeRequest(home.path, home.owner, run, KnownOpeners.of(evidence))
    return _pruned(worker, request, _quietly)


def _pruned(
    worker: Worker, request: protocol.PruneRequest | protocol.PurgeRequest, progress: Progress
) -> Pruned:
    done: list[str] = []
    skipped: list[Skipped] = []
    for reply in worker.ask(request, _ACT_SECONDS):
        match reply:
            case protocol.Progress(settled, total):
                progress(settled, total)
            case protocol.OutcomePage():
                done.extend(reply.done)
                skipped.extend(reply.skipped)
            case protocol.PruneReply(outcome):
                return Pruned(outcome, tuple(done), tuple(skipped))
    raise AssertionError("an answer ends with its last reply")


def keep_up(
    worker: Worker, home: Home, evidence: HomeEvidence, *, vacuum: bool, gc: bool
) -> list[protocol.UpkeepDone]:
    """VACUUM and `git gc` of a home that nobody uses, as the evidence shows."""
    from exporter.pruner.apply.upkeep import UpkeepOrder, is_quiet  # few want any

    order = UpkeepOrder(
        home=home.path,
        owner=home.owner,
        openers=KnownOpeners.of(evidence),
        quiet=is_quiet(evidence),
        vacuum=vacuum,
        gc=gc,
    )
    request = protocol.UpkeepRequest(home.path, msgspec.Raw(msgspec.json.encode(order)))
    return [
        each
        for reply in worker.ask(request, _ACT_SECONDS)
        if isinstance(reply, protocol.UpkeepReply)
        for each in reply.done
    ]


def heal(
    worker: Worker, home: Home, evidence: HomeEvidence, own: HomeSettings
) -> protocol.HealReply:
    """Give sessions that were born again the past that a prune took."""
    request = protocol.HealRequest(
        home.path, home.owner, KnownOpeners.of(evidence), own.prune.lock_budget_seconds
    )
    for reply in worker.ask(request, _ACT_SECONDS):
        if isinstance(reply, protocol.HealReply):
            return reply
    raise AssertionError("an answer ends with its last reply")


def undo(worker: Worker, home: Home, evidence: HomeEvidence, own: HomeSettings, run: str) -> Undone:
    """Give back what a run took from one home."""
    restored: list[str] = []
    failed: list[Skipped] = []
    request = protocol.UndoRequest(
        home.path, home.owner, run, KnownOpeners.of(evidence), own.prune.lock_budget_seconds
    )
    for reply in worker.ask(request, _ACT_SECONDS):
        match reply:
            case protocol.OutcomePage():
                restored.extend(reply.done)
                failed.extend(reply.skipped)
            case protocol.UndoReply(why, is_known):
                return Undone(run, tuple(restored), tuple(failed), why, is_known)
    raise AssertionError("an answer ends with its last reply")


def settle(worker: Worker, home: Home, evidence: HomeEvidence) -> protocol.SettleReply:
    """Find out what runs that were killed had done to one home."""
    request = protocol.SettleRequest(home.path, home.owner, KnownOpeners.of(evidence))
    for reply in worker.ask(request, _ACT_SECONDS):
        if isinstance(reply, protocol.SettleReply):
            return reply
    raise AssertionError("an answer ends with its last reply")


def history(worker: Worker, home: Home) -> list[Run]:
    """The runs in one home, the newest first."""
    runs: list[Run] = []
    for reply in worker.ask(protocol.HistoryRequest(home.path, home.owner), _PLAN_SECONDS):
        if isinstance(reply, protocol.HistoryPage):
            runs.extend(reply.items)
    return runs


def actions_of(worker: Worker, home: Home, run: str) -> list[protocol.NotedAction]:
    """What one run did to one home, in order."""
    actions: list[protocol.NotedAction] = []
    for reply in worker.ask(protocol.HistoryRequest(home.path, home.owner, run), _PLAN_SECONDS):
        if isinstance(reply, protocol.ActionsPage):
            actions.extend(reply.items)
    return actions
