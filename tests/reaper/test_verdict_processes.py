"""Verdicts on the sessions of real Hermes processes: running, idle, killed, hidden."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.real.agent import Metrics
from tests.real.cli import Chat, ask, chat, chat_once, gateway, unanswered_once
from tests.real.elsewhere import IN_PID_NAMESPACE, as_user, in_container
from tests.real.hermes import NEWEST, Hermes, python_for
from tests.real.holders import holder
from tests.real.stub_model import StubModel
from tests.real.waiting import wait_until
from tests.support.running_agent import when
from tests.support.verdicts import (
    HOME,
    PRESUME,
    WAYS_TO_LEAK,
    Watch,
    a_week_passes,
    blindness_seen_by,
    checked_by,
    enter_together,
    leak,
    sessions_seen_by,
    watching,
)

OLDER = ("0.16.0", "0.18.2")
NOBODY = 65534


@pytest.fixture
def home(model: StubModel, tmp_path: Path) -> Path:
    """A home that no process has used yet."""
    home = tmp_path / "home"
    model.configure(home)
    return home


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.mark.parametrize("version", [OLDER[0], pytest.param(OLDER[1], marks=pytest.mark.full)])
def test_a_killed_chat_is_presumed_dead_beside_one_that_is_not(
    version: str, model: StubModel, home: Path, tmp_path: Path
) -> None:
    hermes = python_for(version)
    with watching(tmp_path / "agent", home, reaper=PRESUME) as watch, chat(hermes, home) as window:
        leaked = leak(hermes, home, model, "idle", "answering")
        window.say()
        watch.forget()  # the chat wrote nothing before: it was cleared
        talk_until_dead(watch, leaked.values(), window)
        assert watch.leaks() == {"after_turn": 1, cut_off(hermes): 1}
        taken_up = leaked["idle"]
        window.resume(taken_up)
        assert window.say() == taken_up
        watch.scans()
        assert watch.verdict(taken_up) != "dead"
        assert watch.names(window.pid, taken_up)
        assert watch.proven == set()
        window.kill()
        watch.wait_for("dead", taken_up, *leaked.values())
        assert watch.proven >= set(leaked.values())


@pytest.mark.full
@pytest.mark.parametrize("version", [NEWEST, *OLDER])
def test_the_leaked_are_found_dead_beside_a_gateway_and_two_chats_that_are_not(
    version: str, model: StubModel, home: Path, tmp_path: Path
) -> None:
    """The story of a working day, the week after, and the morning after a power cut."""
    hermes = python_for(version)
    with watching(tmp_path / "agent", home, reaper=PRESUME) as watch, ExitStack() as host:
        leaked = leak(hermes, home, model, *WAYS_TO_LEAK)
        host.enter_context(gateway(hermes, home))
        first, second = enter_together(host, chat(hermes, home), chat(hermes, home))
        watch.forget()
        talk_until_dead(watch, leaked.values(), first, second)
        assert watch.leaks() == {"after_turn": 3, cut_off(hermes): 2}
        a_week_passes(home)
        watch.scans(4)
        assert watch.proven == set()

        resumed = leaked["idle"]
        first.resume(resumed)
        assert first.say() == resumed
        watch.scans()
        assert watch.verdict(resumed) != "dead"
        talk_until_dead(watch, set(leaked.values()) - {resumed}, first, second)
        assert watch.proven == set()

        host.close()
        everything = {*leaked.values(), second.session}
        watch.wait_for("dead", *everything)
        watch.scans()
        assert watch.proven >= everything
        with chat(hermes, home, "-c") as morning:
            watch.scans()
            watch.forget()
            morning.say()
            watch.scans()
            assert watch.verdict(morning.session) != "dead"
            assert watch.proven == set()


def test_a_name_clears_a_process_of_nothing_else(model: StubModel, tmp_path: Path) -> None:
    """It may have gone on to any other; only a one-shot takes up none that was there before it."""
    hermes = python_for(NEWEST)
    home, taken_up = leak_by_hand(tmp_path)
    _, left = leak_by_hand(tmp_path, "20260101_090000_abcdef")
    a_week_passes(home)
    model.configure(home)
    with watching(tmp_path / "agent", home) as watch:
        watch.wait_for("dead", taken_up, left)
        with chat(hermes, home, "--resume", taken_up) as window:
            watch.wait_for("live", taken_up)
            watch.wait_for("unknown", left)
            watch.forget()
            watch.scans(4)
            assert window.session == taken_up
            assert watch.ever[left] == {"unknown"}
            assert watch.names(window.pid, left)
            assert watch.ever[taken_up] == {"live"}
            assert ("resume", f"process {window.pid} (cli) names it") in watch.evidence(taken_up)
        with unanswered_once(hermes, home, model):
            watch.wait_for("dead", left, taken_up)
            watch.forget()
            watch.scans(4)
            (running,) = watch.ever.keys() - {taken_up, left}
            assert watch.proven == {left, taken_up}
            assert "dead" not in watch.ever[running]


def written_by(pid: int) -> str:
    """Return how much a process has written so far, as the kernel tells it."""
    return Path(f"/proc/{pid}/io").read_text().splitlines()[1]


def leak_beside_silent(watch: Watch, hermes: Hermes, home: Path, pid: int) -> list[str]:
    """Leak one-shots until one is found dead beside a chat; return them, that one last.

    It is found dead if the chat is silent, and if no scan came between the start of the session and
    its row. On a busy machine a chat writes for long after its start, and a row comes late.
    """
    leaked: list[str] = []
    for _ in range(20):
        written = written_by(pid)
        watch.scans(6)
        if written_by(pid) == written:
            leaked.append(chat_once(hermes, home))
            watch.scans(2)
            wait_until(lambda: watch.verdict(leaked[-1]) != "live", "it is idle for long enough")
            watch.scans(4)  # more than it takes to be confirmed
            if watch.verdict(leaked[-1]) == "dead":
                return leaked
    raise AssertionError("the chat is never silent, or rows always come late")


def test_a_chat_may_have_taken_up_any_session_once_it_writes(home: Path, tmp_path: Path) -> None:
    """Until then it can neither have begun nor shown one that was not there when it fell silent."""
    hermes = python_for(NEWEST)
    with watching(tmp_path / "agent", home) as watch, chat(hermes, home) as window:
        all_leaked = leak_beside_silent(watch, hermes, home, window.pid)
        leaked = all_leaked[-1]
        window.resume(leaked)
        watch.wait_for("unknown", leaked)
        assert watch.names(window.pid, leaked)
        watch.forget()
        watch.scans(4)
        assert watch.ever[leaked] == {"unknown"}
        window.window.process.kill()  # its parent takes no notice: it stays a zombie
        watch.wait_for("dead", *all_leaked)
        assert watch.leaks() == {"after_turn": len(all_leaked)}


def test_what_a_chat_runs_in_the_background_is_spared_as_the_chat_itself(
    home: Path, tmp_path: Path
) -> None:
    hermes = python_for(NEWEST)
    with watching(tmp_path / "agent", home) as watch, chat(hermes, home) as window:
        window.say()
        leaked = chat_once(hermes, home)
        window.run_tool_in_background()
        watch.wait_for("unknown", window.session)  # and no longer active a moment ago
        watch.forget()
        watch.scans(6)
        (task,) = watch.ever.keys() - {leaked, window.session}
        assert watch.ever[window.session] == {"unknown"}
        assert "dead" not in watch.ever[task] | watch.ever[leaked]
        window.kill()
        watch.wait_for("dead", leaked, window.session, task)


@pytest.mark.parametrize("place", ["pid namespace", "container", "account"])
def test_a_chat_somewhere_else_on_this_host_is_seen(
    place: str, model: StubModel, open_folder: Path, tmp_path: Path
) -> None:
    hermes, home = python_for(NEWEST), open_folder / "home"
    model.configure(home)
    inside = open_folder / "inside"
    wrapper = {
        "pid namespace": list(IN_PID_NAMESPACE),
        "container": in_container(home, inside),
        "account": as_user(NOBODY),
    }[place]
    environment = {"HERMES_HOME": str(inside)} if place == "container" else {}
    if place == "account":
        give_to(NOBODY, open_folder)
    with (
        watching(tmp_path / "agent", home) as watch,
        chat(hermes, home, wrapper=wrapper, environment=environment) as window,
    ):
        window.say()
        watch.scans(6)
        assert watch.ever[window.session] <= {"live", "unknown"}
        assert watch.names(window.pid, window.session)
        elsewhere = sessions_seen_by(IN_PID_NAMESPACE, home, tmp_path)[window.session]
        assert elsewhere["verdict"] == "unknown"
        assert "a process that cannot be seen holds a lock" in str(elsewhere["evidence"])
        window.kill()
        watch.wait_for("dead", window.session)


def test_an_agent_that_cannot_see_everybody_calls_nobody_dead(open_folder: Path) -> None:
    """The home is its own, but a process of another user may have it open."""
    home, leaked = leak_by_hand(open_folder)
    give_to(NOBODY, open_folder)
    row = sessions_seen_by(as_user(NOBODY), home, open_folder)[leaked]
    assert row["verdict"] == "unknown"
    assert ("blindness", "cannot be seen: open files of other users' processes") in [
        (each["kind"], each["detail"]) for each in row["evidence"]
    ]
    cannot = checked_by(as_user(NOBODY), home, open_folder)["cannot"]
    assert "see who has the database open" in [each["what"] for each in cannot]
    assert "permissions" in blindness_seen_by(as_user(NOBODY), home, open_folder)


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_an_agent_that_may_not_read_a_home_says_what_to_grant(mode: int, open_folder: Path) -> None:
    """Even if the folder itself is open: only the owner may read what is in it without harm."""
    home, _ = leak_by_hand(open_folder)
    home.chmod(mode)
    assert sessions_seen_by(as_user(NOBODY), home, open_folder) == {}
    (cannot, *_) = checked_by(as_user(NOBODY), home, open_folder)["cannot"]
    assert cannot["what"] == "read the database"
    assert cannot["grant"] == "run as the home's owner or as root"


def test_a_lease_of_a_pid_that_has_come_round_keeps_nobody_alive(
    home: Path, tmp_path: Path
) -> None:
    settings = json.loads((home / "config.yaml").read_text())
    (home / "config.yaml").write_text(json.dumps({**settings, "max_concurrent_sessions": 9}))
    leases = home / "runtime" / "active_sessions.json"
    with watching(tmp_path / "agent", home) as watch:
        with chat(python_for(NEWEST), home) as window:
            window.say()
            watch.scans()
            watch.wait_for("live", window.session)
            window.kill()
        document = json.loads(leases.read_text())
        assert [entry["pid"] for entry in document["entries"]] == [window.pid]
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as stranger:
            document["entries"][0]["pid"] = stranger.pid
            leases.write_text(json.dumps(document))
            watch.wait_for("dead", window.session)


def test_while_routing_cannot_be_read_nobody_is_dead(tmp_path: Path) -> None:
    home, leaked = leak_by_hand(tmp_path)
    with watching(tmp_path / "agent", home) as watch:
        watch.wait_for("dead", leaked)
        (home / "sessions").mkdir(exist_ok=True)
        (home / "sessions" / "sessions.json").write_text("{")
        watch.wait_for("unknown", leaked)
        watch.forget()
        blind = watch.scans().by("hermes_exporter_blind", "reason")
        assert blind["routing",] == 1
        assert watch.ever[leaked] == {"unknown"}
        assert ("blindness", "cannot be seen: which chats lead to a session") in watch.evidence(
            leaked
        )
        (home / "sessions" / "sessions.json").write_text("{}")
        watch.wait_for("dead", leaked)


LOSE_LOCKS = """
import os, signal
def lose(name):
    with open(os.path.join(os.environ["HERMES_HOME"], name), "rb") as file:
        file.read(1)
signal.signal(signal.SIGUSR1, lambda *_: lose("state.db"))
signal.signal(signal.SIGUSR2, lambda *_: lose("state.db-shm"))
"""


def test_a_chat_that_lost_its_locks_is_neither_dead_nor_harmed(home: Path, tmp_path: Path) -> None:
    """It opened its database as a plain file once, and POSIX took all its locks."""
    hermes = python_for(NEWEST)
    (tmp_path / "sitecustomize.py").write_text(LOSE_LOCKS)
    path = f"{tmp_path}{os.pathsep}{hermes.environment(home)['PYTHONPATH']}"
    with (
        watching(tmp_path / "agent", home) as watch,
        chat(hermes, home, environment={"PYTHONPATH": path}) as window,
    ):
        window.say()
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            os.kill(window.pid, number)
            watch.forget()
            watch.scans(4)
            assert watch.ever[window.session] <= {"live", "unknown"}
            when(watch.agent, has_one_without_locks, "it has lost its locks")
            window.say()
        assert window.is_running()
        window.quit()
    rows = ask(home, "SELECT message_count, end_reason FROM sessions")
    assert rows == [{"message_count": 6, "end_reason": "cli_close"}]
    assert ask(home, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def has_one_without_locks(metrics: Metrics) -> bool:
    return metrics.value("hermes_state_db_lockless_holders", home=HOME) == 1


def talk_until_dead(watch: Watch, sessions: Collection[str], *windows: Chat) -> None:
    """Go on talking in each, until the others have been idle for as long as is asked for."""

    def are_dead() -> bool:
        for window in windows:
            window.say()
        return all(watch.verdict(session) == "dead" for session in sessions)

    wait_until(are_dead, "all are dead")


def cut_off(hermes: Hermes) -> str:
    """What a first turn that was cut off leaves: 0.16 stores nothing of a turn before its end."""
    return "mid_turn" if hermes.at_least("0.17.0") else "empty"


def leak_by_hand(folder: Path, session: str = "20260101_080000_abcdef") -> tuple[Path, str]:
    """A home, and a session in it whose process has gone without a word."""
    home = folder / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    with holder(python_for(NEWEST), home) as process:
        process.ask("create", session=session)
        process.ask("append", session=session, count=2)
        process.kill()
    return home, session


def give_to(user: int, folder: Path) -> None:
    """The folder and everything in it."""
    subprocess.run(["chown", "-R", f"{user}:{user}", folder], check=True)
