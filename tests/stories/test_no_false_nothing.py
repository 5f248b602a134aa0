"""No command calls something nothing that it does not know, and commands agree with each other."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.real.command import PROGRAM, run, run_json
from tests.support.evidence import holding
from tests.support.old_sessions import old_sessions
from tests.support.reaping import open_sessions
from tests.support.small_homes import small_home

OWNER = 48_212
"""A user without a name; root could read everything."""


def options(home: Path) -> list[str]:
    return ["--home", str(home), "--state-dir", str(home.parent / "state")]


@pytest.fixture
def closed_home() -> Iterator[Path]:
    """A home of another user whose folder of runs cannot be read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        home = small_home(Path(folder) / "home", 3)
        (home / ".hermes-exporter").mkdir(mode=0o000)
        for path in (home, *home.rglob("*")):
            os.chown(path, OWNER, OWNER)
        yield home


def test_what_cannot_be_known_is_not_called_nothing(closed_home: Path) -> None:
    reaped = run("reap", *options(closed_home))
    assert reaped.returncode == 3
    assert (
        "3 open sessions could not be judged (cannot be seen: what earlier runs did"
        in reaped.stdout
    )
    assert "Permission denied; `hermes-exporter check` says what to change" in reaped.stdout
    undone = run("undo", "--last", *options(closed_home))
    assert undone.returncode == 1
    assert "cannot be read" in undone.stderr
    assert "nothing to give back" not in undone.stderr
    assert run_json_of("status", closed_home, 3)["homes"][0]["verdicts"]["unknown"] == 3


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOMEM], ids=["ENOSYS", "ENOMEM"])
def test_where_processes_cannot_be_examined_none_is_taken_for_ended(
    tmp_path: Path, code: int
) -> None:
    """A living process has the database open, and the kernel does not tell which file that is."""
    home = small_home(tmp_path / "home", 5)
    denied = (sys.executable, "-m", "tests.real.denied_call", str(code), *PROGRAM)
    with holding(home):
        checked = run("check", *options(home), program=denied)
        reaped = run("reap", "--yes", *options(home), program=denied)
    assert (checked.returncode, reaped.returncode) == (1, 3)
    assert "cannot see every process" in checked.stdout
    assert "5 open sessions could not be judged" in reaped.stdout
    assert len(open_sessions(home)) == 5


@pytest.mark.parametrize("part", [".hermes-exporter", ".hermes-exporter/backups/trash"])
def test_runs_kept_behind_a_symlink_are_told_with_the_reason_and_the_mend(
    tmp_path: Path, part: str
) -> None:
    """As after moving the trash to a larger disk; every command says it, and none says nothing."""
    home = old_sessions(tmp_path / "home", 30)
    taken = run("prune", "--yes", *options(home))
    assert taken.returncode == 0, taken.stderr
    (home / part).rename(tmp_path / "elsewhere")
    (home / part).symlink_to(tmp_path / "elsewhere")
    cause = f"{home / part} is a symlink or no folder, and "
    pruned = run("prune", *options(home))
    assert pruned.returncode == 3
    said = "Nothing can be done now: default is blocked: " + cause
    assert pruned.stdout.splitlines()[-1].startswith(said)
    assert pruned.stdout.endswith("; put the real file or folder there.\n")
    assert cause in run("history", *options(home)).stderr
    checked = run("check", *options(home))
    assert checked.returncode == 1
    assert f"because      {cause}" in checked.stdout
    purged = run("purge", "--yes", *options(home))
    assert f"not known what is in the trash of default ({cause}" in purged.stderr
    assert "nothing stays" not in purged.stderr
    assert "level=" not in purged.stderr
    assert any((tmp_path / "elsewhere").iterdir())


def run_json_of(command: str, home: Path, status: int) -> Any:
    done = run(command, "--json", *options(home))
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_what_an_undo_gave_back_is_counted_with_the_way_on(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home", 4)  # of two messages each
    config = tmp_path / "short.yml"
    config.write_text("marathon: {max_messages: 1}\n")
    where = [*options(home), "--config.file", str(config)]
    assert marathons(tmp_path, where) == (0, [])  # dead ones are long too, but send nothing
    assert run("reap", "--yes", *where).returncode == 0
    assert run("undo", "--last", *where).returncode == 0
    said = run("reap", *where).stdout
    assert "4 sessions are held because an undo opened them again" in said
    assert "`reap --include-undone`" in said
    assert marathons(tmp_path, where) == (4, ["held"] * 4)


def marathons(tmp_path: Path, where: list[str]) -> tuple[int, list[str]]:
    """Return what the metric counts, and what its runbook's command shows."""
    run("textfile", tmp_path / "metrics.prom", *where)
    counted = re.search(
        r'^hermes_sessions_marathon{.*level="over"} (\d+)',
        (tmp_path / "metrics.prom").read_text(),
        re.MULTILINE,
    )
    assert counted is not None
    shown = run_json("sessions", "--over-limit", *where)
    return int(counted[1]), [each["verdict"] for each in shown]


def test_status_and_prune_agree_by_thresholds_and_in_all(tmp_path: Path) -> None:
    home = old_sessions(tmp_path / "home", 60)
    config = tmp_path / "marks.yml"
    config.write_text("prune: {thresholds: {transcripts: {high: 180KiB, low: 140KiB}}}\n")
    where = [*options(home), "--config.file", str(config)]
    (shown,) = run_json("status", *where)["homes"]
    assert [each["name"] for each in shown["thresholds"] if each["pressure"]] == ["transcripts"]
    for key, words in {"would_prune": ["prune", "--pressure"], "could_prune": ["prune"]}.items():
        planned = run_json(*words, *where)["plan"]["actions"]
        assert shown[key] == {"items": len(planned), "bytes": sum(e["bytes"] for e in planned)}
    assert 0 < shown["would_prune"]["items"] < shown["could_prune"]["items"]


def test_a_home_without_a_database_says_so(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    assert "no state.db" in run("status", *options(home)).stdout
    for command in ("reap", "prune"):
        done = run(command, *options(home))
        assert (done.returncode, done.stderr) == (0, "")
        assert "there is no state.db; Hermes has not run here yet" in done.stdout
        assert "routing" not in done.stdout


def test_a_session_that_was_active_a_moment_ago_is_named_where_nothing_is_dead(
    tmp_path: Path,
) -> None:
    """Who has just seen a chat being killed looks for it."""
    home = small_home(tmp_path / "home", 2)
    with closing(apsw.Connection(str(home / "state.db"))) as database:
        database.execute("UPDATE sessions SET started_at = ?", (time.time(),))
        database.execute("UPDATE messages SET timestamp = ?", (time.time(),))
    reaped = run("reap", *options(home))
    assert (reaped.returncode, reaped.stdout) == (0, "Nothing to do: no session is dead.\n")
    assert "2 sessions were active less than 10m ago (reaper.min_idle)" in reaped.stderr


def test_no_crossed_threshold_is_not_called_nothing_to_take(tmp_path: Path) -> None:
    home = old_sessions(tmp_path / "home", 30)
    said = run("prune", "--pressure", *options(home)).stdout.splitlines()[-1]
    assert said.startswith("Nothing to do: no crossed threshold asks for")
    assert "without --pressure, `prune` plans all that the policies allow" in said
    assert len(run_json("prune", *options(home))["plan"]["actions"]) > 0
