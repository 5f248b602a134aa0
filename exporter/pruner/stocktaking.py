"""Taking stock of a home: everything that the pruner decides from, gathered in the worker.

The database is read through `exporter.hermes.database` alone, in short read transactions, and
closed before anything else is looked at. Nothing is written: what has to be remembered is given
back to the caller.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import apsw
import msgspec
from msgspec import Struct, structs

from exporter.errors import DatabaseError
from exporter.evidence.statx import born_at
from exporter.hermes import database
from exporter.hermes.expected import expected_of
from exporter.hermes.heartbeats import read_signs
from exporter.hermes.payload import Measured, Payloads, highest_message
from exporter.hermes.routing import read_routing
from exporter.hermes.schema import Schema, probe_schema
from exporter.hermes.self_pruning import SelfPruning, read_self_pruning
from exporter.hermes.sessions import SessionRecord
from exporter.hermes.stock import Extras, StockQueries, children
from exporter.pruner.inventory import (
    Coverage,
    Inventory,
    Link,
    Safeguards,
    StockedSession,
)
from exporter.pruner.memory import ITEMS_MAX, DatabaseMemory, PruneMemory
from exporter.pruner.rest import Rest
from exporter.pruner.stock_checkpoints import CheckpointStock
from exporter.pruner.stock_files import take_files
from exporter.pruner.stock_runs import RunStock, read_runs
from exporter.reaper.findings import HomeFacts, ReaperRules
from exporter.scan.disk import DiskScanner
from exporter.scan.filesystem import filesystem_of
from exporter.snapshot import DiskKind, DiskReport, Hold

_READ_SECONDS: Final = 90.0
_MEASURE_SECONDS: Final = 2.0
"""For measuring messages at one look; a large home is measured within a few."""
_FUTURE_TOLERANCE_SECONDS: Final = 60.0
_CHECKPOINT_KINDS: Final = (
    DiskKind.CHECKPOINTS_LEGACY,
    DiskKind.CHECKPOINTS_STORE,
    DiskKind.CHECKPOINTS_ARCHIVE,
)


class Asked(Struct, frozen=True):
    """What the agent tells a worker for the taking of stock."""

    owner: int
    facts: HomeFacts = HomeFacts()
    rules: ReaperRules = ReaperRules()
    memory: PruneMemory = PruneMemory()
    end_reason: str = "reaped"
    """What the reaper writes: sessions with it may be its own doing."""
    undone_seconds: float = 30 * 86400.0
    trash_keep_seconds: float = 72 * 3600.0
    thorough: bool = False
    """A person waits for exact figures: measure everything, however long it takes."""


class Stock(Struct, frozen=True):
    """What was found, and what to remember of it."""

    inventory: Inventory
    memory: PruneMemory


class Learnt(Struct, frozen=True):
    """What makes the next taking of stock cheap."""

    payloads: Measured
    project_sizes: dict[str, tuple[float, int]]


class _Found(Struct):
    """What the database told."""

    sessions: list[StockedSession] = []
    holds: Mapping[str, list[Hold]] = {}
    turn_leases: frozenset[str] = frozenset()
    self_pruning: SelfPruning = SelfPruning()
    highest_message: int = 0
    payload_bytes: int | None = 0
    unreadable: tuple[str, ...] = ()


class Stocktaker:
    """Takes stock of one home again and again, keeping what makes the next time cheap."""

    def __init__(
        self,
        home: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        measure_seconds: float = _MEASURE_SECONDS,
        mountinfo: str = "/proc/self/mountinfo",
        fstab: str = "/etc/fstab",
    ) -> None:
        self._home = home
        self._path = database.database_path(home)
        self._clock = clock
        self._monotonic = monotonic
        self._measure_seconds = measure_seconds
        self._payloads = Payloads(monotonic)
        self._checkpoints = CheckpointStock(home, mountinfo, fstab)
        self.rest = Rest(home)

    def take(
        self,
        asked: Asked,
        disk: DiskScanner,
        walked: DiskReport,
        *,
        before_open: Callable[[], None],
    ) -> Stock:
        """Take stock; `disk` has just walked the home, with `walked` as its report.

        `before_open` may raise DatabaseError to forbid the opening of the database; it is called
        right before it. What cannot be read is said in the inventory, which then protects all.
        """
        now = self._clock()
        found = self._read_database(asked, now, before_open)
        runs = read_runs(self._home, asked, found.sessions, now)
        files, transcripts_bytes = take_files(
            self._home, asked.owner, (session.id for session in found.sessions)
        )
        checkpoints, missing = self._checkpoints.take(
            disk, asked.owner, asked.memory.missing, now, self._monotonic(), asked.thorough
        )
        known, coverage = self._coverage(asked.memory.database, found, now)
        inventory = Inventory(
            taken_at=now,
            sessions=tuple(found.sessions),
            files=files,
            checkpoints=checkpoints,
            leftovers=self._checkpoints.leftovers(asked.owner),
            trash=runs.trash,
            coverage=coverage,
            safeguards=Safeguards(
                facts=asked.facts,
                rules=asked.rules,
                holds=found.holds,
                turn_leases=found.turn_leases,
                restored=runs.restored,
                reaped_at=runs.reaped_at,
                unreadable=(*found.unreadable, *runs.unreadable),
            ),
            self_pruning=found.self_pruning,
            transcripts_bytes=transcripts_bytes,
            checkpoints_bytes=_bytes_of(walked),
            payload_bytes=found.payload_bytes,
            awaiting_gc_bytes=self._awaiting_gc(runs),
            filesystem=filesystem_of(self._home),
        )
        memory = structs.replace(
            asked.memory,
            database=known,
            missing=dict(list(missing.items())[:ITEMS_MAX]),
            strangers=runs.strangers,
        )
        return Stock(inventory, memory)

    def now(self) -> float:
        return self._clock()

    def learnt(self) -> Learnt:
        return Learnt(self._payloads.save(), self._checkpoints.sizes)

    def learn(self, learnt: Learnt) -> None:
        """Know what a process that was forked from this one has learnt."""
        self._payloads.load(learnt.payloads)
        self._checkpoints.sizes = learnt.project_sizes

    # The database

    def _read_database(self, asked: Asked, now: float, before_open: Callable[[], None]) -> _Found:
        files = database.look_at_files(self._path)
        if files.database is None:
            return _Found(self_pruning=read_self_pruning(self._home, None, None))
        try:
            database.refuse_unfit_files(files, asked.owner, self._path)
            before_open()
            opening = database.plan_opening(self._path)
            with database.reading(opening, deadline_seconds=_READ_SECONDS) as connection:
                found = self._read(connection, now, thorough=asked.thorough)
        except (DatabaseError, OSError):
            return _Found(payload_bytes=None, unreadable=("database",))
        return found

    def _read(self, connection: apsw.Connection, now: float, *, thorough: bool) -> _Found:
        schema = probe_schema(connection)
        routing = read_routing(self._home, connection, schema, now)
        turns = read_signs(connection, schema).turns
        leases = frozenset(session_id for session_id, until in turns.items() if until > now)
        self_pruning = read_self_pruning(self._home, connection, schema)
        highest = highest_message(connection, schema)
        seconds = _READ_SECONDS if thorough else self._measure_seconds
        self._payloads.measure(connection, schema, seconds)
        sessions = self._stocked(connection, schema, now)
        return _Found(
            sessions=sessions,
            holds=routing.holds,
            turn_leases=leases,
            self_pruning=self_pruning,
            highest_message=highest,
            payload_bytes=sum(session.payload_bytes for session in sessions),
            unreadable=() if routing.readable else ("routing",),
        )

    def _stocked(
        self, connection: apsw.Connection, schema: Schema, now: float
    ) -> list[StockedSession]:
        """All sessions; of what was read no more than a slice is kept at a time."""
        counts = children(connection, schema)
        sessions: list[StockedSession] = []
        with_parents: dict[int, Extras] = {}
        reasons: dict[str, str] = {}
        for part in StockQueries(schema).slices(connection):
            for record, extras in part:
                row, rows = record.row, record.messages.rows
                reasons[row.id] = sys.intern(row.end_reason)
                if row.parent_id is not None:
                    with_parents[len(sessions)] = extras
                size = self._payloads.of(connection, schema, row.id, rows)
                sessions.append(_session(record, extras, counts.get(row.id, 0), size, now))
        self._payloads.forget_others()
        for number, extras in with_parents.items():
            session = sessions[number]
            link = _link(session.parent_id, extras, reasons)
            sessions[number] = structs.replace(session, link=link)
        return sessions

    def _coverage(
        self, known: DatabaseMemory | None, found: _Found, now: float
    ) -> tuple[DatabaseMemory | None, Coverage]:
        """Which time the database covers, and what to remember of it for the next time."""
        state = database.file_state(self._path)
        if state is None or found.unreadable:
            return known, Coverage()
        identity = state.identity
        same = (
            known is not None
            and (known.device, known.inode) == (identity.device, identity.inode)
            and known.highest_message <= found.highest_message
        )
        if known is None or not same:
            known = DatabaseMemory(
                device=identity.device,
                inode=identity.inode,
                highest_message=found.highest_message,
                since=now,
                replaced=known is not None,
            )
        known = structs.replace(known, highest_message=found.highest_message)
        doubts = self._doubts()
        return known, Coverage(
            watched_since=known.since if not _later(doubts, known.since) else None,
            oldest_session_at=min(
                (each.started_at for each in found.sessions if each.started_at > 0), default=None
            ),
            doubtful_until=max([*doubts, known.since if known.replaced else 0.0], default=0.0),
            database_born_at=_born_at(self._path),
        )

    def _doubts(self) -> list[float]:
        """When copies of the database were put beside it: by a repair, a restore, a rescue."""
        try:
            with os.scandir(os.fsencode(self._home)) as entries:
                return [
                    max(found.st_mtime, found.st_ctime)
                    for entry in entries
                    if entry.name.startswith((b"state.db.", b".state.db."))
                    and (found := entry.stat(follow_symlinks=False))
                ]
        except OSError:
            return [float("inf")]

    def _awaiting_gc(self, runs: RunStock) -> int:
        collected_at = self._checkpoints.collected_at()
        return sum(size for settled_at, size in runs.projects if settled_at > collected_at)


def _session(
    record: SessionRecord, extras: Extras, children: int, payload: int, now: float
) -> StockedSession:
    row, messages, _ = record
    clocks = [row.started_at, messages.newest, row.last_activity_at, row.last_heartbeat_at]
    known = [clock for clock in (*clocks, row.ended_at) if clock is not None]
    latest = max(known, default=0.0)
    expected = b"{}"
    if not row.is_open:
        expected = msgspec.json.encode(
            expected_of(record, archived=extras.archived, titled=extras.titled, children=children)
        )
    return StockedSession(
        id=row.id,
        source=sys.intern(row.source),
        is_open=bool(row.is_open),
        started_at=row.started_at or 0.0,
        last_activity_at=latest,
        clocks_sane=(
            row.intact == 1
            and row.started_at is not None
            and (bool(row.is_open) or row.ended_at is not None)
            and (messages.newest is not None or messages.rows == 0)
            and 0 < latest <= now + _FUTURE_TOLERANCE_SECONDS
        ),
        rows=messages.rows,
        size=max(messages.rows, extras.message_count),
        payload_bytes=extras.row_bytes + payload,
        end_reason=sys.intern(row.end_reason),
        ended_at=row.ended_at,
        parent_id=row.parent_id,
        archived=extras.archived,
        pinned=bool(row.pinned),
        titled=extras.titled,
        handed_off=row.handoff_state in ("pending", "running"),
        expected=expected,
    )


def _later(moments: Iterable[float], than: float) -> bool:
    return any(moment > than for moment in moments)


def _link(parent_id: str | None, extras: Extras, reasons: Mapping[str, str]) -> Link:
    """What a session is to its parent. A mark on the session itself says more than its parent."""
    if parent_id is None or parent_id not in reasons:
        return Link.NONE
    if extras.delegated:
        return Link.DELEGATE
    if extras.branched or reasons[parent_id] == "branched":
        return Link.BRANCH
    return Link.COMPRESSION if reasons[parent_id] == "compression" else Link.CHILD


def _born_at(path: str) -> float | None:
    folder, name = os.path.split(path)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return born_at(descriptor, os.fsencode(name))
    finally:
        os.close(descriptor)


def _bytes_of(walked: DiskReport) -> int | None:
    if not walked.complete and not walked.unreadable:
        return None
    return sum(
        walked.usage[kind].allocated_bytes for kind in _CHECKPOINT_KINDS if kind in walked.usage
    )
