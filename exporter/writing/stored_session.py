"""A session as it is stored: read it, delete it as Hermes does, and restore it exactly.

A session is a row, its messages, and rows of other tables that name it. Its children lose their
parent, as in Hermes; delegates are sessions of their own, which the plan deletes with it. Hermes
does not delete `goal:<id>` and the locks of dead sessions; here they are deleted and restored too.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any, Final

import apsw
from msgspec import Struct
from msgspec.msgpack import Ext

from exporter.hermes.odd_rows import is_emptied
from exporter.hermes.schema import Schema, probe_schema
from exporter.hermes.table_rows import (
    ROWID,
    TableRows,
    columns_of,
    insert_rows,
    parameter,
    quoted,
    read_rows,
)
from exporter.text import cut
from exporter.writing.search_index import (
    IndexedUpToNul,
    SearchIndex,
    find_indexed_up_to_nul,
    probe_search_index,
    truncate_indexed_texts,
)

SESSIONS: Final = "sessions"
MESSAGES: Final = "messages"
_GOAL: Final = "goal:"


class Reference(Struct, frozen=True):
    """Where another table names a session."""

    table: str
    column: str
    ours: bool
    """True if its rows are deleted with the session; otherwise they prevent the deletion."""


class SessionTables(Struct, frozen=True):
    """All tables of a database that have rows of sessions."""

    schema: Schema
    index: SearchIndex
    references: tuple[Reference, ...]
    columns: dict[str, tuple[str, ...]]


class StoredSession(Struct, frozen=True, array_like=True):
    """A session as it is stored: its rows in every table, and the ids of its children."""

    id: str
    tables: dict[str, TableRows]
    children: list[str]
    indexed_up_to_nul: IndexedUpToNul = {}
    """Messages that the text index holds only in part."""

    @property
    def messages(self) -> TableRows:
        return self.tables[MESSAGES]

    def message_ids(self) -> list[int]:
        return self.messages.column("id")

    @property
    def began_at(self) -> object:
        """When it began, as stored. Hermes never changes this."""
        return self.tables[SESSIONS].as_dict(0)["started_at"]


def probe_session_tables(connection: apsw.Connection) -> SessionTables:
    """Find every table that refers to sessions; raise DatabaseError if none may be deleted."""
    schema = probe_schema(connection)
    # First: SQLite cannot even list its tables if it lacks a module that one of them needs.
    index = probe_search_index(connection, schema)
    references = [*_declared(connection), *_undeclared(schema)]
    tables = {SESSIONS, *([MESSAGES] if schema.has(MESSAGES) else [])}
    tables |= {each.table for each in references if each.ours}
    if schema.has("state_meta", "key", "value"):
        tables.add("state_meta")
    return SessionTables(
        schema=schema,
        index=index,
        references=tuple(references),
        columns={table: columns_of(connection, table) for table in sorted(tables)},
    )


def _declared(connection: apsw.Connection) -> list[Reference]:
    found = connection.execute(
        'SELECT t.name, f."from", f.on_delete FROM pragma_table_list t, '
        "pragma_foreign_key_list(t.name) f WHERE t.schema = 'main' AND t.type = 'table' "
        "AND f.\"table\" = 'sessions' COLLATE NOCASE ORDER BY t.name"
    ).fetchall()
    return [
        Reference(str(table), str(column), ours=action == "CASCADE" or table in _OURS)
        for table, column, action in found
        if table not in (SESSIONS, MESSAGES)
    ]


_OURS: Final = ("session_model_usage", "telegram_dm_topic_bindings")


def _undeclared(schema: Schema) -> list[Reference]:
    if not schema.has("compression_locks", "session_id"):
        return []
    return [Reference("compression_locks", "session_id", ours=True)]


def read_session(
    connection: apsw.Connection,
    layout: SessionTables,
    session_id: str,
    *,
    look_at_index: bool = True,
) -> StoredSession | None:
    """Return all of a session; None if there is none. In a transaction of the caller."""

    def rows(table: str, column: str, value: str) -> TableRows:
        columns = layout.columns[table]
        return read_rows(connection, table, columns, f"{quoted(column)} = ?", value)

    session = rows(SESSIONS, "id", session_id)
    if not session.rows:
        return None
    tables = {SESSIONS: session, MESSAGES: rows(MESSAGES, "session_id", session_id)}
    for each in layout.references:
        if each.ours:
            tables[each.table] = rows(each.table, each.column, session_id)
    if "state_meta" in layout.columns:
        tables["state_meta"] = rows("state_meta", "key", _GOAL + session_id)
    up_to_nul = (
        find_indexed_up_to_nul(connection, layout.index, tables[MESSAGES]) if look_at_index else {}
    )
    return StoredSession(session_id, tables, _children(connection, session_id), up_to_nul)


def is_same_and_whole(
    connection: apsw.Connection, session_id: str, began_at: object, message_ids: tuple[int, ...]
) -> bool:
    """True if the session is the one that began then, and still has these messages.

    Hermes may have made a new one with this id since, a prune may have emptied it, or `hermes
    import` may have brought back an older one, which lacks the last messages. A session without
    messages is checked by the value of `archived` that a prune writes.
    """
    schema = probe_schema(connection)
    found = connection.execute(
        f"SELECT started_at, {is_emptied(schema)} FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    if found is None or found[0] != began_at:
        return False
    if not message_ids:
        return not found[1]
    query = "SELECT 1 FROM messages WHERE id = ? AND session_id = ?"
    return all(connection.execute(query, (each, session_id)).fetchone() for each in message_ids)


def _children(connection: apsw.Connection, session_id: str) -> list[str]:
    found = connection.execute(
        "SELECT id FROM sessions WHERE parent_session_id = ? AND typeof(id) = 'text' ORDER BY id",
        (session_id,),
    )
    return [child for (child,) in found]


def delegates_of(connection: apsw.Connection, layout: SessionTables, session_id: str) -> list[str]:
    """Return the children that Hermes deletes with their parent."""
    if not layout.schema.has(SESSIONS, "model_config", "parent_session_id"):
        return []
    found = connection.execute(
        "SELECT id FROM sessions WHERE parent_session_id = ? AND CASE WHEN "
        "json_valid(model_config) THEN json_extract(model_config, '$._delegate_from') END "
        "IS NOT NULL",
        (session_id,),
    )
    return [child for (child,) in found]


def blocking_table(connection: apsw.Connection, layout: SessionTables, session_id: str) -> str:
    """Return a table with rows of this session that we do not know how to handle; '' if none."""
    for each in layout.references:
        if not each.ours:
            found = connection.execute(
                f"SELECT 1 FROM {quoted(each.table)} WHERE {quoted(each.column)} = ? LIMIT 1",
                (session_id,),
            ).fetchone()
            if found is not None:
                return each.table
    return ""


def delete_session(
    connection: apsw.Connection, layout: SessionTables, stored: StoredSession
) -> None:
    """Delete it with all its rows, in a transaction of the caller."""
    truncate_indexed_texts(connection, stored.indexed_up_to_nul)
    delete_rows(connection, layout, stored.id)


def delete_rows(connection: apsw.Connection, layout: SessionTables, session_id: str) -> None:
    """Delete the rows of a session; the text index must have all of its messages, or none."""
    connection.execute(
        "UPDATE sessions SET parent_session_id = NULL WHERE parent_session_id = ?", (session_id,)
    )
    for each in layout.references:
        if each.ours:
            connection.execute(
                f"DELETE FROM {quoted(each.table)} WHERE {quoted(each.column)} = ?", (session_id,)
            )
    if "state_meta" in layout.columns:
        connection.execute("DELETE FROM state_meta WHERE key = ?", (_GOAL + session_id,))
    connection.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))
    connection.execute("DELETE FROM sessions WHERE id = ?", (session_id,))


class RestoreError(Exception):
    """A session cannot be restored as it was; the message says what has changed."""


def restore_session(
    connection: apsw.Connection,
    layout: SessionTables,
    stored: StoredSession,
    coming: Container[str] = (),
    *,
    with_messages: bool = True,
) -> str:
    """Restore a session in a transaction of the caller; return what is different now, or ''.

    `coming` are sessions that are restored later; a parent among them links its children itself.

    Raise RestoreError, with nothing done, if it cannot be restored without loss. If its id or an id
    of its messages is in use, it must be merged instead: see `exporter.writing.session_merge`.
    """
    with all_or_nothing(connection, stored):
        return _restore(connection, layout, stored, coming, with_messages=with_messages)


@contextmanager
def all_or_nothing(connection: apsw.Connection, stored: StoredSession) -> Iterator[None]:
    """Take back what the body wrote of a session if it fails; a conflict is a RestoreError."""
    connection.execute("SAVEPOINT restoring")
    try:
        yield
    except BaseException as error:
        # After an interrupt SQLite has already rolled back the whole transaction.
        if connection.in_transaction:
            connection.execute("ROLLBACK TO restoring; RELEASE restoring")
        if isinstance(error, apsw.ConstraintError):
            raise RestoreError(_conflict(connection, stored, str(error))) from error
        raise
    connection.execute("RELEASE restoring")


def _restore(
    connection: apsw.Connection,
    layout: SessionTables,
    stored: StoredSession,
    coming: Container[str],
    *,
    with_messages: bool,
) -> str:
    session = stored.tables[SESSIONS]
    named = session.as_dict(0)
    notes = []
    parent = named.get("parent_session_id")
    if parent is not None and not exists(connection, parent):
        notes += [] if parent in coming else ["its parent is gone, so it has none now"]
        session = _with(session, "parent_session_id", None)
    if named.get("title") is not None:
        title, note = free_title(connection, named["title"], stored.id)
        session = _with(session, "title", title)
        notes += [note] if note else []
    put_rows(connection, layout, SESSIONS, session)
    for table, rows in stored.tables.items():
        if table != SESSIONS and (with_messages or table != MESSAGES):
            put_rows(connection, layout, table, rows, present_wins=table in _BY_OTHER_KEYS)
    relink_children(connection, stored)
    return "; ".join(notes)


_BY_OTHER_KEYS: Final = ("state_meta", "telegram_dm_topic_bindings", "compression_locks")
"""Tables in which a present row stays: it may belong to another session, or be newer."""


def free_title(connection: apsw.Connection, title: Any, session_id: str) -> tuple[Any, str]:
    """Return the title, or a similar one if another session has it now, with a note."""
    query = "SELECT 1 FROM sessions WHERE title = ? AND id != ?"
    if connection.execute(query, (parameter(title), session_id)).fetchone() is None:
        return title, ""
    # Without a number: Hermes would take `title 2` for a continuation of the other session.
    similar = f"{plain_text(title)} (restored)"
    if connection.execute(query, (similar, session_id)).fetchone() is not None:
        similar = f"{plain_text(title)} ({session_id})"
    return similar, "another session has its title now, so its own was changed a little"


def relink_children(connection: apsw.Connection, stored: StoredSession) -> None:
    """Make it the parent of its children again, unless they have another parent now."""
    for child in stored.children:
        connection.execute(
            "UPDATE sessions SET parent_session_id = ? WHERE id = ? AND parent_session_id IS NULL",
            (stored.id, child),
        )


def exists(connection: apsw.Connection, session_id: Any) -> bool:
    found = connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return found is not None


def _with(rows: TableRows, column: str, value: Any) -> TableRows:
    """Return the row with another value in one column."""
    index = rows.columns.index(column)
    row = (*rows.rows[0][:index], value, *rows.rows[0][index + 1 :])
    return TableRows(rows.columns, [row])


def put_rows(
    connection: apsw.Connection,
    layout: SessionTables,
    table: str,
    rows: TableRows,
    *,
    present_wins: bool = False,
) -> None:
    """Insert rows into a table; with `present_wins`, present rows are not replaced."""
    if not rows.rows:
        return
    kept = _kept_columns(layout, table, rows)
    columns = [rows.columns[index] for index in kept]
    kept_rows = [[row[index] for index in kept] for row in rows.rows]
    if ROWID in columns:
        kept_rows = _in_free_places(connection, table, columns.index(ROWID), kept_rows)
    insert_rows(connection, table, columns, kept_rows, present_wins=present_wins)


def _in_free_places(
    connection: apsw.Connection, table: str, index: int, rows: list[list[Any]]
) -> list[list[Any]]:
    """Return the rows with their row ids; rows whose id is in use come last and get a new one.

    SQLite uses the highest id again once its row is deleted. Hermes never reads these ids.
    """
    query = f"SELECT 1 FROM {quoted(table)} WHERE rowid = ?"
    taken = [connection.execute(query, (row[index],)).fetchone() is not None for row in rows]
    stay = [row for row, is_taken in zip(rows, taken, strict=True) if not is_taken]
    move = [row for row, is_taken in zip(rows, taken, strict=True) if is_taken]
    return stay + [[*row[:index], None, *row[index + 1 :]] for row in move]


def _kept_columns(layout: SessionTables, table: str, rows: TableRows) -> list[int]:
    """Return the columns that still exist; raise RestoreError if a missing one had values."""
    there = layout.columns.get(table)
    if there is None:
        raise RestoreError(f"this Hermes has no table {table} any more")
    kept = []
    for index, name in enumerate(rows.columns):
        if name in there:
            kept.append(index)
        elif name != ROWID and any(row[index] is not None for row in rows.rows):
            raise RestoreError(f"this Hermes has no column {table}.{name} any more")
    return kept


def _conflict(connection: apsw.Connection, stored: StoredSession, error: str) -> str:
    if exists(connection, stored.id):
        return "there is a session with its id again"
    return f"it cannot be inserted any more: {cut(error, 120)}"


def plain_text(value: Any) -> Any:
    """Return a stored value as text for people; bytes that are not UTF-8 are replaced."""
    if isinstance(value, Ext):
        return bytes(value.data).decode(errors="replace")
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value


def same_session(
    first: StoredSession, second: StoredSession | None, gone: Container[object] = ()
) -> bool:
    """True if both are the same, except for a parent among `gone`, and for deleted children."""
    if second is None:
        return False
    if first.tables == second.tables:
        return True
    session = first.tables[SESSIONS]
    if session.as_dict(0).get("parent_session_id") not in gone:
        return False
    orphaned = {**first.tables, SESSIONS: _with(session, "parent_session_id", None)}
    return orphaned == second.tables
