"""`reap`: the plan for every home, and its execution when a person says yes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from exporter import logs
from exporter.agent import saved_plans
from exporter.agent.healing import heal_first
from exporter.agent.home_state import HomeState
from exporter.agent.one_shot import looked, unsettled
from exporter.agent.options import Options
from exporter.agent.run_result import Result, unknown_sources
from exporter.agent.saved_plans import SavedItem, SavedPlan
from exporter.agent.scan_loop import Rounds
from exporter.collectors.view import HostView
from exporter.config.load import load
from exporter.config.settings import Settings
from exporter.errors import RefusedError, WorkerError
from exporter.reaper.models import Verdict
from exporter.reaper.orders import ReapOrder
from exporter.reaper.plan import HomePlan, ReapAction, digest, hash_of
from exporter.runs.journal import new_run_id
from exporter.runs.models import END_SESSION, RunOutcome
from exporter.runs.recovery import not_known
from exporter.text import counted, listed, visible
from exporter.workers import client

KIND: Final = "reap"
_BETWEEN_CONFIRMATIONS_SECONDS: Final = 2.0
ONLY_OBSERVED: Final = "a home of root is only observed unless it is named, e.g. by --home"

log = logs.get("reap")


def reap(
    options: Options,
    *,
    sources: Sequence[str] = (),
    execute: bool = False,
    plan_hash: str | None = None,
    presume: bool = False,
) -> tuple[Result, list[str]]:
    """Plan a reap of every home, and carry it out if asked to.

    `presume`: idleness by Hermes's own clocks counts as if an agent had watched it.

    Return what became of it, and the homes that could not be read.
    """
    settings = load(options.config_file)
    saved = saved_plans.load(options.state_dir, KIND, plan_hash) if plan_hash else None
    between = _BETWEEN_CONFIRMATIONS_SECONDS
    with looked(options, settings, between, settle=execute, presume_by_clock=presume) as (
        rounds,
        view,
    ):
        unread = [home.label for home in view.homes if not home.up]
        plans = list(_plans(rounds, settings, sources, saved, unread))
        result = Result(
            plan_hash or hash_of(each.plan for each in plans),
            saved.created_at if saved is not None else time.time(),
            [_row(each.state.home.label, action) for each in plans for action in each.actions],
        )
        if saved is not None:
            still = {_item(each.state.home.path, a) for each in plans for a in each.actions}
            result.leave_out(saved, still, {each.state.home.path for each in plans})
        result.homes = len(plans)
        result.notes += unknown_sources(sources, (each.state.snapshot for each in plans))
        result.notes += _never_reaped(sources, settings, plans)
        result.notes += _not_judged(sources, settings, plans, view)
        if execute:
            _execute(rounds, settings, plans, sources, result)
        else:
            result.notes += unsettled(rounds)
            if result.actions:
                _keep(options, settings, plans, result)
    return result, unread


@dataclass(frozen=True, slots=True)
class _Planned:
    """A home, what would be done to it, and what of that is wanted."""

    state: HomeState
    plan: HomePlan
    actions: tuple[ReapAction, ...]


def _plans(
    rounds: Rounds,
    settings: Settings,
    sources: Sequence[str],
    saved: SavedPlan | None,
    unread: list[str],
) -> Iterator[_Planned]:
    """The plans of all homes that were read just now; of a saved plan what still holds."""
    items = frozenset(saved.items) if saved is not None else None
    for state in rounds.states():
        order = _order(state, settings, sources)
        if order is None or state.home.label in unread:
            continue
        try:
            plan = client.plan_reap(rounds.worker(state.home), order)
        except (RefusedError, WorkerError, TimeoutError) as error:
            rounds.failed(state.home, error)
            log.warn("no plan", home=state.home.label, why=str(error))
            unread.append(state.home.label)
            continue
        path = state.home.path
        wanted = [each for each in plan.actions if items is None or _item(path, each) in items]
        yield _Planned(state, plan, tuple(wanted))


def _order(
    state: HomeState, settings: Settings, sources: Sequence[str], **details: Any
) -> ReapOrder | None:
    """None where nothing is known of the home's processes."""
    if state.snapshot is None or state.evidence is None:
        return None
    own = settings.for_home(state.home.named_as)
    return client.reap_order(
        state.home, state.evidence, own, sources=sources, by_hand=True, **details
    )


def _execute(
    rounds: Rounds,
    settings: Settings,
    plans: Sequence[_Planned],
    sources: Sequence[str],
    result: Result,
) -> None:
    heal_first(rounds, settings, reaps=False)
    run = new_run_id(time.time())
    result.executed = True
    for each in plans:
        wanted = [action.target for action in each.actions]
        order = _order(each.state, settings, sources, only=wanted, run=run, plan=result.plan_hash)
        home = each.state.home
        # Also where nothing is dead any more, a person lets automatic reaping go on.
        stopped = home.may_write and each.state.reaping_has_stopped
        if order is None or not (wanted or stopped):
            continue
        if not home.may_write:
            result.add(wanted, outcome=RunOutcome.FAILED, why=ONLY_OBSERVED)
            continue
        try:
            report = client.reap(rounds.worker(home), order)
        except RefusedError as error:
            result.add(wanted, outcome=RunOutcome.FAILED, why=str(error)[:300])
            continue
        except (WorkerError, TimeoutError) as error:
            rounds.failed(home, error)
            result.add(wanted, outcome=RunOutcome.UNKNOWN, run=run, why=not_known(run, error))
            continue
        outcome = report.outcome
        if report.reopened:
            log.warn(
                "sessions reaped wrongly were opened again",
                home=home.label,
                sessions=len(report.reopened),
            )
        result.add(
            wanted,
            outcome=outcome.outcome,
            run=outcome.run,
            done=outcome.done,
            skipped=outcome.skipped,
            why=outcome.why,
        )


def _never_reaped(
    sources: Sequence[str], settings: Settings, plans: Sequence[_Planned]
) -> Iterator[str]:
    """A line for each source that is there and that the configuration lets nobody end."""
    allowed = {
        source
        for each in plans
        for source in settings.for_home(each.state.home.named_as).reaper.sources
    }
    found = {
        source
        for each in plans
        if each.state.snapshot is not None and each.state.snapshot.sessions is not None
        for source in each.state.snapshot.sessions.open_by_source
    }
    for source in dict.fromkeys(sources):
        if source in found - allowed:
            yield (
                f"sessions of {visible(source)} are never reaped: "
                f"reaper.sources has {listed(sorted(allowed), 'and')}"
            )


def _not_judged(
    sources: Sequence[str], settings: Settings, plans: Sequence[_Planned], view: HostView
) -> Iterator[str]:
    """A line if nobody can tell of some sessions that could be ended whether they are dead."""
    homes = {home.label: home for home in view.homes}
    sessions, blind = 0, dict[str, None]()
    for each in plans:
        home = homes.get(each.state.home.label)
        allowed = settings.for_home(each.state.home.named_as).reaper.sources
        unknown = sum(
            count.sessions
            for count in (home.verdicts if home is not None else ())
            if count.verdict is Verdict.UNKNOWN
            and count.source in allowed
            and (not sources or count.source in sources)
        )
        if home is not None and unknown:
            sessions += unknown
            blind |= dict.fromkeys(home.blind)
    if sessions:
        why = f" (blind: {', '.join(blind)}); `hermes-exporter check` tells why" if blind else ""
        hint = why or "; `hermes-exporter sessions --verdict unknown` tells why"
        yield f"{counted(sessions, 'open session')} could not be judged{hint}"


def _item(path: str, action: ReapAction) -> SavedItem:
    return SavedItem(path, action.target, digest(action))


def _row(label: str, action: ReapAction) -> dict[str, Any]:
    return {
        "action": END_SESSION,
        "home": label,
        "policy": None,
        "target": action.target,
        "reason": action.reason,
        "bytes": 0,
    }


def _keep(options: Options, settings: Settings, plans: Sequence[_Planned], result: Result) -> None:
    """Keep the plan for `--plan HASH`; where that is not possible, `--yes` alone still is."""
    plan = SavedPlan(
        kind=KIND,
        hash=result.plan_hash,
        created_at=result.created_at,
        expires_at=result.created_at + settings.prune.plan_ttl_seconds,
        items=tuple(_item(each.state.home.path, a) for each in plans for a in each.actions),
    )
    saved_plans.keep(options.state_dir, plan)
