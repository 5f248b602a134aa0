"""The table of figures in the state store that the host page draws as trends."""

from __future__ import annotations

from typing import Any, Final

import apsw

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS trends (
    home INTEGER NOT NULL REFERENCES homes(id), at INTEGER NOT NULL, figures BLOB NOT NULL,
    PRIMARY KEY (home, at)
) WITHOUT ROWID;
"""
"""Outside the versioned tables: an older agent works without it."""


def keep(connection: apsw.Connection, path: str, at: int, figures: bytes, oldest: int) -> None:
    """Store the figures of one moment; keep only those between `oldest` and this moment."""
    connection.execute(
        "DELETE FROM trends WHERE home = (SELECT id FROM homes WHERE path = ?) "
        "AND at NOT BETWEEN ? AND ?",
        (path, oldest, at),
    )
    connection.execute(
        "INSERT OR REPLACE INTO trends SELECT id, ?, ? FROM homes WHERE path = ?",
        (at, figures, path),
    )


def read(connection: apsw.Connection, path: str) -> list[tuple[int, bytes]]:
    rows: list[Any] = connection.execute(
        "SELECT at, figures FROM trends JOIN homes ON homes.id = trends.home "
        "WHERE path = ? ORDER BY at",
        (path,),
    ).fetchall()
    return rows
