"""The file of a run journal: an SQLite database that outlives a power cut at any instant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from exporter.runs.folder import JournalDamagedError, RunError, RunFullError

VERSION: Final = 1
"""Increase it if an older hermes-exporter cannot read what this one writes, and if a table below
changes: to an older one it would be damaged. New tables are no such change."""
VERSIONS: Final = range(1, 100)
"""What newer ones can have; all else is a changed byte."""
FILE: Final = "journal.db"
_BUSY_TIMEOUT_MS: Final = 5000
_CACHE_KIB: Final = 8192
_PAGE_BYTES: Final = 16384
"""Large pages, because a run records thousands of actions of about a kilobyte each."""

SCHEMA: Final = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, plan TEXT NOT NULL, by_hand INTEGER NOT NULL,
    started_at REAL NOT NULL, finished_at REAL, outcome TEXT, why TEXT NOT NULL DEFAULT '',
    undoable_until REAL
) WITHOUT ROWID;
CREATE TABLE actions (
    run TEXT NOT NULL REFERENCES runs(id), number INTEGER NOT NULL,
    action TEXT NOT NULL, policy TEXT NOT NULL, target TEXT NOT NULL, reason TEXT NOT NULL,
    bytes INTEGER NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, evidence TEXT NOT NULL,
    reverses_run TEXT, reverses_number INTEGER,
    state TEXT NOT NULL, why TEXT NOT NULL DEFAULT '', settled_at REAL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE INDEX actions_by_state ON actions (state, action, settled_at);
CREATE TABLE breaker (tripped_at REAL NOT NULL, why TEXT NOT NULL);
CREATE TABLE strangers (
    target TEXT NOT NULL, mark TEXT NOT NULL, seen_at REAL NOT NULL, PRIMARY KEY (target, mark)
) WITHOUT ROWID;
"""

TRIMMED_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS trimmed (totals BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS trimmed_runs (
    run TEXT PRIMARY KEY, actions INTEGER NOT NULL, bytes INTEGER NOT NULL, undone INTEGER NOT NULL,
    lines INTEGER NOT NULL, sole_action TEXT NOT NULL
) WITHOUT ROWID;
"""
"""What is left of actions that are long past; made when there are any, see `exporter.runs.trim`.
An older hermes-exporter reads such a journal too: it only counts less."""


SQL_DAMAGE: Final = (
    *(apsw.CorruptError, apsw.NotADBError),
    apsw.SQLError,  # a table or column has another name
    *(UnicodeDecodeError, RecursionError, OverflowError),  # in a text, in JSON, in a time
)


@contextmanager
def opened(path: str) -> Iterator[apsw.Connection]:
    """Yield a connection to an existing file; raise RunError or RunFullError if that fails.

    JournalDamagedError only says that it may be damaged; `exporter.runs.salvage` finds that out.
    """
    connection: apsw.Connection | None = None
    try:
        # Read-write also to read: a run that was killed may have left something to roll back.
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
        connection = apsw.Connection(path, flags=flags)
        connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
        # Recorded actions must survive a power cut, and reading must create no other file.
        connection.execute("PRAGMA synchronous=EXTRA")
        connection.execute("PRAGMA journal_mode=DELETE")
        # Large enough for a run of thousands of actions: beyond it SQLite writes and syncs twice.
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        yield connection
    except apsw.FullError as error:
        raise RunFullError(f"cannot use {path}: {error}") from error
    except SQL_DAMAGE as error:
        raise JournalDamagedError(f"{path} is damaged: {error}") from error
    except apsw.Error as error:
        raise RunError(f"cannot use {path}: {error}") from error
    finally:
        if connection is not None:
            connection.close(force=True)


def prepare(connection: apsw.Connection, path: str) -> bool:
    """Make the tables if there are none yet; True if there were none."""
    if version_of(connection, path):
        return False
    connection.execute(f"PRAGMA page_size={_PAGE_BYTES}")
    with transaction(connection):
        connection.execute(SCHEMA)
        connection.pragma("user_version", VERSION)
    return True


@contextmanager
def transaction(connection: apsw.Connection) -> Iterator[None]:
    """Run a transaction on a database of ours: all of it or nothing.

    Do not use `with connection:`. It commits while it holds the interpreter lock: if the disk
    hangs, no thread of the agent could answer a scrape or a signal. On a full disk SQLite has
    rolled back by itself.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def version_of(connection: apsw.Connection, path: str) -> int:
    """Return the version of a journal; 0 if it is empty; raise RunError if it is too new."""
    has_tables = connection.execute("SELECT EXISTS (SELECT 1 FROM sqlite_schema)").get
    version = int(connection.pragma("user_version"))
    if version not in VERSIONS and (version or has_tables):
        raise JournalDamagedError(f"{path} is damaged: it cannot be of version {version}")
    if version > VERSION:
        raise RunError(
            f"{path} was written by a newer hermes-exporter (version {version}, this one knows "
            f"{VERSION}); upgrade to act on this home"
        )
    return version
