"""A prune by command: what it plans, its notes, and its request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from exporter.agent.act_request import prune_request
from exporter.agent.healing import heal_first
from exporter.agent.home_state import HomeState
from exporter.agent.manual_run import NO_DATABASE, OnProgress, PlannedHome, has_no_database
from exporter.agent.run_result import RunResult
from exporter.agent.saved_plans import SavedPlan
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.visibility import why_no_journal
from exporter.collectors.view import HostView
from exporter.config.settings import Settings
from exporter.discovery.homes import Home
from exporter.errors import UsageError
from exporter.pruner.models import PruneMemory, PrunePlan
from exporter.pruner.requests import PrunePlanRequest
from exporter.runs.models import Action, Filter
from exporter.text import counted, escape_control
from exporter.workers import protocol
from exporter.workers.cancellation import Cancellation
from exporter.workers.protocol import Want

_HASH_DIGITS: Final = 16


class PruneCommand(Struct, frozen=True):
    """What the command line asked for."""

    filter_by: Filter = Filter()
    by_pressure: bool = False
    execute: bool = False
    plan_hash: str | None = None

    def check(self) -> None:
        """Raise UsageError if options are combined that a person must not combine."""
        given = self.filter_by
        age = given.older_than_seconds
        if age is not None and not given.policies:
            raise UsageError("--older-than narrows a policy: name it with --policy")
        if age is not None and not 0 < age < float("inf"):
            raise UsageError("--older-than must be greater than 0")
        if given.unproven and given.policies != ("orphan_files",):
            raise UsageError(
                "--unproven takes last copies: name `--policy orphan_files` alone with it"
            )

    def after(self, saved: SavedPlan | None) -> PruneCommand:
        """Return this command, with the saved plan's options for those not given again.

        Without these options the new plan would differ, and would lack targets that only they
        include.
        """
        if saved is None:
            return self
        given, kept = self.filter_by, saved.filter_by
        age = given.older_than_seconds
        both = Filter(
            given.policies or kept.policies,
            given.sources or kept.sources,
            kept.older_than_seconds if age is None else age,
            given.unproven or kept.unproven,
            given.include_undone or kept.include_undone,
        )
        by_pressure = self.by_pressure or saved.by_pressure
        return msgspec.structs.replace(self, filter_by=both, by_pressure=by_pressure)


class ManualPrune:
    """A prune as a `manual_run.ManualRun`: the methods are explained there."""

    name = "prune"

    def __init__(
        self, settings: Settings, command: PruneCommand, memory: Callable[[Home], PruneMemory]
    ) -> None:
        self._settings = settings
        self._memory = memory
        self.filter_by = command.filter_by
        self.by_pressure = command.by_pressure

    def want(self, state: HomeState) -> Want:
        own = self._settings.for_home(state.home)
        return Want(
            prune=PrunePlanRequest(
                own.prune,
                self._memory(state.home),
                own.reaper.end_reason,
                by_hand=True,
                by_pressure=self.by_pressure,
                filter_by=self.filter_by,
            )
        )

    def plan_of(self, state: HomeState) -> PrunePlan | None:
        planned = state.plans.prune
        if planned is not None and planned.plan.blocked and has_no_database(state):
            return structs.replace(planned.plan, blocked="no_database", why=NO_DATABASE)
        return planned.plan if planned is not None else None

    def digest(self, action: Action[Any]) -> str:
        content = msgspec.json.encode((action.kind, action.policy, action.expected))
        return sha256(content).hexdigest()[:_HASH_DIGITS]

    def hash(self, plans: Sequence[PlannedHome]) -> str:
        content = [(each.plan.home, each.plan.hash) for each in plans if each.plan.actions]
        return sha256(msgspec.json.encode(content)).hexdigest()[:_HASH_DIGITS]

    def notes(self, plans: Sequence[PlannedHome], view: HostView) -> Iterator[str]:
        del view
        yield from _switched_off(self.filter_by.policies, plans)

    def in_the_way(self, plans: Sequence[PlannedHome], view: HostView) -> Iterator[str]:
        homes = {home.label: home for home in view.homes}
        for each in plans:
            label, why = each.state.home.label, each.plan.why
            if each.plan.blocked == "run_journal" and label in homes:
                why = "; ".join(why_no_journal(homes[label].runs.why))
            if each.plan.blocked:
                is_blocked = "" if has_no_database(each.state) else " is blocked"
                yield f"{escape_control(label)}{is_blocked}: {why}"
        held = sum(
            kept.items for each in plans for kept in each.plan.protected if kept.rule == "restored"
        )
        if held:
            them = "it" if held == 1 else "them"
            yield (
                f"{counted(held, 'item')} {'is' if held == 1 else 'are'} kept because an undo gave "
                f"{them} back; `prune --include-undone` takes {them} too"
            )

    def could_not_see(self, plans: Sequence[PlannedHome], view: HostView) -> bool:
        del view
        return any(each.plan.blocked and not has_no_database(each.state) for each in plans)

    def heal_first(self, loop: ScanLoop) -> None:
        heal_first(loop, self._settings)

    def has_more_to_do(self, each: PlannedHome) -> bool:
        del each
        return False

    def act(
        self,
        loop: ScanLoop,
        each: PlannedHome,
        run: str,
        result: RunResult,
        progress: OnProgress,
        cancellation: Cancellation | None,
    ) -> None:
        home, evidence, planned = each.state.home, each.state.evidence, each.state.plans.prune
        if evidence is None or planned is None:
            return
        wanted = [action.target for action in each.actions]
        request = prune_request(
            home, evidence, each.own, planned, by_hand=True, only=wanted, run=run
        )
        outcome = loop.call(
            home,
            protocol.PRUNE,
            request,
            progress=lambda settled, total: progress(home.label, settled, total),
            cancellation=cancellation,
        )
        result.add(wanted, outcome)
        if outcome.rows_kept:
            rows = f"the rows of {outcome.rows_kept} sessions of {escape_control(home.label)}"
            result.notes.append(
                f"{rows} stay, hidden, until the processes that may have them in memory have ended"
            )


def _switched_off(policies: Sequence[str], plans: Sequence[PlannedHome]) -> Iterator[str]:
    """Yield a line for each named policy that the configuration switches off."""
    for policy in policies:
        off = [each.state.home.label for each in plans if each.own.prune.is_off(policy)]
        if off:
            homes = escape_control(", ".join(off))
            yield f"policy {policy} is off in the configuration, for {homes}"
