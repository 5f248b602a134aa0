"""The state of a conversation: is its last turn finished, and does it repeat itself?

A turn begins with a message of the user and ends with an answer that calls no more tools. A streak
of failed or repeated calls counts only while its turn is open.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import apsw

from exporter.hermes.schema import Schema
from exporter.snapshot import TurnState

_FIRST_LOOK_MESSAGES: Final = 6
"""So many messages are nearly always enough. They are read for all sessions at once."""
_LOOK_BACK_MESSAGES: Final = 400
_ERROR_PREFIX_CHARACTERS: Final = 500


class Conversation(NamedTuple):
    """The end of one session's messages."""

    turn: TurnState
    tool_error_streak: int
    tool_repeat_streak: int


NO_CONVERSATION: Final = Conversation(TurnState.EMPTY, 0, 0)
_JUST_ASKED: Final = Conversation(TurnState.MID_TURN, 0, 0)
_ANSWERED: Final = Conversation(TurnState.AFTER_TURN, 0, 0)


class TurnQuery:
    """Reads the newest messages of sessions, and no more of them than it needs.

    SQLite must read all pages of `content` to reach the columns behind it. So these columns are
    read only where they matter.
    """

    def __init__(self, schema: Schema) -> None:
        self._possible = schema.has("messages", "session_id", "role", "timestamp")
        active = "AND active IS NOT 0" if schema.has("messages", "active") else ""
        name = schema.expression("messages", "tool_name", "''")
        content = schema.expression("messages", "content", "''")
        calls = schema.expression("messages", "tool_calls", "''")
        self._last = f"""
            SELECT ids.value, role,
                   role IS 'assistant' AND COALESCE({calls}, '') NOT IN ('', '[]', 'null')
              FROM json_each(?) AS ids JOIN messages ON messages.id = (
                SELECT id FROM messages WHERE session_id = ids.value {active}
                   AND role IN ('user', 'assistant', 'tool')
                 ORDER BY timestamp DESC, id DESC LIMIT 1)
        """
        said = f"""role IS 'user',
                   CASE role WHEN 'tool'
                   THEN substr(CAST(COALESCE({name}, '') AS BLOB), 1, 128) END,
                   CASE role WHEN 'tool' THEN {_failed(name, content)} END"""
        newest = f"WHERE session_id = {{}} {active} ORDER BY timestamp DESC, id DESC LIMIT {{}}"
        self._first_look = f"""
            SELECT ids.value, {said}
              FROM json_each(?) AS ids JOIN messages ON messages.id IN (
                SELECT id FROM messages {newest.format("ids.value", _FIRST_LOOK_MESSAGES)})
             ORDER BY ids.key, timestamp DESC, messages.id DESC
        """
        self._look_back = f"""
            SELECT NULL, {said} FROM messages {newest.format("?", _LOOK_BACK_MESSAGES)}
        """

    def conversations(
        self, connection: apsw.Connection, session_ids: Sequence[str]
    ) -> dict[str, Conversation]:
        """Return the state of each of these sessions; sessions without messages are missing."""
        if not self._possible or not session_ids:
            return {}
        found: dict[str, Conversation] = {}
        open_turns: list[str] = []
        ids = json.dumps(list(session_ids))
        rows: list[Any] = connection.execute(self._last, (ids,)).fetchall()
        for session_id, role, calls_tools in rows:
            if role == "user":
                found[session_id] = _JUST_ASKED
            elif role == "assistant" and not calls_tools:
                found[session_id] = _ANSWERED
            else:
                open_turns.append(session_id)
        return found | self._open_turns(connection, open_turns)

    def _open_turns(
        self, connection: apsw.Connection, session_ids: Sequence[str]
    ) -> dict[str, Conversation]:
        found: dict[str, Conversation] = {}
        if not session_ids:
            return found
        rows = connection.execute(self._first_look, (json.dumps(session_ids),))
        for session_id, messages in groupby(rows.fetchall(), key=itemgetter(0)):
            newest = list(messages)
            conversation, decided = _walk_back(newest)
            if not decided and len(newest) == _FIRST_LOOK_MESSAGES:
                further = connection.execute(self._look_back, (session_id,))
                conversation, _ = _walk_back(further)
            found[session_id] = conversation
        return found


def _walk_back(newest: Iterable[Sequence[Any]]) -> tuple[Conversation, bool]:
    """Go back to the last message of the user, or until both streaks have ended.

    The second value is False if neither was reached: older messages could lengthen the streaks.
    """
    errors = repeats = 0
    errors_end = repeats_end = decided = False
    tool: bytes | None = None
    for _, by_user, name, failed in newest:
        if by_user:
            decided = True
            break
        if name is None:
            continue
        tool = name if tool is None else tool
        errors_end = errors_end or not failed
        repeats_end = repeats_end or name != tool
        errors += not errors_end
        repeats += not repeats_end
        if errors_end and repeats_end:
            decided = True
            break
    return Conversation(TurnState.MID_TURN, errors, repeats), decided


def _failed(name: str, content: str) -> str:
    """Return SQL: True if a tool's answer is a failure, by the rules of Hermes's own display.

    A terminal call failed if its exit code is not 0. Any other call failed if its answer begins
    with "Error", or has the key "error" or "failed" near its start.
    """
    start = f"lower(substr({content}, 1, {_ERROR_PREFIX_CHARACTERS}))"
    return f"""CASE
        WHEN typeof({content}) != 'text' THEN 0
        WHEN {name} IS 'terminal' THEN
            COALESCE(CASE WHEN json_valid({content}) AND json_type({content}) = 'object'
                     THEN json_extract({content}, '$.exit_code') NOT IN (0, '0') END, 0)
        ELSE {content} GLOB 'Error*' OR instr({start}, '"error"') OR instr({start}, '"failed"')
    END"""
