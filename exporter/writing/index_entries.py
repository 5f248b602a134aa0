"""Putting messages into the text index again, so that every release of SQLite keeps them right.

FTS5 writes an entry of the index in a new segment, and a deletion as a tombstone in a newer one.
Merging segments, SQLite must know of each entry whether an older segment may have one for the same
message. It keeps a flag for that:

- Up to 3.43 a merged entry takes the flag of the oldest entry in it, since 3.44 that of the newest.
- A message that is inserted over its tombstone has no flag. If 3.44 merges the two, the flag is
  lost. If the message is deleted again and 3.43 merges that tombstone, nothing seems to be below,
  and it is dropped. The entries of the first time are back, and SQLite calls the index malformed.

Our SQLite and Hermes's may be on both sides of 3.44. An entry that is replaced in one transaction,
as by an UPDATE, has the flag from the start, and no order of merges loses it. So what is put back
is written as a replacement: its text is laid into the table behind the index, and is then replaced
by itself. FTS5 counts that as one message less and one more; the counts are corrected afterwards.
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
_WORDS_AHEAD: Final = 1 << 40
_FLUSH_BYTES: Final = 64 << 10
"""FTS5 flushes by itself at 1 MiB in memory, perhaps between the two halves of a replacement. This
much text stays below. One message that is longer than this may still be divided so."""


class PuttingBack:
    """Puts messages into the index within one transaction; see `putting_back`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._unflushed: Counter[str] = Counter()
        self._put: dict[str, list[int]] = {}
        self._before: dict[str, tuple[int, int]] = {}

    def put(self, table: str, message_id: int, text: bytes) -> None:
        """Put one message, which the index must not have, into it."""
        if table not in self._before:
            self._before[table], self._put[table] = self._start(table), []
        if self._unflushed[table] and self._unflushed[table] + len(text) > _FLUSH_BYTES:
            self._flush(table)
        self._unflushed[table] += len(text)
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
                words += _decoded(size)[0]
            self._write(table, rows + len(message_ids), words)

    def _start(self, table: str) -> tuple[int, int]:
        """Return the counts, and raise them: FTS5 lets none of them fall below zero."""
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
    """Put messages into the index again, in a transaction of the caller.

    If the body fails, the caller must roll back.
    """
    with writable_shadow_tables(connection):
        entries = PuttingBack(connection)
        yield entries
        entries.finish()


@contextmanager
def writable_shadow_tables(connection: apsw.Connection) -> Iterator[None]:
    """Allow writes to the tables behind the index meanwhile."""
    before = connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, -1)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    try:
        yield
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, before)


def _decoded(block: bytes) -> tuple[int, ...]:
    """Return the numbers in SQLite's format: big-endian, 7 bits a byte, a ninth byte has 8."""
    numbers, value, length = [], 0, 0
    for byte in block:
        length += 1
        value = value << 8 | byte if length == 9 else value << 7 | byte & 0x7F
        if length == 9 or not byte & 0x80:
            numbers.append(value)
            value, length = 0, 0
    return tuple(numbers)


def _encoded(number: int) -> bytes:
    """Return a number below 2**56 in SQLite's format."""
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups))
