"""The text index over messages, and how to remove messages from it a few at a time.

Triggers update two FTS5 tables with `messages`, and take nearly all the time of deleting a message.
If the messages of a session do not fit into one short transaction, they are first removed from the
index, slice by slice; then the session is deleted whole. Until then Hermes still sees all of the
session, only its search does not find it. To restore such a session, its messages are added to the
index first; no search shows them without their rows. The triggers themselves are never changed.

Hermes stores pictures as text that begins with a NUL. Older releases of SQLite, which Hermes may be
using, put only the part before the NUL into the trigram index; ours puts in all of it. If ours
removed or added such a message in its own way, the older SQLite would call the index malformed. So
we look up how each message was indexed, and remove or add exactly that.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import apsw
from msgspec import Struct

from exporter.errors import DatabaseError
from exporter.hermes.schema import Schema
from exporter.hermes.table_rows import TableRows, parameter, quoted
from exporter.snapshot import Trouble
from exporter.writing.index_entries import putting_back, writable_shadow_tables

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


_BYTES_OF_ONE: Final = 256
"""So much text takes about as long to index as a message takes without its text."""
_LONGEST_BYTES: Final = 4 << 20
"""FTS5 takes some 60 ms for a MiB, and cannot be interrupted in a message."""
_PROBE: Final = "hermes_exporter_probe"


class SearchIndex(Struct, frozen=True):
    """The tables of the index, and whether they are kept in the one way we know."""

    tables: tuple[str, ...]
    known: bool
    """Every trigger is one of Hermes 0.13 to 0.19, no message id is used twice, and the tables keep
    the texts themselves: messages can leave and enter the index one by one."""


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
            # FTS5 checks only at a search whether it has the tokenizer.
            connection.execute(
                f"SELECT rowid FROM {quoted(table)} WHERE {quoted(table)} MATCH ? LIMIT 1",
                (_PROBE,),
            ).fetchall()
        except apsw.SQLError as error:
            raise DatabaseError(
                Trouble.IO_ERROR,
                f"the text index {table} cannot be kept by this SQLite ({error}), so no message "
                "may be deleted; nothing was done",
            ) from error
    # Any other would not fire while those of the index are not to.
    triggers = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE type = 'trigger' "
        f"AND tbl_name IN ({', '.join('?' * len(schema.columns))})",
        tuple(schema.columns),
    ).fetchall()
    counted: list[Any] = connection.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'messages' "
        "AND sql LIKE '%AUTOINCREMENT%'"
    ).fetchall()
    found = sorted(_trigger(str(sql)) for (sql,) in triggers)
    wanted = sorted(
        _normalized(f"{event} {body.format(table)}")
        for table in tables
        for event, body in _BODIES.items()
    )
    known = bool(counted) and found == wanted and all(_keeps_texts(connection, t) for t in tables)
    return SearchIndex(tables, known=known)


def _keeps_texts(connection: apsw.Connection, table: str) -> bool:
    """True if there are tables behind it with the text of each message, in one column, and size."""
    behind = connection.execute(
        "SELECT (SELECT group_concat(name) FROM pragma_table_info(?1 || '_content')), "
        "(SELECT group_concat(name) FROM pragma_table_info(?1 || '_docsize'))",
        (table,),
    ).fetchone()
    return behind == ("id,c0", "id,sz")


def _trigger(sql: str) -> str:
    """Return a trigger as event and body, independent of how it is written."""
    match = _TRIGGER.match(" ".join(sql.replace("IF NOT EXISTS ", "").split()))
    return _normalized(" ".join(match.groups())) if match else sql


def _normalized(sql: str) -> str:
    return re.sub(r"\s*([(),;])\s*", r"\1", sql.casefold()).strip()


IndexedUpToNul = dict[str, list[int]]
"""By table of the index, the messages that are indexed only up to their first NUL."""


def find_indexed_up_to_nul(
    connection: apsw.Connection, index: SearchIndex, messages: TableRows
) -> IndexedUpToNul:
    """Return which of these messages are indexed only up to their first NUL."""
    suspects = [(row, text) for row, text in _texts(messages) if b"\0" in text]
    if not suspects:
        return {}
    return {
        table: found
        for table in index.tables
        if (found := _indexed_up_to_nul(connection, table, suspects))
    }


def _texts(
    messages: TableRows, message_ids: Iterable[int] | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield messages with the text that is indexed of each."""
    places = [messages.columns.index(name) for name in _INDEXED if name in messages.columns]
    ids = messages.columns.index("id")
    for row in _rows(messages, ids, message_ids):
        yield row[ids], b" ".join(_bytes(row[place]) for place in places)


def _rows(
    messages: TableRows, ids: int, message_ids: Iterable[int] | None
) -> Iterator[tuple[Any, ...]]:
    if message_ids is None:
        yield from messages.rows
        return
    for message_id in message_ids:  # rows are in the order of their ids
        place = bisect_left(messages.rows, message_id, key=lambda row: row[ids])
        if place < len(messages.rows) and messages.rows[place][ids] == message_id:
            yield messages.rows[place]


def _bytes(value: Any) -> bytes:
    value = parameter(value)
    if isinstance(value, bytes):
        return value
    return b"" if value is None else str(value).encode(errors="surrogatepass")


def _indexed_up_to_nul(
    connection: apsw.Connection, table: str, suspects: Iterable[tuple[int, bytes]]
) -> list[int]:
    """Return the messages whose size in the index is that of the text before the NUL."""
    definition = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).get
    options = str(definition).partition(" USING ")[2]
    connection.execute(f"CREATE VIRTUAL TABLE temp.{_PROBE} USING {options}")
    try:
        found = []
        for message_id, text in suspects:
            connection.execute(
                f"INSERT INTO temp.{_PROBE}(rowid, content) VALUES (?, CAST(? AS TEXT))",
                (message_id, text.partition(b"\0")[0]),
            )
            same = connection.execute(
                f"SELECT theirs.sz = ours.sz FROM {quoted(table + '_docsize')} AS theirs "
                f"JOIN temp.{_PROBE}_docsize AS ours ON ours.id = theirs.id WHERE theirs.id = ?",
                (message_id,),
            ).fetchone()
            if same is not None and same[0]:
                found.append(message_id)
        return found
    finally:
        connection.execute(f"DROP TABLE temp.{_PROBE}")


def weights(messages: TableRows) -> dict[int, int]:
    """Return the work that each message is for the index, by its text: an empty one counts 1."""
    return {message_id: 1 + len(text) // _BYTES_OF_ONE for message_id, text in _texts(messages)}


def is_too_long(weight: int) -> bool:
    """True if a message cannot leave the index in a short transaction: FTS5 does it in one go."""
    return weight * _BYTES_OF_ONE > _LONGEST_BYTES


def remove_from_index(
    connection: apsw.Connection,
    index: SearchIndex,
    message_ids: Iterable[int],
    up_to_nul: IndexedUpToNul,
) -> None:
    """Take messages out of the index; they themselves stay."""
    wanted = set(message_ids)
    truncate_indexed_texts(
        connection, {table: [n for n in ids if n in wanted] for table, ids in up_to_nul.items()}
    )
    for message_id in message_ids:
        for table in index.tables:
            connection.execute(f"DELETE FROM {quoted(table)} WHERE rowid = ?", (message_id,))


def truncate_indexed_texts(connection: apsw.Connection, up_to_nul: IndexedUpToNul) -> None:
    """Cut these texts to the part that is indexed, so that they can be removed from the index."""
    if not any(up_to_nul.values()):
        return
    with writable_shadow_tables(connection):
        for table, message_ids in up_to_nul.items():
            for message_id in message_ids:
                connection.execute(
                    f"UPDATE {quoted(table + '_content')} SET c0 = CAST(substr(CAST(c0 AS BLOB), "
                    "1, instr(CAST(c0 AS BLOB), x'00') - 1) AS TEXT) "
                    "WHERE id = ? AND instr(CAST(c0 AS BLOB), x'00') > 0",
                    (message_id,),
                )


def not_in_index(connection: apsw.Connection, index: SearchIndex, session_id: str) -> list[int]:
    """Return the messages of a session that some table of the index lacks."""
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


def add_to_index(
    connection: apsw.Connection,
    index: SearchIndex,
    messages: TableRows,
    message_ids: Iterable[int],
    up_to_nul: IndexedUpToNul,
) -> None:
    """Index messages that are there, or whose rows are yet to come; those in it already stay.

    In a transaction of the caller, who rolls it back if this fails.
    """
    with adding_to_index(connection, index) as adder:
        for message_id in message_ids:
            adder.add(messages, message_id, up_to_nul)


class IndexAdder:
    """Adds messages to the index as Hermes's triggers do, but for what old releases cut off."""

    def __init__(
        self,
        connection: apsw.Connection,
        index: SearchIndex,
        put: Callable[[str, int, bytes], None],
    ) -> None:
        self._connection = connection
        self._index = index
        self._put = put

    def add(self, messages: TableRows, message_id: int, up_to_nul: IndexedUpToNul) -> None:
        """Add one of these messages, unless the index has it."""
        for _, text in _texts(messages, [message_id]):
            for table in self._index.tables:
                if not _has(self._connection, table, "rowid", message_id):
                    is_up_to_nul = message_id in up_to_nul.get(table, ())
                    self._add(table, message_id, text, is_up_to_nul=is_up_to_nul)

    def _add(self, table: str, message_id: int, text: bytes, *, is_up_to_nul: bool) -> None:
        self._put(table, message_id, text.partition(b"\0")[0] if is_up_to_nul else text)
        if is_up_to_nul:
            self._connection.execute(
                f"UPDATE {quoted(table + '_content')} SET c0 = CAST(? AS TEXT) WHERE id = ?",
                (text, message_id),
            )


@contextmanager
def adding_to_index(connection: apsw.Connection, index: SearchIndex) -> Iterator[IndexAdder]:
    """Add messages to the index, all in one transaction, which the caller begins and ends."""
    with putting_back(connection) as entries:
        yield IndexAdder(connection, index, entries.put)


def index_new_message(
    connection: apsw.Connection,
    index: SearchIndex,
    messages: TableRows,
    message_id: int,
    up_to_nul: IndexedUpToNul,
) -> None:
    """Index a message under an id that the index has never had."""

    def insert(table: str, new_id: int, text: bytes) -> None:
        connection.execute(
            f"INSERT INTO {quoted(table)}(rowid, content) VALUES (?, CAST(? AS TEXT))",
            (new_id, text),
        )

    with writable_shadow_tables(connection):
        IndexAdder(connection, index, insert).add(messages, message_id, up_to_nul)


def ids_are_reserved(connection: apsw.Connection, highest: int) -> bool:
    """True if Hermes gives each new message a higher id than this one.

    It does if the id was ever in use in this database; in a new database it may not have been. Then
    Hermes would fail to write a message whose id is already in the index.
    """
    found: list[Any] = connection.execute(
        "SELECT 1 FROM sqlite_sequence WHERE name = 'messages' AND seq >= ?", (highest,)
    ).fetchall()
    return bool(found)


def reserve_ids(connection: apsw.Connection, highest: int) -> None:
    """Have Hermes give out only higher numbers from now on, as putting a row back does."""
    if connection.execute("SELECT 1 FROM sqlite_sequence WHERE name = 'messages'").fetchone():
        statement = "UPDATE sqlite_sequence SET seq = MAX(seq, ?) WHERE name = 'messages'"
    else:
        statement = "INSERT INTO sqlite_sequence(name, seq) VALUES ('messages', ?)"
    connection.execute(statement, (highest,))


def find_orphan_entries(
    connection: apsw.Connection, index: SearchIndex, message_ids: Iterable[int]
) -> list[int]:
    """Return which of these ids are in the index although no message has them."""
    return [
        message_id
        for message_id in message_ids
        if any(_has(connection, table, "rowid", message_id) for table in index.tables)
        and not _has(connection, "messages", "id", message_id)
    ]


def _has(connection: apsw.Connection, table: str, column: str, message_id: int) -> bool:
    query = f"SELECT 1 FROM {quoted(table)} WHERE {column} = ?"
    return connection.execute(query, (message_id,)).fetchone() is not None


def remove_orphan_entries(
    connection: apsw.Connection,
    index: SearchIndex,
    message_ids: Iterable[int],
    up_to_nul: IndexedUpToNul,
) -> None:
    """Take out of the index what was put there ahead of rows that never came."""
    for message_id in message_ids:
        if not _has(connection, "messages", "id", message_id):
            remove_from_index(connection, index, [message_id], up_to_nul)


def merge_pages(connection: apsw.Connection, table: str, pages: int) -> bool:
    """Merge so many pages of an index, in a transaction of its caller; False if none were left.

    Deleted messages leave tombstones; only merging gives their pages back.
    """
    before = connection.total_changes()
    connection.execute(
        f"INSERT INTO {quoted(table)}({quoted(table)}, rank) VALUES ('merge', ?)", (pages,)
    )
    return connection.total_changes() - before >= 2  # fewer: FTS5 has merged nothing
