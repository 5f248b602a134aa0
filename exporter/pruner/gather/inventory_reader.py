"""Reads the inventory of a home: everything that the pruner's decisions use. Runs in the worker.

The database is read only through `exporter.hermes.database`, in short read transactions, and is
closed before anything else is read. Nothing is written: the caller gets what it must remember.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import apsw
from msgspec import Struct, structs

from exporter.errors import DatabaseError
from exporter.evidence.liveness import LivingOwners
from exporter.evidence.models import ProcessFacts
from exporter.hermes import database
from exporter.hermes.continuity import (
    DatabaseFingerprint,
    newest_messages,
    read_content,
    unchanged_anchors,
)
from exporter.hermes.heartbeats import read_life_signs
from exporter.hermes.own_pruning import OwnPruning, read_own_pruning
from exporter.hermes.payload_sizes import MeasuredSizes, PayloadSizes
from exporter.hermes.routing import read_routing
from exporter.hermes.schema import probe_schema
from exporter.hermes.session_files import FileOwners
from exporter.hermes.session_queries import SessionQueries
from exporter.pruner.decide.inventory import Inventory, InventorySession, Safeguards, SessionFile
from exporter.pruner.gather.checkpoints import CheckpointReader, KnownWorkdirs
from exporter.pruner.gather.earlier_runs import EarlierRuns, read_runs
from exporter.pruner.gather.inventory_sessions import read_sessions
from exporter.pruner.gather.policy_files import list_policy_files
from exporter.pruner.gather.seen_deletions import DatabaseState, RunEffects, find_deletions
from exporter.pruner.gather.session_files import (
    list_files,
    mark_last_copies,
    owners_of,
    with_owners,
)
from exporter.pruner.gather.unchanged import UnchangedCache
from exporter.pruner.models import (
    ITEMS_MAX,
    WORKDIRS_MAX,
    DeletionMemory,
    PruneMemory,
    SeenDatabase,
)
from exporter.reaper.models import ReaperRules
from exporter.scan.disk.scanner import DiskScanner
from exporter.scan.filesystem import filesystem_of
from exporter.scan.mount_namespaces import MountNamespaces, Process
from exporter.snapshot import DiskKind, DiskReport, Hold

_READ_SECONDS: Final = 90.0
_MEASURE_SECONDS: Final = 2.0
"""Time for measuring messages in one scan; a large home needs a few scans."""
_CHECKPOINT_KINDS: Final = (
    DiskKind.CHECKPOINTS_LEGACY,
    DiskKind.CHECKPOINTS_STORE,
    DiskKind.CHECKPOINTS_ARCHIVE,
)


class InventoryRequest(Struct, frozen=True):
    """What the agent tells a worker so that it can read an inventory."""

    owner: int
    facts: ProcessFacts = ProcessFacts()
    rules: ReaperRules = ReaperRules()
    memory: PruneMemory = PruneMemory()
    end_reason: str = "reaped"
    """The end reason that the reaper writes."""
    undone_seconds: float = 30 * 86400.0
    trash_keep_seconds: float = 72 * 3600.0
    disk_share: float = 1.0
    """This home's share of the bytes that all watched homes have on its filesystem."""
    thorough: bool = False
    """A person waits for exact figures: measure everything, even if it takes long."""
    sessions_max: int | None = None
    """See `PrunePlanRequest`."""
    figures_only: bool = False
    """Leave out what each item must still be like when it is taken: nothing will be taken."""


class InventoryResult(Struct, frozen=True):
    """The inventory, and what to remember for the next one."""

    inventory: Inventory
    memory: PruneMemory


class Measurements(Struct, frozen=True, array_like=True):
    """Sizes that are slow to measure; kept for the next inventory."""

    payloads: MeasuredSizes
    project_sizes: dict[str, tuple[float, int]]


class _DatabaseFacts(Struct):
    """What one reading of the database found."""

    sessions: list[InventorySession] = []
    holds: Mapping[str, list[Hold]] = {}
    turn_leases: frozenset[str] = frozenset()
    self_pruning: OwnPruning = OwnPruning()
    content: DatabaseFingerprint | None = None
    surviving: frozenset[int] = frozenset()
    owned: Mapping[str, str] = {}
    """The session of each file that has one in the database, by the name of the file."""
    newest: Mapping[str, int] = {}
    payload_bytes: int | None = 0
    can_hide_rows: bool = True
    unreadable: tuple[str, ...] = ()


class InventoryReader:
    """Reads the inventory of one home, and keeps measured sizes from one time to the next."""

    def __init__(
        self,
        home: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home = home
        self._path = database.database_path(home)
        self._clock = clock
        self._monotonic = monotonic
        self._payloads = PayloadSizes(monotonic)
        self._checkpoints = CheckpointReader(home)
        self.unchanged = UnchangedCache(home)

    def read(
        self,
        request: InventoryRequest,
        disk: DiskScanner,
        walked: DiskReport,
        *,
        before_open: Callable[[], None],
    ) -> InventoryResult:
        """Read the inventory. `disk` has just walked the home, and `walked` is its report.

        `before_open` is called right before the database is opened, and may raise DatabaseError to
        forbid it. `Safeguards.unreadable` names what could not be read; then nothing is pruned.
        """
        now = self._clock()
        # Files before the database: a file written in between would seem to have no row.
        listed, transcripts_bytes = list_files(self._home, request.owner)
        found = self._read_database(request, listed, now, before_open)
        runs = read_runs(self._home, request, found.sessions, now)
        files, known = self._find_deletions(request.memory.deletions, listed, found, runs, now)
        checkpoints, workdirs = self._checkpoints.read(
            disk,
            request.owner,
            self._workdirs(request),
            now,
            self._monotonic(),
            thorough=request.thorough,
            figures_only=request.figures_only,
        )
        filesystem = filesystem_of(self._home)
        inventory = Inventory(
            taken_at=now,
            sessions=tuple(found.sessions),
            files=files,
            checkpoints=checkpoints,
            leftovers=self._checkpoints.leftovers(request.owner),
            gathered=list_policy_files(self._home, request.owner),
            trash=runs.trash,
            safeguards=Safeguards(
                facts=request.facts,
                rules=request.rules,
                holds=found.holds,
                turn_leases=found.turn_leases,
                restored=runs.restored,
                reaped_at=runs.reaped_at,
                can_hide_rows=found.can_hide_rows,
                unreadable=(*found.unreadable, *runs.unreadable),
            ),
            self_pruning=found.self_pruning,
            transcripts_bytes=transcripts_bytes,
            checkpoints_bytes=_bytes_of(walked),
            payload_bytes=found.payload_bytes,
            awaiting_gc_bytes=self._awaiting_gc(runs),
            filesystem=filesystem,
            free_bytes=filesystem.avail_bytes if filesystem is not None else None,
            taken_recently=runs.taken_recently,
            purged_bytes=runs.purged_bytes,
            disk_share=request.disk_share,
        )
        memory = structs.replace(
            request.memory,
            deletions=known,
            missing=dict(list(workdirs.missing.items())[:ITEMS_MAX]),
            present=tuple(sorted(workdirs.present)[:WORKDIRS_MAX]),
            unrecorded_reaps=runs.unrecorded_reaps,
        )
        return InventoryResult(inventory, memory)

    def _workdirs(self, request: InventoryRequest) -> KnownWorkdirs:
        processes = (
            Process(holder.pid, holder.start_ticks)
            for holder in request.facts.holders
            if not holder.outsider  # a process of another user, which can only read the database
        )
        namespaces = MountNamespaces(processes)
        return KnownWorkdirs(namespaces, request.memory.present, request.memory.missing)

    def now(self) -> float:
        return self._clock()

    def measurements(self) -> Measurements:
        return Measurements(self._payloads.save(), self._checkpoints.sizes)

    def set_measurements(self, measurements: Measurements) -> None:
        """Take over what another process has measured."""
        self._payloads.load(measurements.payloads)
        self._checkpoints.sizes = measurements.project_sizes

    # The database

    def _read_database(
        self,
        request: InventoryRequest,
        listed: Sequence[SessionFile],
        now: float,
        before_open: Callable[[], None],
    ) -> _DatabaseFacts:
        files = database.stat_files(self._path)
        if files.database is None:
            return _DatabaseFacts(self_pruning=read_own_pruning(self._home, None, None))
        try:
            database.refuse_unfit_files(files, request.owner, self._path)
            before_open()
            opening = database.plan_open(self._path)
            with database.reading(opening, deadline_seconds=_READ_SECONDS) as connection:
                if _has_more_than(request.sessions_max, connection):
                    return _DatabaseFacts(payload_bytes=None, unreadable=("too_many_sessions",))
                found = self._read(connection, now, request)
                self._recognise(connection, request.memory.deletions.seen, listed, found)
        except (DatabaseError, OSError):
            return _DatabaseFacts(payload_bytes=None, unreadable=("database",))
        return found

    def _read(
        self, connection: apsw.Connection, now: float, request: InventoryRequest
    ) -> _DatabaseFacts:
        schema = probe_schema(connection)
        routing = read_routing(self._home, connection, schema, now, LivingOwners())
        turns = read_life_signs(connection, schema).turns
        leases = frozenset(session_id for session_id, until in turns.items() if until > now)
        self_pruning = read_own_pruning(self._home, connection, schema)
        seconds = _READ_SECONDS if request.thorough else _MEASURE_SECONDS
        self._payloads.measure(connection, schema, seconds)
        sessions = read_sessions(
            connection, schema, self._payloads, now, with_states=not request.figures_only
        )
        return _DatabaseFacts(
            sessions=sessions,
            holds=routing.holds,
            turn_leases=leases,
            self_pruning=self_pruning,
            payload_bytes=sum(session.payload_bytes for session in sessions),
            can_hide_rows=schema.has("sessions", "archived"),
            unreadable=() if routing.readable else ("routing",),
        )

    def _recognise(
        self,
        connection: apsw.Connection,
        before: SeenDatabase | None,
        listed: Sequence[SessionFile],
        found: _DatabaseFacts,
    ) -> None:
        """Read what identifies the database, and which files have a row in it."""
        schema = probe_schema(connection)
        found.content = read_content(connection, schema)
        if before is not None:
            found.surviving = unchanged_anchors(connection, schema, before.content.anchors)
        found.owned = owners_of(listed, FileOwners(session.id for session in found.sessions))
        found.newest = newest_messages(connection, schema, found.owned.values())

    def _find_deletions(
        self,
        memory: DeletionMemory,
        listed: Sequence[SessionFile],
        found: _DatabaseFacts,
        runs: EarlierRuns,
        now: float,
    ) -> tuple[tuple[SessionFile, ...], DeletionMemory]:
        owned = with_owners(listed, found.owned)
        files = list(mark_last_copies(self._home, owned, found.sessions))
        lost = [file for file in files if file.session_id is None]
        deleted = owners_of(lost, FileOwners(runs.deleted)) if lost else {}
        unsettled = owners_of(lost, FileOwners(runs.unsettled)) if lost else {}
        ours = RunEffects(
            deleted={name: runs.deleted[session] for name, session in deleted.items()},
            unsettled=frozenset(unsettled),
            given_back=runs.given_back,
        )
        return find_deletions(memory, self._database_state(found, now), files, ours, now)

    def _database_state(self, found: _DatabaseFacts, now: float) -> DatabaseState | None:
        state = database.file_state(self._path)
        if state is None or found.content is None:
            return None
        identity = state.identity
        return DatabaseState(
            seen=SeenDatabase(now, identity.device, identity.inode, found.content),
            surviving=found.surviving,
            newest=found.newest,
            copied_at=max(self._copy_times(), default=0.0),
        )

    def _copy_times(self) -> list[float]:
        """Return when copies of the database were made beside it: a repair, restore or rescue."""
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

    def _awaiting_gc(self, runs: EarlierRuns) -> int:
        collected_at = self._checkpoints.collected_at()
        return sum(size for settled_at, size in runs.projects if settled_at > collected_at)


def _has_more_than(sessions_max: int | None, connection: apsw.Connection) -> bool:
    """True if the home has so many sessions that an inventory would take too much memory."""
    if sessions_max is None:
        return False
    return SessionQueries(probe_schema(connection)).count(connection) > sessions_max


def _bytes_of(walked: DiskReport) -> int | None:
    if not walked.complete and not walked.unreadable:
        return None
    return sum(
        walked.usage[kind].allocated_bytes for kind in _CHECKPOINT_KINDS if kind in walked.usage
    )
