"""SQLite takes any bytes for text; of a query only the rows that hold other text are left out."""

from __future__ import annotations

from typing import Any

import apsw


def rows_in_utf8(
    connection: apsw.Connection, statement: str, bindings: Any = ()
) -> tuple[list[Any], int]:
    """The rows of a query without those that hold other text, and how many those are."""
    try:
        return connection.execute(statement, bindings).fetchall(), 0
    except UnicodeDecodeError:
        pass
    cursor = connection.execute(statement, bindings)
    rows: list[Any] = []
    left_out = 0
    while True:
        try:
            rows.append(next(cursor))
        except StopIteration:
            return rows, left_out
        except UnicodeDecodeError:
            left_out += 1  # the cursor stands behind that row and goes on
