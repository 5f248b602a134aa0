"""Long reads in short read transactions, so that Hermes's WAL can restart in between.

A WAL restarts only when all of it is in the database and no connection reads it. A reader that
begins its next transaction at once leaves no such moment, even if each transaction is short. So
while another process writes, we pause as long as our last transaction took. For a WAL that should
have restarted we wait longer, at most 5 seconds in total.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

import apsw

from exporter.hermes.database import FileState, file_state

_SLICE_SECONDS: Final = 0.02
"""The target length of a read transaction. No checkpoint gets past an open read transaction."""
_SHORTEST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 0.1
_OVERDUE_BYTES: Final = 4 * 1024 * 1024
"""From about 1,000 pages on, SQLite tries at every commit to restart the WAL."""
_PATIENCE_SECONDS: Final = 5.0
"""The limit of all waits of one read, for writers that never let their WAL restart."""


class ReadPacer:
    """Decides how much to read in each transaction of a long read, and when to pause."""

    def __init__(
        self,
        connection: apsw.Connection,
        *,
        first: int,
        sizes: range,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = connection
        self._sizes = sizes
        self._monotonic = monotonic
        self._pause = pause
        self._wal_path = _wal_path(connection)
        self._wal = file_state(self._wal_path)
        self._patience_seconds = _PATIENCE_SECONDS
        self._began = monotonic()
        self._seconds = 0.0
        self.size = first
        """How much to read in the open transaction."""

    def end(self) -> None:
        """End the transaction after everything planned for it was read, and adapt the size."""
        self._connection.execute("COMMIT")
        self._seconds = self._monotonic() - self._began
        fitting = round(self.size * min(2.0, _SLICE_SECONDS / max(self._seconds, 1e-9)))
        self.size = min(max(fitting, self._sizes.start), self._sizes.stop)

    def begin(self) -> None:
        """Begin the next transaction. Pause first if another process has written."""
        if self._look() != self._wal:
            self._give_way()
        self._began = self._monotonic()
        self._connection.execute("BEGIN")

    def _look(self) -> FileState | None:
        return file_state(self._wal_path)

    def _give_way(self) -> None:
        self._pause(min(max(self._seconds, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS))
        before, self._wal = self._wal, self._look()
        while _is_overdue(before, self._wal) and self._patience_seconds > 0:
            self._patience_seconds -= _SHORTEST_PAUSE_SECONDS
            self._pause(_SHORTEST_PAUSE_SECONDS)
            before, self._wal = self._wal, self._look()


def _wal_path(connection: apsw.Connection) -> str:
    """Return the path of the WAL. It is read as bytes, because a folder's name need not be text."""
    path: Any = connection.execute(
        "SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'"
    ).get
    return os.fsdecode(path) + "-wal"


def _is_overdue(before: FileState | None, now: FileState | None) -> bool:
    """True if the WAL grew although it should have restarted. A restarted WAL keeps its size."""
    if before is None or now is None:
        return False
    return now.size_bytes > max(before.size_bytes, _OVERDUE_BYTES)
