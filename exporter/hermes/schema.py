"""The Hermes tables and columns that a database has.

Versions from 0.13 to today differ. Columns are added without a new schema version, and newer
versions bring unknown tables. So nothing is assumed: columns are probed, a query uses a constant
for a missing column, and unknown columns are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping

import apsw
from msgspec import Struct

from exporter.errors import DatabaseError
from exporter.hermes.utf8 import rows_in_utf8
from exporter.snapshot import Trouble

_KNOWN_TABLES = (
    "sessions",
    "messages",
    "session_model_usage",
    "gateway_routing",
    "gateway_heartbeats",
    "session_turn_leases",
    "compression_locks",
    "async_delegations",
    "telegram_dm_topic_bindings",
    "state_meta",
)


class Schema(Struct, frozen=True):
    """The known tables, with the columns that they have in this database."""

    columns: Mapping[str, frozenset[str]]
    cookie: int
    """SQLite's schema cookie. While it is the same, the schema is as probed."""
    version: int | None
    """Hermes's own number. It may lag behind the columns, so it is only shown."""

    def has(self, table: str, *columns: str) -> bool:
        found = self.columns.get(table)
        return found is not None and found.issuperset(columns)

    def expression(self, table: str, column: str, missing: str = "NULL") -> str:
        """Return the column's name, or an SQL constant if the column does not exist."""
        return column if self.has(table, column) else missing


def probe_schema(connection: apsw.Connection) -> Schema:
    """Read the schema of an open database; raise if it is not Hermes's."""
    columns: dict[str, frozenset[str]] = {}
    for table in _KNOWN_TABLES:
        if _is_table(connection, table):
            columns[table] = columns_of(connection, table)
    schema = Schema(columns, schema_cookie(connection), _version(connection))
    if not schema.has("sessions", "id", "source", "started_at", "ended_at"):
        raise DatabaseError(
            Trouble.NO_SESSIONS_TABLE, "state.db has no sessions table as Hermes makes it"
        )
    return schema


def schema_cookie(connection: apsw.Connection) -> int:
    return int(connection.pragma("schema_version"))


def _is_table(connection: apsw.Connection, name: str) -> bool:
    """True if this table exists. Looked up by name, because other tables' names may not be text."""
    found = connection.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,)
    )
    return found.fetchone() is not None


def columns_of(connection: apsw.Connection, table: str) -> frozenset[str]:
    """Return the names of a table's columns, without names that are not UTF-8."""
    rows, _ = rows_in_utf8(connection, "SELECT name FROM pragma_table_info(?)", (table,))
    return frozenset(name for (name,) in rows)


def _version(connection: apsw.Connection) -> int | None:
    if not _is_table(connection, "schema_version"):
        return None
    try:
        found = connection.execute(
            "SELECT MAX(version) FROM schema_version WHERE typeof(version) = 'integer'"
        ).get
    except apsw.SQLError:
        return None
    return found if isinstance(found, int) else None
