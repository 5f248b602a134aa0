"""A holder that also rewrites: what a release does to sessions which are already there.

It counts on its own connection what the tests compare with.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests.real.inside.hold import Holder


class Rewriter(Holder):
    """What can be asked of it; a release that cannot do something says so by False."""

    def home(self) -> str:
        return os.environ["HERMES_HOME"]

    def say(self, session: str, role: str, text: str | None, tool: str = "") -> None:
        """One message; a tool's answer if `tool` is given, an assistant's call if it says none."""
        if role == "assistant" and text is None:
            call = {"id": "c", "type": "function", "function": {"name": tool}}
            self._database.append_message(session, role, None, tool_calls=[call])
        else:
            self._database.append_message(session, role, text, tool_name=tool or None)

    def child(self, session: str, parent: str, source: str = "cli") -> None:
        self._database.create_session(session, source, parent_session_id=parent)

    def reopen(self, session: str) -> None:
        self._database.reopen_session(session)

    def delete(self, session: str) -> None:
        self._database.delete_session(session)

    def replace(self, session: str, keep: int) -> None:
        """Rewrite a transcript so that only its newest messages are left."""
        self._database.replace_messages(session, self._tail(session, keep))

    def rewind(self, session: str) -> bool:
        """Take the second half of a session back."""
        if not hasattr(self._database, "rewind_to_message"):
            return False
        messages = self._database.get_messages(session)
        asked = [message["id"] for message in messages if message["role"] == "user"]
        if len(asked) < 2:
            return False
        self._database.rewind_to_message(session, asked[len(asked) // 2])
        return True

    def rewind_all(self, session: str) -> bool:
        """Take everything back, up to what was first asked."""
        if not hasattr(self._database, "rewind_to_message"):
            return False
        messages = self._database.get_messages(session)
        first = next(message["id"] for message in messages if message["role"] == "user")
        self._database.rewind_to_message(session, first)
        return True

    def compact(self, session: str, keep: int, summary: str) -> bool:
        """Shorten a session in place: a summary, and its newest messages once more."""
        if not hasattr(self._database, "archive_and_compact"):
            return False
        tail = self._tail(session, keep)
        self._database.archive_and_compact(session, [{"role": "user", "content": summary}, *tail])
        return True

    def rotate(self, session: str, into: str, keep: int, summary: str) -> None:
        """Shorten a session by going on in another: a summary, and its newest messages."""
        tail = self._tail(session, keep)
        self._database.end_session(session, "compression")
        self._database.create_session(into, "cli", parent_session_id=session)
        for message in [{"role": "user", "content": summary}, *tail]:
            self._database.append_message(into, **message)

    def spend(self, session: str, model: str, tokens: int) -> None:
        self._database.update_token_counts(
            session, input_tokens=tokens, output_tokens=1, model=model, api_call_count=1
        )

    def figures(self) -> list[dict[str, Any]]:
        """Every session with its numbers of rows, as this process's own connection counts them."""
        columns = {row[1] for row in self._rows("PRAGMA table_info(messages)")}
        active = "m.active IS NOT 0" if "active" in columns else "1"
        names = ("id", "source", "ended_at", "end_reason", "active", "rows", "newest", "tokens")
        return [
            dict(zip(names, row, strict=True))
            for row in self._rows(
                "SELECT s.id, s.source, s.ended_at, s.end_reason, "
                f"COUNT(m.id) FILTER (WHERE {active}), COUNT(m.id), MAX(m.timestamp), "
                "s.input_tokens FROM sessions s LEFT JOIN messages m ON m.session_id = s.id "
                "GROUP BY s.id"
            )
        ]

    def checkpoint(self) -> list[int]:
        """Whether a process kept the WAL from being emptied, its frames, those written back."""
        return list(self._rows("PRAGMA wal_checkpoint(TRUNCATE)")[0])

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._database._conn.execute(sql).fetchall()]

    def _tail(self, session: str, keep: int) -> list[dict[str, Any]]:
        messages = self._database.get_messages(session)[-keep:] if keep else []
        fields = ("role", "content", "tool_calls", "tool_name", "tool_call_id")
        return [{field: message.get(field) for field in fields} for message in messages]


def main() -> None:
    rewriter = Rewriter()
    print(json.dumps(os.getpid()), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(rewriter, request.pop("do"))(**request)
        print(json.dumps(answer), flush=True)
    rewriter._close()


if __name__ == "__main__":
    main()
