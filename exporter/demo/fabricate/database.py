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

from exporter.demo.fabricate import schema

_BULK_OPTIONS = {"automerge": 0, "crisismerge": 1_000, "hashsize": 64 << 20}
"""Segments of a text index as large as memory should allow, and no merging before the end."""
_MERGE_PAGES = 1_000
_FIRST_SEGMENTS = 256


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
        """Fill one full-text index and leave it in the state in which Hermes's writers keep it.

        A text index is a stack of segments; four on one level become one on the next. Hermes
        merges all into one now and then, which ends up high in the stack. Filled in one go, all of
        it would lie at the bottom, and the next few appends would rewrite it, under the lock.
        """
        execute = self._connection.execute
        execute(f"CREATE VIRTUAL TABLE {table} USING fts5(content{tokenizer})")
        command = f"INSERT INTO {table}({table}, rank) VALUES (?, ?)"
        copy = (
            f"INSERT INTO {table}(rowid, content) SELECT id, {schema.searchable()}"
            " FROM messages WHERE id BETWEEN ? AND ? ORDER BY id"
        )
        last = execute("SELECT max(id) FROM messages").get or 0
        execute(command, ("automerge", 2))
        for number in range(1, _FIRST_SEGMENTS + 1):
            with self._connection:  # a savepoint: the segment is written at its end
                execute(copy, (number, number))
        for option, value in _BULK_OPTIONS.items():
            execute(command, (option, value))
        # The last row by itself: only segments on different levels are lifted by a merge of all.
        for first, to in ((_FIRST_SEGMENTS + 1, last - 1), (last, last)):
            with self._connection:
                execute(copy, (max(first, _FIRST_SEGMENTS + 1), to))
            self._merge_all(command)
        # Hermes sets no option, so none of ours may stay behind.
        execute(f"DELETE FROM {table}_config WHERE k <> 'version'")

    def _merge_all(self, command: str) -> None:
        """Merge a text index into one segment, in steps, so that freed pages are used again."""
        changes = -2
        while self._connection.total_changes() - changes >= 2:
            changes = self._connection.total_changes()
            self._connection.execute(command, ("merge", -_MERGE_PAGES))


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
    return f"INSERT INTO {table}({', '.join(columns)}) VALUES ({marks})"
