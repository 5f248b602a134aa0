"""Rows with text that is not UTF-8 are left out and counted; the rows around them are not."""

from __future__ import annotations

import apsw
import pytest

from exporter.hermes.utf8 import rows_in_utf8

BAD = "CAST(x'ff' AS TEXT)"


@pytest.mark.parametrize(
    ("values", "rows", "left_out"),
    [
        ("('a'), ('b')", [("a",), ("b",)], 0),
        (f"({BAD}), ('b')", [("b",)], 1),
        (f"('a'), ({BAD}), ('c'), ({BAD}), ('e')", [("a",), ("c",), ("e",)], 2),
        (f"('a'), ({BAD})", [("a",)], 1),
        (f"({BAD})", [], 1),
    ],
)
def test_only_the_bad_rows_are_left_out(values: str, rows: list[tuple[str]], left_out: int) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(f"CREATE TABLE t (text); INSERT INTO t VALUES {values}")
    assert rows_in_utf8(connection, "SELECT text FROM t ORDER BY rowid") == (rows, left_out)
    none = rows_in_utf8(connection, "SELECT text FROM t WHERE rowid > ?", (99,))
    assert none == ([], 0)
