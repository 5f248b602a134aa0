"""Reaps that are wrong, and their healing: the one place that knows the reaper's own interface."""

from __future__ import annotations

from pathlib import Path

from exporter.evidence.models import ProcessKey
from exporter.evidence.openers import KnownOpeners
from exporter.reaper import reopen
from exporter.reaper.plan import OpenSessionState
from exporter.reaper.possible_hosts import HostClass, class_of
from exporter.reaper.reap import execute
from exporter.runs.models import END_SESSION, Action, Plan
from exporter.workers.home import WorkerHome
from exporter.writing.target import Target
from tests.support.evidence import evidence
from tests.support.home_scans import scan


def reap_in_use(home: Path, session: str) -> str:
    """End a session as the reaper does, journal and all, whatever uses it.

    Return why it is not ended all the same, if there is something that names it held.
    """
    (row,) = [each for each in scan(WorkerHome(str(home)), home).sessions if each.id == session]
    action = Action(END_SESSION, session, "a test", OpenSessionState.of(row))
    plan = Plan("home", actions=(action,))
    outcome = execute(plan, _site(home), end_reason="reaped", processes=_processes(home))
    assert (session,) in (outcome.done, tuple(each.target for each in outcome.skipped)), outcome
    return "".join(each.why for each in outcome.skipped)


def heal(home: Path) -> None:
    """What a scan does first, and every command by hand."""
    reopen.reopen_active(_site(home), _processes(home))


def _site(home: Path) -> Target:
    return Target(
        str(home), home.stat().st_uid, KnownOpeners.of(evidence(home)), pause_seconds=0.005
    )


def _processes(home: Path) -> tuple[ProcessKey, ...]:
    """Those that have the database open and may run a session."""
    holders = evidence(home).holders
    return tuple(each.key for each in holders if class_of(each) is not HostClass.CLEARED)
