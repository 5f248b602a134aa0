"""Homes with leaked sessions, what is known of them, and functions to act on them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exporter.evidence.liveness import BootTime
from exporter.evidence.models import HomeEvidence, ProcessFacts, ProcessKey
from exporter.evidence.openers import KnownOpeners
from exporter.reaper.models import JudgedSession, ReaperRules
from exporter.reaper.plan import JudgedHome, ReapPlan, plan_reap
from exporter.reaper.possible_hosts import HostClass, class_of
from exporter.reaper.reap import execute
from exporter.reaper.verdict_history import VerdictHistory
from exporter.runs.journal import journal_of
from exporter.runs.models import Outcome, Run
from exporter.snapshot import LockAnswer
from exporter.workers.home import WorkerHome
from exporter.writing.target import Target
from tests.real.hermes import Hermes
from tests.real.holders import Holder, obedient_process
from tests.support.evidence import evidence
from tests.support.home_scans import scan

GATEWAY = ("gateway", "run")
"""A server: with the rules below a session is presumed dead beside it at once."""
ONE_SHOT = ("chat", "-q", "hello")
"""A process that is cleared of all sessions here: each counts as seen before it started."""
RULES = ReaperRules(presume_server_seconds=0.0)
REASON = "reaped"


@contextmanager
def hermes_process(hermes: Hermes, home: Path, *arguments: str) -> Iterator[Holder]:
    """Run a process of this release with the home's database open; see `inside/hold_more.py`.

    Its command line is `hermes ARGUMENTS`. It closes the database and exits at the end.
    """
    program = home.parent / f"{home.name}-more" / "hermes"
    program.parent.mkdir(exist_ok=True)
    program.write_text("from tests.real.inside.hold_more import main\n\nmain()\n")
    command = [str(hermes.python), str(program), *arguments]
    with obedient_process(command, hermes, home) as running:
        yield running


def leaky_home(hermes: Hermes, home: Path, sessions: Sequence[str]) -> Path:
    """Make a cold home whose sessions were all left open by processes that are gone."""
    home.mkdir(mode=0o700)
    with hermes_process(hermes, home) as writer:
        for session in sessions:
            writer.ask("leak", session=session)
    return home


def judge(
    home: Path, clock: Callable[[], float] = time.time, found: HomeEvidence | None = None
) -> tuple[list[JudgedSession], HomeEvidence]:
    """Return the verdicts on a home's open sessions, from a real scan.

    The survey is real too, unless what it would find is given: other processes of this machine may
    make a real one blind for a moment.
    """
    look = scan(WorkerHome(str(home), clock=clock), home)
    found = found or evidence(home)
    facts = ProcessFacts(
        holders=found.holders,
        lock_probe=look.look.state.lock_probe,
        blind=tuple(blindness.value for blindness in found.blind),
    )
    if facts.lock_probe is LockAnswer.BLIND and not found.holders:
        facts = ProcessFacts(holders=(), lock_probe=LockAnswer.FREE, blind=facts.blind)
    history = VerdictHistory(lambda: BootTime("", time.monotonic(), since_boot=0.0))
    sessions = {session.id: session for session in look.sessions}
    for _ in range(RULES.confirmations):
        history.update(sessions, facts, RULES, clock())
    return [history.judged(session) for session in look.sessions], found


def planned(home: Path) -> tuple[ReapPlan, Target]:
    """Return what would be reaped by hand now, and the target to reap it on."""
    judged, found = judge(home)
    plan = plan_reap(JudgedHome("home", judged), time.time(), by_hand=True)
    return plan, target_of(home, KnownOpeners.of(found))


def target_of(home: Path, openers: KnownOpeners | None = None, **changes: Any) -> Target:
    gentle: dict[str, Any] = {"pause_seconds": 0.005, **changes}
    return Target(str(home), home.stat().st_uid, openers or KnownOpeners(), **gentle)


def reap(home: Path) -> Outcome:
    """Judge, plan and reap."""
    plan, place = planned(home)
    return execute(plan, place, end_reason=REASON, processes=processes(home))


def processes(home: Path) -> tuple[ProcessKey, ...]:
    """Return the processes that have the database open and may run a session."""
    return tuple(
        each.key for each in evidence(home).holders if class_of(each) is not HostClass.CLEARED
    )


def targets(plan: ReapPlan) -> list[str]:
    return sorted(action.target for action in plan.actions)


def history(home: Path) -> list[Run]:
    with journal_of(str(home), home.stat().st_uid) as runs:
        return runs.list_runs() if runs else []


_DUMP = """
import json, sqlite3, sys
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
names = [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]
columns = ", ".join(f"quote({name})" for name in names)
rows = connection.execute(f"SELECT id, {columns} FROM sessions ORDER BY id")
print(json.dumps({row[0]: dict(zip(names, row[1:])) for row in rows}))
"""


def dump(home: Path) -> dict[str, dict[str, str]]:
    """Return every column of every session exactly as stored, by another process and library.

    Never use it beside a holder that lost its locks.
    """
    command = [sys.executable, "-c", _DUMP, str(home / "state.db")]
    found: dict[str, dict[str, str]] = json.loads(subprocess.check_output(command, text=True))
    return found


def open_sessions(home: Path) -> set[str]:
    return {session for session, row in dump(home).items() if row["ended_at"] == "NULL"}


def inodes(home: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in home.glob("state.db*")}
