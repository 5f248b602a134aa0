"""Rows of any table exactly as they are stored, so that they can be restored unchanged.

SQLite stores any type in any column, and text that is not UTF-8. This module reads and writes all
of that unchanged, row ids included. Text that is not UTF-8 becomes an `Ext` with code `RAW_TEXT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

import apsw
from msgspec import Struct
from msgspec.msgpack import Ext

RAW_TEXT: Final = 1
"""The msgpack extension code of such text; the data are the raw bytes."""


class TableRows(Struct, frozen=True, array_like=True):
    """Some rows of one table."""

    columns: tuple[str, ...]
    """The row id comes first if the table has one that is not a column."""
    rows: list[tuple[Any, ...]]

    def as_dict(self, row: int) -> dict[str, Any]:
        """Return one row as a dict by column name, without the row id."""
        return {
            name: value
            for name, value in zip(self.columns, self.rows[row], strict=True)
            if name != ROWID
        }

    def column(self, name: str) -> list[Any]:
        index = self.columns.index(name)
        return [row[index] for row in self.rows]


ROWID: Final = "rowid"


def columns_of(connection: apsw.Connection, table: str) -> tuple[str, ...]:
    """Return the columns of a table in order; the row id comes first if no column holds it."""
    found = connection.execute(
        "SELECT name, type, pk FROM pragma_table_info(?)", (table,)
    ).fetchall()
    names = tuple(str(name) for name, _, _ in found)
    keys = [str(kind).upper() for _, kind, key in found if key]
    without_rowid = connection.execute(
        "SELECT wr FROM pragma_table_list WHERE name = ? AND schema = 'main'", (table,)
    ).get
    if without_rowid or keys == ["INTEGER"]:
        return names
    return (ROWID, *names)


def read_rows(
    connection: apsw.Connection, table: str, columns: Sequence[str], condition: str, value: Any
) -> TableRows:
    """Return the rows that match a condition with one bound value, in the order of their ids."""
    listed = ", ".join(map(quoted, columns))
    source = f"FROM {quoted(table)} WHERE {condition} ORDER BY 1"
    try:
        rows = connection.execute(f"SELECT {listed} {source}", (value,)).fetchall()
    except UnicodeDecodeError:
        rows = _read_raw(connection, columns, source, value)
    return TableRows(tuple(columns), rows)


def _read_raw(
    connection: apsw.Connection, columns: Sequence[str], source: str, value: Any
) -> list[tuple[Any, ...]]:
    kinds = ", ".join(f"typeof({quoted(name)})" for name in columns)
    values = ", ".join(
        f"CASE typeof({quoted(name)}) WHEN 'text' THEN CAST({quoted(name)} AS BLOB) "
        f"ELSE {quoted(name)} END"
        for name in columns
    )
    width = len(columns)
    return [
        tuple(
            _value(str(kind), found) for kind, found in zip(row[:width], row[width:], strict=True)
        )
        for row in connection.execute(
            # Sort by the first value (the id), not by the first type.
            f"SELECT {kinds}, {values} {source}".replace("ORDER BY 1", f"ORDER BY {width + 1}"),
            (value,),
        ).fetchall()
    ]


def _value(kind: str, found: Any) -> Any:
    if kind != "text":
        return found
    try:
        return found.decode()
    except UnicodeDecodeError:
        return Ext(RAW_TEXT, found)


def insert_rows(
    connection: apsw.Connection,
    table: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    present_wins: bool = False,
) -> None:
    """Insert rows again; raise apsw.ConstraintError if a present row has the key of one of them.

    With `present_wins` the present row stays and ours is skipped.
    """
    verb = "INSERT OR IGNORE" if present_wins else "INSERT"
    insert = f"{verb} INTO {quoted(table)} ({', '.join(map(quoted, columns))})"
    plain = f"{insert} VALUES ({', '.join('?' * len(columns))})"
    for is_plain, group in groupby(rows, _is_plain):
        if is_plain:
            connection.executemany(plain, group)
            continue
        for row in group:
            marks = ", ".join(map(placeholder, row))
            connection.execute(f"{insert} VALUES ({marks})", [parameter(value) for value in row])


def _is_plain(row: Sequence[Any]) -> bool:
    return not any(isinstance(value, Ext) for value in row)


def placeholder(value: Any) -> str:
    """Return the SQL placeholder for a value."""
    return "CAST(? AS TEXT)" if isinstance(value, Ext) else "?"


def parameter(value: Any) -> Any:
    """Return the value to bind to that placeholder."""
    return value.data if isinstance(value, Ext) else value


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
