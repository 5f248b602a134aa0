"""A session is pruned while a process is on it that no look at the database shows: nothing is lost.

Each of these was once a way to lose the past of a conversation.
"""

from __future__ import annotations

import subprocess
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.real.api_server import api_server
from tests.real.cli import ask, chat, chat_once, numbered
from tests.real.command import run_json
from tests.real.hermes import NEWEST, Hermes, python_for
from tests.real.holders import holder
from tests.real.stub_model import HANG, StubModel
from tests.real.terminal import PATIENCE_SECONDS
from tests.real.waiting import wait_until
from tests.support.session_pruning import grow_old


@pytest.fixture
def home(model: StubModel, tmp_path: Path) -> Path:
    home = tmp_path / "home"
    model.configure(home)
    return home


def change(home: Path, sql: str) -> None:
    command = ["sqlite3", "-cmd", ".timeout 60000", str(home / "state.db"), sql]
    subprocess.run(command, check=True, timeout=120)


def keep_another(hermes: Hermes, home: Path) -> None:
    """The newest of the ended sessions, which no prune takes."""
    chat_once(hermes, home)
    ended = "ended_at = started_at + 1, end_reason = 'cli_close'"
    change(home, f"UPDATE sessions SET {ended} WHERE ended_at IS NULL")


def act(home: Path, folder: Path, *command: str) -> Any:
    """A command by hand, without an agent."""
    settings = folder / "settings.yml"
    settings.write_text("prune: {keep: {newest: 1}}\n")
    where = ("--home", home, "--state-dir", folder / "state", "--config.file", settings)
    return run_json(*command, *where)


def pruned(home: Path, folder: Path, policy: str) -> set[str]:
    done = act(home, folder, "prune", "--policy", policy, "--yes")
    assert done["outcome"] == "done"
    skipped = {each["target"] for each in done["skipped"]}
    return {each["target"] for each in done["plan"]["actions"]} - skipped


def told(home: Path, session: str) -> list[str]:
    """The roles of what a session holds, in order, if Hermes lists it."""
    hidden = ask(home, f"SELECT * FROM sessions WHERE id = '{session}'")[0].get("archived")
    assert not hidden
    sql = f"SELECT role FROM messages WHERE session_id = '{session}' ORDER BY id"
    return [row["role"] for row in ask(home, sql)]


TURN = ["user", "assistant"]


@pytest.mark.parametrize(
    "version",
    [
        pytest.param("0.13.0", marks=pytest.mark.full),
        "0.16.0",
        pytest.param(NEWEST, marks=pytest.mark.full),
    ],
)
def test_old_sessions_that_are_pruned_in_the_middle_of_a_turn_get_their_past_back(
    version: str, model: StubModel, home: Path, tmp_path: Path
) -> None:
    """An API client goes on with ended sessions; up to 0.16 nothing of a turn is stored before its
    end. One names its session in a header, the other keeps no connection open.
    """
    hermes = python_for(version)
    sessions = [chat_once(hermes, home) for _ in range(2)]
    change(home, "UPDATE sessions SET ended_at = started_at + 1, end_reason = 'cli_close'")
    grow_old(home, 200)
    keep_another(hermes, home)
    lines = [numbered(HANG) for _ in sessions]
    with api_server(hermes, home) as server:
        turn = threading.Thread(target=server.complete, args=(sessions[0], lines[0]), daemon=True)
        turn.start()
        server.start_run(sessions[1], lines[1])
        wait_until(
            lambda: set(lines) <= set(model.half_answered), "both turns run", PATIENCE_SECONDS
        )
        stored = [len(told(home, each)) for each in sessions]
        if not hermes.at_least("0.17.0"):
            assert stored == [2, 2]
            assert pruned(home, tmp_path, "old_sessions") == set(sessions)
        else:  # the question is stored: they are in use
            assert pruned(home, tmp_path, "old_sessions") == set()
        model.release.set()
        turn.join(timeout=PATIENCE_SECONDS)
        answered = "SELECT session_id FROM messages WHERE content LIKE 'Well%' AND id > 4"
        wait_until(
            lambda: {row["session_id"] for row in ask(home, answered)} >= set(sessions),
            "both are stored",
            PATIENCE_SECONDS,
        )
    act(home, tmp_path, "reap", "--yes")
    for session, line in zip(sessions, lines, strict=True):
        assert told(home, session) == TURN + TURN
        last = ask(
            home, f"SELECT content FROM messages WHERE session_id = '{session}' ORDER BY id"
        )[2]
        assert line in last["content"]


def test_an_ended_session_that_a_program_has_in_memory_keeps_its_past(
    model: StubModel, home: Path, tmp_path: Path
) -> None:
    """It embeds Hermes and was not there when the session ended; it never reopens it."""
    hermes = python_for(NEWEST)
    session = chat_once(hermes, home)
    change(home, "UPDATE sessions SET ended_at = started_at + 1, end_reason = 'cli_close'")
    grow_old(home, 200)
    keep_another(hermes, home)
    with holder(hermes, home, module="embed") as program:
        assert program.ask("take_up", session=session) == 2
        # An agent starts helpers that carry the id of its session for a moment, which protects it.
        wait_until(lambda: pruned(home, tmp_path, "old_sessions") == {session}, "it is pruned", 60)
        assert program.ask("say", words=numbered("hello")) == session
        act(home, tmp_path, "reap", "--yes")
        assert told(home, session) == TURN + TURN
    (row,) = ask(home, f"SELECT source FROM sessions WHERE id = '{session}'")
    assert row["source"] == "cli"


_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.full
@pytest.mark.parametrize(("case", "messages"), [("empty", 0), ("locked", 2)])
def test_a_session_that_is_pruned_on_the_screen_of_a_chat_that_names_its_title_goes_on(
    case: str, messages: int, model: StubModel, home: Path, tmp_path: Path
) -> None:
    """Hermes reopens no empty session, nor one while another process writes to the database."""
    hermes = python_for(NEWEST)
    session = chat_once(hermes, home)
    ended = "ended_at = started_at + 1, end_reason = 'cli_close', title = 'a title'"
    change(home, f"UPDATE sessions SET {ended}")
    if not messages:
        change(home, "DELETE FROM messages; UPDATE sessions SET message_count = 0")
    grow_old(home, 200)
    keep_another(hermes, home)
    with ExitStack() as stack:
        if case == "locked":
            command = ["python3", "-c", _HOLD, str(home / "state.db")]
            pipe = subprocess.PIPE
            holder = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe))
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
        window = stack.enter_context(chat(hermes, home, "--resume", "a title"))
        if case == "locked":
            holder.communicate()
        sql = f"SELECT ended_at FROM sessions WHERE id = '{session}'"
        assert ask(home, sql)[0]["ended_at"] is not None
        policy = "old_sessions" if messages else "empty_sessions"
        assert pruned(home, tmp_path, policy) == {session}
        line = window.ask("hello")
        window.wait_for_prompt()
        act(home, tmp_path, "reap", "--yes")
        assert told(home, session) == [*TURN * (messages // 2), *TURN]
        row = ask(home, f"SELECT title, source FROM sessions WHERE id = '{session}'")[0]
        assert (row["title"], row["source"]) == ("a title", "cli")
        said = f"SELECT session_id FROM messages WHERE content LIKE '%{line}'"
        assert ask(home, said)[0]["session_id"] == session
