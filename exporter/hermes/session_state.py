"""The state of an ended session: it must be the same when planned and when deleted.

The plan notes it for each session, and the run reads it again under the write lock. A session that
differs in any field was changed after it was judged, and is skipped. The state holds no text of a
conversation and no title, because it is kept in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import apsw

from exporter.hermes.odd_rows import EMPTIED
from exporter.hermes.schema import Schema
from exporter.hermes.session_queries import SessionQueries, SessionRecord, SessionRow

EndedSessionState = dict[str, str | int | float | None]

ARCHIVED: Final = f"COALESCE({{0}}, 0) NOT IN (0, {EMPTIED})"
"""SQL: True if a person archived a session. The argument is the column `archived`, or 0."""
TITLED: Final = "COALESCE({0}, '') IS NOT ''"


def ended_session_state(
    record: SessionRecord, *, archived: bool = False, titled: bool = False, children: int = 0
) -> EndedSessionState:
    """Return the state that the plan expects; `children` counts rows that name it as parent."""
    row, messages, usage = record
    return {
        "source": row.source,
        "started_at": row.started_at,
        "ended_at": row.ended_at,
        "end_reason": row.end_reason,
        "last_activity_at": row.last_activity_at,
        "last_heartbeat_at": row.last_heartbeat_at,
        "parent": row.parent_id,
        "handoff_state": row.handoff_state,
        "pinned": row.pinned,
        "archived": int(archived),
        "titled": int(titled),
        "children": children,
        "rows": messages.rows,
        "active": messages.active,
        "newest": messages.newest,
        "api_calls": row.api_calls,
        "tool_calls": row.tool_calls,
        "tokens": row.input + row.output + row.cache_read + row.cache_write + row.reasoning,
        "usage_rows": len(usage),
    }


class FoundSession(NamedTuple):
    """A session as it is now."""

    row: SessionRow
    expected: EndedSessionState


class SessionStateReader:
    """Reads the state of a few sessions.

    The result is the same that `ended_session_state` gives in a whole scan.
    """

    def __init__(self, schema: Schema) -> None:
        self._queries = SessionQueries(schema)
        archived = schema.expression("sessions", "archived", "0")
        title = schema.expression("sessions", "title", "NULL")
        self._flags = f"{ARCHIVED.format(archived)}, {TITLED.format(title)}"
        self._has_parents = schema.has("sessions", "parent_session_id")

    def read(
        self, connection: apsw.Connection, session_ids: Sequence[str]
    ) -> dict[str, FoundSession]:
        """Return these sessions by id, without those that are gone."""
        return {
            record.row.id: FoundSession(record.row, self._expected(connection, record))
            for record in self._queries.records(connection, session_ids, 0)
        }

    def _expected(self, connection: apsw.Connection, record: SessionRecord) -> EndedSessionState:
        session_id = record.row.id
        flags = connection.execute(
            f"SELECT {self._flags} FROM sessions WHERE id = ?", (session_id,)
        ).fetchone()
        archived, titled = flags or (0, 0)
        return ended_session_state(
            record,
            archived=bool(archived),
            titled=bool(titled),
            children=self._children(connection, session_id),
        )

    def _children(self, connection: apsw.Connection, session_id: str) -> int:
        if not self._has_parents:
            return 0
        return int(
            connection.execute(
                "SELECT COUNT(*) FROM sessions WHERE parent_session_id = ?", (session_id,)
            ).get
        )


def first_difference(planned: EndedSessionState, found: EndedSessionState) -> str:
    """Return the name of the first field that differs from the plan; '' if none does."""
    return next((key for key, value in planned.items() if found.get(key) != value), "")
