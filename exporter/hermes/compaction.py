"""Tell new messages from the copies that compaction makes.

To shorten a conversation, Hermes writes its newest messages again. The copies are new rows of the
same session (in place; the old rows are kept with `compacted = 1`) or of a child session (rotation;
the parent ends with 'compression'). Message counters must not count the copies.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import apsw

from exporter.hermes.schema import Schema

COMPRESSION: Final = "compression"
_COMPARED_ROWS: Final = 512


class CopyQuery:
    """Counts the copies among a session's rows above a watermark."""

    def __init__(self, schema: Schema) -> None:
        self._possible = schema.has("messages", "id", "session_id", "role", "content")
        calls = schema.expression("messages", "tool_calls")
        # Compare bytes: a message need not be valid text.
        self._fields = f"CAST(role AS BLOB), CAST(content AS BLOB), CAST({calls} AS BLOB)"
        self._has_compacted = schema.has("messages", "compacted")
        self._has_parents = schema.has("sessions", "parent_session_id", "end_reason")

    def copied(
        self,
        connection: apsw.Connection,
        session_id: str,
        parent_id: str | None,
        watermark: int,
    ) -> int:
        """Return how many rows above the watermark repeat an older row of the conversation."""
        if not self._possible:
            return 0
        older: Counter[int] = Counter()
        if self._was_compacted(connection, session_id):
            # Rewound rows (active = 0, compacted = 0) did not exist for the compaction, so they
            # were not copied.
            older.update(self._newest(connection, session_id, watermark, "AND compacted = 1"))
        if parent_id is not None and self._was_compressed(connection, parent_id):
            older.update(self._newest(connection, parent_id, 2**62))
        if not older:
            return 0
        fresh = connection.execute(
            f"SELECT {self._fields} FROM messages WHERE session_id = ? AND id > ? "
            f"ORDER BY id LIMIT {_COMPARED_ROWS}",
            (session_id, watermark),
        )
        copies = 0
        for fields in fresh:
            if older[hash(fields)] > 0:
                older[hash(fields)] -= 1
                copies += 1
        return copies

    def _newest(
        self, connection: apsw.Connection, session_id: str, at_or_below: int, which: str = ""
    ) -> list[int]:
        rows = connection.execute(
            f"SELECT {self._fields} FROM messages WHERE session_id = ? AND id <= ? {which} "
            f"ORDER BY id DESC LIMIT {_COMPARED_ROWS}",
            (session_id, at_or_below),
        )
        return [hash(fields) for fields in rows]

    def _was_compacted(self, connection: apsw.Connection, session_id: str) -> bool:
        if not self._has_compacted:
            return False
        found = connection.execute(
            "SELECT 1 FROM messages WHERE session_id = ? AND compacted = 1 LIMIT 1", (session_id,)
        ).fetchone()
        return found is not None

    def _was_compressed(self, connection: apsw.Connection, parent_id: str) -> bool:
        if not self._has_parents:
            return False
        found = connection.execute(
            "SELECT 1 FROM sessions WHERE id = ? AND end_reason = ?", (parent_id, COMPRESSION)
        ).fetchone()
        return found is not None
