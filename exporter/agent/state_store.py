"""The agent's own memory, in its state directory: labels, admitted values and counters.

Prometheus counters must never fall, but the rows they are summed from are pruned, rewritten and
restored. So the store remembers what was counted of each session ever seen, and a scan adds only
what is new. Counters and that record are written in one transaction. A crash at any moment loses or
doubles nothing.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import apsw
import msgspec

from exporter.agent import label_limits
from exporter.agent.label_limits import allow
from exporter.agent.usage_counters import UsageCounter
from exporter.collectors.labels import AllowedValues, LabelFamily
from exporter.collectors.view import CounterValue
from exporter.errors import StateError
from exporter.pruner.models import PruneMemory
from exporter.snapshot import OTHER, SessionUsage

STATE_VERSION: Final = 2
"""Raised when an older agent could not read what this one writes."""
_FILE: Final = "agent.db"

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

_TRENDS: Final = """
CREATE TABLE IF NOT EXISTS trends (
    home INTEGER NOT NULL REFERENCES homes(id), at INTEGER NOT NULL, figures BLOB NOT NULL,
    PRIMARY KEY (home, at)
) WITHOUT ROWID;
"""
"""A ring of figures for the host page, also outside the versioned tables."""

_SHOWN_COUNTERS: Final = """
SELECT name, source, model, kind, counters.value FROM counters
JOIN homes ON homes.id = counters.home WHERE path = :path AND (
    (source = :other AND model IN ('', :other))
    OR EXISTS (
        SELECT 1 FROM admitted WHERE admitted.home = homes.id
        AND family = iif(model = '', 'source', 'source-model')
        AND admitted.value = iif(model = '', source, source || char(31) || model)
    )
)
ORDER BY name, source, model, kind
"""

_FORGET_HOME: Final = """
DELETE FROM label_activity WHERE home = :home;
DELETE FROM trends WHERE home = :home;
DELETE FROM watched WHERE home = :home;
DELETE FROM model_counted WHERE home = :home;
DELETE FROM session_counted WHERE home = :home;
DELETE FROM counters WHERE home = :home;
DELETE FROM admitted WHERE home = :home;
DELETE FROM homes WHERE id = :home;
"""

_FORGET_SESSIONS: Final = """
DELETE FROM model_counted
 WHERE home = (SELECT id FROM homes WHERE path = :path) AND session IN (
       SELECT session FROM session_counted
        WHERE home = (SELECT id FROM homes WHERE path = :path) AND seen < :last);
DELETE FROM session_counted
 WHERE home = (SELECT id FROM homes WHERE path = :path) AND seen < :last;
"""

KEEP_DAYS: Final = 90
"""How long a home or session that is gone is remembered: as long as it may be restored."""
_DAY_SECONDS: Final = 86400.0


class StateStore:
    """The state directory's database. One process writes it; any of its threads may call it."""

    def __init__(
        self, connection: apsw.Connection, path: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self.path = path
        with _transaction(connection):
            self._prepare()

    @classmethod
    def open(cls, state_dir: str, clock: Callable[[], float] = time.time) -> StateStore:
        """Open or create it; raise StateError with one clear line if that fails."""
        path = os.path.join(state_dir, _FILE)
        try:
            os.makedirs(state_dir, mode=0o700, exist_ok=True)
            _make_private(path)
            connection = _connect(path)
            # A bad page may be met only hours later, in a scan: better a line at the start.
            damage = connection.execute("PRAGMA quick_check(1)").get
            if damage != "ok":
                raise apsw.CorruptError(f"it is damaged ({str(damage).splitlines()[-1]})")
            return cls(connection, path, clock)
        except OSError as error:
            raise StateError(f"cannot use state directory {state_dir}: {error.strerror}") from error
        except apsw.Error as error:
            raise StateError(f"cannot use {path}: {error}; move it away to start afresh") from error

    @classmethod
    def in_memory(cls) -> StateStore:
        """Return a store for one command; it is lost at the end."""
        return cls(apsw.Connection(":memory:"), ":memory:")

    def _prepare(self) -> None:
        version = int(self._connection.pragma("user_version"))
        if version > STATE_VERSION:
            raise StateError(
                f"{self.path} was written by a newer hermes-exporter (state version {version}, "
                f"this one knows {STATE_VERSION}); upgrade, or choose another --state-dir"
            )
        if version == 0:
            self._connection.execute(_SCHEMA)
        elif version == 1:
            self._connection.execute(_FROM_VERSION_1, {"today": self._today()})
        if version != STATE_VERSION:
            self._connection.pragma("user_version", STATE_VERSION)
        self._connection.execute(_WATCHED)
        self._connection.execute(_TRENDS)
        self._connection.execute(label_limits.SCHEMA)

    def _today(self) -> int:
        return int(self._clock() // _DAY_SECONDS)

    def close(self) -> None:
        self._connection.close()

    def write_anew_if_gone(self) -> bool:
        """If the file was deleted under the agent, write it anew from memory; True if so."""
        if self.path == ":memory:" or os.path.exists(self.path):
            return False
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        with self._lock:
            kept = apsw.Connection(":memory:")
            _copy(self._connection, kept)
            # Closed before there is a new file: SQLite would remove the -wal file of that name.
            self._connection.close()
            _make_private(self.path)
            self._connection = _connect(self.path)
            _copy(kept, self._connection)
            kept.close()
        return True

    # Labels

    def labels(self) -> dict[str, str]:
        """Return the labels given so far, by path."""
        with self._lock:
            rows: list[Any] = self._connection.execute("SELECT path, label FROM homes").fetchall()
        return dict(rows)

    def give_label(self, path: str, label: str) -> None:
        """Remember a home's label permanently; only a changed configuration may rename it.

        If another home had this label, that one gets the suffix `-<id>`.
        """
        with self._lock, _transaction(self._connection):
            self._connection.execute(
                "UPDATE homes SET label = label || '-' || id WHERE label = ? AND path != ?",
                (label, path),
            )
            self._connection.execute(
                "INSERT INTO homes (path, label, seen) VALUES (?, ?, ?) "
                "ON CONFLICT (path) DO UPDATE SET label = excluded.label",
                (path, label, self._today()),
            )

    def keep_homes(self, owners: Mapping[str, int]) -> None:
        """Remember that these homes exist today, and their owners; forget homes gone for long.

        Until a home is forgotten, no other home can get its label and continue its series. A home
        that returns later starts new series.
        """
        today = self._today()
        with self._lock, _transaction(self._connection):
            known: list[Any] = self._connection.execute(
                "SELECT id, path, owner, seen FROM homes"
            ).fetchall()
            for home, path, owner, seen in known:
                if path in owners:
                    if (owner, seen) != (owners[path], today):
                        self._connection.execute(
                            "UPDATE homes SET owner = ?, seen = ? WHERE id = ?",
                            (owners[path], today, home),
                        )
                elif seen < today - KEEP_DAYS:
                    self._connection.execute(_FORGET_HOME, {"home": home})

    def labels_by_owner(self) -> dict[int, int]:
        """Return how many labels the homes of each owner have."""
        with self._lock:
            rows: list[Any] = self._connection.execute(
                "SELECT owner, COUNT(*) FROM homes GROUP BY owner"
            ).fetchall()
        return dict(rows)

    # The clock

    def boot_began_at(self, boot_id: str, began_at: float) -> float:
        """Return when this boot began, by the wall clock when the agent first saw this boot."""
        with self._lock, _transaction(self._connection):
            self._connection.execute(
                "INSERT OR IGNORE INTO boots VALUES (?, ?)", (boot_id, began_at)
            )
            self._connection.execute("DELETE FROM boots WHERE id != ?", (boot_id,))
            found = self._connection.execute("SELECT began_at FROM boots").get
        return float(found)

    # Counting

    def watermark(self, path: str) -> int:
        """Return the highest message id of this home that was counted."""
        with self._lock:
            found = self._connection.execute(
                "SELECT watermark FROM homes WHERE path = ?", (path,)
            ).fetchone()
        return int(found[0]) if found else 0

    def count(self, path: str, page: Sequence[SessionUsage]) -> None:
        """Add what these sessions used since they were last counted.

        A page is counted as a whole or not at all. Counting it twice adds nothing.
        """
        with self._lock, _transaction(self._connection):
            counted = self._connection.execute(
                "SELECT counted FROM homes WHERE path = ?", (path,)
            ).get
            counter = UsageCounter(
                self._connection, self._home(path), first_sight=not counted, today=self._today()
            )
            counter.admit(page)
            for usage in page:
                counter.count(usage)
            counter.finish()

    def set_watermark(self, path: str, watermark: int) -> None:
        """Store the watermark of a complete scan: only messages above it are new from now on."""
        with self._lock, _transaction(self._connection):
            self._connection.execute(
                "UPDATE homes SET watermark = ?, counted = 1 "
                "WHERE path = ? AND (watermark != ? OR NOT counted)",
                (watermark, path, watermark),
            )

    def forget_sessions(self, path: str, told_since: float) -> None:
        """Forget sessions gone for long. Every existing session was reported since `told_since`.

        A session is kept until no undo can restore it any more. Otherwise it would be counted
        twice.
        """
        last = {"path": path, "last": int(told_since // _DAY_SECONDS) - KEEP_DAYS}
        with self._lock, _transaction(self._connection):
            self._connection.execute(_FORGET_SESSIONS, last)

    def counters(self, path: str) -> list[CounterValue]:
        """Return the counters of values that have a place, and of `other`."""
        with self._lock:
            rows: list[Any] = self._connection.execute(
                _SHOWN_COUNTERS, {"path": path, "other": OTHER}
            ).fetchall()
        return [CounterValue(*values) for values in rows]

    # The pruner's memory

    def prune_memory(self, path: str) -> PruneMemory:
        """Return what the pruner remembers of a home; an empty memory if it cannot be decoded."""
        with self._lock:
            found = self._connection.execute(
                "SELECT prune_memory FROM homes WHERE path = ?", (path,)
            ).fetchone()
        return decode_prune_memory(found[0] if found else "")

    def keep_prune_memory(self, path: str, memory: PruneMemory) -> None:
        text = msgspec.json.encode(memory).decode()
        with self._lock, _transaction(self._connection):
            self._connection.execute(
                "UPDATE homes SET prune_memory = ? WHERE path = ? AND prune_memory != ?",
                (text, path, text),
            )

    # Watched idleness

    def watched(self, path: str) -> bytes:
        """Return what the last worker of a home had watched; see `reaper.watched_idleness`."""
        with self._lock:
            found = self._connection.execute(
                "SELECT data FROM watched JOIN homes ON homes.id = watched.home WHERE path = ?",
                (path,),
            ).fetchone()
        return found[0] if found and isinstance(found[0], bytes) else b""

    def keep_idleness(self, path: str, data: bytes) -> None:
        with self._lock, _transaction(self._connection):
            self._connection.execute(
                "INSERT OR REPLACE INTO watched SELECT id, ? FROM homes WHERE path = ?",
                (data, path),
            )

    # Figures of the last days, for the host page

    def keep_trend(self, path: str, at: int, figures: bytes, oldest: int) -> None:
        """Store the figures of one moment, and drop those from before `oldest`.

        Those from after `at` go too: the clock was wrong when they were written.
        """
        with self._lock, _transaction(self._connection):
            self._connection.execute(
                "DELETE FROM trends WHERE home = (SELECT id FROM homes WHERE path = ?) "
                "AND at NOT BETWEEN ? AND ?",
                (path, oldest, at),
            )
            self._connection.execute(
                "INSERT OR REPLACE INTO trends SELECT id, ?, ? FROM homes WHERE path = ?",
                (at, figures, path),
            )

    def trend(self, path: str) -> list[tuple[int, bytes]]:
        """Return the stored figures of a home, the oldest first."""
        with self._lock:
            rows: list[Any] = self._connection.execute(
                "SELECT at, figures FROM trends JOIN homes ON homes.id = trends.home "
                "WHERE path = ? ORDER BY at",
                (path,),
            ).fetchall()
        return rows

    # Bounded label values

    def admit(
        self,
        path: str,
        family: LabelFamily,
        values: Iterable[tuple[str, ...]],
        active: Collection[tuple[str, ...]] = (),
    ) -> AllowedValues:
        """Return which of these label values have a place; the first seen keep theirs in use."""
        with self._lock:
            return allow(
                self._connection,
                self._home(path),
                family,
                values,
                active=active,
                today=self._today(),
            )

    def _home(self, path: str) -> int:
        return int(self._connection.execute("SELECT id FROM homes WHERE path = ?", (path,)).get)


def _connect(path: str) -> apsw.Connection:
    connection = apsw.Connection(path)
    connection.set_busy_timeout(5000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "NORMAL")
    return connection


def _copy(source: apsw.Connection, target: apsw.Connection) -> None:
    with target.backup("main", source, "main") as copy:
        copy.step()


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    """Run a transaction: all of it or nothing.

    Do not use `with connection:`. It commits while it holds the interpreter lock: if the state
    directory hangs, no thread could answer a scrape or a signal.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


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


@contextmanager
def state_lock(state_dir: str) -> Iterator[None]:
    """Lock the state directory: two agents would count everything twice."""
    path = os.path.join(state_dir, "agent.lock")
    try:
        os.makedirs(state_dir, mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StateError(
            f"cannot use state directory {state_dir}: {error.strerror}; choose one with --state-dir"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise StateError(
            f"another hermes-exporter uses {state_dir}; stop it, or give this one its own "
            "--state-dir"
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


def decode_prune_memory(text: str) -> PruneMemory:
    try:
        return msgspec.json.decode(text, type=PruneMemory) if text else PruneMemory()
    except msgspec.DecodeError:
        return PruneMemory()


def copy_memories(state_dir: str, store: StateStore) -> None:
    """Copy what an agent's state directory remembers of each home into this store.

    That is the label, the pruner's memory, and what was watched.

    What cannot be read stays unknown. Nothing is locked: the agent continues to write.
    """
    path = os.path.join(state_dir, _FILE)
    if not os.access(path, os.R_OK):
        return
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            known: list[Any] = connection.execute("SELECT path, label FROM homes").fetchall()
            memories = _prune_memories(connection)
            watched = _watched(connection)
        finally:
            connection.close()
    except apsw.Error:
        return
    for home, label in known:
        store.give_label(home, label)
        store.keep_prune_memory(home, decode_prune_memory(memories.get(home, "")))
        store.keep_idleness(home, watched.get(home, b""))


def _prune_memories(connection: apsw.Connection) -> dict[str, str]:
    """Return the pruner's memories; none if an older agent wrote the state."""
    try:
        rows: list[Any] = connection.execute("SELECT path, prune_memory FROM homes").fetchall()
    except apsw.SQLError:
        return {}
    return dict(rows)


def _watched(connection: apsw.Connection) -> dict[str, bytes]:
    try:
        rows: list[Any] = connection.execute(
            "SELECT path, data FROM watched JOIN homes ON homes.id = watched.home"
        ).fetchall()
    except apsw.SQLError:
        return {}
    return {path: data for path, data in rows if isinstance(data, bytes)}
