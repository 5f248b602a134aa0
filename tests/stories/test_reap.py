"""The reaper left on: real Hermes processes that leak sessions, and real ones that keep theirs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.real.cli import Chat, ask, chat, chat_once, gateway, list_sessions
from tests.real.command import run, run_json
from tests.real.hermes import NEWEST, python_for
from tests.real.stub_model import StubModel
from tests.real.waiting import wait_until
from tests.support.reaping import GATEWAY, ONE_SHOT, hermes_process, leaky_home, open_sessions
from tests.support.verdicts import (
    PRESUME,
    WAYS_TO_LEAK,
    a_week_passes,
    enter_together,
    leak,
    watching,
)

RELEASES = (
    NEWEST,
    pytest.param("0.18.2", marks=pytest.mark.full),
    pytest.param("0.16.0", marks=pytest.mark.full),
)
ENFORCE = "mode: enforce"
PRESUMING = f"{ENFORCE}, {PRESUME}"
LEAKED = [f"20260101_08000{number}_abcdef" for number in range(4)]


@pytest.fixture
def home(model: StubModel, tmp_path: Path) -> Path:
    """A home that no process has used yet."""
    home = tmp_path / "home"
    model.configure(home)
    return home


@pytest.mark.parametrize("version", RELEASES)
def test_killed_chats_are_reaped_once_and_can_be_taken_up_again(
    version: str, model: StubModel, home: Path, tmp_path: Path
) -> None:
    """One was killed while it waited for its user, one in the middle of an answer."""
    hermes = python_for(version)
    with watching(tmp_path / "agent", home, reaper=ENFORCE) as watch:
        leaked = leak(hermes, home, model, "idle", "answering")
        watch.wait_until_reaped(2)
        watch.scans(4)
        assert watch.reaped() == 2
        assert not watch.breaker_is_open()
        for row in ask(home, _ENDS):
            assert row["end_reason"] == "reaped"
            assert row["ended_at"] == pytest.approx(row["last_activity_at"], abs=1e-6)
        listed = list_sessions(hermes, home)
        assert all(session in listed for session in stored(home, *leaked.values()))
        with chat(hermes, home, "--resume", leaked["idle"]) as window:
            watch.scans(4)
            assert window.say() == leaked["idle"]
            watch.scans(4)
            window.quit()
        assert watch.reaped() == 2
        assert watch.reopened() == 0
    (row,) = ask(home, f"SELECT * FROM sessions WHERE id = '{leaked['idle']}'")
    assert (row["message_count"], row["end_reason"]) == (4, "cli_close")


_ENDS = """
    SELECT end_reason, ended_at, MAX(started_at, COALESCE((SELECT MAX(timestamp) FROM messages
           WHERE session_id = sessions.id), 0)) AS last_activity_at FROM sessions
"""


def stored(home: Path, *sessions: str) -> list[str]:
    """Those with a message: Hermes does not list empty ones."""
    rows = ask(home, "SELECT DISTINCT session_id FROM messages")
    return [row["session_id"] for row in rows if row["session_id"] in sessions]


@pytest.mark.parametrize("version", RELEASES)
def test_the_leaked_are_reaped_beside_a_gateway_and_two_chats_that_are_not(
    version: str, model: StubModel, home: Path, tmp_path: Path
) -> None:
    """A working day, a week away, and the morning after a power cut."""
    hermes = python_for(version)
    with watching(tmp_path / "agent", home, reaper=PRESUMING) as watch, ExitStack() as host:
        host.enter_context(gateway(hermes, home))
        first, second = enter_together(host, chat(hermes, home), chat(hermes, home))
        leaked = leak(hermes, home, model, *WAYS_TO_LEAK)
        talk_until_ended(home, leaked.values(), first, second)

        a_week_passes(home)
        resumed = leaked["idle"]
        first.resume(resumed)
        for window in (first, second):
            window.say()
        wait_until(lambda: {resumed, second.session} <= open_sessions(home), "both are open")
        assert watch.reaped(proof="proven") == 0
        assert not watch.breaker_is_open()
    with chat(hermes, home, "-c") as morning:
        taken_up = morning.session
        assert taken_up in (resumed, second.session)
        with watching(tmp_path / "agent", home, reaper=ENFORCE) as watch:
            watch.scans(6)
            assert watch.ever[taken_up] == {"unknown"}
            morning.say()
            assert morning.session == taken_up
            watch.scans()
            assert watch.reaped(proof="proven") == 0
            assert not watch.breaker_is_open()
    assert taken_up in open_sessions(home)
    assert_nothing_is_lost(home, model)


def test_a_chat_that_was_presumed_dead_is_open_again_after_its_next_message(
    model: StubModel, home: Path, tmp_path: Path
) -> None:
    """It sat at its prompt for long. The reaper goes on, for it has not claimed a proof."""
    hermes = python_for(NEWEST)
    with watching(tmp_path / "agent", home, reaper=PRESUMING) as watch:
        with chat(hermes, home) as window:
            session = window.say()
            watch.wait_until_reaped(1)
            assert watch.reaped(proof="presumed") == 1
            assert session not in open_sessions(home)
            assert window.say() == session
            wait_until(lambda: watch.reopened(proof="presumed") == 1, "it is open again")
            assert session in open_sessions(home)
            assert not watch.breaker_is_open()
            assert session in list_sessions(hermes, home)
            wait_until(lambda: watch.reaped() == 2, "it is presumed dead once more")
            window.say()
            wait_until(lambda: watch.reopened(proof="presumed") == 2, "it is open again")
            window.quit()
        leaked = chat_once(hermes, home)
        wait_until(lambda: watch.reaped(proof="proven") == 1, "the reaper goes on")
        assert watch.reopened() == 2
        assert not watch.breaker_is_open()
    rows = ask(home, "SELECT id, message_count, end_reason FROM sessions ORDER BY started_at")
    assert rows == [
        {"id": session, "message_count": 6, "end_reason": "cli_close"},
        {"id": leaked, "message_count": 2, "end_reason": "reaped"},
    ]
    assert_nothing_is_lost(home, model)


def test_a_chat_that_took_up_what_a_one_shot_leaked_keeps_it(home: Path, tmp_path: Path) -> None:
    """It has no row of its own, and the one-shot began after it."""
    hermes = python_for(NEWEST)
    with (
        watching(tmp_path / "agent", home, reaper=ENFORCE) as watch,
        chat(hermes, home) as window,
    ):
        leaked = chat_once(hermes, home)
        window.resume(leaked)
        watch.scans(6)
        assert watch.reaped() == 0
        window.kill()
        watch.wait_until_reaped(1)


@pytest.mark.parametrize("version", RELEASES)
def test_no_chat_of_a_gateway_is_ended_whether_it_runs_or_not(
    version: str, model: StubModel, home: Path, tmp_path: Path
) -> None:
    """And the next message in each goes on with the same conversation."""
    hermes = python_for(version)
    chats = hermes.run("continue_chats", home, make=True)
    routed = {name: chats[name] for name in ("chat_direct", "chat_group", "chat_channel")}
    with watching(tmp_path / "agent", home, reaper=PRESUMING) as watch:
        with gateway(hermes, home) as running:
            chat_once(hermes, home)
            watch.wait_until_reaped(1)
            running.terminate()
            running.wait(timeout=120)
        chat_once(hermes, home)
        watch.wait_until_reaped(2)
        with gateway(hermes, home) as running:
            running.kill()
            running.wait(timeout=120)
        chat_once(hermes, home)
        watch.wait_until_reaped(3)
        watch.scans(3)
    assert set(routed.values()) <= open_sessions(home)
    continued = hermes.run("continue_chats", home, make=False)
    assert {name: session for name, (session, _) in continued.items()} == routed
    remembered = {name: messages for name, (_, messages) in continued.items()}
    assert remembered == {"chat_direct": 6, "chat_group": 6, "chat_channel": 0}


@pytest.mark.parametrize("version", ["0.13.0", NEWEST])
def test_a_proof_that_was_wrong_stops_the_reaper(version: str, tmp_path: Path) -> None:
    """Until a person has looked, and reaps by hand. The process lies: it claims to be a one-shot
    without a resume, and goes on with a session that was there before it."""
    hermes = python_for(version)
    home = leaky_home(hermes, tmp_path / "home", LEAKED)
    with watching(tmp_path / "agent", home) as watch:
        watch.wait_for("dead", *LEAKED)
    with (
        hermes_process(hermes, home, *ONE_SHOT) as liar,
        watching(tmp_path / "agent", home, reaper=ENFORCE) as watch,
    ):
        watch.wait_until_reaped(4)
        assert watch.reaped(proof="proven") == 4
        liar.ask("append", session=LEAKED[0])
        wait_until(lambda: watch.reopened(proof="proven") == 1, "it is open again")
        assert watch.breaker_is_open()
        assert liar.ask("show", session=LEAKED[0])["ended_at"] is None
        liar.ask("leak", session="20260101_090000_abcdef")
    with watching(tmp_path / "agent", home, reaper=ENFORCE) as watch:
        watch.wait_for("dead", "20260101_090000_abcdef")
        watch.scans(4)
        assert watch.breaker_is_open()
        assert watch.reaped() == 4
        options = ("--home", home, "--config.file", tmp_path / "agent" / "hermes-exporter.yml")
        done = run_json("reap", "--yes", *options, "--state-dir", tmp_path / "by-hand")
        assert (done["outcome"], done["done"]) == ("done", 2)
        watch.wait_until_reaped(6)
        wait_until(lambda: not watch.breaker_is_open(), "the breaker is closed")


@pytest.mark.parametrize("version", ["0.13.0", NEWEST])
def test_a_reaped_session_that_is_taken_up_later_is_open_again_and_the_reaper_goes_on(
    version: str, tmp_path: Path
) -> None:
    """By a process that was not there at the reap: an API client may go on with any session."""
    hermes = python_for(version)
    home = leaky_home(hermes, tmp_path / "home", LEAKED)
    with watching(tmp_path / "agent", home, reaper=ENFORCE) as watch:
        watch.wait_until_reaped(4)
        with hermes_process(hermes, home, *GATEWAY) as server:
            server.ask("append", session=LEAKED[0])
            wait_until(
                lambda: server.ask("show", session=LEAKED[0])["ended_at"] is None,
                "it is open again",
            )
            server.ask("leak", session="20260101_090000_abcdef")
        wait_until(lambda: watch.reaped() == 6, "both are reaped")
        assert watch.reopened() == 0
        assert not watch.breaker_is_open()


def test_so_many_a_minute_and_the_rest_later(tmp_path: Path) -> None:
    home = leaky_home(python_for(NEWEST), tmp_path / "home", LEAKED)
    with watching(tmp_path / "agent", home, reaper=f"{ENFORCE}, max_per_minute: 3") as watch:
        watch.wait_until_reaped(3)
        watch.scans(4)
        assert watch.reaped() == 3


def test_an_agent_that_only_observes_touches_nothing(tmp_path: Path) -> None:
    home = leaky_home(python_for(NEWEST), tmp_path / "home", LEAKED)

    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in home.iterdir()}

    before = contents()
    with watching(tmp_path / "agent", home) as watch:
        watch.wait_for("dead", *LEAKED)
        watch.scans(4)
    assert contents() == before


def test_while_routing_cannot_be_read_nothing_is_written(tmp_path: Path) -> None:
    home = leaky_home(python_for(NEWEST), tmp_path / "home", LEAKED)
    (home / "sessions").mkdir()
    routing = home / "sessions" / "sessions.json"
    routing.write_text("{")
    with watching(tmp_path / "agent", home, reaper=ENFORCE) as watch:
        watch.scans(6)
        assert watch.reaped() == 0
        assert not (home / ".hermes-exporter").exists()
        routing.write_text(json.dumps({"a chat": {"session_id": LEAKED[0]}}))
        watch.wait_until_reaped(3)
        watch.scans(3)
    assert open_sessions(home) == {LEAKED[0]}


def test_where_another_machine_may_write_nothing_is_dead_and_nothing_written(
    tmp_path: Path,
) -> None:
    """A filesystem of which it is not known who else has it mounted."""
    below = leaky_home(python_for(NEWEST), tmp_path / "below", LEAKED)
    home = tmp_path / "home"
    home.mkdir()
    subprocess.run(["bindfs", below, home], check=True)
    try:
        with watching(tmp_path / "agent", home, reaper=ENFORCE) as watch:
            metrics = watch.scans(6)
            assert watch.ever == {session: {"unknown"} for session in LEAKED}
            assert metrics.by("hermes_exporter_blind", "reason")["unknown_fs",] == 1
            assert watch.reaped() == 0
        options = ("--home", home, "--state-dir", tmp_path / "by-hand")
        reaped = run("reap", "--yes", "--json", *options)
        assert (reaped.returncode, json.loads(reaped.stdout)["done"]) == (3, 0)
        assert (
            "4 open sessions could not be judged (cannot be seen: other machines " in reaped.stderr
        )
        checked = run("check", "--json", *options)
        (found,) = json.loads(checked.stdout)["homes"]
        assert checked.returncode == 1
        assert any(each["grant"] for each in found["cannot"])
    finally:
        subprocess.run(["fusermount3", "-u", "-z", home], check=True)
    assert open_sessions(below) == set(LEAKED)
    assert not (below / ".hermes-exporter").exists()


def test_what_an_undo_opened_stays_open(tmp_path: Path) -> None:
    home = leaky_home(python_for(NEWEST), tmp_path / "home", LEAKED)
    with watching(tmp_path / "agent", home, reaper=ENFORCE) as watch:
        watch.wait_until_reaped(4)
        options = ("--home", home, "--state-dir", tmp_path / "by-hand")
        done = run("undo", "--last", "--json", *options)
        assert "(reap by the agent, begun " in done.stderr
        undone = json.loads(done.stdout)
        assert undone["restored"] == 4
        watch.wait_for("held", *LEAKED)
        watch.scans(4)
        assert open_sessions(home) == set(LEAKED)
        assert run("undo", undone["run"], *options).returncode == 1
    assert [row["kind"] for row in run_json("history", *options)] == ["undo", "reap"]


def talk_until_ended(home: Path, sessions: Collection[str], *windows: Chat) -> None:
    """Go on talking in each, until the others have been idle for as long as is asked for."""

    def are_ended() -> bool:
        for window in windows:
            window.say()
        return not open_sessions(home) & set(sessions)

    wait_until(are_ended, "all are ended")


def assert_nothing_is_lost(home: Path, model: StubModel) -> None:
    """Every question that the model answered is stored."""
    stored = "\n".join(str(row["content"]) for row in ask(home, _SAID))
    asked = [each for each in model.questions if each.startswith("hello")]
    assert [each for each in asked if each not in stored] == []


_SAID = "SELECT content FROM messages WHERE role = 'user'"
