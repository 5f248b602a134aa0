"""Keep up with state.db: read everything once, then only what changed.

- Nothing changed (by stat and the WAL-index header, read while no connection is open): the database
  is not opened at all.
- A small database is read as a whole, so that every figure is exact at every scan.
- In a large one only sessions with new messages, new rows and recently active open sessions are
  read again. A whole pass at intervals finds silent changes.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import apsw
from msgspec import Struct

from exporter.errors import DatabaseError
from exporter.evidence.liveness import LivingOwners
from exporter.hermes import database
from exporter.hermes.compaction import CopyQuery
from exporter.hermes.continuations import LastRows, ancestors_of_active, parents_of
from exporter.hermes.database import is_sound
from exporter.hermes.heartbeats import LifeSigns, read_life_signs
from exporter.hermes.read_pacing import ReadPacer
from exporter.hermes.routing import (
    CompressionLinks,
    OwnerLives,
    Routing,
    RoutingReader,
    routing_file,
)
from exporter.hermes.schema import Schema, probe_schema, schema_cookie
from exporter.hermes.session_queries import SessionQueries, SessionRecord
from exporter.hermes.turns import TurnQuery
from exporter.scan.options import OPEN_SESSIONS_MAX
from exporter.scan.session_table import SessionTable, usage_of
from exporter.snapshot import DatabaseHealth, SessionUsage, Trouble

ALWAYS_WHOLE_SESSIONS: Final = 2_000
"""Up to this many sessions a whole pass costs a few milliseconds, so it is always done."""
_READ_ALL_OPEN_MAX: Final = 500
_FIRST_SLICE_SESSIONS: Final = 100
_SLICE_SESSIONS: Final = range(10, 1_000)
_WHOLE_PASS_SECONDS: Final = 60.0
_WHOLE_PASS_SHARE: Final = 200
"""Whole passes may take one part in this many of the total time."""
_READ_DEADLINE_SECONDS: Final = 90.0
_QUICK_CHECK_DEADLINE_SECONDS: Final = 5.0
_SMALL_DATABASE_BYTES: Final = 64 * 1024 * 1024
_LARGE_CHECK_AFTER_SECONDS: Final = 900.0
_ATTEMPTS: Final = 3
_MEANINGLESS: Final = (Trouble.MOVED_WHILE_READING, Trouble.NOT_A_DATABASE)
"""After these, nothing that was read before can be kept."""


class ChangeStamp(Struct, frozen=True):
    """Everything that changes when Hermes writes; while it is equal there is nothing to read.

    The times of -shm are not part of it: they change without a commit.
    """

    main: database.FileState
    wal: database.FileState | None
    commit_mark: bytes
    routing_file: database.FileState | None


class StateReader:
    """One home's state.db over time. Owns the session table."""

    def __init__(
        self,
        home: str,
        *,
        always_whole_sessions: int = ALWAYS_WHOLE_SESSIONS,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        owner_lives: OwnerLives | None = None,
    ) -> None:
        self._home = home
        self._owner_lives = owner_lives or LivingOwners()
        self._path = database.database_path(home)
        self._always_whole_sessions = always_whole_sessions
        self._clock = clock
        self._monotonic = monotonic
        self._pause = pause
        self._born = monotonic()
        self._open_max = OPEN_SESSIONS_MAX
        self._reports_usage = True
        self.passes = 0
        """How often the database was read. Between two reads nothing here changes."""
        self._forget()

    def _forget(self) -> None:
        self.table = SessionTable(self._open_max)
        self.watermark = 0
        self.routing: Routing | None = None
        self.signs = LifeSigns()
        self.parents: dict[str, str | None] = {}
        """The parent of each ended session that an open one descends from, and of some others."""
        self._routing = RoutingReader(self._home, self._owner_lives)
        self.health: DatabaseHealth | None = None
        self._last_stamp: ChangeStamp | None = None
        self._future_at: float | None = None
        self._schema: Schema | None = None
        self._queries: SessionQueries
        self._rowid = 0
        self._whole_pass_at = float("-inf")
        self._whole_pass_seconds = 0.0
        self._forced_whole_pass = True
        self._checked_at: float | None = None
        self.integrity: bool | None = None
        """The result of the last quick_check."""

    @property
    def last_rows(self) -> LastRows:
        """What a later look can compare with, to see what is new since."""
        return LastRows(self._rowid, self.watermark)

    @property
    def writes_turns_late(self) -> bool:
        """True for Hermes up to 0.17, which stores nothing of a turn before its end."""
        return self._schema is not None and not self._schema.has("messages", "compacted")

    def _read_stamp(self, main: database.FileState, files: database.DatabaseFiles) -> ChangeStamp:
        """Read the change stamp. Call it only while no connection is open."""
        return ChangeStamp(
            main=main,
            wal=files.wal,
            commit_mark=database.read_commit_stamp(self._path, files),
            routing_file=database.file_state(routing_file(self._home)),
        )

    def limit_open_sessions(self, most: int) -> None:
        """Keep at most so many open sessions; others are only counted."""
        if most != self._open_max:
            self._open_max = self.table.open_max = most
            self._forced_whole_pass = True

    def report_usage(self, wanted: bool) -> None:
        """Read and yield the usage of sessions, or leave it out."""
        if wanted != self._reports_usage:
            self._reports_usage = wanted
            self._forget()

    def update(self, watermark: int, before_open: Callable[[], None]) -> Iterator[SessionUsage]:
        """Update the table; yield the usage of sessions that changed.

        `watermark` is the highest message id that the agent has counted. `before_open` is called
        right before each opening, and may raise to forbid it.
        """
        files = database.stat_files(self._path)
        if files.database is None or files.database.size_bytes == 0:
            self._refuse_lost_database(files, watermark)
            self._forget()
            return
        gate = self._read_stamp(files.database, files)
        if watermark != self.watermark or self._replaced(files.database) or self._future_is_over():
            self._forced_whole_pass = True
        if gate == self._last_stamp and not self._forced_whole_pass and not self._routing_expired():
            return
        try:
            yield from self._read(watermark, before_open)
        except BaseException as error:
            self._last_stamp = None
            self._forced_whole_pass = True
            if isinstance(error, DatabaseError) and error.trouble in _MEANINGLESS:
                self._forget()
            raise
        self._last_stamp = gate
        self._future_at = self.table.next_future(self._clock())

    def _future_is_over(self) -> bool:
        """True if a session was active in the future by the clock of the last read, and is not now.

        A board without a clock of its own reads all rows so at first, and then no row changes.
        """
        return self._future_at is not None and self._clock() >= self._future_at

    def _replaced(self, main: database.FileState) -> bool:
        return self._last_stamp is not None and self._last_stamp.main.identity != main.identity

    def _refuse_lost_database(self, files: database.DatabaseFiles, watermark: int) -> None:
        """Raise if a database that held sessions is now missing or empty.

        A watermark shows that messages were counted before, even if this reader is new.
        """
        wal_left = files.wal is not None and files.wal.size_bytes > 0
        if self.passes or watermark or wal_left:
            what = "is gone" if files.database is None else "is empty"
            raise DatabaseError(Trouble.NOT_A_DATABASE, f"{self._path} {what}; it held sessions")

    def _routing_expired(self) -> bool:
        """True if a compression lock has expired, or the owner of a delegated task has ended."""
        if self.routing is None:
            return False
        until = self.routing.valid_until
        expired = until is not None and self._clock() >= until
        return expired or not all(map(self._owner_lives, self.routing.owners))

    def _read(self, watermark: int, before_open: Callable[[], None]) -> Iterator[SessionUsage]:
        for attempt in range(_ATTEMPTS):
            before_open()
            opening = database.plan_open(self._path)
            try:
                with database.reading(
                    opening,
                    deadline_seconds=_READ_DEADLINE_SECONDS,
                    mapped=not len(self.table),
                ) as connection:
                    for usage in self._pass(connection, watermark):
                        database.refuse_if_moved(opening)
                        yield from usage
                return
            except DatabaseError as error:
                # These occur for a short time while another process opens or closes the database.
                passing = error.trouble in (Trouble.BUSY, Trouble.IO_ERROR)
                if not passing or attempt == _ATTEMPTS - 1:
                    raise
                self._forced_whole_pass = True
                self._pause(0.05)

    def _pass(self, connection: apsw.Connection, watermark: int) -> Iterator[list[SessionUsage]]:
        """Update the table; yield usage only while no transaction is open.

        The caller may take long. An open transaction would pin the WAL for that time, or block
        Hermes from writing if there is no WAL.
        """
        cookie = schema_cookie(connection)
        if self._schema is None or self._schema.cookie != cookie:
            self._schema = probe_schema(connection)
            self._forced_whole_pass = True
            self._queries = SessionQueries(self._schema, with_usage=self._reports_usage)
        schema, queries = self._schema, self._queries
        health = _health(connection, schema)
        signs = read_life_signs(connection, schema)
        # Both are from the first transaction: rows written during the pass are read next time.
        highest = queries.messages.highest_id(connection)
        rowid = queries.highest_rowid(connection)
        if len(self.table):  # else everything is new
            self.table.add_moved(ancestors_of_active(connection, schema, self.last_rows))
        if self._whole_pass_due(connection, queries, health, highest):
            pointers = self._routing.pointers(connection, schema, self._clock())
            links = CompressionLinks()
            yield from self._whole_pass(connection, queries, watermark, links)
            routing = self._routing.from_links(pointers, links)
            self.parents = {}
            parents = (each.parent_id for each in self.table.open.values())
            self._follow_parents(connection, schema, parents)
        else:
            routing, usage = self._changes(connection, queries, watermark)
            yield usage
        self.routing, self.health, self.signs = routing, health, signs
        self.watermark, self._rowid = highest, rowid
        self.passes += 1

    def _whole_pass_due(
        self,
        connection: apsw.Connection,
        queries: SessionQueries,
        health: DatabaseHealth,
        highest: int,
    ) -> bool:
        if self._forced_whole_pass or highest < self.watermark:
            return True
        if len(self.table) <= self._always_whole_sessions:
            return True
        since = self._monotonic() - self._whole_pass_at
        if since > max(_WHOLE_PASS_SECONDS, _WHOLE_PASS_SHARE * self._whole_pass_seconds):
            return True
        pages_freed = self.health is not None and health.free_pages > self.health.free_pages
        return pages_freed and queries.count(connection) < len(self.table)

    def _whole_pass(
        self,
        connection: apsw.Connection,
        queries: SessionQueries,
        watermark: int,
        links: CompressionLinks,
    ) -> Iterator[list[SessionUsage]]:
        """Read every session in slices, each in its own read transaction."""
        began = self._monotonic()
        seen = array("q")
        after: str | bytes | None = None
        unreadable = queries.unfit_ids(connection)
        pace = ReadPacer(
            connection,
            first=_FIRST_SLICE_SESSIONS,
            sizes=_SLICE_SESSIONS,
            monotonic=self._monotonic,
            pause=self._pause,
        )
        with _garbage_collection_off():
            while True:
                part = queries.slice(connection, after, pace.size, watermark)
                if part.last is None:
                    break
                usage = self._put(connection, queries.schema, part.records, watermark)
                rows = [record.row for record in part.records]
                seen.extend(hash(row.id) for row in rows)
                links.add(rows)
                pace.end()
                yield usage
                pace.begin()
                after = part.last
                unreadable += part.left_out
        self.table.keep_only(seen)
        self.table.unreadable = unreadable
        self._forced_whole_pass = False
        self._whole_pass_at = self._monotonic()
        self._whole_pass_seconds = self._whole_pass_at - began

    def _changes(
        self, connection: apsw.Connection, queries: SessionQueries, watermark: int
    ) -> tuple[Routing, list[SessionUsage]]:
        """Read again what may have changed since the last pass."""
        suspects = self._possibly_changed(connection, queries, watermark)
        records = queries.records(connection, list(suspects), watermark)
        gone = suspects - {record.row.id for record in records}
        for session_id in gone:
            self.table.drop(session_id)
        # Hermes takes a deleted parent out of its children, also out of those that have ended.
        orphans = [child for child, parent in self.parents.items() if parent in gone]
        for child in orphans:
            del self.parents[child]
        usage = self._put(connection, queries.schema, records, watermark)
        moved = [record.row for record in records]
        # Without a look at every open session: there may be very many.
        self.parents |= {row.id: row.parent_id for row in moved if not row.is_open}
        parents = (row.parent_id for row in moved)
        self._follow_parents(connection, queries.schema, (*parents, *orphans))
        routing = self._routing.read(connection, queries.schema, self._clock(), moved)
        connection.execute("COMMIT")
        return routing, usage

    def _follow_parents(
        self, connection: apsw.Connection, schema: Schema, session_ids: Iterable[str | None]
    ) -> None:
        """Add the parents of ended sessions that are new here, and of their ancestors."""
        known = (self.table.open, self.parents)
        new = {each for each in session_ids if each and not any(each in those for those in known)}
        self.parents |= {**dict.fromkeys(new), **parents_of(connection, schema, new)}

    def _possibly_changed(
        self, connection: apsw.Connection, queries: SessionQueries, watermark: int
    ) -> set[str]:
        suspects = set(queries.messages.sessions_written_since(connection, watermark))
        # Include the newest row again: if it was deleted, another may have taken its rowid.
        suspects.update(queries.sessions_begun_since(connection, self._rowid - 1))
        few = len(self.table.open) <= _READ_ALL_OPEN_MAX
        return suspects.union(self.table.open if few else self.table.recently_active(self._clock()))

    def _put(
        self,
        connection: apsw.Connection,
        schema: Schema,
        records: Sequence[SessionRecord],
        watermark: int,
    ) -> list[SessionUsage]:
        """Put records into the table; return the usage of those that used more than before."""
        open_ids = [record.row.id for record in records if record.row.is_open]
        conversations = TurnQuery(schema).conversations(connection, open_ids)
        changed = self.table.put(records, conversations, self._clock())
        if not self._reports_usage:
            return []
        copies = CopyQuery(schema)
        usage: list[SessionUsage] = []
        for record in changed:
            row, (count, active, _, fresh), _ = record
            # Compaction makes all copies at once: as the first rows of a session, or in place of
            # every active row. Later messages may well repeat earlier text without being copies.
            parent = row.parent_id if fresh == count else None
            replaced = active <= fresh < count
            copied = 0
            if watermark and fresh and (parent is not None or replaced):
                copied = copies.copied(connection, row.id, parent, watermark)
            usage.append(usage_of(record, copied))
        return usage

    def check_integrity(self, interval_seconds: float, before_open: Callable[[], None]) -> None:
        """Run quick_check if one is due: only in a quiet home, and with a deadline."""
        now = self._monotonic()
        files = database.stat_files(self._path)
        if self._last_stamp is None or files.database is None:
            return
        small = files.database.size_bytes <= _SMALL_DATABASE_BYTES
        if self._checked_at is None and not small and now - self._born < _LARGE_CHECK_AFTER_SECONDS:
            return
        if self._checked_at is not None and now - self._checked_at < interval_seconds:
            return
        self._checked_at = now
        before_open()
        try:
            opening = database.plan_open(self._path)
            with database.reading(
                opening, deadline_seconds=_QUICK_CHECK_DEADLINE_SECONDS
            ) as connection:
                sound = is_sound(connection)
        except DatabaseError as error:
            if error.trouble is not Trouble.CORRUPT:
                return
            sound = False
        self.integrity = sound


@contextmanager
def _garbage_collection_off() -> Iterator[None]:
    """Rows and records have no cycles: a collection would visit all sessions and free none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _health(connection: apsw.Connection, schema: Schema) -> DatabaseHealth:
    return DatabaseHealth(
        schema_version=schema.version,
        pages=int(connection.pragma("page_count")),
        free_pages=int(connection.pragma("freelist_count")),
        page_size_bytes=int(connection.pragma("page_size")),
    )
