"""A `HostService` that answers from what a running agent knows, for one user of its socket."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from exporter.agent.home_state import HomeState
from exporter.agent.scan_loop import ScanLoop
from exporter.agent.scan_request import ScanPurpose
from exporter.agent.service import HostService
from exporter.agent.visibility import runbook_advice
from exporter.collectors.view import HostView
from exporter.discovery.homes import RefusedHome
from exporter.errors import ExporterError
from exporter.web.queries import QueryError


class UnwatchedError(ExporterError):
    """The agent watches no home that this user asks about."""


class UnwritableError(ExporterError):
    """The agent may not write; a command may."""


def states_of(
    loop: ScanLoop, view: HostView, uid: int, paths: Sequence[str] = ()
) -> list[HomeState]:
    """Return the homes that this user may see and act on: their own, or all for root.

    `paths` narrows it to these homes. Raise UnwatchedError if the agent watches none, or not all of
    these. A home of another user is the same as one that is not there.
    """
    shown = {home.path for home in view.homes}
    found = [
        state
        for state in loop.states()
        if uid in (0, state.home.owner) and state.home.path in shown
    ]
    if paths:
        wanted = {os.path.normpath(path) for path in paths}
        found = [state for state in found if state.home.path in wanted]
        if {state.home.path for state in found} != wanted:
            raise UnwatchedError("the agent does not watch every home that was named")
    if not found:
        raise UnwatchedError("the agent watches no home of this user")
    return found


class MemoryService(HostService):
    """Only the reading methods are of use. What needs a worker (`explain`, `history`) must run in
    the scanner's thread.
    """

    def __init__(
        self,
        loop: ScanLoop,
        view: HostView,
        state_dir: str,
        uid: int,
        paths: Sequence[str],
        listen_addresses: Sequence[str],
    ) -> None:
        """`paths` narrows it to these homes; empty means all that this user may see."""
        super().__init__(loop, state_dir)
        self._mine = states_of(loop, view, uid, paths)
        self._view = view
        self._listen_addresses = listen_addresses
        self._sees_all = uid == 0 and not paths

    def check(self) -> dict[str, Any]:
        report = super().check()
        report["advice"] += self._loop.state_advice
        report["advice"] += runbook_advice(self._loop.settings, self._listen_addresses)
        return report

    def explain(self, session_id: str) -> dict[str, Any]:
        self._refuse_while_scanning()
        return super().explain(session_id)

    def history(self) -> tuple[list[dict[str, Any]], list[str]]:
        self._refuse_while_scanning()
        return super().history()

    def show_run(self, run: str) -> tuple[list[dict[str, Any]], list[str]]:
        self._refuse_while_scanning()
        return super().show_run(run)

    def _refuse_while_scanning(self) -> None:
        """Raise QueryError if the worker of a home cannot answer: the command then reads it itself.

        On a busy host a scan can last longer than the time between two scans. Without this the
        answer would say that nothing was found, or that the home cannot be read.
        """
        for state in self._mine:
            if self._loop.is_busy(state.home):
                raise QueryError(f"{state.home.label} is still being scanned")

    def _states(self) -> list[HomeState]:
        return self._mine

    def _refused(self) -> Sequence[RefusedHome]:
        return self._view.refused if self._sees_all else ()

    def _unused(self) -> Sequence[str]:
        return super()._unused() if self._sees_all else ()

    def _discover(self) -> None:
        """The agent has done it."""

    def _scan(self, _purpose: ScanPurpose, _pause_seconds: float = 0.0) -> HostView:
        return self._seen()

    def _scan_with_prune_figures(self, *, by_hand: bool = False) -> HostView:  # noqa: ARG002
        return self._seen()

    def _seen(self) -> HostView:
        mine = {state.home.path for state in self._mine}
        homes = tuple(home for home in self._view.homes if home.path in mine)
        return structs.replace(self._view, homes=homes, refused=tuple(self._refused()))
