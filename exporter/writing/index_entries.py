"""Put messages back into the text index, so that every release of SQLite keeps the index right.

FTS5, SQLite's text index, stores its entries in segments. An insertion writes an entry into a new
segment. A deletion writes a tombstone into a newer one. When SQLite merges segments, it must know
of each entry whether an older segment may have an entry for the same message. A flag of the entry
says so. Up to SQLite 3.43 a merged entry has the flag of its oldest part, since 3.44 of its newest.

A message that is inserted after its deletion has no flag. Two releases can then damage the index:

1. SQLite 3.44 merges the new entry with the older tombstone. The merged entry has no flag.
2. The message is deleted again.
3. SQLite 3.43 merges that tombstone with the entry. Without a flag nothing seems to be below, so
   the tombstone is dropped.
4. The oldest entries of the message count again, and SQLite calls the index malformed.

Our SQLite may be older than 3.44 and that of Hermes newer, or the other way round. But an entry
that is replaced in one transaction, as by an UPDATE, has the flag from the start, and no order of
merges loses it. So a message is put back as a replacement: its text is written into the table
behind the index, and then replaced by the same text. FTS5 counts this as one message less and one
more, so the counts are corrected afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from exporter.hermes.table_rows import quoted

_TOTALS_ID: Final = 1
"""The row of the data table that says how many messages and words the index has."""
_ROWS_AHEAD: Final = 1 << 24
"""Added to the count of messages until `finish`: FTS5 subtracts, and fails below zero."""
_WORDS_AHEAD: Final = 1 << 40
"""The same for the count of words."""
_FLUSH_BYTES: Final = 64 << 10
"""We flush after this much text. FTS5 flushes by itself at 1 MiB in memory, perhaps between the two
halves of a replacement; this much text takes less memory than that. Only a single message that is
longer may still be divided so.
"""


class PuttingBack:
    """Puts messages into the index within one transaction; see `putting_back`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._unflushed: Counter[str] = Counter()
        self._put: dict[str, list[int]] = {}
        self._before: dict[str, tuple[int, int]] = {}

    def put(self, table: str, message_id: int, text: bytes) -> None:
        """Put one message into the index, which must not have it already."""
        if table not in self._before:
            self._before[table], self._put[table] = self._start(table), []
        if self._unflushed[table] and self._unflushed[table] + len(text) > _FLUSH_BYTES:
            self._flush(table)
        self._unflushed[table] += len(text)
        # First the text behind the index, then its replacement; see the docstring of this module.
        self._connection.execute(
            f"INSERT INTO {quoted(table + '_content')}(id, c0) VALUES (?, CAST(? AS TEXT))",
            (message_id, text),
        )
        self._connection.execute(
            f"REPLACE INTO {quoted(table)}(rowid, content) VALUES (?, CAST(? AS TEXT))",
            (message_id, text),
        )
        self._put[table].append(message_id)

    def finish(self) -> None:
        """Correct the counts of messages and words."""
        for table, message_ids in self._put.items():
            self._flush(table)
            rows, words = self._before[table]
            sizes = quoted(table + "_docsize")
            for message_id in message_ids:
                size = self._connection.execute(
                    f"SELECT sz FROM {sizes} WHERE id = ?", (message_id,)
                ).get
                words += _decoded(size)[0]  # one number for each column, and there is one column
            self._write(table, rows + len(message_ids), words)

    def _start(self, table: str) -> tuple[int, int]:
        """Return the counts, then raise them; see `_ROWS_AHEAD`."""
        self._flush(table)
        block = self._connection.execute(
            f"SELECT block FROM {quoted(table + '_data')} WHERE id = ?", (_TOTALS_ID,)
        ).get
        rows, words = _decoded(block) if block else (0, 0)
        self._write(table, rows + _ROWS_AHEAD, words + _WORDS_AHEAD)
        return rows, words

    def _flush(self, table: str) -> None:
        """Have FTS5 write what it has in memory; then it reads the counts again."""
        self._connection.execute(f"INSERT INTO {quoted(table)}({quoted(table)}) VALUES ('flush')")
        self._unflushed[table] = 0

    def _write(self, table: str, rows: int, words: int) -> None:
        self._connection.execute(
            f"UPDATE {quoted(table + '_data')} SET block = ? WHERE id = ?",
            (_encoded(rows) + _encoded(words), _TOTALS_ID),
        )


@contextmanager
def putting_back(connection: apsw.Connection) -> Iterator[PuttingBack]:
    """Put messages back into the index, in a transaction of the caller.

    If the body fails, the caller must roll back.
    """
    with writable_shadow_tables(connection):
        entries = PuttingBack(connection)
        yield entries
        entries.finish()


@contextmanager
def writable_shadow_tables(connection: apsw.Connection) -> Iterator[None]:
    """Allow writes to the tables behind the index, which SQLite protects otherwise."""
    before = connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    try:
        yield
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, before)


def _decoded(block: bytes) -> tuple[int, ...]:
    """Decode SQLite's varints: big-endian, 7 bits in each byte, 8 bits in a ninth byte."""
    numbers, value, length = [], 0, 0
    for byte in block:
        length += 1
        value = value << 8 | byte if length == 9 else value << 7 | byte & 0x7F
        if length == 9 or not byte & 0x80:
            numbers.append(value)
            value, length = 0, 0
    return tuple(numbers)


def _encoded(number: int) -> bytes:
    """Encode a number below 2**56 as a varint of SQLite."""
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups))
