"""Writes a state.db or kanban.db as Hermes 0.19.0 would have left it after a clean exit.

Rows go in first; indexes, full-text tables and triggers follow in bulk at the end, which is what
makes a database of a gigabyte take seconds. The file must not exist yet and no process may have it
open: there is no journal while it is built.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import apsw

from exporter.demo import schema
from exporter.hermes.database import leave_wal_in_place

Row = dict[str, Any]
"""Values by column; a column that is left out takes its default."""
_BULK_OPTIONS = {"automerge": 0, "crisismerge": 1_000, "hashsize": 64 << 20}
"""Segments of a text index as large as memory should allow, and no merging before the end."""
_MERGE_PAGES = 1_000
_FIRST_SEGMENTS = 256


@contextmanager
def new_state(path: str) -> Iterator[apsw.Connection]:
    """A state.db to `insert` rows into; leaving the block finishes it, an exception abandons it."""
    with closing(_create(path)) as connection:
        connection.execute(schema.STATE_TABLES)
        insert(connection, "schema_version", [{"version": schema.SCHEMA_VERSION}])
        connection.execute("BEGIN")
        yield connection
        connection.execute(schema.STATE_INDEXES)
        for table, tokenizer in schema.SEARCH_TABLES.items():
            _fill_search(connection, table, tokenizer)
        for table in schema.SEARCH_TABLES:
            connection.execute(schema.search_triggers(table))
        connection.execute("COMMIT")
        _hand_over(connection)


def leave_wal(path: str, size_bytes: int) -> None:
    """Leave a WAL of this size and its index beside a state.db, as a Hermes that was killed does.

    The rows are the same afterwards. A real one is not much larger than 4 MiB: Hermes's own
    connection writes it back after 1,000 pages.
    """
    with closing(apsw.Connection(path)) as connection:
        leave_wal_in_place(connection)
        connection.wal_autocheckpoint(0)
        while True:
            for step in (1, -1):
                connection.execute("UPDATE sessions SET rewind_count = rewind_count + ?", (step,))
            if os.path.getsize(f"{path}-wal") >= size_bytes:
                return


def write_kanban(path: str, tasks: Iterable[Row]) -> None:
    """Write a kanban.db with these tasks."""
    with closing(_create(path)) as connection:
        connection.execute(schema.KANBAN)
        insert(connection, "tasks", tasks)
        _hand_over(connection)


def insert(connection: apsw.Connection, table: str, rows: Iterable[Row]) -> None:
    """Insert rows, each with the columns that it names."""
    for row in rows:
        marks = ", ".join("?" * len(row))
        connection.execute(
            f"INSERT INTO {table}({', '.join(row)}) VALUES ({marks})", tuple(row.values())
        )


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


def _fill_search(connection: apsw.Connection, table: str, tokenizer: str) -> None:
    """Fill one full-text index and leave it in the state in which Hermes's writers keep it.

    A text index is a stack of segments; four on one level become one on the next. Hermes
    merges all into one now and then, which ends up high in the stack. Filled in one go, all of
    it would lie at the bottom, and the next few appends would rewrite it, under the lock.
    """
    execute = connection.execute
    execute(f"CREATE VIRTUAL TABLE {table} USING fts5(content{tokenizer})")
    command = f"INSERT INTO {table}({table}, rank) VALUES (?, ?)"
    copy = (
        f"INSERT INTO {table}(rowid, content) SELECT id, {schema.searchable()}"
        " FROM messages WHERE id BETWEEN ? AND ? ORDER BY id"
    )
    last = execute("SELECT max(id) FROM messages").get or 0
    execute(command, ("automerge", 2))
    for number in range(1, _FIRST_SEGMENTS + 1):
        with connection:  # a savepoint: the segment is written at its end
            execute(copy, (number, number))
    for option, value in _BULK_OPTIONS.items():
        execute(command, (option, value))
    # The last row by itself: only segments on different levels are lifted by a merge of all.
    for first, to in ((_FIRST_SEGMENTS + 1, last - 1), (last, last)):
        with connection:
            execute(copy, (max(first, _FIRST_SEGMENTS + 1), to))
        _merge_all(connection, command)
    # Hermes sets no option, so none of ours may stay behind.
    execute(f"DELETE FROM {table}_config WHERE k <> 'version'")


def _merge_all(connection: apsw.Connection, command: str) -> None:
    """Merge a text index into one segment, in steps, so that freed pages are used again."""
    changes = -2
    while connection.total_changes() - changes >= 2:
        changes = connection.total_changes()
        connection.execute(command, ("merge", -_MERGE_PAGES))
