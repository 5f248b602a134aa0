"""Writes a state.db or kanban.db as Hermes 0.19.0 would have left it after a clean exit.

Rows go in first; indexes, full-text tables and triggers follow in bulk at the end, which is what
makes a database of a gigabyte take seconds. The file must not exist yet and nobody may have it
open: there is no journal while it is built.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import NamedTuple, Self

import apsw

from exporter.hermes.fabricate import schema

_SEARCH_HASH_BYTES = 64 << 20
"""How much text index is gathered in memory before it is written: bounds memory, saves merges."""


class SessionRow(NamedTuple):
    """A row of `sessions`; columns not named here take their default."""

    id: str
    source: str
    started_at: float
    ended_at: float | None = None
    end_reason: str | None = None
    model: str | None = None
    model_config: str | None = None
    system_prompt: str | None = None
    parent_session_id: str | None = None
    message_count: int = 0
    tool_call_count: int = 0
    api_call_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated_cost_usd: float | None = None
    actual_cost_usd: float | None = None
    cost_status: str | None = None
    title: str | None = None
    cwd: str | None = None
    user_id: str | None = None
    session_key: str | None = None
    chat_id: str | None = None
    chat_type: str | None = None


class MessageRow(NamedTuple):
    """A row of `messages`; its id is given by the order of insertion."""

    session_id: str
    role: str
    content: str | None
    timestamp: float
    tool_call_id: str | None = None
    tool_calls: str | None = None
    tool_name: str | None = None
    token_count: int | None = None
    finish_reason: str | None = None
    reasoning: str | None = None


class UsageRow(NamedTuple):
    """A row of `session_model_usage`: what one session used of one model."""

    session_id: str
    model: str
    api_call_count: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    estimated_cost_usd: float
    actual_cost_usd: float
    first_seen: float
    last_seen: float


class RouteRow(NamedTuple):
    """A row of `gateway_routing`: which session a chat is on now."""

    scope: str
    session_key: str
    entry_json: str
    updated_at: float


class TaskRow(NamedTuple):
    """A row of kanban's `tasks`."""

    id: str
    title: str
    status: str
    created_at: int
    started_at: int | None = None
    completed_at: int | None = None
    claim_lock: str | None = None
    worker_pid: int | None = None
    last_heartbeat_at: int | None = None


class StateDatabase:
    """A state.db in the making; leaving the `with` block finishes it, an exception abandons it."""

    def __init__(self, path: str) -> None:
        self._connection = _create(path)
        self._connection.execute(schema.STATE_TABLES)
        self._connection.execute(
            "INSERT INTO schema_version(version) VALUES (?)", (schema.SCHEMA_VERSION,)
        )
        self._connection.execute("BEGIN")

    def add_session(
        self, session: SessionRow, messages: Iterable[MessageRow], usage: Iterable[UsageRow] = ()
    ) -> None:
        """Add a session with all its messages and what it used."""
        self._connection.execute(_insert("sessions", SessionRow), session)
        self._connection.executemany(_insert("messages", MessageRow), messages)
        self._connection.executemany(_insert("session_model_usage", UsageRow), usage)

    def add_routes(self, routes: Iterable[RouteRow]) -> None:
        self._connection.executemany(_insert("gateway_routing", RouteRow), routes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._finish()
        self._connection.close()

    def _finish(self) -> None:
        self._connection.execute(schema.STATE_INDEXES)
        for table, tokenizer in schema.SEARCH_TABLES.items():
            self._fill_search(table, tokenizer)
        for table in schema.SEARCH_TABLES:
            self._connection.execute(schema.search_triggers(table))
        self._connection.execute("COMMIT")
        _hand_over(self._connection)

    def _fill_search(self, table: str, tokenizer: str) -> None:
        execute = self._connection.execute
        execute(f"CREATE VIRTUAL TABLE {table} USING fts5(content{tokenizer})")
        configure = f"INSERT INTO {table}({table}, rank) VALUES ('hashsize', ?)"  # noqa: S608
        execute(configure, (_SEARCH_HASH_BYTES,))
        execute(
            f"INSERT INTO {table}(rowid, content) "  # noqa: S608 - names from our own schema
            f"SELECT id, {schema.searchable()} FROM messages ORDER BY id"
        )
        # Hermes sets no option, so none of ours may stay behind.
        execute(f"DELETE FROM {table}_config WHERE k = 'hashsize'")  # noqa: S608


def write_kanban(path: str, tasks: Iterable[TaskRow]) -> None:
    """Write a kanban.db with these tasks."""
    connection = _create(path)
    try:
        connection.execute(schema.KANBAN)
        connection.executemany(_insert("tasks", TaskRow), tasks)
        _hand_over(connection)
    finally:
        connection.close()


def _create(path: str) -> apsw.Connection:
    connection = apsw.Connection(path)
    for setting in (
        "journal_mode = OFF",
        "synchronous = OFF",
        "locking_mode = EXCLUSIVE",
        "cache_size = -65536",
        "temp_store = MEMORY",
    ):
        connection.pragma(*setting.split(" = "))
    return connection


def _hand_over(connection: apsw.Connection) -> None:
    """Leave the file as Hermes does: in WAL mode, and without sidecars once it is closed."""
    connection.pragma("locking_mode", "NORMAL")
    connection.pragma("journal_mode", "WAL")


def _insert(table: str, row: type[NamedTuple]) -> str:
    columns = row._fields
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO {table}({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
