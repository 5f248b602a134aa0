"""Ctrl-C in a reap, a prune, an undo or a purge: a truthful last line, and always a way back."""

from __future__ import annotations

import itertools
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.undo import undo
from exporter.runs.folder import run_folder, run_lock
from exporter.runs.journal import running
from exporter.runs.models import Action, RecordedAction, Run, RunKind, RunOutcome
from exporter.writing.target import Target
from tests.real.command import PROGRAM, run, run_json
from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.real.waiting import wait_until
from tests.support.home_picture import Picture, picture
from tests.support.kill_times import Instants
from tests.support.old_sessions import old_sessions
from tests.support.pruned_home import make_home, plan_all, transcript
from tests.support.reaping import history, target_of

_DONE = re.compile(r"Interrupted: ([\d,]+) of ([\d,]+) (?:item|session)s? .*?(\d{8}T\d{6}-\w{4})")
_COMMAND = re.compile(r"To go on:\n +hermes-exporter (.*)\n$")


# Every safe point, in a home that a real release has written


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(python_for(NEWEST), tmp_path_factory.mktemp("stopped") / "home", 3, 8)


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


class StopAfter:
    """Asks a run to stop when it has looked so often whether to go on."""

    def __init__(self, looks: int) -> None:
        self._left = looks

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0


def small_steps(home: Path, stopping: Callable[[], bool]) -> Target:
    """Return a target with so little time for a transaction that there are many of them."""
    return target_of(home, lock_budget_seconds=0.001, pause_seconds=0.0, stopping=stopping)


def test_a_prune_stops_at_every_safe_point(home: Path) -> None:
    before, plan = picture(home), plan_all(home)
    stops = 0
    for looks in itertools.count():
        pruned = execute(plan, small_steps(home, StopAfter(looks)), keep_seconds=3600.0)
        assert_no_file_without_its_session(picture(home))
        noted = newest(home, RunKind.PRUNE)
        assert (noted.outcome, noted.actions) == (pruned.outcome, len(pruned.done))
        if pruned.done:
            assert undo(noted.id, target_of(home)).outcome is RunOutcome.DONE
        assert picture(home) == before
        if pruned.outcome is RunOutcome.DONE:
            break
        assert pruned.outcome is RunOutcome.INTERRUPTED
        stops += 1
    assert stops > 3  # or there was little to see


def test_an_undo_stops_at_every_safe_point_and_goes_on(home: Path) -> None:
    before, plan = picture(home), plan_all(home)
    stops = 0
    for looks in itertools.count():
        run_id = execute(plan, target_of(home), keep_seconds=3600.0).run or ""
        undone = undo(run_id, small_steps(home, StopAfter(looks)))
        assert_no_file_without_its_session(picture(home))
        noted = newest(home, RunKind.UNDO)
        assert (noted.outcome, noted.actions) == (undone.outcome, len(undone.done))
        if undone.outcome is RunOutcome.DONE:
            break
        assert undone.outcome is RunOutcome.INTERRUPTED
        stops += 1
        rest = undo(run_id, target_of(home))
        assert (rest.outcome, len(rest.done)) == (RunOutcome.DONE, 6 - len(undone.done))
        assert picture(home) == before
    assert picture(home) == before
    assert stops > 3  # or there was little to see


def newest(home: Path, kind: RunKind) -> Run:
    return next(each for each in history(home) if each.kind is kind)


def assert_no_file_without_its_session(now: Picture) -> None:
    """A session and its transcript are both there, or both gone."""
    sessions = {row.split("'")[1] for name, row in now.items() if name.startswith("row sessions ")}
    files = {name.rpartition(" ")[2] for name in now if "sessions/session_" in name}
    assert files == {transcript(each) for each in sessions}


# The commands


class Stopped(NamedTuple):
    """A command that got a signal."""

    status: int
    output: str
    errors: str
    seconds: float
    """From the begin of its run to its end."""

    @property
    def done(self) -> tuple[int, int, str]:
        """How many of how many it did, and the id of the run, by its own words."""
        found = _DONE.search(self.output)
        assert found is not None, self
        done, planned, run_id = found.groups()
        return int(done.replace(",", "")), int(planned.replace(",", "")), run_id

    @property
    def is_whole(self) -> bool:
        """True if it did all and said so; the signal may have hit a Python that was leaving."""
        return self.status in (0, -signal.SIGINT) and "items" in self.output

    @property
    def next_command(self) -> list[str]:
        """The command to go on, which is the last line."""
        found = _COMMAND.search(self.output)
        assert found is not None, self
        return shlex.split(found[1])


def start(home: Path, *words: str) -> subprocess.Popen[str]:
    # Where the tests run in the background Ctrl-C is ignored, and a command would leave it so.
    heeding = ["env", "--default-signal=INT"]
    return subprocess.Popen(
        [
            *heeding,
            *PROGRAM,
            *words,
            "--home",
            str(home),
            "--state-dir",
            str(home.parent / "state"),
        ],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stop(
    home: Path, kind: RunKind, *words: str, seconds: float = 0.0, by: int = signal.SIGINT
) -> Stopped:
    """Start a command and send it a signal so long after its run has begun."""
    before = len(history(home))
    with start(home, *words) as process:
        wait_until(
            lambda: process.poll() is not None or len(history(home)) > before, f"{kind} begins"
        )
        began = time.monotonic()
        time.sleep(seconds)
        process.send_signal(by)
        output, errors = process.communicate(timeout=300)
        return Stopped(process.returncode, output, errors, time.monotonic() - began)


def interrupt_again_and_again(home: Path, times: int) -> None:
    """Prune and undo in turn, each with Ctrl-C at random moments."""
    chance = random.Random(times)
    before = picture(home)
    moments = {RunKind.PRUNE: Instants(chance, 0.7), RunKind.UNDO: Instants(chance, 0.7)}
    planned = run_json("prune", *options(home))["plan"]["actions"]
    stopped = 0
    while stopped < times:
        words = ["prune", "--yes", "--include-undone"]  # of the round before
        pruned = stop(home, RunKind.PRUNE, *words, seconds=moments[RunKind.PRUNE].draw())
        moments[RunKind.PRUNE].heed(killed=pruned.status == 130)
        noted = newest(home, RunKind.PRUNE)
        if pruned.status == 130:
            stopped += 1
            assert pruned.done == (noted.actions, len(planned), noted.id)
            assert pruned.next_command[:3] == words
            assert noted.outcome is RunOutcome.INTERRUPTED
        else:
            assert pruned.is_whole, pruned
        assert_no_file_without_its_session(picture(home))
        left = noted.actions
        while left:
            words = ["undo", noted.id]
            undone = stop(home, RunKind.UNDO, *words, seconds=moments[RunKind.UNDO].draw())
            moments[RunKind.UNDO].heed(killed=undone.status == 130)
            assert_no_file_without_its_session(picture(home))
            if undone.status != 130:
                assert undone.is_whole, undone
                break
            stopped += 1
            done, of, run_id = undone.done
            assert (of, run_id) == (left, noted.id)
            assert undone.next_command[:2] == words
            left -= done
        assert picture(home) == before


def options(home: Path) -> list[str]:
    return ["--home", str(home), "--state-dir", str(home.parent / "state")]


def test_ctrl_c_in_a_prune_and_its_undo_leaves_a_truthful_last_line(tmp_path: Path) -> None:
    interrupt_again_and_again(old_sessions(tmp_path / "home", 800), 2)


@pytest.mark.full
def test_ctrl_c_at_twenty_moments_is_always_undoable(tmp_path: Path) -> None:
    interrupt_again_and_again(old_sessions(tmp_path / "home", 2500), 20)


def test_history_calls_a_run_interrupted_whose_process_is_gone(tmp_path: Path) -> None:
    home = old_sessions(tmp_path / "home", 1)
    with running(str(home), os.getuid(), "prune") as journal:
        killed = journal.begin(
            RunKind.PRUNE, [RecordedAction(Action("delete_session", "a", "it is old", {}))]
        )
        assert outcomes(home) == {killed: None}  # it is under way
    assert outcomes(home) == {killed: "interrupted"}
    # Another run has the lock now, and has not come to settling the first.
    with run_folder(str(home), os.getuid()) as folder:
        assert folder is not None
        with run_lock(folder, "prune"):
            assert outcomes(home) == {killed: "interrupted"}
    shown = run("history", *options(home))
    assert "interrupted" in shown.stdout
    assert "under way" not in shown.stdout


def outcomes(home: Path) -> dict[str, str | None]:
    return {row["run"]: row["outcome"] for row in run_json("history", *options(home))}


def test_a_second_command_during_a_run_says_so_once(tmp_path: Path) -> None:
    home = old_sessions(tmp_path / "home", 60)
    with run_folder(str(home), os.getuid(), create=True) as folder:
        assert folder is not None
        with run_lock(folder, "prune"):
            second = run("prune", "--yes", *options(home))
    assert second.returncode == 1
    said = second.stdout + second.stderr
    assert said.count("another run is under way") == 1
    assert f"prune by process {os.getpid()}" in said
    assert len(said.splitlines()) < 10
