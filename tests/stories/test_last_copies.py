"""A transcript may have what no database has: its session is not pruned for having few messages."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.real.cli import ask, chat
from tests.real.hermes import python_for
from tests.real.stub_model import HANG, USE_TOOL, stub_model
from tests.real.waiting import wait_until
from tests.support.home_scans import sql
from tests.support.prune_plans import kept, plan, read_inventory, targets
from tests.support.small_homes import small_home

PATIENCE_SECONDS = 60.0
END_ALL = "UPDATE sessions SET ended_at = started_at + 60, end_reason = 'cli_close'"


@pytest.mark.parametrize("version", ["0.13.0", "0.14.0"])
def test_a_chat_that_was_killed_in_its_first_turn_keeps_its_transcript(
    version: str, tmp_path: Path
) -> None:
    """Up to 0.16 the database has nothing of a turn before its end; the transcript has."""
    home = tmp_path / "home"
    with stub_model() as model:
        model.configure(home)
        with chat(python_for(version), home) as window:
            said = window.say("a turn that ends")
            window.kill()
        with chat(python_for(version), home) as window:
            window.ask(f"remember 4711: {USE_TOOL} and {HANG}")
            wait_until(window.tool_runs, "the tool runs", PATIENCE_SECONDS)
            for process in window.window.descendants():
                if process.cmdline()[:1] == ["sleep"]:
                    process.kill()  # the chat goes on with what the tool has put out
            wait_until(lambda: model.half_answered, "the model is asked again", PATIENCE_SECONDS)
            window.kill()
    (cut,) = [row["id"] for row in ask(home, "SELECT id FROM sessions") if row["id"] != said]
    sql(home, END_ALL)
    assert "4711" in (home / f"sessions/session_{cut}.json").read_text()
    assert not ask(home, f"SELECT 1 FROM messages WHERE session_id = '{cut}'")
    found = plan(read_inventory(home, days_later=60).inventory)
    assert targets(found) == [said]
    assert set(kept(found)) == {"last_copy"}


def test_a_gateway_that_reads_its_longer_lines_keeps_them(tmp_path: Path) -> None:
    """As up to 0.14, for a conversation that is older than its database."""
    home = small_home(tmp_path / "home", sessions=2)
    longer, equal = (row["id"] for row in ask(home, "SELECT id FROM sessions ORDER BY id"))
    for session, messages in ((longer, 300), (equal, 2)):
        file = home / f"sessions/{session}.jsonl"
        file.write_text(f"{json.dumps({'role': 'user', 'content': 'hi'})}\n" * messages)
        os.utime(file, (1_700_000_000, 1_700_000_000))
    sql(home, END_ALL)
    found = plan(read_inventory(home, days_later=60).inventory)
    assert targets(found) == [equal]
    assert set(kept(found)) == {"last_copy"}


def test_a_session_of_a_database_that_was_restored_to_an_earlier_moment_stays(
    tmp_path: Path,
) -> None:
    home = small_home(tmp_path / "home", sessions=2)
    newer, equal = (row["id"] for row in ask(home, "SELECT id FROM sessions ORDER BY id"))
    for session, messages in ((newer, 300), (equal, 2)):
        file = home / f"sessions/session_{session}.json"
        file.write_text(json.dumps({"message_count": messages, "messages": []}))
    sql(home, END_ALL)
    found = plan(read_inventory(home, days_later=60).inventory)
    assert targets(found) == [equal]
    assert set(kept(found)) == {"last_copy"}
