"""A reap or prune by command: plan every home, and execute the plan if the person confirms.

Both use the same path; their differences are in `manual_reap` and `manual_prune`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol

from exporter import logs
from exporter.agent import saved_plans
from exporter.agent.home_state import HomeState
from exporter.agent.run_result import RunResult, unknown_sources
from exporter.agent.saved_plans import SavedItem, SavedPlan
from exporter.agent.scan_loop import ScanLoop
from exporter.collectors.view import HostView
from exporter.config.settings import HomeSettings
from exporter.errors import HomeError, InterruptedRunError, RefusedError, WorkerError
from exporter.runs.journal import new_run_id
from exporter.runs.models import STOPPED, Action, Filter, Outcome, Plan, RunOutcome
from exporter.runs.recovery import not_known
from exporter.text import escape_control
from exporter.workers import protocol
from exporter.workers.cancellation import Cancellation
from exporter.workers.protocol import RunsRequest

ONLY_OBSERVED: Final = "a home of root is only observed unless it is named, e.g. by --home"
OnProgress = Callable[[str, int, int], None]
"""Called with the label of a home, and how many of its actions are finished, of how many."""

Acting = Callable[[str], AbstractContextManager[Cancellation | None]]
"""Entered with the id of a run while it goes on: signals then ask it to stop, instead of ending the
command.
"""

log = logs.get("run")


def uninterrupted(run: str) -> AbstractContextManager[None]:
    """An `Acting` for callers that never stop a run."""
    del run
    return nullcontext()


@dataclass(frozen=True, slots=True)
class PlannedHome:
    """A home, its plan, and the actions of that plan that are wanted."""

    state: HomeState
    own: HomeSettings
    plan: Plan[Any]
    actions: tuple[Action[Any], ...]


class ManualRun(Protocol):
    """The differences between a reap and a prune."""

    name: str
    filter_by: Filter
    by_pressure: bool

    def plan_of(self, state: HomeState) -> Plan[Any] | None:
        """Return what the scan has planned; None if it could not."""

    def digest(self, action: Action[Any]) -> str:
        """Return a digest of the state in which the target was planned."""

    def hash(self, plans: Sequence[PlannedHome]) -> str:
        """Return a hash of all plans together."""

    def notes(self, plans: Sequence[PlannedHome], view: HostView) -> Iterator[str]:
        """Yield more lines that a person should know."""

    def in_the_way(self, plans: Sequence[PlannedHome], view: HostView) -> Iterator[str]:
        """Yield why there may be more to do than the plan says, with the number and the way on."""

    def could_not_see(self, plans: Sequence[PlannedHome], view: HostView) -> bool:
        """True if an empty plan does not mean that there is nothing to do."""

    def heal_first(self, loop: ScanLoop) -> None:
        """Correct what earlier runs did wrong, before anything else is done."""

    def has_more_to_do(self, each: PlannedHome) -> bool:
        """True if this home needs something in addition to the plan's actions."""

    def act(
        self,
        loop: ScanLoop,
        each: PlannedHome,
        run: str,
        result: RunResult,
        progress: OnProgress,
        cancellation: Cancellation | None,
    ) -> None:
        """Execute the plan in one home and add its outcome to the result."""


def load_plan(kind: str, state_dir: str, plan_hash: str | None) -> SavedPlan | None:
    """Return the saved plan to execute; raise ExporterError if there is none or it has expired."""
    return saved_plans.load(state_dir, kind, plan_hash) if plan_hash else None


NO_DATABASE: Final = "there is no state.db; Hermes has not run here yet"


def has_no_database(state: HomeState) -> bool:
    """True if a home was read and has none; then no session and no routing is known of it."""
    return state.snapshot is not None and not state.snapshot.database_present


def plan(kind: ManualRun, loop: ScanLoop, view: HostView, saved: SavedPlan | None) -> RunResult:
    """Return the plans of all homes that this scan read.

    With a saved plan, only those of its actions that a new plan contains too.
    """
    unread = [home.label for home in view.homes if not home.up]
    plans = list(_plans(kind, loop, saved, unread))
    items = {
        _saved_item(kind, each.state.home.path, action) for each in plans for action in each.actions
    }
    result = RunResult(
        saved.hash if saved is not None else kind.hash(plans),
        saved.created_at if saved is not None else time.time(),
    )
    result.plans, result.unread, result.kind = plans, unread, kind.name
    shown = {home.path for home in view.homes}
    result.refused = [e.path for e in loop.census.refused if e.own and e.path not in shown]
    if saved is not None:
        result.skip_missing(saved, items, {each.state.home.path for each in plans})
    result.notes += unknown_sources(kind.filter_by.sources, (e.state.snapshot for e in plans))
    result.notes += kind.notes(plans, view)
    in_the_way = list(kind.in_the_way(plans, view))
    if items:
        result.notes += in_the_way
    else:
        result.in_the_way = "; ".join(in_the_way)
        result.could_not_see = kind.could_not_see(plans, view)
    return result


def _plans(
    kind: ManualRun, loop: ScanLoop, saved: SavedPlan | None, unread: list[str]
) -> Iterator[PlannedHome]:
    items = frozenset(saved.items) if saved is not None else None
    for state in loop.states():
        home = state.home
        if state.snapshot is None or state.evidence is None or home.label in unread:
            continue
        planned = kind.plan_of(state)
        if planned is None:
            log.warn("no plan", home=home.label, why=state.plans.problem)
            unread.append(home.label)
            continue
        wanted: Iterable[Action[Any]] = (
            each
            for each in planned.actions
            if items is None or _saved_item(kind, home.path, each) in items
        )
        yield PlannedHome(state, loop.settings.for_home(home), planned, tuple(wanted))


def execute(
    kind: ManualRun, loop: ScanLoop, result: RunResult, progress: OnProgress, acting: Acting
) -> None:
    """Execute the plans, home by home, under one run id; what a person stops ends there."""
    kind.heal_first(loop)
    run = new_run_id(time.time())
    result.executed = True
    try:
        with acting(run) as cancellation:
            _execute(kind, loop, run, result, progress, cancellation)
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"ended at once in the middle of run {run}; the next command finds out what it did, "
            f"and `hermes-exporter undo {run}` gives it back"
        ) from None


def _execute(
    kind: ManualRun,
    loop: ScanLoop,
    run: str,
    result: RunResult,
    progress: OnProgress,
    cancellation: Cancellation | None,
) -> None:
    for each in result.plans:
        home = each.state.home
        wanted = [action.target for action in each.actions]
        if not wanted and not (home.may_write and kind.has_more_to_do(each)):
            continue
        if not home.may_write:
            result.add_nothing_done(wanted, RunOutcome.FAILED, ONLY_OBSERVED)
            continue
        if cancellation is not None and cancellation.requested:
            result.add_nothing_done(wanted, RunOutcome.INTERRUPTED, STOPPED)
            continue
        try:
            kind.act(loop, each, run, result, progress, cancellation)
        except RefusedError as error:
            result.add_nothing_done(wanted, RunOutcome.FAILED, str(error))
        except (WorkerError, TimeoutError) as error:
            result.add(wanted, Outcome(run, RunOutcome.UNKNOWN, why=not_known(run, error)))


def try_save(kind: ManualRun, loop: ScanLoop, state_dir: str, result: RunResult) -> None:
    """Save the plan for `--plan HASH`. If that fails, `--yes` without a saved plan still works; the
    result says so.
    """
    plan = SavedPlan(
        kind=kind.name,
        hash=result.plan_hash,
        created_at=result.created_at,
        expires_at=result.created_at + loop.settings.prune.plan_ttl_seconds,
        items=tuple(
            _saved_item(kind, each.state.home.path, action)
            for each in result.plans
            for action in each.actions
        ),
        filter_by=kind.filter_by,
        by_pressure=kind.by_pressure,
    )
    try:
        saved_plans.save(state_dir, plan)
    except OSError as error:
        result.not_saved = f"{state_dir}: {error.strerror}"


def unfinished_run_notes(loop: ScanLoop) -> Iterator[str]:
    """Yield a line for each run in progress or killed: the plan shows its half-done work too."""
    for state in loop.states():
        home = state.home
        if not any(state.unfinished_runs):
            continue
        try:
            runs = loop.call(home, protocol.LIST_RUNS, RunsRequest(home.path, home.owner))
        except (HomeError, WorkerError, TimeoutError):
            continue  # the plan says already what it could not read
        for run in runs:
            if run.finished_at is not None:
                continue
            what = (
                f"{run.label} {run.id} is under way in {escape_control(home.label)}: "
                "what it has yet to take is in this plan too"
                if run.under_way
                else f"{run.label} {run.id} was interrupted in {escape_control(home.label)}; "
                "the next command that acts settles it first"
            )
            yield what


def cannot_write_notes(result: RunResult) -> Iterator[str]:
    """Yield a line for each home whose plan cannot be carried out from here."""
    for each in result.plans:
        why = each.state.probe.cannot_write if each.state.probe is not None else ""
        if each.actions and why:
            label = escape_control(each.state.home.label)
            yield f"{label}: --yes would change nothing: {why}; `hermes-exporter check` tells more"


def _saved_item(kind: ManualRun, path: str, action: Action[Any]) -> SavedItem:
    return SavedItem(path, action.target, kind.digest(action))
