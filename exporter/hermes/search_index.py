"""The text index over messages, and how to take messages out of it a few at a time.

Triggers keep two FTS5 tables in step with `messages`, and nearly all the time that deleting a
message takes is theirs. A session whose messages do not fit into one short transaction is therefore
taken out of the index first, slice by slice, and then deleted whole: until then Hermes sees all of
it, only its search does not. To put such a session back its messages go into the index first, where
nobody sees them without their rows. The triggers stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw
from msgspec import Struct

from exporter.errors import DatabaseError
from exporter.hermes.exact import bound, mark, quoted
from exporter.hermes.schema import Schema
from exporter.snapshot import Trouble

_INDEXED: Final = ("content", "tool_name", "tool_calls")
_TEXT: Final = " || ' ' || ".join(f"COALESCE(new.{column}, '')" for column in _INDEXED)
_INSERT: Final = "INSERT INTO {0}(rowid, content) VALUES ( new.id, " + _TEXT + " );"
_DELETE: Final = "DELETE FROM {0} WHERE rowid = old.id;"
_BODIES: Final = {
    "INSERT": _INSERT,
    "DELETE": _DELETE,
    "UPDATE": f"{_DELETE} {_INSERT}",
}
_TRIGGER: Final = re.compile(
    r"CREATE TRIGGER \S+ AFTER (INSERT|DELETE|UPDATE) ON messages BEGIN (.*) END", re.DOTALL
)


class SearchIndex(Struct, frozen=True):
    """The tables of the index, and whether they are kept in the one way we know."""

    tables: tuple[str, ...]
    known: bool
    """Every trigger on messages is one of Hermes 0.13 to 0.19: slices are possible."""


def probe_search_index(connection: apsw.Connection, schema: Schema) -> SearchIndex:
    """Look at the index; raise if this SQLite cannot keep it, for then nothing may be deleted."""
    if not schema.has("messages", "id", "session_id"):
        return SearchIndex((), known=True)
    tables = tuple(
        str(name)
        for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'messages_fts%' "
            "AND sql LIKE 'CREATE VIRTUAL TABLE%' ORDER BY name"
        )
    )
    for table in tables:
        try:
            connection.execute(f"SELECT rowid FROM {quoted(table)} LIMIT 0").fetchall()
        except apsw.SQLError as error:
            raise DatabaseError(
                Trouble.IO_ERROR,
                f"the text index {table} cannot be kept by this SQLite ({error}), so no message "
                "may be deleted; nothing was done",
            ) from error
    triggers = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'messages'"
    ).fetchall()
    found = sorted(_squeezed(str(sql)) for (sql,) in triggers)
    wanted = sorted(
        f"{event} {body.format(table)}" for table in tables for event, body in _BODIES.items()
    )
    return SearchIndex(tables, known=found == wanted)


def _squeezed(sql: str) -> str:
    """A trigger as its event and its body, whatever the white space."""
    match = _TRIGGER.match(" ".join(sql.replace("IF NOT EXISTS ", "").split()))
    return " ".join(match.groups()).strip() if match else sql


def take_out(connection: apsw.Connection, index: SearchIndex, message_ids: Iterable[int]) -> None:
    """Take messages out of the index; they themselves stay."""
    for message_id in message_ids:
        for table in index.tables:
            connection.execute(f"DELETE FROM {quoted(table)} WHERE rowid = ?", (message_id,))


def not_in_index(connection: apsw.Connection, index: SearchIndex, session_id: str) -> list[int]:
    """The messages of a session that some table of the index lacks."""
    if not index.tables:
        return []
    lacking = " OR ".join(
        f"NOT EXISTS (SELECT 1 FROM {quoted(table)} WHERE rowid = messages.id)"
        for table in index.tables
    )
    return [
        message_id
        for (message_id,) in connection.execute(
            f"SELECT id FROM messages WHERE session_id = ? AND ({lacking}) ORDER BY id",
            (session_id,),
        )
    ]


def put_in_again(connection: apsw.Connection, message_ids: Iterable[int]) -> None:
    """Have Hermes's own triggers index messages that are there: an update that changes nothing."""
    for message_id in message_ids:
        connection.execute("UPDATE messages SET role = role WHERE id = ?", (message_id,))


def put_in_ahead(
    connection: apsw.Connection,
    index: SearchIndex,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
) -> None:
    """Index messages whose rows are yet to come, as the triggers would; those there are stay."""
    places = [columns.index(name) if name in columns else None for name in ("id", *_INDEXED)]
    for row in rows:
        message_id, *parts = (None if place is None else row[place] for place in places)
        text = " || ' ' || ".join(f"COALESCE({mark(part)}, '')" for part in parts)
        for table in index.tables:
            connection.execute(
                f"INSERT INTO {quoted(table)}(rowid, content) SELECT ?, {text} "
                f"WHERE NOT EXISTS (SELECT 1 FROM {quoted(table)} WHERE rowid = ?)",
                (message_id, *map(bound, parts), message_id),
            )


def strays_among(
    connection: apsw.Connection, index: SearchIndex, message_ids: Iterable[int]
) -> list[int]:
    """Of these those that are in the index though there is no such message."""
    return [
        message_id
        for message_id in message_ids
        if any(_has(connection, table, "rowid", message_id) for table in index.tables)
        and not _has(connection, "messages", "id", message_id)
    ]


def _has(connection: apsw.Connection, table: str, column: str, message_id: int) -> bool:
    query = f"SELECT 1 FROM {quoted(table)} WHERE {column} = ?"
    return connection.execute(query, (message_id,)).fetchone() is not None


def take_out_strays(
    connection: apsw.Connection, index: SearchIndex, message_ids: Iterable[int]
) -> None:
    """Take out of the index what was put there ahead of rows that never came."""
    for message_id in message_ids:
        if not _has(connection, "messages", "id", message_id):
            take_out(connection, index, [message_id])


def merge_a_little(connection: apsw.Connection, table: str, pages: int) -> bool:
    """Merge so many pages of an index, in a transaction of its caller; False if none were left.

    Deleted messages leave tombstones; only merging gives their pages back.
    """
    before = connection.total_changes()
    connection.execute(
        f"INSERT INTO {quoted(table)}({quoted(table)}, rank) VALUES ('merge', ?)", (pages,)
    )
    return connection.total_changes() - before >= 2
