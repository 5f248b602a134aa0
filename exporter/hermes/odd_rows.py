"""Read rows that Hermes cannot have written: SQLite stores any type and any bytes in any column.

One such row must not break the reading of the others. The SQL here keeps each value within the
type, the length and the range that the rest of the program relies on. Text is read as bytes,
because one value that is not UTF-8 would otherwise fail the whole query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from exporter.hermes.schema import Schema

ID_CHARACTERS: Final = 512
ID_BYTES: Final = 4 * ID_CHARACTERS
WORD_CHARACTERS: Final = 128
COUNT_MAX: Final = 2**53 - 1
CLOCK_MAX: Final = 1e11
MONEY_MAX: Final = 1e12
TOKEN_COLUMNS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)
COST_COLUMNS: Final = ("estimated_cost_usd", "actual_cost_usd")
EMPTIED: Final = 2
"""What `archived` is in a row that a prune has emptied. Hermes hides every row with another value
than 0, and itself writes only 0 and 1: so ours is never taken for a person's, nor theirs for ours.
"""

HANDED_OFF: Final = ("pending", "running")
"""`handoff_state` of a session that a handoff will return to; other states are results."""

NO_NUL: Final = "NOT instr({}, char(0))"
"""SQL: length() and substr() stop at a NUL, so the session would be taken for another one."""

FIT_ID: Final = (
    f"typeof(id) = 'text' AND octet_length(id) <= {ID_BYTES} AND length(id) <= {ID_CHARACTERS} "
    f"AND {NO_NUL.format('id')}"
)
"""SQL: True if the id of a `sessions` row can identify its session. UTF-8 is not checked here."""


def is_emptied(schema: Schema) -> str:
    """Return SQL: True if a prune has emptied the row and left it there."""
    return f"{schema.expression('sessions', 'archived', '0')} IS {EMPTIED}"


def is_handed_off(schema: Schema) -> str:
    """Return SQL: True if a handoff will return to the session."""
    states = ", ".join(f"'{each}'" for each in HANDED_OFF)
    return f"COALESCE({schema.expression('sessions', 'handoff_state', 'NULL')}, '') IN ({states})"


def session_expressions(schema: Schema) -> list[str]:
    """Return SQL for the fields of a SessionRow, text as bytes.

    The last field is True if all names have their type.
    """

    def known(column: str, missing: str = "NULL") -> str:
        return schema.expression("sessions", column, missing)

    names = [known(name) for name in ("end_reason", "parent_session_id", "handoff_state")]
    return [
        "CAST(id AS BLOB)",
        _word("source"),
        _clock("started_at"),
        _clock("ended_at"),
        "ended_at IS NULL",
        _word(known("end_reason")),
        _count(known("tool_call_count", "0")),
        _count(known("api_call_count", "0")),
        _word(known("model")),
        *(_count(known(column, "0")) for column in TOKEN_COLUMNS),
        *(_money(known(column, "0")) for column in COST_COLUMNS),
        _clock(known("last_activity_at")),
        _clock(known("last_heartbeat_at")),
        _bytes(known("parent_session_id"), ID_BYTES),
        _word(known("handoff_state")),
        f"COALESCE({known('pinned', '0')}, 0) IS NOT 0",
        is_emptied(schema),
        "0",  # such a row is protected, whatever it is
        " AND ".join(f"typeof({name}) IN ('text', 'null')" for name in ("source", *names)),
    ]


def usage_expressions(schema: Schema) -> list[str]:
    """Return SQL for the fields of a UsageRow, text as bytes."""

    def known(column: str) -> str:
        return schema.expression("session_model_usage", column, "0")

    return [
        _bytes("session_id", ID_BYTES),
        _word("model"),
        f"{schema.expression('session_model_usage', 'task', chr(39) * 2)} IS ''",
        *(_count(known(column)) for column in TOKEN_COLUMNS),
        *(_money(known(column)) for column in COST_COLUMNS),
    ]


def decoded(values: Sequence[Any], lengths: Mapping[int, int]) -> tuple[list[Any], bool]:
    """Return a row with bytes decoded to text, and True if all of it was UTF-8.

    `lengths` maps each text column's index to the number of characters to keep.
    """
    row = list(values)
    whole = True
    for index, length in lengths.items():
        if row[index] is not None:
            text = row[index].decode(errors="replace")
            whole = whole and text.encode() == row[index]
            row[index] = text[:length]
    return row, whole


def _bytes(column: str, length: int) -> str:
    return f"CASE WHEN {column} IS NOT NULL THEN substr(CAST({column} AS BLOB), 1, {length}) END"


def _word(column: str) -> str:
    return f"COALESCE({_bytes(column, 4 * WORD_CHARACTERS)}, x'')"


def _count(column: str) -> str:
    return f"MIN(MAX(CAST(COALESCE({column}, 0) AS INTEGER), 0), {COUNT_MAX})"


def _money(column: str) -> str:
    return f"MIN(MAX(CAST(COALESCE({column}, 0) AS REAL), 0.0), {MONEY_MAX})"


def _clock(column: str) -> str:
    """Return SQL for a time in the valid range of clocks; other values become NULL, not 0."""
    return (
        f"CASE WHEN typeof({column}) IN ('real', 'integer') "
        f"AND {column} > 0 AND {column} <= {CLOCK_MAX} THEN {column} END"
    )
