"""Every command of a host as a method.

It uses a `ScanLoop`: that of a running agent, or one made for a single command (`one_shot`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from exporter.agent import manual_run, run_history
from exporter.agent import status as host_status
from exporter.agent.home_state import HomeState
from exporter.agent.manual_prune import ManualPrune, PruneCommand
from exporter.agent.manual_reap import ManualReap, ReapCommand
from exporter.agent.manual_run import Acting, ManualRun, OnProgress, uninterrupted
from exporter.agent.readings_folder import ReadingsFolder
from exporter.agent.run_history import Announce, UndoReport
from exporter.agent.run_result import RunReport, RunResult, unknown_sources
from exporter.agent.scan_loop import PROBE_SECONDS, READ_SECONDS, ScanLoop
from exporter.agent.scan_request import ScanPurpose
from exporter.agent.session_list import explained_row
from exporter.agent.socket_messages import OpenSessions
from exporter.agent.status import cannot_write, newest_first
from exporter.agent.visibility import capabilities, needs_attention, no_writing
from exporter.agent.watched_homes import ROOT_OWNED, SELECT_IT
from exporter.collectors.view import HomeView, HostView
from exporter.discovery.homes import RefusedHome
from exporter.errors import ExporterError, HomeError, UsageError, WorkerError
from exporter.pruner.models import State
from exporter.pruner.requests import PrunePlanRequest
from exporter.reaper.models import Verdict
from exporter.reaper.plan import OpenSessionState
from exporter.scan.access import DeniedPart
from exporter.text import counted, escape_control
from exporter.workers import protocol
from exporter.workers.protocol import ProbeRequest, Want

_SCAN_SECONDS: Final = PROBE_SECONDS + READ_SECONDS
_BETWEEN_CONFIRMATIONS_SECONDS: Final = 2.0
"""Pause between the scans of a reap: a session is dead only if several scans in a row agree. What
only shows verdicts does not wait: nothing is done because of it.
"""
_PREFIX_MIN: Final = 4
_NO_PLANS: Final = ScanPurpose(lambda _: Want())


class HostService:
    """The homes of this host, for commands and for programs."""

    def __init__(self, loop: ScanLoop, state_dir: str, *, fresh: bool = False) -> None:
        """`fresh`: figures are made without anything that an earlier command has read."""
        self._loop = loop
        self._state_dir = state_dir
        self._readings = ReadingsFolder(state_dir, fresh=fresh)

    # Reading

    def status(self) -> dict[str, Any]:
        """Return all homes for one screen."""
        view = self._scan_with_prune_figures(by_hand=True)
        return host_status.status(view, self._loop.settings, public=False, by_agent=self._loop.acts)

    def sessions(
        self, verdict: str | None = None, source: str | None = None, *, over_limit: bool = False
    ) -> OpenSessions:
        """Return the open sessions of every home; `over_limit`: those that
        `hermes_sessions_marathon` of level `over` counts.
        """
        view = self._scan(ScanPurpose(walk_disk=False, want=_NO_PLANS.want))
        rows = [
            row
            for state in self._states()
            for row in state.session_rows(public=False)
            if verdict in (None, row["verdict"])
            and source in (None, row["source"])
            and (not over_limit or _is_over_limit(state, row))
        ]
        wanted = () if source is None else (source,)
        notes = unknown_sources(wanted, (state.snapshot for state in self._states()))
        incomplete = [f"{home.label} (cannot be read)" for home in view.homes if not home.up]
        incomplete += [
            f"{home.label} ({home.sessions_left_out} more are too many to list)"
            for home in view.homes
            if home.sessions_left_out
        ]
        shown = {home.path for home in view.homes}
        incomplete += [
            f"{each.path} (refused)"
            for each in self._refused()
            if each.own and each.path not in shown
        ]
        return OpenSessions(rows, incomplete, notes, sum(home.up for home in view.homes))

    def explain(self, session_id: str) -> dict[str, Any]:
        """Return every piece of evidence and every rule for one session."""
        view = self._scan(ScanPurpose(walk_disk=False, want=_NO_PLANS.want))
        loop = self._loop
        states = self._states()
        found = loop.explain(session_id, states) or loop.explain(
            self._complete_id(session_id), states
        )
        if not found:
            past = loop.past_sessions(session_id, states)
            if past:
                raise ExporterError("; ".join(of.sentence(session_id, label) for label, of in past))
            unread = [home.label for home in view.homes if not home.up]
            hint = f"; could not read {', '.join(unread)}" if unread else ""
            raise ExporterError(
                f"no open session {escape_control(session_id)} in any home{hint}; "
                "`hermes-exporter sessions` lists them"
            )
        if len(found) > 1:
            homes = ", ".join(label for label, _, _ in found)
            raise UsageError(
                f"session {escape_control(session_id)} is in several homes ({homes}); add --home"
            )
        return explained_row(*found[0])

    def _complete_id(self, beginning: str) -> str:
        """Return the id of the only open session that begins so; if there is none, the beginning
        itself.
        """
        if len(beginning) < _PREFIX_MIN:
            return beginning
        ids = {
            row["id"]
            for state in self._states()
            for row in state.session_rows(public=False)
            if row["id"].startswith(beginning)
        }
        if len(ids) > 1:
            some = ", ".join(escape_control(each) for each in sorted(ids)[:3])
            raise UsageError(
                f"{counted(len(ids), 'open session')} begin with {escape_control(beginning)} "
                f"({some}, ...); give more of the id"
            )
        return ids.pop() if ids else beginning

    def metrics_view(self) -> HostView:
        """Return the view that the collectors make metrics from."""
        return self._scan_with_prune_figures()

    def check(self) -> dict[str, Any]:
        """Return what can be seen of each home."""
        view = self._scan(_NO_PLANS)
        states = {state.home.path: state for state in self._states()}
        homes = [self._capabilities(home, states[home.path]) for home in view.homes]
        refused = [each for each in self._refused() if each.path not in states]
        homes.extend(
            {
                "home": None,
                "path": refusal.path,
                "can": [],
                "cannot": [{"what": "adopt", "why": refusal.why, "grant": refusal.fix}],
            }
            for refusal in refused
        )
        seen = not any(needs_attention(home) for home in view.homes)
        return {
            "ok": seen and not any(each.own for each in refused),
            "config": [],
            "homes": homes,
            "advice": [
                f"the entry of homes with {entry} selects no home on this host"
                for entry in self._unused()
            ],
        }

    def _capabilities(self, view: HomeView, state: HomeState) -> dict[str, Any]:
        home, denied = state.home, list[DeniedPart]()
        if not view.up or view.blind:
            with suppress(HomeError, WorkerError, TimeoutError):  # else it says so already
                request = ProbeRequest(home.path, home.owner)
                denied = self._loop.call(home, protocol.ACCESS, request)
        found = capabilities(view, home.owner_name or f"uid {home.owner}", denied)
        if not home.problem and self._loop.settings.only_watches(home, may_write=home.may_write):
            what = "reap or prune it, as the configuration asks"
            found["cannot"].append({"what": what, "why": ROOT_OWNED, "grant": SELECT_IT})
        why = cannot_write(view, by_agent=self._loop.acts)
        if why and view.up:
            found["cannot"].append(no_writing(home.path, why))
        return found

    def count_homes(self) -> int:
        """Return how many homes there are, readable or not."""
        self._discover()
        return len(self._states())

    # Acting

    def reap(
        self, command: ReapCommand, acting: Acting = uninterrupted
    ) -> RunReport[OpenSessionState]:
        """Plan a reap of every home, and execute it if asked to."""
        saved = manual_run.load_plan("reap", self._state_dir, command.plan_hash)
        command = command.after(saved)
        kind = ManualReap(self._loop.settings, command)
        purpose = ScanPurpose(
            kind.want,
            walk_disk=False,
            presume_by_clock=command.presume,
            include_undone=command.include_undone,
        )

        def scan() -> HostView:
            return self._scan(purpose, _BETWEEN_CONFIRMATIONS_SECONDS)

        view = self._scan_after_recovery(scan) if command.execute else scan()
        result = manual_run.plan(kind, self._loop, view, saved)
        return self._finish(kind, result, _ignore_progress, acting, execute=command.execute)

    def prune(
        self, command: PruneCommand, progress: OnProgress, acting: Acting = uninterrupted
    ) -> RunReport[State]:
        """Plan a prune of every home, and execute it if asked to."""
        command.check()
        saved = manual_run.load_plan("prune", self._state_dir, command.plan_hash)
        command = command.after(saved)
        kind = ManualPrune(self._loop.settings, command, self._loop.prune_memory)

        def scan() -> HostView:
            return self._loop.run(_SCAN_SECONDS, ScanPurpose(kind.want, list_sessions=False))

        view = self._scan_after_recovery(scan) if command.execute else scan()
        result = manual_run.plan(kind, self._loop, view, saved)
        return self._finish(kind, result, progress, acting, execute=command.execute)

    def _finish(
        self,
        kind: ManualRun,
        result: RunResult,
        progress: OnProgress,
        acting: Acting,
        *,
        execute: bool,
    ) -> RunReport[Any]:
        if execute:
            manual_run.execute(kind, self._loop, result, progress, acting)
        else:
            result.notes += manual_run.unfinished_run_notes(self._loop)
            result.notes += manual_run.cannot_write_notes(result)
            if any(each.actions for each in result.plans):
                manual_run.try_save(kind, self._loop, self._state_dir, result)
        return result.report()

    # History

    def history(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return all runs in all homes, newest first, and the homes with an unreadable journal."""
        unread: list[str] = []
        self._discover()
        runs = run_history.runs_of(self._loop, unread, self._states())
        return newest_first(run.row(state.home.label) for state, run in runs), unread

    def show_run(self, run: str) -> tuple[list[dict[str, Any]], list[str]]:
        """Return one run in every home it acted on, and the homes whose journal cannot be read."""
        unread: list[str] = []
        self._discover()
        return run_history.show_run(self._loop, run, unread, self._states()), unread

    def undo(
        self, run: str | None, announce: Announce, acting: Acting = uninterrupted
    ) -> UndoReport:
        """Restore what a run took, in every home it acted on; None means the last run that can be
        undone.
        """
        self._loop.probe(_SCAN_SECONDS)
        run_history.settle_all(self._loop)
        return run_history.undo(self._loop, run, announce, acting)

    def lost_by_purge(self, run: str | None) -> list[str]:
        """Return lines about what a purge of this run, or of all, makes impossible to restore."""
        self._loop.discover()
        return run_history.lost_by_purge(self._loop, run)

    def purge(self, run: str | None, acting: Acting = uninterrupted) -> RunReport[Any]:
        """Empty the trash of one run in every home, or of all runs; the result lists what stays."""
        result = RunResult("", time.time())
        result.executed = True
        self._loop.probe(_SCAN_SECONDS)
        run_history.settle_all(self._loop)
        with acting(run or "") as cancellation:
            for state in self._loop.states():
                run_history.purge(self._loop, state, run, result, cancellation)
        if run is not None and not result.done and not result.skipped:
            raise ExporterError(
                f"run {run[:64]} has no trash in any home; `hermes-exporter history` lists the runs"
            )
        return result.report()

    # Scanning; `MemoryService` answers from what the agent knows instead

    def _states(self) -> list[HomeState]:
        return self._loop.states()

    def _refused(self) -> Sequence[RefusedHome]:
        return self._loop.census.refused

    def _unused(self) -> Sequence[str]:
        return self._loop.census.unused

    def _discover(self) -> None:
        self._loop.discover()

    def _scan(self, purpose: ScanPurpose, pause_seconds: float = 0.0) -> HostView:
        """Scan as often as a verdict needs; the last scan makes the plans and reads the rest."""
        before = dataclasses.replace(
            purpose, want=_NO_PLANS.want, walk_disk=False, list_sessions=False, readings=None
        )
        self._loop.discover()
        homes = [self._loop.settings.for_home(each.home) for each in self._loop.states()]
        for _ in range(max((own.reaper.confirmations for own in homes), default=1) - 1):
            view = self._loop.run(_SCAN_SECONDS, before)
            if pause_seconds and any(home.verdicts for home in view.homes):
                time.sleep(pause_seconds)
        return self._loop.run(_SCAN_SECONDS, purpose)

    def _scan_with_prune_figures(self, *, by_hand: bool = False) -> HostView:
        """Scan, and add what an automatic prune would do, or one by hand."""

        def want(state: HomeState) -> Want:
            own = self._loop.settings.for_home(state.home)
            memory = self._loop.prune_memory(state.home)
            return Want(
                prune=PrunePlanRequest(
                    own.prune,
                    memory,
                    own.reaper.end_reason,
                    figures_by_hand=by_hand,
                    figures_only=True,
                    sessions_max=self._loop.settings.limits.sessions_per_home,
                )
            )

        self._scan(ScanPurpose(want, list_sessions=False, readings=self._readings))
        return self._loop.keep_prune_reports()

    def _scan_after_recovery(self, scan: Callable[[], HostView]) -> HostView:
        """Scan; if runs were killed, settle them and scan again: half-done work would mislead the
        plan.
        """
        view = scan()
        open_homes = [
            each for each in self._loop.states() if each.unfinished_runs and each.home.may_write
        ]
        if not open_homes:
            return view
        run_history.settle(self._loop, open_homes)
        return scan()


def _is_over_limit(state: HomeState, row: dict[str, Any]) -> bool:
    """True for a session that `hermes_sessions_marathon` of level `over` counts."""
    summary = state.snapshot.sessions if state.snapshot is not None else None
    in_use = row["verdict"] in (Verdict.LIVE, Verdict.HELD)
    return summary is not None and in_use and row["messages"] > summary.marathon_limit


def _ignore_progress(label: str, settled: int, total: int) -> None:
    """Ignore progress."""
