"""The queries over Hermes's messages: how many a session has, which are new, when the last came."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

import apsw

from exporter.hermes.odd_rows import CLOCK_MAX, ID_CHARACTERS, NO_NUL
from exporter.hermes.schema import Schema
from exporter.hermes.utf8 import rows_in_utf8

_FEW_MESSAGES: Final = 2_000
"""Up to this many messages are counted one by one, without comparing whole sessions."""
BETWEEN: Final = "session_id BETWEEN :first AND :last"
_NEWEST: Final = "<newest>"


class MessageStats(NamedTuple):
    """What `messages` holds of one session."""

    rows: int
    active: int
    newest: float | None
    """None if there are no messages, or if the newest time is not a number: text sorts last."""
    above_watermark: int

    def with_others(self, other: MessageStats) -> MessageStats:
        """Add up two parts of the same session's messages; neither part is empty."""
        known = self.newest is not None and other.newest is not None
        return MessageStats(
            self.rows + other.rows,
            self.active + other.active,
            max(self.newest or 0.0, other.newest or 0.0) if known else None,
            self.above_watermark + other.above_watermark,
        )


NO_MESSAGES: Final = MessageStats(0, 0, None, 0)


def _sane(newest: Any) -> float | None:
    """Return a time in the valid range of clocks; None for anything else."""
    return newest if isinstance(newest, float | int) and 0 < newest <= CLOCK_MAX else None


class MessageQueries:
    """SQL for one schema."""

    def __init__(self, schema: Schema) -> None:
        self._has_messages = schema.has("messages", "id", "session_id", "timestamp")
        self._active = "messages.active" if schema.has("messages", "active") else "1"

    def stats_between(
        self, connection: apsw.Connection, bounds: dict[str, Any], watermark: int
    ) -> dict[str, MessageStats]:
        """Return statistics by session, from an index alone: no message is read.

        There is one group for each of the few values of `active`.
        """
        stats: dict[str, MessageStats] = {}
        if not self._has_messages:
            return stats
        fresh = self._fresh(connection, watermark) if watermark > 0 else None
        above = "SUM(id > :watermark)" if watermark > 0 and fresh is None else "COUNT(*)"
        newest = (
            "(SELECT MAX(timestamp) FROM messages WHERE session_id = session "
            f"AND {self._active} IS found.active)"
        )
        which = (
            f"SELECT session_id AS session, {self._active} AS active, COUNT(*) AS amount, "
            f"{above} AS above FROM messages WHERE {BETWEEN} GROUP BY session_id, {self._active}"
        )
        for session_id, inactive, rows, latest, above_watermark in _stats(
            connection,
            f"SELECT substr(session, 1, {ID_CHARACTERS}), found.active IS 0, amount, {_NEWEST}, "
            f"above FROM ({which}) AS found WHERE {NO_NUL.format('session')}",
            newest,
            {**bounds, "watermark": watermark},
        ):
            if fresh is not None:
                above_watermark = fresh.pop(session_id, 0)
            active = 0 if inactive else rows
            found = MessageStats(rows, active, _sane(latest), above_watermark)
            known = stats.get(session_id)
            stats[session_id] = found if known is None else known.with_others(found)
        return stats

    def stats_of(
        self, connection: apsw.Connection, bindings: dict[str, Any], watermark: int
    ) -> dict[str, MessageStats]:
        """Return the same for given sessions. They may be long, and this way counts them faster."""
        if not self._has_messages:
            return {}
        fresh = self._fresh(connection, watermark) if watermark > 0 else None
        counted = "SELECT COUNT(*) FROM messages WHERE session_id = ids.value"
        # The `+` keeps SQLite from searching by message id: very many ids may be above the
        # watermark.
        above = f"({counted} AND +id > :watermark)" if watermark > 0 and fresh is None else "NULL"
        stats: dict[str, MessageStats] = {}
        for session_id, rows, inactive, newest, above_watermark in _stats(
            connection,
            f"SELECT ids.value, ({counted}), ({counted} AND {self._active} IS 0), {_NEWEST}, "
            f"{above} FROM json_each(:ids) AS ids",
            "(SELECT MAX(timestamp) FROM messages WHERE session_id = ids.value)",
            {**bindings, "watermark": watermark},
        ):
            if fresh is not None:
                above_watermark = fresh[session_id]
            elif watermark <= 0:
                above_watermark = rows
            stats[session_id] = MessageStats(rows, rows - inactive, _sane(newest), above_watermark)
        return stats

    def _fresh(self, connection: apsw.Connection, watermark: int) -> Counter[str] | None:
        """Return each session's number of messages above the watermark; None if too many.

        NOT INDEXED makes SQLite search by rowid; without it SQLite scans a whole index.
        """
        rows, left_out = rows_in_utf8(
            connection,
            f"SELECT substr(session_id, 1, {ID_CHARACTERS}) FROM messages NOT INDEXED "
            f"WHERE id > ? AND {NO_NUL.format('session_id')} LIMIT {_FEW_MESSAGES + 1}",
            (watermark,),
        )
        if len(rows) + left_out > _FEW_MESSAGES:
            return None
        return Counter(session_id for (session_id,) in rows)

    def sessions_written_since(self, connection: apsw.Connection, watermark: int) -> list[str]:
        """Return the sessions with messages above the watermark.

        NOT INDEXED makes SQLite search by rowid; without it SQLite scans a whole index.
        """
        if not self._has_messages:
            return []
        rows, _ = rows_in_utf8(
            connection,
            f"SELECT DISTINCT substr(session_id, 1, {ID_CHARACTERS}) FROM messages NOT INDEXED "
            "WHERE id > ? AND typeof(session_id) = 'text'",
            (watermark,),
        )
        return [session_id for (session_id,) in rows]

    def highest_id(self, connection: apsw.Connection) -> int:
        if not self._has_messages:
            return 0
        found = connection.execute("SELECT MAX(id) FROM messages").get
        return found if isinstance(found, int) else 0


def _stats(
    connection: apsw.Connection, statement: str, newest: str, bindings: dict[str, Any]
) -> list[Any]:
    """Return statistics of messages; `newest` is the SQL for the time of the last one."""
    rows, left_out = rows_in_utf8(connection, statement.replace(_NEWEST, newest), bindings)
    if left_out:
        # Only here, because it costs a second search. Rows that are still skipped belong to no
        # session that has an id.
        number = f"CASE WHEN typeof({newest}) IN ('real', 'integer') THEN {newest} END"
        rows, _ = rows_in_utf8(connection, statement.replace(_NEWEST, number), bindings)
    return rows
