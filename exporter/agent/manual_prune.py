"""`prune` and `purge`: the plan for every home, and its execution when a person says yes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct

from exporter import logs
from exporter.agent import saved_plans
from exporter.agent.healing import heal_first
from exporter.agent.home_state import HomeState
from exporter.agent.manual_reap import ONLY_OBSERVED
from exporter.agent.one_shot import looked, unsettled
from exporter.agent.options import Options
from exporter.agent.run_result import Result, unknown_sources
from exporter.agent.saved_plans import SavedItem, SavedPlan
from exporter.agent.scan_loop import Rounds
from exporter.config.load import load
from exporter.config.prune import Prune
from exporter.config.settings import Settings
from exporter.errors import ExporterError, HomeError, RefusedError, WorkerError
from exporter.pruner.models import Frees, HomePrunePlan, Policy, PruneAction
from exporter.pruner.orders import Narrowed
from exporter.runs.journal import new_run_id
from exporter.runs.models import Kind, RunOutcome
from exporter.runs.recovery import not_known
from exporter.text import visible
from exporter.workers import client

KIND: Final = "prune"
_HASH_DIGITS: Final = 16

log = logs.get("prune")


class Wish(Struct, frozen=True):
    """What was asked for on the command line."""

    narrowed: Narrowed = Narrowed()
    by_pressure: bool = False
    execute: bool = False
    plan_hash: str | None = None

    def after(self, saved: SavedPlan) -> Wish:
        """The same, with the options of the saved plan for those that were not given again.

        Without them the plan made anew would be another, and lack what only they have brought in.
        """
        given, kept = self.narrowed, saved.narrowed
        age = given.older_than_seconds
        narrowed = Narrowed(
            given.policies or kept.policies,
            kept.older_than_seconds if age is None else age,
            given.sources or kept.sources,
            given.unproven or kept.unproven,
        )
        by_pressure = self.by_pressure or saved.by_pressure
        return msgspec.structs.replace(self, narrowed=narrowed, by_pressure=by_pressure)


@dataclass(frozen=True, slots=True)
class Planned:
    """A home, its plan, and what of that is wanted."""

    state: HomeState
    own: Prune
    planned: client.PrunePlanned
    actions: tuple[PruneAction, ...]

    @property
    def plan(self) -> HomePrunePlan:
        return self.planned.plan


def prune(
    options: Options, wish: Wish, progress: Callable[[str, int, int], None]
) -> tuple[Result, list[Planned], list[str]]:
    """Plan a prune of every home, and carry it out if asked to.

    Return what became of it, the plans, and the homes that could not be read or planned for.
    """
    settings = load(options.config_file)
    saved = saved_plans.load(options.state_dir, KIND, wish.plan_hash) if wish.plan_hash else None
    if saved is not None:
        wish = wish.after(saved)
    unread: list[str] = []
    with looked(options, settings, confirm=False, settle=wish.execute) as (rounds, view):
        unread += [home.label for home in view.homes if not home.up]
        plans = list(_plans(rounds, settings, wish, saved, unread))
        result = Result(
            wish.plan_hash or _hash(plans),
            saved.created_at if saved is not None else time.time(),
            [_row(each.state.home.label, action) for each in plans for action in each.actions],
        )
        if saved is not None:
            still = {_item(each.state.home.path, a) for each in plans for a in each.actions}
            result.leave_out(saved, still, {each.state.home.path for each in plans})
        result.homes = len(plans)
        sources = wish.narrowed.sources
        result.notes += unknown_sources(sources, (each.state.snapshot for each in plans))
        result.notes += _switched_off(wish.narrowed.policies, plans)
        if wish.execute:
            _execute(rounds, settings, plans, result, progress)
        else:
            result.notes += unsettled(rounds)
            if result.actions:
                _keep(options, settings, wish, plans, result)
    return result, plans, unread


def _plans(
    rounds: Rounds, settings: Settings, wish: Wish, saved: SavedPlan | None, unread: list[str]
) -> Iterator[Planned]:
    items = frozenset(saved.items) if saved is not None else None
    for state in rounds.states():
        if state.snapshot is None or state.evidence is None or state.home.label in unread:
            continue
        home = state.home
        own = settings.for_home(home.named_as)
        try:
            planned = client.plan_prune(
                rounds.worker(home),
                home,
                own,
                rounds.prune_memory(home),
                by_hand=True,
                by_pressure=wish.by_pressure,
                narrowed=wish.narrowed,
            )
        except (RefusedError, WorkerError, TimeoutError) as error:
            rounds.failed(home, error)
            log.warn("no plan", home=home.label, why=str(error))
            unread.append(home.label)
            continue
        wanted = tuple(
            each
            for each in planned.plan.actions
            if items is None or _item(home.path, each) in items
        )
        yield Planned(state, own.prune, planned, wanted)


def _execute(
    rounds: Rounds,
    settings: Settings,
    plans: Sequence[Planned],
    result: Result,
    progress: Callable[[str, int, int], None],
) -> None:
    heal_first(rounds, settings)
    run = new_run_id(time.time())
    result.executed = True
    for each in plans:
        wanted = [action.target for action in each.actions]
        home, evidence = each.state.home, each.state.evidence
        if not wanted or evidence is None:
            continue
        if not home.may_write:
            result.add(wanted, outcome=RunOutcome.FAILED, why=ONLY_OBSERVED)
            continue
        label = home.label
        try:
            pruned = client.prune(
                rounds.worker(home),
                home,
                each.planned,
                evidence,
                settings.for_home(home.named_as),
                by_hand=True,
                only=wanted,
                run=run,
                progress=lambda done, total, label=label: progress(label, done, total),  # type: ignore[misc]
            )
        except RefusedError as error:
            result.add(wanted, outcome=RunOutcome.FAILED, why=str(error)[:300])
            continue
        except (WorkerError, TimeoutError) as error:
            rounds.failed(home, error)
            result.add(wanted, outcome=RunOutcome.UNKNOWN, run=run, why=not_known(run, error))
            continue
        result.add(
            wanted,
            outcome=pruned.outcome.outcome,
            run=pruned.outcome.run,
            done=pruned.done,
            skipped=pruned.skipped,
            why=pruned.outcome.why,
        )
        result.freed[Frees.NOW] += pruned.outcome.freed_now_bytes
        result.freed[Frees.AT_PURGE] += pruned.outcome.freed_at_purge_bytes
        result.freed[Frees.AFTER_UPKEEP] += pruned.outcome.freed_after_upkeep_bytes


def _switched_off(policies: Sequence[Policy], plans: Sequence[Planned]) -> Iterator[str]:
    """A line for each policy that was named and may take nothing."""
    for policy in policies:
        off = [each.state.home.label for each in plans if each.own.is_off(policy.value)]
        if off:
            homes = visible(", ".join(off))
            yield f"policy {policy.value} is off in the configuration, for {homes}"


def purge(options: Options, run: str | None) -> Result:
    """Empty the trash: of one run, wherever it acted, or of all. What stays behind is said."""
    result = Result("", time.time(), [])
    result.executed = True
    settings = load(options.config_file)
    with looked(options, settings, confirm=False, settle=True) as (rounds, _):
        for state in rounds.states():
            _purge(rounds, state, run, result)
    if run is not None and not result.done and not result.skipped:
        raise ExporterError(
            f"run {run[:64]} has no trash in any home; `hermes-exporter history` lists the runs"
        )
    return result


def _purge(rounds: Rounds, state: HomeState, run: str | None, result: Result) -> None:
    def not_done(why: str) -> None:
        result.add([state.home.label], outcome=RunOutcome.FAILED, why=why[:300])

    home, evidence = state.home, state.evidence
    if home.problem:
        not_done(home.problem)
        return
    try:
        known = client.history(rounds.worker(home), home)
        if run is not None and run not in {each.id for each in known}:
            return
        if not home.may_write:
            if any(each.kind is Kind.PRUNE and each.undoable_until for each in known):
                not_done(ONLY_OBSERVED)
            return
        if evidence is None:
            not_done(state.detail or "it could not be seen who uses this home")
            return
        pruned = client.purge(rounds.worker(home), home, evidence, run)
    except (HomeError, WorkerError, TimeoutError) as error:
        rounds.failed(home, error)
        not_done(str(error))
        return
    result.freed[Frees.NOW] += pruned.outcome.freed_now_bytes
    result.add(
        pruned.done,
        outcome=pruned.outcome.outcome,
        run=pruned.outcome.run,
        done=pruned.done,
        skipped=pruned.skipped,
        why=pruned.outcome.why,
    )


def _item(path: str, action: PruneAction) -> SavedItem:
    content = msgspec.json.encode((action.action, action.policy, action.expected))
    return SavedItem(path, action.target, sha256(content).hexdigest()[:_HASH_DIGITS])


def _hash(plans: Sequence[Planned]) -> str:
    content = [(each.plan.home, each.plan.hash) for each in plans if each.plan.actions]
    return sha256(msgspec.json.encode(content)).hexdigest()[:_HASH_DIGITS]


def _row(label: str, action: PruneAction) -> dict[str, Any]:
    return {
        "action": action.action.value,
        "home": label,
        "policy": action.policy.value,
        "target": action.target,
        "reason": action.reason,
        "bytes": action.bytes,
    }


def _keep(
    options: Options, settings: Settings, wish: Wish, plans: Sequence[Planned], result: Result
) -> None:
    plan = SavedPlan(
        kind=KIND,
        hash=result.plan_hash,
        created_at=result.created_at,
        expires_at=result.created_at + settings.prune.plan_ttl_seconds,
        items=tuple(_item(each.state.home.path, a) for each in plans for a in each.actions),
        narrowed=wish.narrowed,
        by_pressure=wish.by_pressure,
    )
    saved_plans.keep(options.state_dir, plan)
