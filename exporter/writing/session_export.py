"""A session in the form that `hermes sessions export` writes: one JSON object a line."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from msgspec.msgpack import Ext

from exporter.writing.stored_session import SESSIONS, StoredSession, plain_text

_JSON_CONTENT: Final = "\x00json:"
"""How Hermes marks content that is not a string."""


def export_line(stored: StoredSession) -> bytes:
    """Return a session with its active messages, as Hermes exports it and can import it."""
    messages = [
        _message(stored.messages.as_dict(number)) for number in range(len(stored.messages.rows))
    ]
    session = _plain(stored.tables[SESSIONS].as_dict(0))
    # A release without the column `active` has only active messages.
    active = [each for each in messages if each.get("active", 1) not in (0, "0")]
    document = {**session, "messages": active}
    try:
        return msgspec.json.encode(document) + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair in what Hermes has stored as JSON
        return json.dumps(document, ensure_ascii=False).encode(errors="replace") + b"\n"


def _message(row: dict[str, Any]) -> dict[str, Any]:
    message = _plain(row)
    message["content"] = _content(message.get("content"))
    if message.get("tool_calls"):
        message["tool_calls"] = _tool_calls(message["tool_calls"])
    return message


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row that JSON can hold: text in place of bytes."""
    return {
        name: plain_text(value) if isinstance(value, (Ext, bytes)) else value
        for name, value in row.items()
    }


def _content(value: Any) -> Any:
    """Decode content that Hermes stored as JSON; damaged JSON stays as it is."""
    if isinstance(value, str) and value.startswith(_JSON_CONTENT):
        try:
            return json.loads(value[len(_JSON_CONTENT) :])
        except ValueError:
            return value
    return value


def _tool_calls(value: Any) -> Any:
    """Decode the tool calls of a message; none if they are damaged."""
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        return []
