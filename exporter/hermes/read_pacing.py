"""Long readings in short read transactions, so that Hermes's WAL can start over in between.

A WAL starts over only when all of it is in the database and nobody reads it. A reading that begins
its next transaction at once leaves no such moment, however short each of them is. So while somebody
writes he gets as much time without us as with us, and a WAL that is overdue is waited for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

import apsw

from exporter.hermes.database import FileState, file_state

_SLICE_SECONDS: Final = 0.02
"""How long a read transaction should last: while it does, no checkpoint gets past it."""
_SHORTEST_PAUSE_SECONDS: Final = 0.01
_LONGEST_PAUSE_SECONDS: Final = 0.1
_OVERDUE_BYTES: Final = 4 * 1024 * 1024
"""From a thousand pages on SQLite tries at every commit to make a WAL start over."""
_PATIENCE_SECONDS: Final = 5.0
"""For one reading: who never lets his WAL start over is not waited for."""


class ReadPacer:
    """How much to read in each transaction of a long reading, and when to wait for others."""

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
        """How much to read in the transaction that is open."""

    def end(self) -> None:
        """End the transaction: all that was to be read in it has been."""
        self._connection.execute("COMMIT")
        self._seconds = self._monotonic() - self._began
        fitting = round(self.size * min(2.0, _SLICE_SECONDS / max(self._seconds, 1e-9)))
        self.size = min(max(fitting, self._sizes.start), self._sizes.stop)

    def begin(self) -> None:
        """Begin the next one, once whoever writes has had his turn."""
        if self._look() != self._wal:
            self._give_way()
        self._began = self._monotonic()
        self._connection.execute("BEGIN")

    def _look(self) -> FileState | None:
        return file_state(self._wal_path)

    def _give_way(self) -> None:
        self._pause(min(max(self._seconds, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS))
        before, self._wal = self._wal, self._look()
        while _overdue(before, self._wal) and self._patience_seconds > 0:
            self._patience_seconds -= _SHORTEST_PAUSE_SECONDS
            self._pause(_SHORTEST_PAUSE_SECONDS)
            before, self._wal = self._wal, self._look()


def _wal_path(connection: apsw.Connection) -> str:
    """Asked for as bytes: the name of a folder need not be text."""
    path: Any = connection.execute(
        "SELECT CAST(file AS BLOB) FROM pragma_database_list WHERE name = 'main'"
    ).get
    return os.fsdecode(path) + "-wal"


def _overdue(before: FileState | None, now: FileState | None) -> bool:
    """Whether a WAL has grown though it should have started over: then its size stays."""
    if before is None or now is None:
        return False
    return now.size_bytes > max(before.size_bytes, _OVERDUE_BYTES)
