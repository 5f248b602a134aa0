"""A prune and its undo beside a chat, killed before each statement and each change of a file.

The row of each session stays for the chat, so the undo fills it again. Whatever the kill left,
Hermes sees all of a session or nothing of it, and the next undo gives everything back as it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.runs.journal import journal_of
from exporter.runs.models import RunKind
from tests.real.hermes import NEWEST, python_for
from tests.real.holders import Holder
from tests.support.killable_process import Crew, crew_that
from tests.support.session_pruning import dump_all, planned, prunable_process

SESSIONS = {f"20250101_08{number:04}_aaaaaa": 2 * number for number in range(4)}
PARENT, DELEGATE = "20250103_080000_aaaaaa", "20250103_080000_aaaaab"
COUNTS = {**SESSIONS, DELEGATE: 2, PARENT: 3}
GROUPS = {DELEGATE: 1, PARENT: 1}

_ACT = """
import os, signal, sys
import apsw, msgspec
from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.recovery import BY_ACTION
from exporter.pruner.apply.undo import undo
from exporter.pruner.beside import ProcessesAtPrune
from exporter.pruner.models import PrunePlan
from exporter.runs.journal import journal_of
from exporter.runs.models import RunKind
from exporter.runs.recovery import recover_home
from tests.support.evidence import evidence
from tests.support.session_pruning import beside_all
from pathlib import Path

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate")

def count_down(steps):
    left = [steps]
    def step(*_):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True
    def trace(connection):
        connection.exec_trace = step
    apsw.connection_hooks.append(trace)
    sys.addaudithook(lambda event, _: step() if event in CHANGES else None)

def act(home, what, steps):
    site = beside_all(Path(home))
    beside = ProcessesAtPrune.of(evidence(Path(home)).holders, 3600.0)
    if int(steps):
        count_down(int(steps))
    if what == "prune":
        plan = msgspec.json.decode(open(f"{home}-plan.json").read(), type=PrunePlan)
        execute(plan, site, keep_seconds=3600.0, processes_at_prune=beside)
        return
    recover_home(site, BY_ACTION)
    with journal_of(home, os.geteuid()) as journal:
        runs = journal.list_runs() if journal is not None else []
    for run in runs:
        trash = f"{home}/.hermes-exporter/backups/trash/{run.id}"
        if run.kind is RunKind.PRUNE and os.path.isdir(trash):
            undo(run.id, site)
"""


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with crew_that(_ACT) as ready:
        yield ready


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with prunable_process(python_for(NEWEST), home) as writer:
        for session, count in SESSIONS.items():
            writer.ask("old", session=session, count=count, title=f"Title of {session}")
        writer.ask("old", session=PARENT, count=3)
        writer.ask("old", session=DELEGATE, count=2, parent=PARENT, marker="_delegate_from")
    return home


def picture(home: Path) -> dict[str, Any]:
    return dump_all(home, "word1", "terminal")


def check_whole_or_empty(hermes: Holder) -> None:
    for session, count in COUNTS.items():
        assert hermes.ask("show", session=session) is not None
        assert hermes.ask("count", session=session) in (0, count)


def check_given_back(home: Path, hermes: Holder, original: dict[str, Any]) -> None:
    assert picture(home) == original
    assert hermes.ask("broken") == []
    with journal_of(str(home), home.stat().st_uid) as runs:
        assert runs is None or runs.unfinished_runs() == []
        noted = [] if runs is None else runs.list_runs()
    assert all(run.is_undone for run in noted if run.kind is RunKind.PRUNE)


def kill_at_every(crew: Crew, home: Path, stride: int) -> None:
    plan = planned(home, list(COUNTS), GROUPS)
    Path(f"{home}-plan.json").write_bytes(msgspec.json.encode(plan))
    original = picture(home)
    with prunable_process(python_for(NEWEST), home) as hermes:
        for what in ("prune", "undo"):
            step = 1
            while True:
                if what == "undo":
                    crew.work(home, "prune")
                    assert hermes.ask("count", session=PARENT) == 0
                is_killed = crew.work_and_die_at(step, home, what)
                check_whole_or_empty(hermes)
                crew.work(home, "undo")
                check_given_back(home, hermes, original)
                shutil.rmtree(home / ".hermes-exporter", ignore_errors=True)
                if not is_killed:
                    break
                step += stride
            assert step > 50, "there were many steps to be killed at"


def test_all_is_given_back_whatever_step_it_was_killed_at(crew: Crew, home: Path) -> None:
    kill_at_every(crew, home, 23)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_all_is_given_back_killed_at_every_single_step(crew: Crew, home: Path) -> None:
    kill_at_every(crew, home, 1)
