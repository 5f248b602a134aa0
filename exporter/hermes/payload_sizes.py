"""How many bytes the sessions of a database hold, measured without reading their content.

Deleting sessions shrinks neither state.db nor its used pages. So the payload is measured: the bytes
of the messages. SQLite knows the length of a value from the row header and need not read the value.
Messages never change once written, so each is measured once, by its id. A session is measured again
only if its number of rows has changed.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Final

import apsw
from msgspec import Struct

from exporter.hermes.read_pacing import ReadPacer
from exporter.hermes.schema import Schema
from exporter.hermes.table_rows import quoted
from exporter.hermes.utf8 import rows_in_utf8
from exporter.snapshot import session_key

_ROW_BYTES: Final = 64
"""The bytes that a row takes in addition to its texts."""
_FIRST_BLOCK_ROWS: Final = 1_000
_BLOCK_ROWS: Final = range(100, 20_000)
_NUMBERS: Final = frozenset(
    {"id", "session_id", "timestamp", "token_count", "observed", "active", "compacted"}
)
_ROW_BITS: Final = 24
_ROWS_MAX: Final = (1 << _ROW_BITS) - 1
_BYTES_MAX: Final = (1 << 62 - _ROW_BITS) - 1


class MeasuredSizes(Struct, frozen=True, array_like=True):
    """The measurements, for handing from one process to another."""

    pairs: bytes
    """Pairs of the key of a session and its packed size."""
    measured_up_to: int
    highest: int


class PayloadSizes:
    """The payload of each session of one database, kept from scan to scan.

    A session is stored as one integer: its number of rows, and their bytes. Two sorted arrays hold
    what was known at the last plan, in 16 bytes a session; a dictionary would take 120.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._forget()

    def _forget(self) -> None:
        self._keys = array("q")
        self._sizes = array("q")
        self._newer: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self._measured_up_to = 0
        self._highest = 0
        self._rows = 0
        self._bytes = 0

    def save(self) -> MeasuredSizes:
        pairs = array("q")
        for pair in {**dict(zip(self._keys, self._sizes, strict=True)), **self._newer}.items():
            pairs.extend(pair)
        return MeasuredSizes(pairs.tobytes(), self._measured_up_to, self._highest)

    def load(self, measured: MeasuredSizes) -> None:
        """Replace what is known by the measurements of another process."""
        pairs = array("q", measured.pairs)
        self._asked = dict(zip(pairs[::2], pairs[1::2], strict=True))
        self.forget_others()
        self._measured_up_to, self._highest = measured.measured_up_to, measured.highest

    def measure(self, connection: apsw.Connection, schema: Schema, seconds: float) -> None:
        """Measure new messages for at most this many seconds; the next call measures the rest.

        Each block is a read transaction of its own. So no transaction lasts long, and other
        processes can write in between.
        """
        if not schema.has("messages", "id", "session_id"):
            return
        highest = highest_message(connection, schema)
        if highest < self._highest:
            self._forget()  # another database has replaced the one we measured
        self._highest = highest
        lengths = _lengths(schema)
        until = self._monotonic() + seconds
        pace = ReadPacer(
            connection, first=_FIRST_BLOCK_ROWS, sizes=_BLOCK_ROWS, monotonic=self._monotonic
        )
        while self._measured_up_to < highest:
            last = self._next_block(connection, highest, pace.size)
            rows, _ = rows_in_utf8(
                connection,
                # NOT INDEXED reads in the order of the rows, so that each page is read once.
                f"SELECT CAST(session_id AS TEXT), COUNT(*), SUM({lengths}) "
                "FROM messages NOT INDEXED WHERE id > ? AND id <= ? GROUP BY session_id",
                (self._measured_up_to, last),
            )
            for session_id, count, size in rows:
                self._add(session_id, count, int(size or 0))
            self._measured_up_to = last
            if connection.in_transaction:
                pace.end()
                pace.begin()
            if self._monotonic() >= until:
                return

    def _next_block(self, connection: apsw.Connection, highest: int, rows: int) -> int:
        """Return the last id of a block.

        A block is a number of rows, because ids may have large gaps.
        """
        found = connection.execute(
            "SELECT id FROM messages NOT INDEXED WHERE id > ? ORDER BY id LIMIT 1 OFFSET ?",
            (self._measured_up_to, rows - 1),
        ).fetchone()
        return int(found[0]) if found is not None else highest

    def _add(self, session_id: str, count: int, size: int) -> None:
        key = session_key(session_id)
        rows, known = _unpack(self._known(key))
        self._newer[key] = _pack(rows + count, known + size)
        self._rows += count
        self._bytes += size

    def _known(self, key: int) -> int:
        """Return what is known of a session, packed; 0 if nothing is."""
        newer = self._newer.get(key)
        if newer is not None:
            return newer
        index = bisect_left(self._keys, key)
        is_there = index < len(self._keys) and self._keys[index] == key
        return self._sizes[index] if is_there else 0

    def of(self, connection: apsw.Connection, schema: Schema, session_id: str, rows: int) -> int:
        """Return the payload of a session that has this many rows.

        If the number of rows differs from what was measured, the session is measured again. Until
        everything has been measured once, rows not measured yet count with the mean size of all
        others.
        """
        key = session_key(session_id)
        packed = self._known(key)
        known, size = _unpack(packed)
        finished = self._measured_up_to >= self._highest
        if known != rows and rows <= _ROWS_MAX and (finished or known > rows):
            known, size = _measured(connection, schema, session_id)
            packed = _pack(known, size)
        self._asked[key] = packed
        return size + max(0, rows - known) * self.mean_bytes

    def forget_others(self) -> None:
        """Forget every session that `of` was not asked for.

        Call it after asking for all sessions.
        """
        self._keys = array("q", sorted(key for key, packed in self._asked.items() if packed))
        self._sizes = array("q", map(self._asked.__getitem__, self._keys))
        self._newer, self._asked = {}, {}
        self._rows = self._bytes = 0
        for packed in self._sizes:
            known, size = _unpack(packed)
            self._rows += known
            self._bytes += size

    @property
    def mean_bytes(self) -> int:
        return self._bytes // self._rows if self._rows else _ROW_BYTES


def _measured(connection: apsw.Connection, schema: Schema, session_id: str) -> tuple[int, int]:
    if not schema.has("messages", "id", "session_id"):
        return 0, 0
    found: Any = connection.execute(
        f"SELECT COUNT(*), SUM({_lengths(schema)}) FROM messages WHERE session_id = ?",
        (session_id,),
    ).fetchone()
    return int(found[0]), int(found[1] or 0)


def highest_message(connection: apsw.Connection, schema: Schema) -> int:
    """Return the id of the last message ever written; deleting messages does not lower it."""
    if not schema.has("messages", "id"):
        return 0
    highest: Any = connection.execute("SELECT MAX(id) FROM messages").get
    try:
        ever: Any = connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'messages'"
        ).get
    except apsw.SQLError:
        ever = 0  # the table has no AUTOINCREMENT
    return max((each for each in (highest, ever) if isinstance(each, int)), default=0)


def _lengths(schema: Schema) -> str:
    """Return SQL for the bytes of all texts of a message; SQLite does not read the texts for it."""
    texts = sorted(schema.columns["messages"] - _NUMBERS)
    return " + ".join(
        [str(_ROW_BYTES), *(f"COALESCE(octet_length({quoted(t)}), 0)" for t in texts)]
    )


def session_lengths(schema: Schema) -> str:
    """Return SQL for the bytes of the texts of a `sessions` row; most are the system prompt."""
    texts = schema.columns["sessions"] & {"system_prompt", "model_config", "title", "origin_json"}
    return " + ".join([str(_ROW_BYTES), *(_length(text) for text in sorted(texts))])


def _length(column: str) -> str:
    return f"COALESCE(octet_length({column}), 0)"


def _pack(rows: int, size: int) -> int:
    return min(size, _BYTES_MAX) << _ROW_BITS | min(rows, _ROWS_MAX)


def _unpack(packed: int) -> tuple[int, int]:
    return packed & _ROWS_MAX, packed >> _ROW_BITS
