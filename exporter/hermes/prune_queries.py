"""Read every session of a database with all facts that decide if it may be pruned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import apsw

from exporter.hermes.payload_sizes import session_lengths
from exporter.hermes.read_pacing import ReadPacer
from exporter.hermes.schema import Schema
from exporter.hermes.session_queries import SessionQueries, SessionRecord
from exporter.hermes.session_state import ARCHIVED, TITLED
from exporter.hermes.utf8 import rows_in_utf8

_FIRST_SLICE_SESSIONS: Final = 100
_SLICE_SESSIONS: Final = range(10, 1_000)
_COUNT_MAX: Final = 2**53 - 1


class PruneColumns(NamedTuple):
    """Columns that the pruner needs and a scan does not."""

    archived: bool
    titled: bool
    message_count: int
    branched: bool
    """True if the row says that the session was branched off."""
    delegated: bool
    """True if the row says that the session did a task for another one."""
    row_bytes: int


class PruneQueries(SessionQueries):
    """SQL for one schema: the columns of a scan and the pruner's columns, in one query."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._extra_columns = ", ".join(_expressions(schema))

    def slices(
        self, connection: apsw.Connection
    ) -> Iterator[list[tuple[SessionRecord, PruneColumns]]]:
        """Yield all sessions in the order of ids, each slice read in a transaction of its own."""
        after: str | bytes | None = None
        pace = ReadPacer(connection, first=_FIRST_SLICE_SESSIONS, sizes=_SLICE_SESSIONS)
        while True:
            page = self.rows_after(connection, after, pace.size, self._extra_columns)
            if page.last is None:
                return
            records = self.with_messages(connection, page.rows, 0)
            pace.end()
            yield list(zip(records, map(_extras, page.extras), strict=True))
            pace.begin()
            after = page.last


def _extras(values: Sequence[Any]) -> PruneColumns:
    archived, titled, count, branched, delegated, size = values
    return PruneColumns(
        bool(archived), bool(titled), count, bool(branched), bool(delegated), int(size)
    )


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
    """Return SQL: True if model_config names a session in this key. Invalid JSON names none."""
    config = schema.expression("sessions", "model_config")
    if config == "NULL":
        return "0"
    return (
        f"CASE WHEN json_valid({config}) "
        f"THEN json_extract({config}, '$.{marker}') IS NOT NULL ELSE 0 END"
    )


def children(connection: apsw.Connection, schema: Schema) -> dict[str, int]:
    """Return how many sessions name each session as their parent; read from an index."""
    if not schema.has("sessions", "parent_session_id"):
        return {}
    rows, _ = rows_in_utf8(
        connection,
        "SELECT CAST(parent_session_id AS TEXT), COUNT(*) FROM sessions "
        "WHERE parent_session_id IS NOT NULL GROUP BY parent_session_id",
    )
    return dict(rows)
