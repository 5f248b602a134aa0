"""How a conversation stands: was its last turn finished, and is it going in circles?"""

from __future__ import annotations

from typing import Final, NamedTuple

import apsw

from exporter.hermes.schema import Schema
from exporter.snapshot import Turn

_LOOK_BACK_MESSAGES: Final = 400
_ERROR_PREFIX_CHARACTERS: Final = 500


class Conversation(NamedTuple):
    """The end of one session's messages."""

    turn: Turn
    tool_error_streak: int
    tool_repeat_streak: int


NOTHING_SAID: Final = Conversation(Turn.EMPTY, 0, 0)


class TurnQuery:
    """Reads the newest messages of a session, and no more of them than it needs."""

    def __init__(self, schema: Schema) -> None:
        self._possible = schema.has("messages", "session_id", "role", "timestamp")
        only_active = "AND active IS NOT 0" if schema.has("messages", "active") else ""
        calls = schema.expression("messages", "tool_calls", "''")
        name = schema.expression("messages", "tool_name", "''")
        content = schema.expression("messages", "content", "''")
        self._sql = f"""
            SELECT substr(CAST(role AS TEXT), 1, 32),
                   COALESCE({calls}, '') NOT IN ('', '[]', 'null'),
                   substr(CAST(COALESCE({name}, '') AS TEXT), 1, 128),
                   {_failed(name, content)}
              FROM messages WHERE session_id = ? {only_active}
             ORDER BY timestamp DESC, id DESC LIMIT {_LOOK_BACK_MESSAGES}
        """

    def conversation(self, connection: apsw.Connection, session_id: str) -> Conversation:
        """Walk back from the newest message until both streaks have ended."""
        if not self._possible:
            return NOTHING_SAID
        turn: Turn | None = None
        errors = repeats = 0
        errors_end = repeats_end = False
        tool: str | None = None
        for role, calls_tools, name, failed in connection.execute(self._sql, (session_id,)):
            if turn is None and role in ("user", "assistant", "tool"):
                finished = role == "assistant" and not calls_tools
                turn = Turn.AFTER_TURN if finished else Turn.MID_TURN
            if role != "tool":
                continue
            tool = name if tool is None else tool
            errors_end = errors_end or not failed
            repeats_end = repeats_end or name != tool
            errors += not errors_end
            repeats += not repeats_end
            if errors_end and repeats_end:
                break
        return Conversation(turn or Turn.EMPTY, errors, repeats)


def _failed(name: str, content: str) -> str:
    """SQL that tells whether a tool's answer is a failure, as Hermes's own display decides it.

    A terminal call failed if its exit code says so. Any other failed if its answer begins with
    "Error" or names an "error" or "failed" key early on.
    """
    start = f"lower(substr({content}, 1, {_ERROR_PREFIX_CHARACTERS}))"
    return f"""CASE
        WHEN typeof({content}) != 'text' THEN 0
        WHEN {name} IS 'terminal' THEN
            COALESCE(CASE WHEN json_valid({content}) AND json_type({content}) = 'object'
                     THEN json_extract({content}, '$.exit_code') NOT IN (0, '0') END, 0)
        ELSE {content} GLOB 'Error*' OR {start} GLOB '*"error"*' OR {start} GLOB '*"failed"*'
    END"""
