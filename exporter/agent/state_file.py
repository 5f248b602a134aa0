"""The file of the state store: `agent.db` in the state directory, its tables, and its lock.

One agent uses a state directory: two would count everything twice.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Final

import apsw

from exporter.agent import label_limits, trend_table
from exporter.errors import StateError, StateUsedError
from exporter.runs.journal_file import transaction

STATE_VERSION: Final = 2
"""Raised when an older agent could not read what this one writes."""
_FILE: Final = "agent.db"
_CACHE_KIB: Final = 512
"""SQLite keeps this much of the file in memory as long as the agent runs; its default is 2 MiB."""

_SCHEMA: Final = """
CREATE TABLE homes (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, label TEXT NOT NULL UNIQUE,
    watermark INTEGER NOT NULL DEFAULT 0, counted INTEGER NOT NULL DEFAULT 0,
    owner INTEGER NOT NULL DEFAULT -1, seen INTEGER NOT NULL DEFAULT 0,
    prune_memory TEXT NOT NULL DEFAULT ''
);
CREATE TABLE boots (id TEXT PRIMARY KEY, began_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE admitted (
    home INTEGER NOT NULL REFERENCES homes(id), family TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (home, family, value)
) WITHOUT ROWID;
CREATE TABLE counters (
    home INTEGER NOT NULL REFERENCES homes(id), name TEXT NOT NULL,
    source TEXT NOT NULL, model TEXT NOT NULL, kind TEXT NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (home, name, source, model, kind)
) WITHOUT ROWID;
CREATE TABLE session_counted (
    home INTEGER NOT NULL REFERENCES homes(id), session INTEGER NOT NULL,
    message_rows INTEGER NOT NULL, tool_calls INTEGER NOT NULL, api_calls INTEGER NOT NULL,
    active_rows INTEGER NOT NULL, had_rows INTEGER NOT NULL, seen INTEGER NOT NULL,
    PRIMARY KEY (home, session)
) WITHOUT ROWID;
CREATE TABLE model_counted (
    home INTEGER NOT NULL REFERENCES homes(id), session INTEGER NOT NULL, model INTEGER NOT NULL,
    input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL,
    cache_write INTEGER NOT NULL, reasoning INTEGER NOT NULL,
    estimated REAL NOT NULL, actual REAL NOT NULL,
    PRIMARY KEY (home, session, model)
) WITHOUT ROWID;
"""

_FROM_VERSION_1: Final = """
ALTER TABLE homes ADD COLUMN owner INTEGER NOT NULL DEFAULT -1;
ALTER TABLE homes ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;
ALTER TABLE homes ADD COLUMN prune_memory TEXT NOT NULL DEFAULT '';
ALTER TABLE session_counted ADD COLUMN active_rows INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session_counted ADD COLUMN had_rows INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session_counted ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;
UPDATE session_counted SET active_rows = message_rows, had_rows = message_rows > 0, seen = :today;
UPDATE homes SET seen = :today;
"""

_WATCHED: Final = """
CREATE TABLE IF NOT EXISTS watched (home INTEGER PRIMARY KEY REFERENCES homes(id), data BLOB);
"""
"""Outside the versioned tables: an older agent works without it."""

_RUN_COUNTERS: Final = """
CREATE TABLE IF NOT EXISTS run_counters (home INTEGER PRIMARY KEY REFERENCES homes(id), data BLOB);
"""


def state_file(state_dir: str) -> str:
    return os.path.join(state_dir, _FILE)


def open_state_file(state_dir: str, today: int) -> apsw.Connection:
    """Open or create the file; raise StateError with one clear line if that fails."""
    path = state_file(state_dir)
    try:
        os.makedirs(state_dir, mode=0o700, exist_ok=True)
        _make_private(path)
        connection = _connect(path)
        # A bad page may be met only hours later, in a scan: better a line at the start.
        damage = _quick_check(connection)
        if damage:
            raise apsw.CorruptError(f"it is damaged ({damage})")
        _prepare(connection, path, today)
        return connection
    except OSError as error:
        raise StateError(f"cannot use state directory {state_dir}: {error.strerror}") from error
    except apsw.Error as error:
        raise StateError(f"cannot use {path}: {error}; move it away to start afresh") from error


def open_to_read(state_dir: str) -> apsw.Connection:
    """Open the file of an agent that may be running. Nothing is locked: it continues to write."""
    return apsw.Connection(state_file(state_dir), flags=apsw.SQLITE_OPEN_READONLY)


def open_in_memory(today: int) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    _prepare(connection, ":memory:", today)
    return connection


def write_anew(connection: apsw.Connection, path: str) -> apsw.Connection:
    """Write a file that was deleted while it was open; return the connection to the new file."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    kept = apsw.Connection(":memory:")
    _copy(connection, kept)
    # Closed before there is a new file: SQLite would remove the -wal file of that name.
    connection.close()
    _make_private(path)
    new = _connect(path)
    _copy(kept, new)
    kept.close()
    return new


def stamp(path: str) -> tuple[int, int, int] | None:
    """Return what changes with the content of a file; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def find_damage(path: str) -> str:
    """Return what is wrong with a file that another connection uses; empty if nothing is.

    The check has a connection of its own: the cache of the other one may hide the damage.
    """
    try:
        with closing(apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            return _quick_check(connection)
    except (apsw.CorruptError, apsw.NotADBError) as error:
        return str(error)
    except apsw.Error:
        return ""  # it is gone, or cannot be read now


def copy_to_memory(connection: apsw.Connection, today: int) -> tuple[apsw.Connection, bool]:
    """Close a damaged file; return a copy of what its connection had in the cache, and if it is
    whole. If it is not, the copy is a new store: counters without the record of what was counted
    would count twice.
    """
    kept = apsw.Connection(":memory:")
    try:
        _copy(connection, kept)
        is_whole = not _quick_check(kept)
    except apsw.Error:
        is_whole = False
    with suppress(apsw.Error):
        connection.close()
    return (kept, True) if is_whole else (open_in_memory(today), False)


def _quick_check(connection: apsw.Connection) -> str:
    """Return the last line of what SQLite finds wrong; empty if nothing is."""
    found = str(connection.execute("PRAGMA quick_check(1)").get)
    return "" if found == "ok" else found.splitlines()[-1]


def _prepare(connection: apsw.Connection, path: str, today: int) -> None:
    """Create the tables that are missing, and add what an older agent did not write."""
    with transaction(connection):
        version = int(connection.pragma("user_version"))
        if version > STATE_VERSION:
            raise StateError(
                f"{path} was written by a newer hermes-exporter (state version {version}, "
                f"this one knows {STATE_VERSION}); upgrade, or choose another --state-dir"
            )
        if version == 0:
            connection.execute(_SCHEMA)
        elif version == 1:
            connection.execute(_FROM_VERSION_1, {"today": today})
        if version != STATE_VERSION:
            connection.pragma("user_version", STATE_VERSION)
        connection.execute(_WATCHED)
        connection.execute(_RUN_COUNTERS)
        connection.execute(trend_table.SCHEMA)
        connection.execute(label_limits.SCHEMA)


def _connect(path: str) -> apsw.Connection:
    connection = apsw.Connection(path)
    connection.set_busy_timeout(5000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "NORMAL")
    connection.pragma("cache_size", -_CACHE_KIB)
    return connection


def _copy(source: apsw.Connection, target: apsw.Connection) -> None:
    with target.backup("main", source, "main") as copy:
        copy.step()


def _make_private(path: str) -> None:
    """Make the file readable by its owner only. SQLite creates -wal and -shm with the same mode.

    Older agents made it readable by all, so existing files are changed too. They are not opened:
    closing a descriptor would release the POSIX locks of an open connection.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        for file in (path, f"{path}-wal", f"{path}-shm"):
            with suppress(OSError):
                if stat.S_ISREG(os.lstat(file).st_mode):
                    os.chmod(file, 0o600)


class StateLock:
    """The lock of a state directory: two agents would count everything twice."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._path = os.path.join(state_dir, "agent.lock")
        self._descriptor = self._take()

    def take_again_if_gone(self) -> None:
        """If the file was deleted under the agent, lock a new one: the old one locks nothing.

        Raise StateError if another agent was quicker.
        """
        mine = os.fstat(self._descriptor)
        try:
            found = os.lstat(self._path)
        except FileNotFoundError:
            found = None
        if found is not None and (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino):
            return
        before, self._descriptor = self._descriptor, self._take()
        os.close(before)

    def close(self) -> None:
        os.close(self._descriptor)

    def _take(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            os.makedirs(self._state_dir, mode=0o700, exist_ok=True)
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise StateError(
                f"cannot use state directory {self._state_dir}: {error.strerror}; choose one with "
                "--state-dir"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise StateUsedError(
                f"another hermes-exporter uses {self._state_dir}; stop it, or give this one its "
                "own --state-dir"
            ) from error
        return descriptor


@contextmanager
def state_lock(state_dir: str) -> Iterator[StateLock]:
    """Lock the state directory; raise StateError if it cannot be used or another agent uses it."""
    lock = StateLock(state_dir)
    try:
        yield lock
    finally:
        lock.close()
