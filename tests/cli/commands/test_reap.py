"""`reap`, `undo` and `history` as people and scripts use them."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from tests.real.command import refusal, run, run_json
from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.support.home_scans import sql
from tests.support.reaping import dump, hermes_process, leaky_home, open_sessions

LEAKED = [f"20260101_08000{number}_abcdef" for number in range(3)]
CRON = "cron_nightly_20260101_080000"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    hermes = python_for(NEWEST)
    home = leaky_home(hermes, tmp_path_factory.mktemp("reap") / "home", LEAKED)
    with hermes_process(hermes, home) as writer:
        writer.ask("leak", session=CRON, source="cron")
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


@pytest.fixture
def where(home: Path, tmp_path: Path) -> list[str | Path]:
    return ["--home", home, "--state-dir", tmp_path / "state"]


def targets(result: dict[str, Any]) -> list[str]:
    return sorted(action["target"] for action in result["plan"]["actions"])


def test_what_an_undo_opened_says_so_and_until_when(where: list[str | Path]) -> None:
    assert run("reap", "--yes", *where).returncode == 0
    undone = run("undo", "--last", *where)
    assert undone.stdout.splitlines()[-1] == (
        "For 30d no reap ends them again, and no prune takes them, unless --include-undone says so."
    )
    shown = run("explain", LEAKED[0], *where).stdout
    assert "an undo gave it back, so it stays open for a while" in shown
    until = time.strftime("%Y-%m-%d", time.localtime(time.time() + 30 * 86400))
    assert f"an undo gave it back; it is kept open until {until}" in shown
    assert "handoff" not in shown
    assert "What would change it: the end of that time, or `reap --include-undone`." in shown


def test_homes_that_cannot_be_read_are_a_failure_and_beside_others_partly_one(
    where: list[str | Path], tmp_path: Path
) -> None:
    garbage = tmp_path / "garbage"
    garbage.mkdir(mode=0o700)
    (garbage / "state.db").write_bytes(b"nothing that SQLite wrote " * 4000)
    for command in ("reap", "prune"):
        alone = run(command, "--yes", "--home", garbage, "--state-dir", tmp_path / "state")
        assert (alone.returncode, "cannot be read" in alone.stderr) == (1, True), alone
        both = run(command, "--yes", "--home", garbage, *where)
        assert (both.returncode, "cannot be read" in both.stderr) == (3, True), both


def test_without_yes_nothing_happens_and_the_keys_are_those_that_scripts_rely_on(
    home: Path, where: list[str | Path]
) -> None:
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    found = run_json("reap", *where)
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before
    assert list(found) == ["plan", "executed", "run", "outcome", "done", "skipped"]
    assert list(found["plan"]) == ["hash", "created_at", "actions"]
    assert targets(found) == sorted([*LEAKED, CRON])
    for action in found["plan"]["actions"]:
        assert list(action) == ["action", "home", "policy", "target", "reason", "bytes"]
    assert (found["executed"], found["run"], found["outcome"], found["done"]) == (
        *(False, None, None),
        0,
    )
    assert run_json("reap", *where)["plan"]["hash"] == found["plan"]["hash"]


def test_exactly_the_plan_that_was_shown_is_executed(home: Path, where: list[str | Path]) -> None:
    plan = run_json("reap", "--source", "cron", *where)
    assert targets(plan) == [CRON]
    done = run_json("reap", "--plan", plan["plan"]["hash"], "--yes", *where)
    assert (done["outcome"], done["done"], targets(done)) == ("done", 1, [CRON])
    assert open_sessions(home) == set(LEAKED)


def test_what_was_resumed_since_the_plan_is_left_alone_and_named(
    home: Path, where: list[str | Path]
) -> None:
    plan = run_json("reap", *where)["plan"]["hash"]
    with hermes_process(python_for(NEWEST), home) as hermes:
        hermes.ask("append", session=LEAKED[0])
    done = run_json("reap", "--plan", plan, "--yes", *where)
    assert (done["outcome"], done["done"]) == ("done", 3)
    assert [each["target"] for each in done["skipped"]] == [LEAKED[0]]
    assert open_sessions(home) == {LEAKED[0]}


def test_one_run_over_two_homes_is_taken_back_as_one(
    home: Path, template: Path, tmp_path: Path
) -> None:
    second = shutil.copytree(template, tmp_path / "second")
    where: list[str | Path] = ["--home", home, "--home", second, "--state-dir", tmp_path / "state"]
    before = dump(home), dump(second)
    done = run_json("reap", "--yes", *where)
    assert done["done"] == 8
    runs = run_json("history", *where)
    assert [row["run"] for row in runs] == [done["run"]] * 2
    assert list(runs[0]) == [
        *("run", "kind", "home", "started_at", "finished_at"),
        *("outcome", "actions", "bytes", "undoable_until"),
    ]
    assert all(row["undoable_until"] > row["started_at"] for row in runs)
    assert run_json("undo", "--last", *where) == {"run": done["run"], "restored": 8, "failed": []}
    assert (dump(home), dump(second)) == before
    assert {row["undoable_until"] for row in run_json("history", *where)} == {None}


def test_a_home_of_root_that_was_only_found_is_planned_for_and_not_written(
    template: Path, tmp_path: Path
) -> None:
    """It is not named. No other user could replace it in its place, or it would not be found."""
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix=".hermes-exporter-test-") as folder:
        home = shutil.copytree(template, Path(folder) / ".hermes")
        environment = {"HERMES_HOME": str(home), "HOME": folder}
        state = tmp_path / "state"
        done = run("reap", "--yes", "--json", "--state-dir", state, environment=environment)
        assert "only observed unless it is named" in done.stdout, done.stderr
        assert done.returncode == 1
        assert open_sessions(home) == {*LEAKED, CRON}
        assert not (home / ".hermes-exporter").exists()


def test_without_proc_everything_is_unknown_and_nothing_is_written(
    home: Path, where: list[str | Path]
) -> None:
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    words = [sys.executable, "-m", "exporter", "--json", *map(str, where)]

    def say(command: str, *more: str, told: str = "") -> Any:
        line = shlex.join([*words[:3], command, *more, *words[3:]])
        script = f"mount -t tmpfs none /proc; exec {line}"
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script],
            cwd=REPOSITORY,
            check=False,
            capture_output=True,
            timeout=120,
        )
        assert done.returncode == {"sessions": 0, "reap": 3, "check": 1}[command]
        assert told in done.stderr.decode()
        return json.loads(done.stdout)

    assert {row["verdict"] for row in say("sessions")} == {"unknown"}
    assert (
        say("reap", "--yes", told="4 open sessions could not be judged (cannot be seen: ")["done"]
        == 0
    )
    none = say(
        "reap", "--source", "cron", told="1 open session could not be judged (cannot be seen: "
    )
    assert none["plan"]["actions"] == []
    (found,) = say("check")["homes"]
    assert "mount /proc" in [each["grant"] for each in found["cannot"]]
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before


def test_mistakes_are_said_in_one_line(where: list[str | Path]) -> None:
    assert refusal("reap", "--plan", "0123456789abcdef", *where)[0] == 2
    status, why = refusal("reap", "--plan", "../../etc/passwd", "--yes", *where)
    assert (status, "is no plan" in why) == (1, True)
    assert refusal("undo", *where)[0] == 2
    assert refusal("undo", "--last", *where) == (
        1,
        "hermes-exporter: no run has taken anything yet; there is nothing to give back",
    )
    status, why = refusal("undo", "20260101T000000-abcd", *where)
    assert (status, "`hermes-exporter history` lists them" in why) == (1, True)


def test_on_a_terminal_less_pipe_it_reads_like_a_report(where: list[str | Path]) -> None:
    plan = run("reap", *where).stdout
    assert "4 sessions would be ended. Nothing was changed." in plan
    assert "no process on this host has the database open" in plan
    done = run("reap", "--yes", *where).stdout
    assert "4 sessions ended." in done
    assert "hermes-exporter undo " in done
    assert "Nothing to do" in run("reap", *where).stdout
    undone = run("undo", "--last", *where).stdout
    assert "4 items" in undone
    assert "For 30d no reap ends them again" in undone
    assert run_json("reap", *where)["plan"]["actions"] == []
    shown = run_json("reap", "--include-undone", *where)["plan"]
    assert len(shown["actions"]) == 4
    assert run_json("reap", "--plan", shown["hash"], "--yes", *where)["done"] == 4


def test_signs_of_life_that_newer_releases_leave_are_heeded(
    home: Path, where: list[str | Path]
) -> None:
    """A backend of the TUI sends heartbeats; a conversation is in the middle of a turn."""
    first, second, third = LEAKED
    now = time.time()
    sql(
        home,
        f"UPDATE sessions SET source = 'tui' WHERE id = '{first}';"
        "CREATE TABLE gateway_heartbeats (backend_id TEXT PRIMARY KEY, pid INTEGER NOT NULL, "
        "started_at REAL NOT NULL, last_heartbeat REAL NOT NULL);"
        f"INSERT INTO gateway_heartbeats VALUES ('b', 1, 1.0, {now});"
        "CREATE TABLE session_turn_leases (conversation_id TEXT PRIMARY KEY, holder TEXT NOT NULL, "
        "acquired_at REAL NOT NULL, expires_at REAL NOT NULL);"
        f"INSERT INTO session_turn_leases VALUES ('{second}', 'pid=1', 1.0, {now + 600});",
    )
    rows = {row["id"]: row for row in run_json("sessions", *where)}
    assert {name: row["verdict"] for name, row in rows.items()} == {
        first: "live",
        second: "live",
        third: "dead",
        CRON: "dead",
    }
    assert rows[first]["evidence"][0]["kind"] == "backend"
    assert rows[second]["evidence"][0]["kind"] == "turn_lease"
    sql(
        home,
        "UPDATE gateway_heartbeats SET last_heartbeat = last_heartbeat - 600;"
        "UPDATE session_turn_leases SET expires_at = expires_at - 1200;",
    )
    assert targets(run_json("reap", *where)) == sorted([*LEAKED, CRON])
