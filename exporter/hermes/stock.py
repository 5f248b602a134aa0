"""Every session of a database with all that decides whether it may be pruned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import apsw

from exporter.hermes.expected import ARCHIVED, TITLED
from exporter.hermes.payload import session_lengths
from exporter.hermes.schema import Schema
from exporter.hermes.sessions import SessionQueries, SessionRecord

SLICE_SESSIONS: Final = 1_000
_COUNT_MAX: Final = 2**53 - 1
_TURN_LEASES_MAX: Final = 100_000


class Extras(NamedTuple):
    """What a scan has no need of."""

    archived: bool
    titled: bool
    message_count: int
    branched: bool
    """It says that it was branched off."""
    delegated: bool
    """It says that it did a task for another."""
    row_bytes: int


_NOTHING: Final = Extras(False, False, 0, False, False, 0)


class StockQueries:
    """SQL for one schema."""

    def __init__(self, schema: Schema) -> None:
        self._queries = SessionQueries(schema)
        self._columns = ", ".join(_expressions(schema))

    def slices(self, connection: apsw.Connection) -> Iterator[list[tuple[SessionRecord, Extras]]]:
        """All sessions in the order of ids, each slice read in a transaction of its own."""
        after: str | None = None
        while records := self._queries.slice(connection, after, SLICE_SESSIONS, 0):
            last = records[-1].row.id
            if after is not None and last <= after:
                return  # an id that is too long sorts behind its own beginning
            found = self._extras(connection, records[0].row.id, last)
            connection.execute("COMMIT")
            yield [(record, found.get(record.row.id, _NOTHING)) for record in records]
            connection.execute("BEGIN")
            after = last

    def _extras(self, connection: apsw.Connection, first: str, last: str) -> dict[str, Extras]:
        rows = connection.execute(
            f"SELECT CAST(id AS TEXT), {self._columns} FROM sessions WHERE id BETWEEN ? AND ?",
            (first, last),
        )
        return {session_id: _extras(values) for session_id, *values in rows}


def _extras(values: list[Any]) -> Extras:
    archived, titled, count, branched, delegated, size = values
    return Extras(bool(archived), bool(titled), count, bool(branched), bool(delegated), int(size))


def _expressions(schema: Schema) -> list[str]:
    def known(column: str, missing: str) -> str:
        return schema.expression("sessions", column, missing)

    count = known("message_count", "0")
    return [
        ARCHIVED.format(known("archived", "0")),
        TITLED.format(known("title", "NULL")),
        f"MIN(MAX(CAST(COALESCE({count}, 0) AS INTEGER), 0), {_COUNT_MAX})",
        _marked(schema, "_branched_from"),
        _marked(schema, "_delegate_from"),
        session_lengths(schema),
    ]


def _marked(schema: Schema, marker: str) -> str:
    """Whether model_config names a session under this key; one that is no JSON names none."""
    config = schema.expression("sessions", "model_config")
    if config == "NULL":
        return "0"
    return (
        f"CASE WHEN json_valid({config}) "
        f"THEN json_extract({config}, '$.{marker}') IS NOT NULL ELSE 0 END"
    )


def turn_leases(connection: apsw.Connection, schema: Schema, now: float) -> frozenset[str]:
    """Sessions in the middle of a turn, where this release notes that."""
    if not schema.has("session_turn_leases", "conversation_id", "expires_at"):
        return frozenset()
    rows = connection.execute(
        "SELECT CAST(conversation_id AS TEXT) FROM session_turn_leases "
        "WHERE CAST(expires_at AS REAL) > ? LIMIT ?",
        (now, _TURN_LEASES_MAX),
    )
    return frozenset(session_id for (session_id,) in rows if session_id)
