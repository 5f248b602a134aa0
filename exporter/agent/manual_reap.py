"""A reap by command: what it plans, its notes, and its request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from exporter import logs
from exporter.agent.act_request import reap_request
from exporter.agent.healing import heal_first
from exporter.agent.home_state import HomeState
from exporter.agent.manual_run import NO_DATABASE, OnProgress, PlannedHome, has_no_database
from exporter.agent.run_result import RunResult
from exporter.agent.saved_plans import SavedPlan
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.visibility import why_no_journal
from exporter.collectors.view import HostView
from exporter.config.settings import Settings
from exporter.evidence.blind_spots import blind_in_words
from exporter.reaper.models import Verdict
from exporter.reaper.plan import ReapLimits, ReapPlan, ReapPlanRequest, digest, hash_of
from exporter.runs.models import Action, Filter
from exporter.snapshot import Hold
from exporter.text import counted, escape_control, format_age, format_count, join_words
from exporter.workers import protocol
from exporter.workers.cancellation import Cancellation
from exporter.workers.protocol import Want

log = logs.get("reap")


class ReapCommand(Struct, frozen=True):
    """What the command line asked for."""

    sources: tuple[str, ...] = ()
    execute: bool = False
    plan_hash: str | None = None
    presume: bool = False
    """Idle time by Hermes's own timestamps counts as if an agent had watched it."""
    include_undone: bool = False
    """Sessions that an undo opened again are not held for that."""

    def after(self, saved: SavedPlan | None) -> ReapCommand:
        """Return this command, with the saved plan's options for those not given again."""
        if saved is None or not saved.filter_by.include_undone:
            return self
        return structs.replace(self, include_undone=True)


class ManualReap:
    """A `manual_run.ManualRun`."""

    name = "reap"
    by_pressure = False

    def __init__(self, settings: Settings, command: ReapCommand) -> None:
        self._settings = settings
        self.filter_by = Filter(sources=command.sources, include_undone=command.include_undone)

    def want(self, state: HomeState) -> Want:
        limits = ReapLimits.of(self._settings.for_home(state.home).reaper)
        return Want(reap=ReapPlanRequest(limits, self.filter_by.sources, by_hand=True))

    def plan_of(self, state: HomeState) -> ReapPlan | None:
        return state.plans.reap

    def digest(self, action: Action[Any]) -> str:
        return digest(action)

    def hash(self, plans: Sequence[PlannedHome]) -> str:
        return hash_of(each.plan for each in plans)

    def notes(self, plans: Sequence[PlannedHome], view: HostView) -> Iterator[str]:
        yield from _never_reaped(self.filter_by.sources, plans)
        yield from _slow_start(plans, view)
        yield from _active_lately(self.filter_by.sources, plans)

    def in_the_way(self, plans: Sequence[PlannedHome], view: HostView) -> Iterator[str]:
        if plans and all(has_no_database(each.state) for each in plans):
            yield NO_DATABASE
        yield from _not_judged(self.filter_by.sources, plans, view)
        yield from _given_back(self.filter_by.sources, plans)

    def could_not_see(self, plans: Sequence[PlannedHome], view: HostView) -> bool:
        labels = {each.state.home.label for each in plans}
        blind = any(home.blind for home in view.homes if home.label in labels)
        return blind and any(_not_judged(self.filter_by.sources, plans, view))

    def heal_first(self, loop: ScanLoop) -> None:
        """Heal prunes only. A reap heals reaps itself: they may have stopped automatic reaping."""
        heal_first(loop, self._settings, reaps=False)

    def has_more_to_do(self, each: PlannedHome) -> bool:
        """True if automatic reaping has stopped: `reap --yes` restarts it, also without actions."""
        return each.state.reaping_has_stopped

    def act(
        self,
        loop: ScanLoop,
        each: PlannedHome,
        run: str,
        result: RunResult,
        progress: OnProgress,
        cancellation: Cancellation | None,
    ) -> None:
        del progress
        home, evidence = each.state.home, each.state.evidence
        if evidence is None:
            return
        plan = structs.replace(each.plan, actions=each.actions, hash=result.plan_hash)
        request = reap_request(home, evidence, each.own, plan, by_hand=True, run=run)
        outcome = loop.call(home, protocol.REAP, request, cancellation=cancellation)
        if outcome.reopened:
            log.warn(
                "sessions reaped wrongly were opened again",
                home=home.label,
                sessions=len(outcome.reopened),
            )
        result.add([action.target for action in each.actions], outcome)


def _slow_start(plans: Sequence[PlannedHome], view: HostView) -> Iterator[str]:
    """Yield a line for each home in which the agent itself would end only a part in this hour."""
    homes = {home.label: home for home in view.homes}
    for each in plans:
        home = homes.get(each.state.home.label)
        if home is None or not home.reaper_enforcing or home.runs.tripped is not None:
            continue
        limit = home.hourly_limit
        waiting = len(each.plan.actions) - limit.left
        if waiting > 0:
            yield (
                f"{home.label}: the agent ends them by itself; {format_count(waiting)} wait for "
                f"slow start: {format_count(limit.sessions)} in this hour"
            )


def _active_lately(sources: Sequence[str], plans: Sequence[PlannedHome]) -> Iterator[str]:
    """Yield a line if nothing is dead, and only recent activity speaks for some sessions.

    A person who has just seen a chat being killed looks for it.
    """
    if any(each.plan.actions for each in plans):
        return
    lately = [
        each.own.reaper.min_idle_seconds
        for each in plans
        for row in each.state.session_rows(public=False)
        if row["verdict"] == Verdict.LIVE
        and {sign["kind"] for sign in row["evidence"] if sign["says"] == Verdict.LIVE} == _ACTIVITY
        and row["source"] in (sources or each.own.reaper.sources)
    ]
    if lately:
        age = format_age(max(lately))
        were = "session was" if len(lately) == 1 else "sessions were"
        yield (
            f"{format_count(len(lately))} {were} active less than {age} ago (reaper.min_idle); one "
            "that was killed is dead after that time"
        )


_ACTIVITY: Final = {"activity"}


def _never_reaped(sources: Sequence[str], plans: Sequence[PlannedHome]) -> Iterator[str]:
    """Yield a line for each existing source that the configuration does not allow to reap."""
    allowed = {source for each in plans for source in each.own.reaper.sources}
    found = {
        source
        for each in plans
        if each.state.snapshot is not None and each.state.snapshot.sessions is not None
        for source in each.state.snapshot.sessions.open_by_source
    }
    for source in dict.fromkeys(sources):
        if source in found - allowed:
            yield (
                f"sessions of {escape_control(source)} are never reaped: "
                f"reaper.sources has {join_words(sorted(allowed), 'and')}"
            )


def _not_judged(
    sources: Sequence[str], plans: Sequence[PlannedHome], view: HostView
) -> Iterator[str]:
    """Yield a line if some sessions of the allowed sources have the verdict unknown."""
    homes = {home.label: home for home in view.homes}
    sessions, blind, journal = 0, dict[str, None](), ""
    for each in plans:
        home = homes.get(each.state.home.label)
        unknown = sum(
            count.sessions
            for count in (home.verdicts if home is not None else ())
            if count.verdict is Verdict.UNKNOWN
            and count.source in each.own.reaper.sources
            and (not sources or count.source in sources)
        )
        if home is not None and unknown:
            sessions += unknown
            blind |= dict.fromkeys(home.blind)
            if "run_journal" in home.blind:
                journal = f"{home.label}: {'; '.join(why_no_journal(home.runs.why))}"
    if sessions:
        why = (
            f" (cannot be seen: {blind_in_words(blind)}); "
            f"{journal or '`hermes-exporter check` tells why'}"
            if blind
            else ""
        )
        hint = why or "; `hermes-exporter sessions --verdict unknown` tells why"
        yield f"{counted(sessions, 'open session')} could not be judged{hint}"


def _given_back(sources: Sequence[str], plans: Sequence[PlannedHome]) -> Iterator[str]:
    """Yield a line if sessions are held because an undo opened them again."""
    held = sum(
        any(each["kind"] == Hold.RESTORED for each in row["evidence"])
        for planned in plans
        for row in planned.state.session_rows(public=False)
        if row["verdict"] == Verdict.HELD and (not sources or row["source"] in sources)
    )
    if held:
        them = "it" if held == 1 else "them"
        yield (
            f"{counted(held, 'session')} {'is' if held == 1 else 'are'} held because an undo "
            f"opened {them} again; `reap --include-undone` takes {them} too"
        )
