"""Which rows are surely subagents that Hermes did not mark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from exporter.hermes.continuations import SUMMARY_PREFIXES
from exporter.hermes.schema import probe_schema
from exporter.hermes.subagents import is_unmarked_subagent
from tests.real.hermes import NEWEST, python_for

CHAT = {"max_iterations": 90, "reasoning_config": None, "max_tokens": None}
HELPER = {**CHAT, "max_iterations": 45}


def home(
    *,
    parent: dict[str, Any] | None = None,
    parent_said: str | None = "do it",
    said: str | None = None,
    **child: Any,
) -> apsw.Connection:
    """A database with a parent and its child, as Hermes 0.16 writes them but for the changes."""
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, model_config TEXT, "
        "parent_session_id TEXT, title TEXT, started_at REAL, ended_at REAL);"
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT)"
    )
    plain: dict[str, object] = {
        "id": "parent",
        "source": "api_server",
        "model_config": json.dumps(CHAT),
        "parent_session_id": None,
        "title": None,
        "started_at": 100.0,
        "ended_at": None,
    }
    helper = {"id": "child", "model_config": json.dumps(HELPER), "started_at": 200.0}
    for row in (plain | (parent or {}), plain | helper | {"parent_session_id": "parent"} | child):
        connection.execute(
            f"INSERT INTO sessions VALUES ({','.join('?' * 7)})", tuple(row.values())
        )
    for session, text in (("parent", parent_said), ("child", said)):
        if text is not None:
            connection.execute(
                "INSERT INTO messages (session_id, role, content) VALUES (?, 'user', ?)",
                (session, text),
            )
    return connection


def subagents(connection: apsw.Connection) -> list[str]:
    expression = is_unmarked_subagent(probe_schema(connection))
    return [row[0] for row in connection.execute(f"SELECT id FROM sessions WHERE {expression}")]


@pytest.mark.parametrize("said", [None, "look it up"])
@pytest.mark.parametrize("source", ["api_server", "telegram", "cli"])
def test_a_child_with_another_turn_limit_of_a_session_in_use_is_a_subagent(
    source: str, said: str | None
) -> None:
    assert subagents(home(source=source, said=said)) == ["child"]


def test_it_stays_one_when_its_parent_ends_later() -> None:
    assert subagents(home(parent={"ended_at": 300.0})) == ["child"]


@pytest.mark.parametrize(
    "child",
    [
        {"ended_at": 300.0},
        {"parent_session_id": None},
        {"parent_session_id": "gone"},
        {"title": "fork"},
        {"model_config": None},
        {"model_config": "{not json"},
        {"model_config": b"\xff\x00"},
        {"model_config": "[45]"},
        {"model_config": json.dumps(CHAT)},
        {"model_config": json.dumps({"max_tokens": None})},
        {"model_config": json.dumps({"max_iterations": 45})},
        {"model_config": json.dumps({**HELPER, "_branched_from": "parent"})},
    ],
)
def test_what_cannot_be_told_is_what_its_source_says(child: dict[str, Any]) -> None:
    assert subagents(home(**child)) == []


@pytest.mark.parametrize(
    "parent",
    [
        {"ended_at": 150.0},
        {"ended_at": 200.0},
        {"model_config": None},
        {"model_config": "{"},
        {"model_config": "{}"},
    ],
)
def test_a_child_of_an_ended_or_unreadable_parent_is_none(parent: dict[str, object]) -> None:
    assert subagents(home(parent=parent)) == []


@pytest.mark.parametrize(
    "said",
    [
        "do it",
        *(f"\n {prefix} so far" for prefix in SUMMARY_PREFIXES),
        "hello\n[END OF PRIOR CONTEXT \N{EM DASH} COMPACTION SUMMARY BELOW]\nso far",
    ],
)
def test_a_summary_or_a_copy_of_the_parents_messages_makes_none(said: str) -> None:
    assert subagents(home(said=said)) == []


def test_a_database_without_these_columns_has_none() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE TABLE sessions (id TEXT, source TEXT, started_at REAL, ended_at REAL)"
    )
    connection.execute("INSERT INTO sessions VALUES ('a', 'api_server', 1.0, NULL)")
    assert subagents(connection) == []


@pytest.mark.parametrize("version", ["0.16.0", "0.18.2", NEWEST])
def test_a_fork_of_an_empty_session_is_none_whatever_limit_it_has(
    version: str, tmp_path: Path
) -> None:
    """An API client goes on with it; 0.18.2 does not mark it, and notes its limit with a turn."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    python_for(version).run("fork_session", home)
    connection = apsw.Connection(str(home / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    assert subagents(connection) == []
    connection.close()
