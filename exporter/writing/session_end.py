"""The two columns that say whether a session is open: read, set and cleared by comparison."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any, NamedTuple

import apsw

from exporter.hermes.schema import Schema
from exporter.hermes.utf8 import rows_in_utf8


class End(NamedTuple):
    """How a session's row says that it ended; None for an open one."""

    ended_at: Any
    end_reason: Any


OPEN = End(None, None)


def end_of(connection: apsw.Connection, session_id: str) -> End | None:
    """Return how this session ended; None if there is no such session."""
    found = connection.execute(
        "SELECT ended_at, end_reason FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    return End(*found) if found is not None else None


def ends_of(connection: apsw.Connection, session_ids: Iterable[str]) -> dict[str, End]:
    """Return how these sessions ended, without those that are gone or are not UTF-8."""
    found, _ = rows_in_utf8(
        connection,
        "SELECT id, ended_at, end_reason FROM sessions "
        "WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(session_ids)),),
    )
    return {session_id: End(ended_at, reason) for session_id, ended_at, reason in found}


def count_ended(
    connection: apsw.Connection, end_reason: str, after: int, limit: int
) -> tuple[int, int | None]:
    """Return how many of the next `limit` sessions after a row ended for this reason; the last row.

    The last row is None if there are no more sessions.
    """
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT rowid, end_reason IS ? FROM sessions WHERE rowid > ? ORDER BY rowid LIMIT ?",
        (end_reason, after, limit),
    ).fetchall()
    return sum(ended_so for _, ended_so in rows), rows[-1][0] if rows else None


def end_sessions(connection: apsw.Connection, ends: Mapping[str, End]) -> set[str]:
    """End open sessions; return those that were ended, without any that was not open or not there.

    Times are bound as numbers: SQLite may read one in JSON as its neighbour.
    """
    ended: set[str] = set()

    def values() -> Iterator[tuple[Any, ...]]:
        for session_id, end in ends.items():
            yield (*end, session_id)
            # The statement has run with these values when the next ones are asked for. Rows that a
            # trigger changes do not count; RETURNING would tell the same in twice the time.
            if connection.changes() == 1:
                ended.add(session_id)

    connection.executemany(
        "UPDATE sessions SET ended_at = ?, end_reason = ? "
        "WHERE id = ? AND ended_at IS NULL AND end_reason IS NULL",
        values(),
    )
    return ended


def reopen_session(connection: apsw.Connection, session_id: str, end: End) -> bool:
    """Open a session again that ended exactly so; False if it did not."""
    connection.execute(
        "UPDATE sessions SET ended_at = NULL, end_reason = NULL "
        "WHERE id = ? AND ended_at = ? AND end_reason = ?",
        (session_id, *end),
    )
    return connection.changes() == 1


def replace_end(connection: apsw.Connection, session_id: str, old: End, new: End) -> bool:
    """Give a session that ended exactly so another end; False if it did not."""
    connection.execute(
        "UPDATE sessions SET ended_at = ?, end_reason = ? "
        "WHERE id = ? AND ended_at = ? AND end_reason = ?",
        (*new, session_id, *old),
    )
    return connection.changes() == 1


def count_and_newest(connection: apsw.Connection, session_id: str) -> tuple[int, float | None]:
    """Return how many messages a session has, and the time of the newest."""
    count, newest = connection.execute(
        "SELECT COUNT(*), MAX(timestamp) FROM messages WHERE session_id = ?", (session_id,)
    ).fetchone() or (0, None)
    is_time = isinstance(newest, float | int) and isfinite(newest)
    return int(count), newest if is_time else None


def has_turn_lease(
    connection: apsw.Connection, schema: Schema, session_id: str, now: float
) -> bool:
    """True if a turn is under way; only some releases of Hermes note that."""
    if not schema.has("session_turn_leases", "conversation_id", "expires_at"):
        return False
    holder = schema.expression("session_turn_leases", "holder", "'?'")
    found = connection.execute(
        f"SELECT 1 FROM session_turn_leases WHERE conversation_id = ? AND {holder} IS NOT '' "
        "AND CAST(expires_at AS REAL) > ?",
        (session_id, now),
    ).fetchone()
    return found is not None


def active_since(
    connection: apsw.Connection, schema: Schema, session_id: str, moment: float, rows: int
) -> bool:
    """True if a session has been active since `moment`, when it had `rows` messages.

    A newer time shows it. So does another number of rows: the clock may have been set back.
    """
    found = connection.execute(
        "SELECT COUNT(*), MAX(timestamp) > ? FROM messages WHERE session_id = ?",
        (moment, session_id),
    ).fetchone()
    count, newer_message = found or (0, 0)
    if count > rows or newer_message:
        return True
    # Asked last: the row holds the system prompt, so reading it takes many pages.
    if not schema.has("sessions", "last_activity_at"):
        return False
    newer_clock = connection.execute(
        "SELECT last_activity_at > ? FROM sessions WHERE id = ?", (moment, session_id)
    ).fetchone()
    return newer_clock is not None and bool(newer_clock[0])
