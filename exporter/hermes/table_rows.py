"""Rows of any table exactly as they are stored, so that they can be put back as they were.

SQLite keeps any type in any column, and text that is no UTF-8. All of that comes out and goes back
in unchanged, with the row ids; what cannot be a Python string is carried as `RAW_TEXT`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

import apsw
from msgspec import Struct
from msgspec.msgpack import Ext

RAW_TEXT: Final = 1
"""The code of text that is not valid UTF-8, as its bytes."""


class TableRows(Struct, frozen=True, array_like=True):
    """Some rows of one table."""

    columns: tuple[str, ...]
    """With a row id first where the table has one that is not a column."""
    rows: list[tuple[Any, ...]]

    def named(self, row: int) -> dict[str, Any]:
        """One row by the names of its columns, without the row id."""
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
    """The columns of a table in their order, with the row id where that is not one of them."""
    found = connection.execute(
        "SELECT name, type, pk FROM pragma_table_info(?)", (table,)
    ).fetchall()
    names = tuple(str(name) for name, _, _ in found)
    keys = [str(kind).upper() for _, kind, key in found if key]
    without = connection.execute(
        "SELECT wr FROM pragma_table_list WHERE name = ? AND schema = 'main'", (table,)
    ).get
    if without or keys == ["INTEGER"]:
        return names
    return (ROWID, *names)


def read_rows(
    connection: apsw.Connection, table: str, columns: Sequence[str], condition: str, value: Any
) -> TableRows:
    """The rows for which a condition with one bound value holds, in the order of their ids."""
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
            # The order of the source is by its first column: the id, not its type.
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
    """Put back rows; raise apsw.ConstraintError if something stands where one stood.

    With `present_wins` that stays, and the row is left out.
    """
    verb = "INSERT OR IGNORE" if present_wins else "INSERT"
    insert = f"{verb} INTO {quoted(table)} ({', '.join(map(quoted, columns))})"
    plain = f"{insert} VALUES ({', '.join('?' * len(columns))})"
    for is_plain, some in groupby(rows, _is_plain):
        if is_plain:
            connection.executemany(plain, some)
            continue
        for row in some:
            marks = ", ".join(map(placeholder, row))
            connection.execute(f"{insert} VALUES ({marks})", [parameter(value) for value in row])


def _is_plain(row: Sequence[Any]) -> bool:
    return not any(isinstance(value, Ext) for value in row)


def placeholder(value: Any) -> str:
    """What stands for a value in a statement."""
    return "CAST(? AS TEXT)" if isinstance(value, Ext) else "?"


def parameter(value: Any) -> Any:
    """What is bound for it."""
    return value.data if isinstance(value, Ext) else value


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
