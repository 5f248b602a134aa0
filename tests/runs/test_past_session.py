"""`explain` of a session that is not open says who ended or deleted it, when, and the way back."""

from __future__ import annotations

from pathlib import Path

from tests.real.command import refusal, run, run_json
from tests.support.old_sessions import old_sessions
from tests.support.small_homes import small_home

SESSION = "20260101_000000_aaaaaa"


def test_of_a_reaped_session(tmp_path: Path) -> None:
    where = ("--home", small_home(tmp_path / "home"), "--state-dir", tmp_path / "state")
    reaped = run_json("reap", "--yes", *where)["run"]
    status, said = refusal("explain", SESSION, *where)
    assert status == 1
    assert f"session {SESSION} of default was ended at 20" in said
    assert f" by reap {reaped}; `hermes-exporter undo {reaped}` opens all that it ended" in said
    run("undo", reaped, *where)
    assert run_json("explain", SESSION, *where)["verdict"] == "held"


def test_of_a_session_that_hermes_has_ended_and_that_is_pruned_then(tmp_path: Path) -> None:
    where = ("--home", old_sessions(tmp_path / "home", 30), "--state-dir", tmp_path / "state")
    said = "was ended by Hermes (cli_close); only open sessions have a verdict"
    assert said in refusal("explain", SESSION, *where)[1]
    assert (
        "no open session 20990101_000000_ffffff"
        in (refusal("explain", "20990101_000000_ffffff", *where)[1])
    )
    pruned = run_json("prune", "--yes", *where)["run"]
    said = refusal("explain", SESSION, *where)[1]
    assert f"session {SESSION} of default was pruned at 20" in said
    assert f"`hermes-exporter undo {pruned}` gives back all that it took" in said
    run("purge", "--yes", *where)
    assert refusal("explain", SESSION, *where)[1].endswith(f"by prune {pruned}; its trash is gone")
