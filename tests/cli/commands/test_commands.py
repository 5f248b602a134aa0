"""The commands as a user runs them: what they print, what they leave, how they end."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.demo.home import make
from exporter.snapshot import DiskKind
from tests.real.agent import agent
from tests.real.command import refusal, run, run_json
from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.real.holders import holder, open_carelessly
from tests.real.prometheus import check_metrics
from tests.real.waiting import wait_until
from tests.support.small_homes import small_home

Words = list[str | Path]
QUICK = "reaper: {confirmations: 1}\n"
"""One scan is enough for these tests."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(make(str(tmp_path_factory.mktemp("demo")), now=time.time()))


@pytest.fixture
def options(tmp_path: Path, home: Path) -> Words:
    """Return the options that make a command use the demo home."""
    config = tmp_path / "quick.yml"
    config.write_text(QUICK)
    return ["--config.file", config, "--home", home, "--state-dir", tmp_path / "state"]


# What they print


def test_status_has_the_keys_that_scripts_rely_on(options: Words, home: Path) -> None:
    status = run_json("status", *options)
    assert status.keys() == {"homes", "refused", "agent"}
    assert status["agent"].keys() == {"version", "mode", "started_at", "blind", "config_ok"}
    assert status["agent"]["mode"] == {"reaper": "observe", "prune": "observe"}
    first, profile = status["homes"]
    assert (first["path"], profile["home"]) == (str(home), "default/work")
    assert first.keys() == {
        *("deleted_wal_pids", "lockless_pids", "mode"),
        *("home", "path", "up", "trouble", "blind", "sessions", "verdicts", "disk"),
        *("not_listed", "thresholds", "breaker", "would_reap", "slow_start", "would_prune"),
        *("capped", "scanned_at", "leaked", "unknown", "policies", "prune_blocked", "unreachable"),
        *("could_prune", "has_database", "next_clean_up_at", "planned_at"),
        *("waiting", "why_down", "cannot_write"),
    }
    assert first["up"] is True
    assert first["sessions"].keys() == {"open", "ended", "empty", "trivial"}
    assert first["sessions"]["open"] + first["sessions"]["ended"] == 400
    assert first["verdicts"].keys() == {"live", "held", "dead", "exempt", "unknown"}
    assert sum(first["verdicts"].values()) == first["sessions"]["open"] == 116
    assert first["disk"].keys() == {kind.value for kind in DiskKind}
    assert first["would_prune"].keys() == {"items", "bytes"}


def test_sessions_have_the_keys_that_scripts_rely_on(options: Words) -> None:
    sessions = run_json("sessions", *options)
    assert len(sessions) == 116 + 17
    for session in sessions:
        assert session.keys() == {
            *("home", "id", "source", "started_at", "last_activity_at", "messages"),
            *("tokens", "verdict", "evidence"),
        }
        for evidence in session["evidence"]:
            assert evidence.keys() == {"kind", "says", "detail"}


def test_sessions_are_narrowed_by_source_verdict_and_home(options: Words, home: Path) -> None:
    everything = run_json("sessions", *options)
    assert run_json("sessions", *options, "--source", "cron") == [
        session for session in everything if session["source"] == "cron"
    ]
    held = run_json("sessions", *options, "--verdict", "held")
    assert held
    assert {session["verdict"] for session in held} == {"held"}
    only = run_json("sessions", *options[:2], "--home", home / "profiles" / "work", *options[4:])
    assert len(only) == 17


def test_check_has_the_keys_that_scripts_rely_on(options: Words, tmp_path: Path) -> None:
    report = run_json("check", *options)
    assert report.keys() == {"ok", "config", "homes"}
    assert (report["ok"], report["config"]) == (True, [])
    for home in report["homes"]:
        assert home.keys() == {"home", "path", "can", "cannot"}
        assert "read the database" in home["can"]
    broken = small_home(tmp_path / "broken")
    (broken / "state.db").write_text("not a database" * 100)
    done = run("check", "--json", "--home", broken, "--state-dir", tmp_path / "state")
    (seen,) = json.loads(done.stdout)["homes"]
    assert done.returncode == 1
    assert [each.keys() for each in seen["cannot"]] == [{"what", "why", "grant"}]


@pytest.mark.parametrize("command", ["status", "sessions", "check"])
def test_a_pipe_gets_plain_text_and_a_terminal_gets_colour(options: Words, command: str) -> None:
    done = run(command, *options)
    assert done.returncode == 0
    assert done.stderr == ""
    assert "default" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\x1b[" in on_terminal(command, *options)


def on_terminal(*words: str | Path) -> str:
    """Return what a command shows on a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        [sys.executable, "-m", "exporter", *words],
        cwd=REPOSITORY,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ):
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:
            pass  # the other end is closed: all is read
        os.close(ours)
    return shown.decode()


# What they leave


def test_commands_that_look_at_a_small_home_leave_no_state(options: Words, tmp_path: Path) -> None:
    for command in ("status", "sessions", "check"):
        run(command, *options)
    assert not (tmp_path / "state").exists()


def totals(file: Path) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in parse_text(file.read_text())
        for sample in family.samples
        if sample.name in ("hermes_messages_total", "hermes_sessions_open")
    }


def test_textfile_goes_on_counting_where_it_stopped(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    file = tmp_path / "hermes.prom"
    words: Words = ["textfile", file, "--home", home, "--state-dir", tmp_path / "state"]
    assert run(*words).returncode == 0
    assert check_metrics(file.read_text()) == ""
    assert totals(file) == {"hermes_messages_total": 6, "hermes_sessions_open": 3}
    first = file.stat().st_ino
    sql = "DELETE FROM messages WHERE session_id = (SELECT MIN(id) FROM sessions);"
    sql += "DELETE FROM sessions WHERE id = (SELECT MIN(id) FROM sessions)"
    subprocess.run(["sqlite3", home / "state.db", sql], check=True)
    assert run(*words).returncode == 0
    assert totals(file) == {"hermes_messages_total": 6, "hermes_sessions_open": 2}
    assert file.stat().st_ino != first, "the file is replaced, not written over"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hermes.prom", "home", "state"]


def test_textfile_and_agent_do_not_count_into_the_same_state(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    words: Words = ["--home", home, "--state-dir", tmp_path / "state"]
    with agent(tmp_path, [home]):
        status, line = refusal("textfile", tmp_path / "hermes.prom", *words)
    assert status == 1
    assert "another hermes-exporter uses" in line
    assert not (tmp_path / "hermes.prom").exists()


@pytest.mark.parametrize(
    ("file", "status", "fix"),
    [("hermes.txt", 2, "use "), ("missing/hermes.prom", 1, "No such file or directory")],
)
def test_a_textfile_that_cannot_be_written(
    tmp_path: Path, file: str, status: int, fix: str
) -> None:
    home = small_home(tmp_path / "home")
    words: Words = ["--home", home, "--state-dir", tmp_path / "state"]
    ended, line = refusal("textfile", tmp_path / file, *words)
    assert ended == status
    assert str(tmp_path / file) in line
    assert fix in line


def test_a_demo_on_a_taken_port_says_so_and_makes_no_home() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        status, said = refusal("demo", "--web.listen-address", address)
    assert status == 1
    assert f"cannot listen on {address}: Address already in use" in said
    assert "--web.listen-address HOST:PORT" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_serves_and_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-m", "exporter", "demo", "--web.listen-address", "127.0.0.1:0"],
            cwd=REPOSITORY,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            found = wait_until(lambda: re.search(r"address=(\S+)", log.read_text()), "it listens")
            wait_until(lambda: shows_demo(found[1]), "the demo home is shown")
            made = re.search(r"demo home: ([^\s;]+)", log.read_text())
            assert made
            assert Path(made[1]).is_relative_to(tmp_path)
            assert Path(made[1], "state.db").exists()
            process.send_signal(number)
            assert process.wait(90) == 0
        finally:
            process.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def shows_demo(address: str) -> bool:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=120) as response:
        return 'hermes_home_up{home="default"} 1' in response.read().decode()


# How they end when the configuration is bad

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD: dict[str, tuple[str | None, str, str]] = {
    "unknown key": ("scan: {intervall: 1s}\n", "scan.intervall", "interval"),
    "wrong unit": ("prune: {cooldown: 5GiB}\n", "prune.cooldown", "use ms, s, m, h or d"),
    "no unit": ("scan: {interval: 15}\n", "scan.interval", "15s"),
    "low above high": (
        "prune: {thresholds: {transcripts: {high: 1GiB, low: 2GiB}}}\n",
        "prune.thresholds.transcripts",
        "low",
    ),
    "zero": ("reaper: {confirmations: 0}\n", "reaper.confirmations", "1"),
    "missing file": (None, "", "--config.file"),
    "not YAML": ("scan: [interval\n", "", ""),
    "YAML bomb": (BOMB, "", "write it out"),
}
COMMANDS: dict[str, list[str]] = {
    "serve": ["--web.listen-address", "127.0.0.1:0"],
    "status": [],
    "sessions": [],
    "explain": ["20260131_093000_3f2a1b"],
    "textfile": ["FOLDER/hermes.prom"],
    "check": [],
    "demo": ["--web.listen-address", "127.0.0.1:0"],
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("command", COMMANDS)
def test_bad_configuration_is_one_line_with_file_key_and_fix(
    tmp_path: Path, command: str, kind: str
) -> None:
    content, key, fix = BAD[kind]
    file = tmp_path / "bad.yml"
    if content is not None:
        file.write_text(content)
    words: list[Any] = [word.replace("FOLDER", str(tmp_path)) for word in COMMANDS[command]]
    done = run(command, *words, "--config.file", file, "--state-dir", tmp_path / "state")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"hermes-exporter: {file}:")
    assert key in line
    assert fix in line
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "hermes.prom").exists()


# Homes that cannot be read, or are not watched


def damaged(path: Path) -> Path:
    path.mkdir()
    (path / "state.db").write_bytes(b"no database" * 100)
    return path


def test_status_of_a_home_that_cannot_be_read_is_shown_and_partly_done(tmp_path: Path) -> None:
    good, bad = small_home(tmp_path / "good"), damaged(tmp_path / "bad")
    where: Words = ["--home", good, "--home", bad, "--state-dir", tmp_path / "state"]
    done = run("status", "--json", *where)
    assert done.returncode == 3
    homes = {home["path"]: home for home in json.loads(done.stdout)["homes"]}
    seen = homes[str(bad)]
    assert homes[str(good)]["up"]
    assert (seen["up"], seen["trouble"]) == (False, "not_a_database")
    assert set(seen["sessions"].values()) == set(seen["verdicts"].values()) == {None}
    last = done.stderr.splitlines()[-1]
    assert last.startswith("hermes-exporter: cannot be read: ")


def test_sessions_of_a_home_that_cannot_be_read_are_not_said_to_be_none(tmp_path: Path) -> None:
    home = damaged(tmp_path / "home")
    done = run("sessions", "--home", home, "--state-dir", tmp_path / "state")
    assert done.returncode == 3
    assert done.stdout == "No home was looked at; `hermes-exporter check` tells why.\n"
    assert "cannot be read" in done.stderr


def test_a_textfile_with_a_home_that_cannot_be_read_is_written_all_the_same(tmp_path: Path) -> None:
    good, bad = small_home(tmp_path / "good"), damaged(tmp_path / "bad")
    file = tmp_path / "hermes.prom"
    done = run("textfile", file, "--home", good, "--home", bad, "--state-dir", tmp_path / "state")
    assert done.returncode == 3
    assert "written all the same" in done.stderr
    up = [line for line in file.read_text().splitlines() if line.startswith("hermes_home_up{")]
    assert sorted(line.rpartition(" ")[2] for line in up) == ["0.0", "1.0"]


def test_explain_takes_the_beginning_of_an_id(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    options: Words = ["--home", home, "--state-dir", tmp_path / "state"]
    assert run_json("explain", "20260101_000002", *options)["id"] == "20260101_000002_aaaaaa"
    status, line = refusal("explain", "20260101", *options)
    assert status == 2
    assert "3 open sessions begin with 20260101" in line
    assert refusal("explain", "20270101", *options)[0] == 1


def test_as_many_scans_must_agree_as_the_configuration_says(tmp_path: Path) -> None:
    home, config = small_home(tmp_path / "home"), tmp_path / "config.yml"
    config.write_text("reaper: {confirmations: 3}\n")
    options: Words = ["--home", home, "--state-dir", tmp_path / "state", "--config.file", config]
    found = run_json("explain", "20260101_000002", *options)
    assert found["verdict"] == "dead"
    assert "3 of 3 scans in a row agree" in json.dumps(found["rules"])


@pytest.mark.parametrize("source", ["webhook", "telegram"])
def test_explain_advises_to_name_a_source_only_if_the_configuration_takes_it(
    tmp_path: Path, source: str
) -> None:
    home, file = small_home(tmp_path / "home", 1, source), tmp_path / "config.yml"
    file.write_text(f"reaper: {{sources: [cli, {source}]}}\n")
    taken = run("check", "--config.file", file, "--home", home).returncode != 2
    said = run("explain", "20260101_000000", "--home", home, "--state-dir", tmp_path / "state")
    text = " ".join(said.stdout.split())
    assert "What would change it: " in text
    assert ("naming its source under reaper.sources" in text) == taken == (source == "webhook")


def test_a_home_that_is_enforced_by_itself_is_told_from_the_others(tmp_path: Path) -> None:
    homes = [small_home(tmp_path / name) for name in ("one", "two")]
    small_home(homes[0] / "profiles" / "work")
    config = tmp_path / "own.yml"
    own = [{"path": str(homes[0]), "reaper": {"mode": "enforce"}}, {"path": str(homes[1])}]
    config.write_text(json.dumps({"reaper": {"confirmations": 1}, "homes": own}))
    options: Words = ["--config.file", config, "--state-dir", tmp_path / "state"]
    status = run_json("status", *options)
    assert status["agent"]["mode"] == {"reaper": "enforce", "prune": "observe"}
    enforced = {home["path"]: home["mode"]["reaper"] for home in status["homes"]}
    assert enforced == {
        str(homes[0]): "enforce",
        str(homes[0] / "profiles" / "work"): "enforce",
        str(homes[1]): "observe",
    }
    text = run("status", *options).stdout
    assert text.count("mode      reaper enforce, prune observe\n") == 2
    assert text.count("mode      reaper observe, prune observe\n") == 1
    assert text.endswith("reaper enforce, prune observe, not in every home\n")
    with agent(tmp_path, configuration=config.read_text()) as running:
        assert "reaper=enforce prune=observe" in running.log()


def test_status_tells_of_a_home_that_is_not_watched(tmp_path: Path) -> None:
    """It is in a folder that any user can write to."""
    home = small_home(tmp_path / ".hermes")
    tmp_path.chmod(0o777)
    environment = {"HOME": str(tmp_path), "HERMES_HOME": ""}
    done = run("status", "--state-dir", tmp_path / "state", environment=environment)
    assert f"{home} is not watched" in done.stdout
    assert "is writable by others" in done.stdout
    done = run("status", "--json", "--state-dir", tmp_path / "state", environment=environment)
    refused = json.loads(done.stdout)["refused"]
    assert str(home) in [each["path"] for each in refused]


def test_who_loses_what_it_writes_is_named_with_what_to_do(tmp_path: Path) -> None:
    """A real Hermes first without its lock, then without its WAL."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    options: Words = ["--home", home, "--state-dir", tmp_path / "state"]
    with holder(python_for(NEWEST), home) as process:
        process.ask("create", session="a")
        process.ask("append", session="a", count=10)
        healthy = run("status", *options).stdout
        assert "warning" not in healthy
        process.ask("lose_database_lock")
        warned_of(process.pid, "HermesLocklessHolders", ("lockless_pids",), options)
        open_carelessly(home)
        both = ("deleted_wal_pids", "lockless_pids")
        warned_of(process.pid, "HermesPersistenceDead", both, options)


def warned_of(pid: int, runbook: str, keys: tuple[str, ...], options: Words) -> None:
    (warning,) = [line for line in run("status", *options).stdout.splitlines() if "warning" in line]
    assert f"process {pid} " in warning
    assert runbook in warning
    (row,) = run_json("status", *options)["homes"]
    assert all(row[key] == [pid] for key in keys)
    done = run("check", "--json", *options)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["ok"] is False
    (loss,) = [each for each in report["homes"][0]["cannot"] if runbook in each["grant"]]
    assert loss.keys() == {"what", "why", "grant"}
    assert f"restart process {pid}" in loss["grant"]
