"""An exported session is one line of JSON, whatever its rows hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exporter.hermes.table_rows import TableRows
from exporter.writing.session_export import export_line
from exporter.writing.stored_session import MESSAGES, SESSIONS, StoredSession


def exported(*messages: dict[str, Any], source: Any = "cli") -> dict[str, Any]:
    columns = ("rowid", "role", "content", "tool_calls", "active")
    rows = [tuple(each.get(name) for name in columns) for each in messages]
    session = TableRows(("rowid", "id", "source"), [(1, "s1", source)])
    stored = StoredSession("s1", {SESSIONS: session, MESSAGES: TableRows(columns, rows)}, [])
    line = export_line(stored)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_session_has_its_columns_and_its_messages_without_row_ids() -> None:
    message = {"rowid": 3, "role": "user", "content": "two\nlines", "active": 1}
    assert exported(message) == {
        "id": "s1",
        "source": "cli",
        "messages": [
            {"role": "user", "content": "two\nlines", "tool_calls": None, "active": 1},
        ],
    }


@pytest.mark.parametrize(("active", "count"), [(1, 1), (None, 1), (0, 0), ("0", 0)])
def test_only_active_messages_are_exported(active: Any, count: int) -> None:
    assert len(exported({"role": "user", "active": active})["messages"]) == count


@pytest.mark.parametrize(
    ("stored", "content"),
    [
        ('\x00json:[{"type": "text"}]', [{"type": "text"}]),
        ("\x00json:[", "\x00json:["),
        ("json:[]", "json:[]"),
        (b"\xffa", "\ufffda"),
        ('\x00json:["\\ud800"]', ["?"]),
        (None, None),
    ],
)
def test_content_is_as_hermes_gives_it_back(stored: Any, content: Any) -> None:
    (message,) = exported({"role": "user", "content": stored, "active": 1})["messages"]
    assert message["content"] == content


@pytest.mark.parametrize(
    ("stored", "calls"), [('[{"id": 1}]', [{"id": 1}]), ("[", []), ("", ""), (None, None)]
)
def test_tool_calls_are_parsed_and_none_where_they_are_no_json(stored: Any, calls: Any) -> None:
    (message,) = exported({"role": "assistant", "tool_calls": stored, "active": 1})["messages"]
    assert message["tool_calls"] == calls


def test_half_a_character_does_not_stop_an_export() -> None:
    assert exported(source="a\ud800")["source"] == "a?"
