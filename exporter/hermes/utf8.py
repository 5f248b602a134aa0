"""Run a query and skip rows with text that is not UTF-8; SQLite stores any bytes as text."""

from __future__ import annotations

from typing import Any

import apsw


def rows_in_utf8(
    connection: apsw.Connection, statement: str, bindings: Any = ()
) -> tuple[list[Any], int]:
    """Return the rows of a query whose text is UTF-8, and the number of the other rows."""
    try:
        return connection.execute(statement, bindings).fetchall(), 0
    except UnicodeDecodeError:
        pass
    # Read again row by row, to skip only the bad rows.
    cursor = connection.execute(statement, bindings)
    rows: list[Any] = []
    left_out = 0
    while True:
        try:
            rows.append(next(cursor))
        except StopIteration:
            return rows, left_out
        except UnicodeDecodeError:
            left_out += 1  # the cursor is already behind that row and goes on
