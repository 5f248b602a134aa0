"""The queries over Hermes's sessions, for any set of columns.

A scan reads `sessions` only once: `system_prompt` is stored before most columns, so SQLite must
read the overflow pages of each row. The scan reads in slices, in the order of ids. So no read
transaction lasts long, and only one slice is in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Annotated, Any, Final, NamedTuple

import apsw
import msgspec

from exporter.hermes.message_queries import BETWEEN, NO_MESSAGES, MessageQueries, MessageStats
from exporter.hermes.odd_rows import (
    CLOCK_MAX,
    COST_COLUMNS,
    COUNT_MAX,
    FIT_ID,
    HANDED_OFF,
    ID_CHARACTERS,
    MONEY_MAX,
    NO_NUL,
    TOKEN_COLUMNS,
    WORD_CHARACTERS,
    decoded,
    is_emptied,
    session_expressions,
    usage_expressions,
)
from exporter.hermes.schema import Schema
from exporter.hermes.subagents import is_unmarked_subagent
from exporter.hermes.utf8 import rows_in_utf8
from exporter.snapshot import ModelUsage

_MODELS_PER_SESSION: Final = 32
_Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
_Money = Annotated[float, msgspec.Meta(ge=0.0, le=MONEY_MAX)]
_Clock = Annotated[float, msgspec.Meta(gt=0.0, le=CLOCK_MAX)] | None


class SessionRow(NamedTuple):
    """One row of `sessions`; a time that is not valid is None."""

    id: str
    source: str
    started_at: _Clock
    ended_at: _Clock
    is_open: int
    end_reason: str
    tool_calls: _Count
    api_calls: _Count
    model: str
    input: _Count
    output: _Count
    cache_read: _Count
    cache_write: _Count
    reasoning: _Count
    estimated_usd: _Money
    actual_usd: _Money
    last_activity_at: _Clock
    last_heartbeat_at: _Clock
    parent_id: str | None
    handoff_state: str
    pinned: _Count
    emptied: int = 0
    """1 if a prune has emptied it: the row stays for processes that may have it in memory."""
    is_subagent: int = 0
    """1 if it is open and certainly a subagent, although its source does not say so."""
    intact: int = 1
    """0 if Hermes cannot have written the row: text is not UTF-8, or a value has another type."""


_TOOL_CALLS: Final = SessionRow._fields.index("tool_calls")
_MODEL: Final = SessionRow._fields.index("model")
_FIRST_TOKENS: Final = SessionRow._fields.index("input")
_AFTER_COSTS: Final = SessionRow._fields.index("actual_usd") + 1
_TEXTS: Final = {
    SessionRow._fields.index(name): ID_CHARACTERS if "id" in name else WORD_CHARACTERS
    for name in ("id", "source", "end_reason", "model", "parent_id", "handoff_state")
}
_usage_fields = itemgetter(SessionRow._fields.index("source"), *range(_TOOL_CALLS, _AFTER_COSTS))


UsageRow = tuple[str, str, int, _Count, _Count, _Count, _Count, _Count, _Money, _Money]
"""A row of session_model_usage: session, model, 1 for the main loop, tokens, costs."""


_USAGE_TEXTS: Final = {0: ID_CHARACTERS, 1: WORD_CHARACTERS}


class SessionRecord(NamedTuple):
    """One session with the data of all tables."""

    row: SessionRow
    messages: MessageStats
    usage: Sequence[UsageRow]

    @property
    def is_emptied(self) -> bool:
        """True if a prune has emptied it, and Hermes has not continued it."""
        row, messages, _ = self
        is_used = row.is_open or messages.rows or row.handoff_state in HANDED_OFF
        return bool(row.emptied and not is_used)

    def used_anything(self) -> bool:
        row, messages, usage = self
        return bool(
            messages.rows
            or usage
            or any(row[_TOOL_CALLS:_MODEL])
            or any(row[_FIRST_TOKENS:_AFTER_COSTS])
        )


def fingerprints(records: Sequence[SessionRecord]) -> Iterator[int]:
    """Yield 32 bits for each session. They change when the session's usage changes."""
    for row, messages, usage in records:
        yield hash((_usage_fields(row), messages[:2], *usage)) & 0xFFFFFFFF


class Page(NamedTuple):
    """Consecutive rows of `sessions`."""

    rows: list[SessionRow]
    extras: list[Sequence[Any]]
    """The further columns of each row that the caller asked for."""
    last: str | bytes | None
    """The id to continue after, bytes if it is not UTF-8; None if there was no row."""
    left_out: int
    """The number of rows whose id is not UTF-8."""


class Slice(NamedTuple):
    """Like a page, with the data of the other tables."""

    records: list[SessionRecord]
    last: str | bytes | None
    left_out: int


_FIELDS: Final = len(SessionRow._fields)


def _repaired(found: Sequence[Sequence[Any]]) -> Page:
    """Return a page of rows, repaired, because Hermes cannot have written some of them."""
    page = Page([], [], found[-1][0] if found else None, 0)
    for values in found:
        fields, whole = decoded(values[:_FIELDS], _TEXTS)
        row = SessionRow._make(fields)
        if row.id.encode() == values[0]:  # else it would be taken for another session
            page.rows.append(row if whole else row._replace(intact=0))
            page.extras.append(values[_FIELDS:])
    return page._replace(left_out=len(found) - len(page.rows))


_IN_IDS: Final = "IN (SELECT value FROM json_each(:ids))"
_SESSION_IN_IDS: Final = f"session_id {_IN_IDS}"


class SessionQueries:
    """SQL for one schema."""

    def __init__(self, schema: Schema, *, with_usage: bool = True) -> None:
        """Without usage, `session_model_usage` is not read."""
        self.schema = schema
        self._odd_columns = ", ".join(session_expressions(schema))
        self._plain_columns = ", ".join(_plain_expressions(schema))
        self.messages = MessageQueries(schema)
        self._has_usage = with_usage and schema.has(
            "session_model_usage", "session_id", "model", *TOKEN_COLUMNS
        )
        self._odd_usage_columns = ", ".join(usage_expressions(schema))
        self._plain_usage_columns = ", ".join(_plain_usage_expressions(schema))

    def slice(
        self, connection: apsw.Connection, after: str | bytes | None, limit: int, watermark: int
    ) -> Slice:
        """Return the next sessions after an id, in the order of ids; `last` is None at the end."""
        page = self.rows_after(connection, after, limit)
        records = self.with_messages(connection, page.rows, watermark)
        return Slice(records, page.last, page.left_out)

    def with_messages(
        self, connection: apsw.Connection, rows: Sequence[SessionRow], watermark: int
    ) -> list[SessionRecord]:
        """Return consecutive rows, in the order of ids, with the data of the other tables."""
        if not rows:
            return []
        bounds = {"first": rows[0].id, "last": rows[-1].id}
        stats = self.messages.stats_between(connection, bounds, watermark)
        return _records(rows, stats, self._usage(connection, BETWEEN, bounds))

    def records(
        self, connection: apsw.Connection, session_ids: Sequence[str], watermark: int
    ) -> list[SessionRecord]:
        """Return those of these sessions that exist."""
        bindings = {"ids": json.dumps(list(session_ids))}
        rows = self._session_rows(connection, f"WHERE id {_IN_IDS} AND {FIT_ID}", bindings).rows
        stats = self.messages.stats_of(connection, bindings, watermark)
        return _records(rows, stats, self._usage(connection, _SESSION_IN_IDS, bindings))

    def rows_after(
        self, connection: apsw.Connection, after: str | bytes | None, limit: int, extra: str = ""
    ) -> Page:
        """Return rows in the order of ids, with further columns that are numbers."""
        which = (
            f"WHERE {FIT_ID} {'' if after is None else 'AND id > CAST(:after AS TEXT)'} "
            "ORDER BY sessions.id LIMIT :limit"
        )
        return self._session_rows(connection, which, {"after": after, "limit": limit}, extra)

    def _session_rows(
        self, connection: apsw.Connection, which: str, bindings: dict[str, Any], extra: str = ""
    ) -> Page:
        """Return rows of `sessions`, repaired if Hermes cannot have written one of them."""
        statement = f"SELECT {{}}{extra and ', '}{extra} FROM sessions {which}"
        try:
            found: list[Any] = connection.execute(
                statement.format(self._plain_columns), bindings
            ).fetchall()
            plain = [values[:_FIELDS] for values in found] if extra else found
            rows = msgspec.convert(plain, list[SessionRow])
        except (msgspec.ValidationError, UnicodeDecodeError):
            # One odd value fails the whole page, so read the page again with the tolerant SQL.
            found = connection.execute(statement.format(self._odd_columns), bindings).fetchall()
            return _repaired(found)
        last = rows[-1].id if rows else None
        return Page(rows, [values[_FIELDS:] for values in found], last, 0)

    def _usage(
        self, connection: apsw.Connection, which: str, bindings: dict[str, Any]
    ) -> Mapping[str, Sequence[UsageRow]]:
        usage: dict[str, list[UsageRow]] = {}
        if self._has_usage:
            for found in self._usage_rows(connection, which, bindings):
                usage.setdefault(found[0], []).append(found)
        return usage

    def _usage_rows(
        self, connection: apsw.Connection, which: str, bindings: dict[str, Any]
    ) -> list[UsageRow]:
        """Return usage rows, repaired if Hermes cannot have written one of them."""
        own = f"{which} AND {NO_NUL.format('session_id')}"
        rest = f"FROM session_model_usage WHERE {own} ORDER BY session_id"
        try:
            found = connection.execute(f"SELECT {self._plain_usage_columns} {rest}", bindings)
            return msgspec.convert(found.fetchall(), list[UsageRow])
        except (msgspec.ValidationError, UnicodeDecodeError):
            statement = f"SELECT {self._odd_usage_columns} {rest}"
            odd: list[Any] = connection.execute(statement, bindings).fetchall()
            return [tuple(decoded(values, _USAGE_TEXTS)[0]) for values in odd]

    def count(self, connection: apsw.Connection) -> int:
        return int(connection.execute("SELECT COUNT(*) FROM sessions").get)

    def highest_rowid(self, connection: apsw.Connection) -> int:
        return int(connection.execute("SELECT COALESCE(MAX(rowid), 0) FROM sessions").get)

    def sessions_begun_since(self, connection: apsw.Connection, rowid: int) -> list[str]:
        """Return the sessions with a higher rowid, including those without a message yet."""
        rows, _ = rows_in_utf8(
            connection, f"SELECT id FROM sessions WHERE rowid > ? AND {FIT_ID}", (rowid,)
        )
        return [session_id for (session_id,) in rows]

    def unfit_ids(self, connection: apsw.Connection) -> int:
        """Return the number of rows that are skipped because of their id.

        Such an id is not text, is too long, or has a NUL in it.
        """
        return int(connection.execute(f"SELECT COUNT(*) FROM sessions WHERE NOT ({FIT_ID})").get)


def _records(
    rows: Sequence[SessionRow],
    stats: Mapping[str, MessageStats],
    usage: Mapping[str, Sequence[UsageRow]],
) -> list[SessionRecord]:
    """Return the rows with the data that other tables hold of their sessions."""
    ids = [row.id for row in rows]
    messages = map(stats.get, ids, repeat(NO_MESSAGES))
    return list(map(SessionRecord, rows, messages, map(usage.get, ids, repeat(()))))


def _plain_expressions(schema: Schema) -> list[str]:
    """Return SQL for the fields of `SessionRow`, for rows of which Hermes wrote every value.

    Only NULL needs a default. The values are checked after reading. Only texts are cut in SQL,
    because they might be too long to read.
    """

    def known(column: str, missing: str = "NULL") -> str:
        return schema.expression("sessions", column, missing)

    def text(column: str) -> str:
        return f"COALESCE(substr({column}, 1, {WORD_CHARACTERS}), '')"

    def number(column: str) -> str:
        return f"COALESCE({known(column)}, 0)"

    return [
        "id",
        text("source"),
        "started_at",
        "ended_at",
        "ended_at IS NULL",
        text(known("end_reason")),
        number("tool_call_count"),
        number("api_call_count"),
        text(known("model")),
        *map(number, TOKEN_COLUMNS),
        *map(number, COST_COLUMNS),
        known("last_activity_at"),
        known("last_heartbeat_at"),
        f"substr({known('parent_session_id')}, 1, {ID_CHARACTERS})",
        text(known("handoff_state")),
        number("pinned"),
        is_emptied(schema),
        is_unmarked_subagent(schema),
        "1",
    ]


def _plain_usage_expressions(schema: Schema) -> list[str]:
    task = schema.expression("session_model_usage", "task", "''")
    costs = (schema.expression("session_model_usage", column, "0") for column in COST_COLUMNS)
    return [
        f"substr(session_id, 1, {ID_CHARACTERS})",
        f"COALESCE(substr(model, 1, {WORD_CHARACTERS}), '')",
        f"{task} IS ''",
        *(f"COALESCE({column}, 0)" for column in (*TOKEN_COLUMNS, *costs)),
    ]


def models_of(record: SessionRecord) -> list[ModelUsage]:
    """Return tokens and cost by model; what no usage row explains goes to the session's model.

    Hermes up to 0.18 has only the session's row. From 0.19 on, `session_model_usage` splits it by
    model. That table has auxiliary calls (vision, titles) that the row does not have, and lacks
    values that Hermes set as absolute numbers.
    """
    row, _, usage = record
    if not usage and not any(row[_FIRST_TOKENS:_AFTER_COSTS]):
        return []
    if len(usage) == 1 and usage[0][2:] == (1, *row[_FIRST_TOKENS:_AFTER_COSTS]):
        return [ModelUsage(usage[0][1], *usage[0][3:])]
    tokens = len(TOKEN_COLUMNS)
    kinds = tokens + len(COST_COLUMNS)
    totals: dict[str, list[float]] = {}
    left: list[Any] = list(row[_FIRST_TOKENS:_AFTER_COSTS])
    for _, model, is_main_loop, *values in usage:
        total = totals.setdefault(model, [0] * kinds)
        for index, value in enumerate(values):
            total[index] += value
            if is_main_loop:
                left[index] -= value
    residual = [value if value > 1e-9 else 0 for value in left]
    if any(residual):
        total = totals.setdefault(row.model, [0] * kinds)
        for index, value in enumerate(residual):
            total[index] += value
    return [
        ModelUsage(
            model,
            *(min(int(value), COUNT_MAX) for value in values[:tokens]),
            *(min(float(value), MONEY_MAX) for value in values[tokens:]),
        )
        for model, values in list(totals.items())[:_MODELS_PER_SESSION]
        if any(values)
    ]
