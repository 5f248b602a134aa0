"""The end of a conversation: whose turn it is, and how long its streaks of tool calls are."""

from __future__ import annotations

import json

import apsw
import pytest

from exporter.hermes.schema import probe_schema
from exporter.hermes.turns import Conversation, TurnQuery
from exporter.snapshot import TurnState

TABLES = """
    CREATE TABLE sessions (id, source, started_at, ended_at);
    CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id, role, content, tool_name,
                           tool_calls, timestamp, active);
"""
Said = tuple[str, str, str]
USER: Said = ("user", "", "do it")
CALL: Said = ("assistant", "", "calls")
ANSWER: Said = ("assistant", "", "done")


def tool(name: str, content: str = "fine") -> Said:
    return ("tool", name, content)


def conversation(*said: Said, undone: int = 0) -> Conversation | None:
    """What is read of a session with these messages; the last ones may have been taken back."""
    connection = apsw.Connection(":memory:")
    connection.execute(TABLES)
    for number, (role, name, content) in enumerate(said):
        calls = "[{}]" if content == "calls" else "[]"
        active = number < len(said) - undone
        connection.execute(
            "INSERT INTO messages VALUES (NULL, 's', ?, ?, ?, ?, ?, ?)",
            (role, content, name, calls, float(number), active),
        )
    query = TurnQuery(probe_schema(connection))
    return query.conversations(connection, ["s", "without messages"]).get("s")


@pytest.mark.parametrize(
    ("said", "turn"),
    [
        ([USER], TurnState.MID_TURN),
        ([USER, CALL], TurnState.MID_TURN),
        ([USER, CALL, tool("read")], TurnState.MID_TURN),
        ([USER, CALL, tool("read"), ANSWER], TurnState.AFTER_TURN),
        ([USER, ANSWER, ("system", "", "a note")], TurnState.AFTER_TURN),
    ],
)
def test_a_turn_ends_with_an_answer_that_calls_no_tool(said: list[Said], turn: TurnState) -> None:
    found = conversation(*said)
    assert found is not None
    assert found.turn is turn


def test_a_session_without_messages_is_missing() -> None:
    assert conversation() is None
    assert conversation(USER, undone=1) is None


def test_what_was_taken_back_does_not_count() -> None:
    found = conversation(USER, ANSWER, USER, undone=1)
    assert found is not None
    assert found.turn is TurnState.AFTER_TURN


@pytest.mark.parametrize("length", [1, 5, 20])
def test_streaks_of_one_failing_tool_are_counted_however_long(length: int) -> None:
    streak = [CALL, tool("read", "Error: no")] * length
    assert conversation(USER, *streak) == (TurnState.MID_TURN, length, length)


def test_a_streak_ends_at_another_tool_or_at_a_success() -> None:
    failed = tool("read", "Error: no")
    others = [tool("write", "Error: no"), failed, failed]
    assert conversation(USER, *others) == (TurnState.MID_TURN, 3, 2)
    assert conversation(USER, tool("read"), failed, failed) == (TurnState.MID_TURN, 2, 3)
    assert conversation(USER, failed, failed, tool("read")) == (TurnState.MID_TURN, 0, 3)


def test_a_streak_counts_only_in_its_turn() -> None:
    failed = tool("read", "Error: no")
    assert conversation(USER, failed, ANSWER, USER, failed) == (TurnState.MID_TURN, 1, 1)
    assert conversation(USER, failed, failed, ANSWER) == (TurnState.AFTER_TURN, 0, 0)


@pytest.mark.parametrize(
    ("name", "content", "failed"),
    [
        ("read", "Error: no", True),
        ("read", "no Error", False),
        ("read", json.dumps({"error": "no"}), True),
        ("read", json.dumps({"Failed": 1}), True),
        ("read", "x" * 500 + '"error"', False),
        ("terminal", json.dumps({"exit_code": 1}), True),
        ("terminal", json.dumps({"exit_code": 0, "error": ""}), False),
        ("terminal", json.dumps([1]), False),
        ("terminal", "Error: no", False),
    ],
)
def test_what_counts_as_a_failure(name: str, content: str, failed: bool) -> None:
    assert conversation(USER, tool(name, content)) == (TurnState.MID_TURN, int(failed), 1)
