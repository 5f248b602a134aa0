"""What the agent keeps across restarts, in its state directory: labels, label values and counters.

Prometheus counters must never fall, but the rows they are summed from are pruned, rewritten and
restored. So the store remembers what was counted of each session ever seen, and a scan adds only
what is new. Counters and that record are written in one transaction. A crash at any moment loses or
doubles nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import apsw
import msgspec

from exporter.agent import trend_table
from exporter.agent.label_limits import allow
from exporter.agent.state_file import (
    copy_to_memory,
    find_damage,
    open_in_memory,
    open_state_file,
    open_to_read,
    stamp,
    state_file,
    write_anew,
)
from exporter.agent.usage_counters import UsageCounter
from exporter.collectors.labels import AllowedValues, LabelFamily
from exporter.collectors.view import CounterValue
from exporter.pruner.models import PruneMemory
from exporter.runs.journal_file import transaction
from exporter.snapshot import OTHER, SessionUsage

# Only counters whose label values have a place; char(31) is `_SEPARATOR` of `label_limits`.
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
DELETE FROM run_counters WHERE home = :home;
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
        WHERE home = (SELECT id FROM homes WHERE path = :path) AND seen < :oldest);
DELETE FROM session_counted
 WHERE home = (SELECT id FROM homes WHERE path = :path) AND seen < :oldest;
"""

KEEP_DAYS: Final = 90
"""How long a home or session that is gone is remembered: an undo may restore it."""


class StateStore:
    """The state directory's database. One process writes it; any of its threads may call it."""

    def __init__(
        self, connection: apsw.Connection, path: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self.path = path
        self.damage = ""
        """What is wrong with the file; if this is not empty, the store is in memory."""
        self.is_whole = True
        """False if the counters began at zero again, because the file was damaged."""
        self._suspect = False
        """True if the file was changed by another program, or could not be read."""
        self._stamp = stamp(path)
        """Inode, size and time of the file after our last write."""
        self._boots: list[tuple[str, float]] = []
        """The row of the table `boots`, in case the file is damaged."""

    @classmethod
    def open(cls, state_dir: str, clock: Callable[[], float] = time.time) -> StateStore:
        """Open or create it; raise StateError with one clear line if that fails."""
        return cls(open_state_file(state_dir, _day(clock())), state_file(state_dir), clock)

    @classmethod
    def in_memory(cls) -> StateStore:
        """Return a store for one command; it is lost at the end."""
        return cls(open_in_memory(_day(time.time())), ":memory:")

    def _today(self) -> int:
        return _day(self._clock())

    def close(self) -> None:
        self._connection.close()

    def write_anew_if_gone(self) -> bool:
        """If the file was deleted while it was open, write it again from memory; True if so."""
        if self.path == ":memory:" or os.path.exists(self.path):
            return False
        with self._lock:
            self._connection = write_anew(self._connection, self.path)
            self.damage, self._suspect, self._stamp = "", False, stamp(self.path)
        return True

    def leave_if_damaged(self) -> bool:
        """If the file was damaged while it was open, set `damage` and go on in memory; True if so.

        SQLite has much of the file in its cache, so it may not notice damage for days. The file is
        checked only after another program has changed it, or it could not be read.
        """
        with self._lock:
            now = stamp(self.path)
            if self.damage or not (self._suspect or now != self._stamp):
                return False
            self._suspect, self._stamp = False, now
            self.damage = find_damage(self.path)
            if self.damage:
                self._connection, self.is_whole = copy_to_memory(self._connection, self._today())
                if not self.is_whole:
                    # Without it, a step of the clock since this boot would no longer be noticed.
                    self._connection.executemany("INSERT INTO boots VALUES (?, ?)", self._boots)
        return bool(self.damage)

    @contextmanager
    def _using(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (apsw.CorruptError, apsw.NotADBError):
                self._suspect = True
                raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._using():
            # Our own write changes the stamp. So look first if another program changed the file.
            self._suspect = self._suspect or stamp(self.path) != self._stamp
            try:
                with transaction(self._connection):
                    yield
            finally:
                self._stamp = stamp(self.path)

    # Labels

    def labels(self) -> dict[str, str]:
        """Return the labels given so far, by path."""
        with self._using():
            rows: list[Any] = self._connection.execute("SELECT path, label FROM homes").fetchall()
        return dict(rows)

    def give_label(self, path: str, label: str) -> None:
        """Remember a home's label permanently; only a changed configuration may rename it.

        If another home had this label, that one gets the suffix `-<id>`.
        """
        with self._writing():
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

        Until a home is forgotten, no other home can get its label and so continue its series. A
        home that returns after it was forgotten starts new series.
        """
        today = self._today()
        with self._writing():
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
        with self._using():
            rows: list[Any] = self._connection.execute(
                "SELECT owner, COUNT(*) FROM homes GROUP BY owner"
            ).fetchall()
        return dict(rows)

    # The clock

    def boot_began_at(self, boot_id: str, began_at: float) -> float:
        """Return when this boot began.

        The first call for a boot stores `began_at`; later calls return that value. So a wall clock
        that was stepped since does not change it.
        """
        for known, first in self._boots:
            if known == boot_id:
                return first
        with self._writing():
            self._connection.execute(
                "INSERT OR IGNORE INTO boots VALUES (?, ?)", (boot_id, began_at)
            )
            self._connection.execute("DELETE FROM boots WHERE id != ?", (boot_id,))
            found = self._connection.execute("SELECT began_at FROM boots").get
        self._boots = [(boot_id, float(found))]
        return float(found)

    # Counting

    def watermark(self, path: str) -> int:
        """Return the highest message id of this home that was counted."""
        with self._using():
            found = self._connection.execute(
                "SELECT watermark FROM homes WHERE path = ?", (path,)
            ).fetchone()
        return int(found[0]) if found else 0

    def count(self, path: str, page: Sequence[SessionUsage]) -> None:
        """Add to the counters what these sessions used since they were last counted.

        A page is counted as a whole or not at all. Counting it twice adds nothing.
        """
        with self._writing():
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
        with self._writing():
            self._connection.execute(
                "UPDATE homes SET watermark = ?, counted = 1 "
                "WHERE path = ? AND (watermark != ? OR NOT counted)",
                (watermark, path, watermark),
            )

    def forget_sessions(self, path: str, reported_since: float) -> None:
        """Forget sessions gone for long: those not seen for `KEEP_DAYS` before `reported_since`.

        Every session that exists was reported since then. A session is remembered until no undo can
        restore it: otherwise a restored session would be counted twice.
        """
        oldest = _day(reported_since) - KEEP_DAYS
        with self._writing():
            self._connection.execute(_FORGET_SESSIONS, {"path": path, "oldest": oldest})

    def counters(self, path: str) -> list[CounterValue]:
        """Return the counters whose label values have a place, and those of `other`."""
        with self._using():
            rows: list[Any] = self._connection.execute(
                _SHOWN_COUNTERS, {"path": path, "other": OTHER}
            ).fetchall()
        return [CounterValue(*values) for values in rows]

    # The pruner's memory

    def prune_memory(self, path: str) -> PruneMemory:
        """Return what the pruner remembers of a home; an empty memory if it cannot be decoded."""
        with self._using():
            found = self._connection.execute(
                "SELECT prune_memory FROM homes WHERE path = ?", (path,)
            ).fetchone()
        return decode_prune_memory(found[0] if found else "")

    def keep_prune_memory(self, path: str, memory: PruneMemory) -> None:
        text = msgspec.json.encode(memory).decode()
        with self._writing():
            self._connection.execute(
                "UPDATE homes SET prune_memory = ? WHERE path = ? AND prune_memory != ?",
                (text, path, text),
            )

    # Watched idleness

    def watched(self, path: str) -> bytes:
        """Return what the last worker of a home had watched; see `reaper.watched_idleness`."""
        return self._data(
            "SELECT data FROM watched JOIN homes ON homes.id = watched.home WHERE path = ?", path
        )

    def keep_idleness(self, path: str, data: bytes) -> None:
        self._keep_data(
            "INSERT OR REPLACE INTO watched SELECT id, ? FROM homes WHERE path = ?", path, data
        )

    # Counters of what runs did

    def run_counters(self, path: str) -> bytes:
        """Return what is kept of a home's run journal; see `agent.run_counters`."""
        return self._data(
            "SELECT data FROM run_counters JOIN homes ON homes.id = run_counters.home "
            "WHERE path = ?",
            path,
        )

    def keep_run_counters(self, path: str, data: bytes) -> None:
        self._keep_data(
            "INSERT OR REPLACE INTO run_counters SELECT id, ? FROM homes WHERE path = ?", path, data
        )

    def _data(self, query: str, path: str) -> bytes:
        """Return the bytes that a table keeps of a home; empty if it keeps none."""
        with self._using():
            found = self._connection.execute(query, (path,)).fetchone()
        return found[0] if found and isinstance(found[0], bytes) else b""

    def _keep_data(self, statement: str, path: str, data: bytes) -> None:
        with self._writing():
            self._connection.execute(statement, (data, path))

    # Figures of the last days, for the host page

    def keep_trend(self, path: str, at: int, figures: bytes, oldest: int) -> None:
        """Store the figures of one moment, and drop those from before `oldest`.

        Those from after `at` go too: the clock was wrong when they were written.
        """
        with self._writing():
            trend_table.keep(self._connection, path, at, figures, oldest)

    def trend(self, path: str) -> list[tuple[int, bytes]]:
        """Return the stored figures of a home, the oldest first."""
        with self._using():
            return trend_table.read(self._connection, path)

    # Bounded label values

    def admit(
        self,
        path: str,
        family: LabelFamily,
        values: Iterable[tuple[str, ...]],
        active: Collection[tuple[str, ...]] = (),
    ) -> AllowedValues:
        """Return the label values that have a place; see `label_limits.allow`."""
        with self._writing():
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


def _day(moment: float) -> int:
    return int(moment // 86400.0)


def decode_prune_memory(text: str) -> PruneMemory:
    try:
        return msgspec.json.decode(text, type=PruneMemory) if text else PruneMemory()
    except msgspec.DecodeError:
        return PruneMemory()


def copy_memories(state_dir: str, store: StateStore) -> None:
    """Copy what an agent's state directory remembers of each home into this store:

    - the label, the pruner's memory and the watched idleness of each home;
    - when this boot began, so that commands too notice a clock that was stepped since.

    What cannot be read stays unknown. Nothing is locked: the agent continues to write.
    """
    if not os.access(state_file(state_dir), os.R_OK):
        return
    try:
        connection = open_to_read(state_dir)
        try:
            known: list[Any] = connection.execute("SELECT path, label FROM homes").fetchall()
            memories = _by_home(connection, "SELECT path, prune_memory FROM homes")
            watched = _by_home(
                connection, "SELECT path, data FROM watched JOIN homes ON homes.id = watched.home"
            )
            boots: list[Any] = connection.execute("SELECT id, began_at FROM boots").fetchall()
        finally:
            connection.close()
    except apsw.Error:
        return
    for boot_id, began_at in boots:
        store.boot_began_at(boot_id, began_at)
    for home, label in known:
        store.give_label(home, label)
        store.keep_prune_memory(home, decode_prune_memory(memories.get(home, "")))
        store.keep_idleness(home, watched.get(home, b""))


def _by_home(connection: apsw.Connection, query: str) -> dict[str, Any]:
    """Return a value for each path of a home; none if an older agent wrote the file."""
    try:
        rows: list[Any] = connection.execute(query).fetchall()
    except apsw.SQLError:
        return {}
    return dict(rows)
