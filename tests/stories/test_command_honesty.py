"""What commands say was done was done, and what was not done is said."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from exporter.runs.journal import journal_of, running
from exporter.runs.models import Action, ActionState, RecordedAction, RunKind, RunOutcome, Settled
from tests.real.command import run, run_json
from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.support.reaping import hermes_process
from tests.support.session_pruning import prunable_process

OLD = tuple(f"20250101_00000{number}_aaaaaa" for number in range(3))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("honest") / "home"
    home.mkdir(mode=0o700)
    with prunable_process(python_for(NEWEST), home) as writer:
        for session in OLD:
            writer.ask("old", session=session, count=0)
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


@pytest.fixture
def where(home: Path, tmp_path: Path) -> list[str | Path]:
    file = tmp_path / "agent.yml"
    file.write_text("prune: {keep: {newest: 1}}\n")
    return ["--home", home, "--state-dir", tmp_path / "state", "--config.file", file]


def trash(home: Path) -> list[Path]:
    return [each for each in home.glob(".hermes-exporter/backups/trash/**/*") if each.is_file()]


def tripped(home: Path) -> bool:
    with journal_of(str(home), home.stat().st_uid) as runs:
        return runs is not None and runs.tripped() is not None


def purge(*words: str | Path) -> tuple[int, dict[str, Any]]:
    done = run("purge", "--yes", "--json", *words)
    return done.returncode, json.loads(done.stdout)


def test_trash_whose_journal_is_lost_is_purged_all_the_same(
    home: Path, where: list[str | Path]
) -> None:
    assert run_json("prune", "--yes", *where)["done"]
    assert trash(home)
    (home / ".hermes-exporter" / "journal.db").unlink()
    status, said = purge(*where)
    assert (status, said["outcome"], said["done"], trash(home)) == (0, "done", 1, [])


def test_a_purge_that_another_run_keeps_out_is_no_success(
    home: Path, where: list[str | Path]
) -> None:
    pruned = run_json("prune", "--yes", *where)["run"]
    with (home / ".hermes-exporter" / "run.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for words in ((), (pruned,)):
            status, said = purge(*words, *where)
            assert (status, said["outcome"], said["done"]) == (1, "failed", 0)
            assert "another run is under way" in said["skipped"][0]["why"]
    assert trash(home)


def test_the_last_run_is_the_last_that_can_be_given_back(
    home: Path, where: list[str | Path]
) -> None:
    pruned = run_json("prune", "--yes", *where)
    with running(str(home), home.stat().st_uid, "test") as runs:
        emptied = runs.begin(
            RunKind.PRUNE,
            [RecordedAction(Action("purge_trash", "20250101T000000-abcd", "old", {}))],
        )
        runs.settle(emptied, [Settled(0, ActionState.DONE)])
        runs.finish(emptied, RunOutcome.DONE)
    undone = run_json("undo", "--last", *where)
    assert undone == {"run": pruned["run"], "restored": pruned["done"], "failed": []}


def two_prunes(home: Path, where: list[str | Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One that takes sessions, and a later one that takes a request dump."""
    first = run_json("prune", "--yes", *where)
    dump = home / "sessions" / "request_dump_20250101_000009_aaaaaa_20250101_010101_123456.json"
    dump.parent.mkdir(exist_ok=True)
    dump.write_text("{}")
    os.utime(dump, (0, dump.stat().st_mtime - 200 * 86400))
    second = run_json("prune", "--yes", *where)
    assert (first["done"] > 1, second["done"]) == (True, 1)
    return first, second


def undo_last(where: list[str | Path]) -> tuple[str, list[str]]:
    """The run that was given back, and what was said of it."""
    done = run("undo", "--last", "--json", *where)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["run"], done.stderr.splitlines()


def test_an_undo_says_what_it_undoes(home: Path, where: list[str | Path]) -> None:
    first, second = two_prunes(home, where)
    undone, (what,) = undo_last(where)
    assert undone == second["run"]
    assert what.startswith(f"hermes-exporter: undo of {undone} (prune by hand, begun ")
    assert what.endswith(" ago): 1 action in default")
    undone, (newer, what) = undo_last(where)
    assert undone == first["run"]
    assert f"the newest run, {second['run']} (prune by hand, begun " in newer
    assert "was given back before and cannot be undone" in newer
    assert what.endswith(f" ago): {first['done']} actions in default")
    again = run("undo", undone, *where).stderr.splitlines()
    assert [f"{first['done']} of them given back before" in line for line in again] == [True]


def test_an_undo_of_the_last_says_that_a_newer_run_was_purged(
    home: Path, where: list[str | Path]
) -> None:
    first, second = two_prunes(home, where)
    run_json("purge", second["run"], "--yes", *where)
    undone, (newer, what) = undo_last(where)
    assert (undone, undone in what) == (first["run"], True)
    assert f"the newest run, {second['run']} (prune by hand, begun " in newer
    assert "has no trash any more and cannot be undone" in newer


def test_a_purge_that_nobody_confirms_does_nothing(home: Path, where: list[str | Path]) -> None:
    pruned = run_json("prune", "--yes", *where)["run"]
    kept = trash(home)
    done = run("purge", *where)
    assert (done.returncode, done.stdout) == (2, "")
    first, rest = done.stderr.split("\n", 1)
    assert first.startswith(f"hermes-exporter: default: the trash of 1 run ({pruned}), which took ")
    assert rest == (
        "hermes-exporter: after that nothing stays in the trash\n"
        "hermes-exporter: 2 sessions can then no longer be given back\n"
        "hermes-exporter: a purge cannot be undone, and no terminal is here to ask: give --yes\n"
    )
    assert trash(home) == kept != []


@pytest.mark.parametrize(("answer", "status", "emptied"), [("n", 1, False), ("y", 0, True)])
def test_on_a_terminal_a_purge_asks(
    home: Path, where: list[str | Path], answer: str, status: int, emptied: bool
) -> None:
    pruned = run_json("prune", "--yes", *where)["run"]
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        [sys.executable, "-m", "exporter", "purge", *where],
        cwd=REPOSITORY,
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=120,
    )
    os.close(theirs)
    os.close(ours)
    first, rest = done.stderr.split("\n", 1)
    assert first.startswith(f"hermes-exporter: default: the trash of 1 run ({pruned}), which took ")
    assert rest.startswith(
        "hermes-exporter: after that nothing stays in the trash\n"
        "hermes-exporter: 2 sessions can then no longer be given back\n"
        "Empty the trash of all runs, for good? [y/N] "
    )
    assert (done.returncode, trash(home) == []) == (status, emptied)


def test_a_source_or_policy_that_can_take_nothing_is_named(
    home: Path, where: list[str | Path], tmp_path: Path
) -> None:
    for command in (("reap",), ("prune",), ("sessions",)):
        done = run(*command, "--source", "clii", *where)
        assert done.returncode == 0
        assert done.stderr == (
            "hermes-exporter: no session has source 'clii', did you mean 'cli'?\n"
        )
    done = run("reap", "--json", "--source", "telegram", *where)
    assert json.loads(done.stdout)["plan"]["actions"] == []
    assert done.stderr == ("hermes-exporter: no session has source 'telegram'; there are cli\n")
    (tmp_path / "agent.yml").write_text("prune: {policies: {empty_sessions: off}}\n")
    done = run("prune", "--policy", "empty_sessions", *where)
    assert done.stderr == (
        "hermes-exporter: policy empty_sessions is off in the configuration, for default\n"
    )
    assert "Nothing to do" in done.stdout


def test_the_history_tells_a_purge_from_a_prune_and_what_each_run_did(
    home: Path, where: list[str | Path]
) -> None:
    planned = run_json("prune", *where)["plan"]["actions"]
    pruned = run_json("prune", "--yes", *where)["run"]
    purged = run_json("purge", "--yes", *where)["run"]
    runs = run_json("history", *where)
    assert [(each["run"], each["kind"]) for each in runs] == [(purged, "purge"), (pruned, "prune")]
    for each in runs:
        (told,) = run_json("history", each["run"], *where)
        assert {key: told[key] for key in each} == each
        assert told.keys() - each.keys() == {"why", "items", "trimmed"}
        assert len(told["items"]) == each["actions"]
    assert [{**each, "home": "default"} for each in items(pruned, where)] == [
        {**{key: each[key] for key in each.keys() - {"frees"}}, "state": "done", "why": ""}
        for each in planned
    ]
    (emptied,) = items(purged, where)
    assert (emptied["action"], emptied["target"]) == ("purge_trash", pruned)
    shown = run("history", pruned, *where).stdout
    assert all(f"\n{each['target']} " in shown for each in planned)
    lost = run("history", "20250101T000000-abcd", *where)
    assert (lost.returncode, lost.stdout) == (1, "")
    assert "no run 20250101T000000-abcd in any home" in lost.stderr


def items(of_run: str, where: list[str | Path]) -> list[dict[str, Any]]:
    (told,) = run_json("history", of_run, *where)
    found: list[dict[str, Any]] = told["items"]
    return found


def test_a_purge_makes_nothing_in_a_home_without_trash(home: Path, where: list[str | Path]) -> None:
    assert purge(*where)[0] == 0
    assert not (home / ".hermes-exporter").exists()


def test_a_reap_by_hand_closes_the_breaker_also_where_nothing_is_dead_any_more(
    home: Path, where: list[str | Path]
) -> None:
    with running(str(home), home.stat().st_uid, "test") as runs:
        runs.trip("2 sessions were active after they had been reaped")
    assert run_json("reap", *where)["plan"]["actions"] == []
    assert tripped(home)
    assert run_json("reap", "--yes", *where)["done"] == 0
    assert not tripped(home)


def test_what_was_reaped_just_now_is_kept_whatever_reason_is_configured_since(
    template: Path, tmp_path: Path
) -> None:
    home = shutil.copytree(template, tmp_path / "home")
    with hermes_process(python_for(NEWEST), home) as writer:
        writer.ask("leak", session="20250102_000000_cccccc")
        writer.ask("leak", session="20250102_000001_cccccc")
    file = tmp_path / "agent.yml"
    settings = "prune: {keep: {newest: 1}, policies: {trivial_sessions: {older_than: 1h}}}\n"
    where: list[str | Path] = ["--home", home, "--state-dir", tmp_path, "--config.file", file]
    file.write_text(settings + "reaper: {end_reason: leaked}\n")
    assert run_json("reap", "--yes", *where)["done"] == 2
    file.write_text(settings)
    planned = {each["target"] for each in run_json("prune", *where)["plan"]["actions"]}
    assert planned == set(OLD)
