"""The journal cannot be written after the database was: nothing is claimed, and nothing is lost."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.undo import undo
from exporter.reaper.reap import execute as reap
from exporter.reaper.reopen import undo as undo_reap
from exporter.runs.journal import RunJournal
from exporter.runs.models import RunKind, RunOutcome
from tests.real.command import run, run_json
from tests.real.hermes import NEWEST, python_for
from tests.support.fault_injection import faulty_python, run_with
from tests.support.pruned_home import (
    contents,
    make_home,
    plan_all,
    sessions,
    transcripts,
    unfinished,
)
from tests.support.reaping import REASON, history, leaky_home, open_sessions, planned, target_of
from tests.support.session_pruning import KEEP_SECONDS

SESSIONS = 6

# The disk is full from the first time that something is to be noted as done.
_FILL = """
settle = module.RunJournal.settle
def full(*words):
    place = {place!r}
    for size in (1 << 20, 4096, 1):
        with open(f"{{place}}/filler-{{size}}", "wb", buffering=0) as file:
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                pass
    return settle(*words)
module.RunJournal.settle = full
"""
_DIE = """
import os, signal
def die(*words):
    os.kill(os.getpid(), signal.SIGKILL)
module.RunJournal.settle = die
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unnoted")
    return make_home(python_for(NEWEST), folder / "home", SESSIONS)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small filesystem of its own."""
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(48 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True, capture_output=True)
    place.mkdir()
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def where(tmp_path: Path) -> Callable[[Path], list[str | Path]]:
    file = tmp_path / "agent.yml"
    file.write_text("prune: {keep: {newest: 1}}\n")

    def words(home: Path) -> list[str | Path]:
        return ["--home", home, "--state-dir", tmp_path / "state", "--config.file", file]

    return words


Where = Callable[[Path], list[str | Path]]


def empty(disk: Path) -> None:
    for filler in disk.glob("filler-*"):
        filler.unlink()


@pytest.fixture
def stopped(template: Path, disk: Path, tmp_path: Path, where: Where) -> dict[str, Any]:
    """What a prune says whose disk is full from the moment when it has deleted its sessions."""
    home = shutil.copytree(template, disk / "home")
    python = faulty_python(tmp_path, "exporter.runs.journal", _FILL.format(place=str(disk)))
    done = run_with(python, "prune", "--yes", "--json", *where(home))
    empty(disk)
    return {"home": home, "status": done.returncode, **json.loads(done.stdout)}


def test_a_prune_that_could_not_note_what_it_did_claims_nothing(stopped: dict[str, Any]) -> None:
    home = stopped["home"]
    assert len(sessions(home)) < SESSIONS
    assert (stopped["status"], stopped["outcome"], stopped["done"]) == (3, "unknown", 0)
    assert stopped["run"] == history(home)[0].id
    for each in stopped["skipped"]:
        assert f"not known what was done; `hermes-exporter undo {stopped['run']}`" in each["why"]


def test_the_last_run_is_given_back_though_it_could_note_nothing(
    stopped: dict[str, Any], template: Path, where: Where
) -> None:
    undone = run_json("undo", "--last", *where(stopped["home"]))
    assert (undone["run"], undone["failed"]) == (stopped["run"], [])
    assert contents(stopped["home"]) == contents(template)


@pytest.mark.parametrize("command", ["prune", "reap"])
def test_the_next_command_that_acts_settles_it_first(
    stopped: dict[str, Any], command: str, where: Where
) -> None:
    home = stopped["home"]
    run_json(command, "--yes", *where(home))
    assert unfinished(home) == []
    assert transcripts(home) == sessions(home)
    assert next(each for each in history(home) if each.id == stopped["run"]).actions > 0


def test_the_terminal_says_that_it_is_not_known_and_how_to_give_it_back(
    template: Path, disk: Path, tmp_path: Path, where: Where
) -> None:
    home = shutil.copytree(template, disk / "home")
    python = faulty_python(tmp_path, "exporter.runs.journal", _FILL.format(place=str(disk)))
    done = run_with(python, "prune", "--yes", *where(home))
    assert "Not known what was done." in done.stdout
    assert f"hermes-exporter undo {history(home)[0].id}" in done.stdout
    assert "taken" not in done.stdout


def test_a_worker_that_dies_leaves_a_run_that_is_not_known(
    template: Path, tmp_path: Path, where: Where
) -> None:
    home = shutil.copytree(template, tmp_path / "home")
    python = faulty_python(tmp_path, "exporter.runs.journal", _DIE)
    done = run_with(python, "prune", "--yes", "--json", *where(home))
    said = json.loads(done.stdout)
    assert (done.returncode, said["outcome"], said["done"]) == (3, "unknown", 0)
    assert run_json("undo", "--last", *where(home))["failed"] == []
    assert contents(home) == contents(template)


def test_an_undo_that_could_not_note_what_it_gave_back_says_so_and_can_be_repeated(
    template: Path, disk: Path, tmp_path: Path, where: Where
) -> None:
    home = shutil.copytree(template, disk / "home")
    pruned = run_json("prune", "--yes", *where(home))
    python = faulty_python(tmp_path, "exporter.runs.journal", _FILL.format(place=str(disk)))
    done = run_with(python, "undo", pruned["run"], *where(home))
    empty(disk)
    assert done.returncode != 0
    assert "Not known what was given back" in done.stdout
    run("undo", pruned["run"], *where(home))
    assert unfinished(home) == []
    assert contents(home) == contents(template)


# The same at the limit of a user's quota, where every write of a file fails


@contextmanager
def nothing_can_be_noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """From the first note of what was done no file may be written."""
    settle = RunJournal.settle

    def limited(*words: Any) -> None:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            settle(*words)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    with monkeypatch.context() as patch:
        patch.setattr(RunJournal, "settle", limited)
        yield


def test_a_prune_at_the_limit_of_a_quota(
    template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = shutil.copytree(template, tmp_path / "home")
    with nothing_can_be_noted(monkeypatch):
        outcome = execute(plan_all(home), target_of(home), keep_seconds=KEEP_SECONDS)
    assert outcome.run is not None
    assert (outcome.outcome, outcome.done, sessions(home)) == (RunOutcome.UNKNOWN, (), [])
    with nothing_can_be_noted(monkeypatch), pytest.raises(Exception, match=r"journal\.db"):
        undo(outcome.run, target_of(home))  # it cannot be settled either, and says so
    undo(outcome.run, target_of(home))
    assert contents(home) == contents(template)


def test_a_reap_and_its_undo_at_the_limit_of_a_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaked = [f"20250101_09000{number}_aaaaaa" for number in range(3)]
    home = leaky_home(python_for(NEWEST), tmp_path / "home", leaked)
    os.utime(home)
    plan, place = planned(home)
    with nothing_can_be_noted(monkeypatch):
        outcome = reap(plan, place, end_reason=REASON)
    assert outcome.run is not None
    assert (outcome.outcome, outcome.done) == (RunOutcome.UNKNOWN, ())
    assert f"hermes-exporter undo {outcome.run}" in outcome.why
    assert open_sessions(home) == set()
    # The undo settles the reap, and can then not note what it has opened.
    reap(plan, place, end_reason=REASON)
    with nothing_can_be_noted(monkeypatch):
        undone = undo_reap(outcome.run, place)
    assert (undone.is_known, undone.done) == (False, ())
    assert open_sessions(home) == set(leaked)
    undo_reap(outcome.run, place)
    assert unfinished(home) == []
    assert [each.undone for each in history(home) if each.kind is RunKind.REAP] == [3]
