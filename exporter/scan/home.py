"""One home, read in two steps: a look without opening anything, then the reading itself."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from msgspec import structs

from exporter.errors import DatabaseError, HomeError
from exporter.evidence.openers import OpenAnswer, lock_owners, may_open
from exporter.hermes import database, gateway_files, home_facts, kanban, leases
from exporter.hermes.sqlite_locks import probe_shm
from exporter.reaper.models import (
    HomeFacts,
    JudgedSession,
    LeakCount,
    UnknownCount,
    Verdict,
    VerdictCount,
)
from exporter.reaper.plan import ACTION, ENDS, JudgedHome, ReapLimits
from exporter.reaper.verdict_history import VerdictHistory
from exporter.reaper.watched_idleness import Moment, read_moment
from exporter.runs.summary import RunMemory, RunReader
from exporter.scan.database import StateReader
from exporter.scan.disk.scanner import DiskScanner
from exporter.scan.filesystem import filesystem_of
from exporter.scan.session_table import SessionTable, session_key, with_holds
from exporter.snapshot import (
    DatabaseHealth,
    DatabaseLook,
    DiskReport,
    FileIdentity,
    Hold,
    KanbanClaim,
    LockAnswer,
    Look,
    OpenSession,
    SessionSummary,
    SessionUsage,
    Snapshot,
    Trouble,
)
from exporter.workers.protocol import (
    PAGE_ITEMS,
    ExplainReply,
    ReadReply,
    ReadRequest,
    SessionsPage,
    UsagePage,
)

if TYPE_CHECKING:  # only a home that is to be planned for needs them
    from exporter.pruner.gather.inventory_reader import Stocktaker
    from exporter.pruner.planning import Seen

_STATE: Final = "state.db"
_ALWAYS_SEND_SESSIONS: Final = 500
_SEND_SESSIONS_SECONDS: Final = 60.0
_ALWAYS_JUDGE_SESSIONS: Final = 500
_SEND_WATCH_SECONDS: Final = 60.0


class HomeReader:
    """Reads one home again and again, keeping what makes the next time cheap."""

    def __init__(
        self,
        home: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        moment: Callable[[], Moment] = read_moment,
    ) -> None:
        self._home = home
        self._clock = clock
        self._monotonic = monotonic
        self._state = StateReader(home, clock=clock, monotonic=monotonic)
        self._disk: tuple[tuple[float, float], DiskScanner] | None = None
        self._boards: dict[str, tuple[database.DatabaseFiles, list[KanbanClaim]]] = {}
        self._config: tuple[database.FileState | None, home_facts.HomeConfig] | None = None
        self._history = VerdictHistory(moment)
        self._open: dict[str, OpenSession] = {}
        """The open sessions with everything that holds them."""
        self._run_reader = RunReader(home, ACTION, ENDS)
        self._runs = RunMemory()
        self._in_trash: frozenset[str] = frozenset()
        self._keys_in_trash: frozenset[int] = frozenset()
        self._judged_at = float("-inf")
        self.suspects: frozenset[str] | None = frozenset()
        """Sessions that we ended and that may have gone on since; None: any of them."""
        self._known_ended: frozenset[str] = frozenset()
        self._moved: set[str] | None = set()
        """What has changed since the journal was last read; None: everything."""
        self._grown: set[str] = set()
        """What has changed since the last verdicts."""
        self._judged_table: SessionTable | None = None
        self._watch_sent_at = float("-inf")
        self._open_seen: object = None
        self._verdicts_are_new = False
        """They were made at the last reading, from what it read."""
        self._counted = (-1, -1)
        self._verdicts: list[VerdictCount] = []
        self._leaks: list[LeakCount] = []
        self._unknown: list[UnknownCount] = []
        self._sessions_sent_at = float("-inf")
        self._sessions_sent = (-1, -1)
        self._reads = 0
        self._request: ReadRequest | None = None
        """The last one."""
        self._facts: HomeFacts
        """What the last verdicts were made from."""
        self._walked: DiskReport
        self._stocktaker: Stocktaker | None = None

    # The look

    def look(self, owner: int) -> Look:
        """What can be known of the home while no connection is open."""
        trouble, detail = Trouble.NONE, ""
        try:
            self._refuse_changed_home(owner)
            path = database.database_path(self._home)
            database.refuse_unfit_files(database.look_at_files(path), owner, path)
        except (DatabaseError, OSError) as error:
            trouble, detail = self._trouble_of(error)
        found_leases = leases.read_leases(self._home)
        return Look(
            trouble=trouble,
            detail=detail,
            state=self._look_at_database(_STATE),
            boards=[self._look_at_database(name) for name in kanban.board_names(self._home)],
            gateway=gateway_files.read_gateway(self._home),
            leases=found_leases or [],
            leases_readable=found_leases is not None,
            filesystem=filesystem_of(self._home),
        )

    def _refuse_changed_home(self, owner: int) -> None:
        """The agent adopted a directory; make sure that this is still it."""
        try:
            found = os.lstat(self._home)
        except OSError as error:
            raise DatabaseError(
                Trouble.HOME_GONE, f"cannot read {self._home}: {error.strerror}"
            ) from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner:
            raise DatabaseError(Trouble.HOME_GONE, f"{self._home} is no longer what it was")
        if not os.access(self._home, os.R_OK | os.X_OK):
            raise DatabaseError(Trouble.PERMISSION, f"cannot read {self._home}: permission denied")

    def _look_at_database(self, name: str) -> DatabaseLook:
        path = os.path.join(self._home, name)
        files, journal = database.DatabaseFiles(None, None, None), None
        try:
            files = database.look_at_files(path)
            journal = database.read_journal(path) if _is_regular(files.database) else None
        except OSError:
            pass  # the reading will say why
        return DatabaseLook(
            name=name[:128],
            database=_identity(files.database),
            wal=_identity(files.wal),
            shm=_identity(files.shm),
            wal_mode=None if journal is None else journal is database.Journal.WAL,
            lock_probe=probe_shm(path + "-shm") if _is_regular(files.shm) else LockAnswer.BLIND,
        )

    def _trouble_of(self, error: DatabaseError | OSError) -> tuple[Trouble, str]:
        if isinstance(error, DatabaseError):
            return error.trouble, str(error)[:300]
        return Trouble.IO_ERROR, f"cannot read {self._home}: {error.strerror}"[:300]

    # The reading

    def read(self, request: ReadRequest) -> Iterator[UsagePage | SessionsPage | ReadReply]:
        """Bring everything up to date; the snapshot comes last."""
        trouble, detail = Trouble.NONE, ""
        if not self._reads:
            self._history.watched.load(request.watched)
        before_open = self._guard(request, _STATE)
        # First: what is read of a session is told apart by whether its past is in the trash.
        self._runs = self._run_reader.read(request.owner)
        try:
            self._refuse_changed_home(request.owner)
            self._refuse_unfit(request.owner, _STATE)
            usage = self._state.update(request.watermark, before_open)
            yield from _usage_pages(map(self._without_past, usage))
            if request.quiet and self._reads:
                self._state.check_integrity(request.full_interval_seconds, before_open)
        except (DatabaseError, OSError) as error:
            trouble, detail = self._trouble_of(error)
        self._reads += 1
        self._request = request
        self._note_what_went_on()
        self._verdicts_are_new = False
        if trouble is Trouble.NONE:
            self._open = self._sessions_with_holds(request)
            self._judge(request)
            yield from self._session_pages(request)
        snapshot = self._snapshot(request, trouble, detail)
        if snapshot.sessions is None:
            yield ReadReply(snapshot, runs=self._runs.report, reborn=self._has_reborn())
            return
        self._count_verdicts()
        yield ReadReply(
            snapshot,
            self._verdicts,
            self._leaks,
            structs.replace(self._runs.report, to_heal=self.to_heal),
            self._unknown,
            self._watched(),
            self._has_reborn(),
        )

    def _watched(self) -> bytes | None:
        """What the agent is to keep for the next worker; None if nothing is due."""
        watched, now = self._history.watched, self._monotonic()
        if not watched.changed or now - self._watch_sent_at < _SEND_WATCH_SECONDS:
            return None
        self._watch_sent_at = now
        return watched.dump()

    def _note_what_went_on(self) -> None:
        """Look whether a session that we ended may have gone on: it, or a child of it, moved."""
        moved = self._state.table.take_moved()
        self._grown |= moved or set()
        self._moved = None if moved is None or self._moved is None else self._moved | moved
        if not self._runs.readable:
            return  # what has moved is kept in mind until it can be told what we ended
        ended, moved = self._runs.ended, self._moved
        self._moved = set()
        if moved is None:
            self.suspects = None if ended else frozenset()
        elif self.suspects is not None:
            # What the journal has learnt only now may have gone on before.
            self.suspects |= (ended & moved) | (ended - self._known_ended)
        self._known_ended = ended

    @property
    def to_heal(self) -> bool:
        return self.suspects is None or bool(self.suspects)

    def healed(self) -> None:
        self.suspects = frozenset()

    def _without_past(self, usage: SessionUsage) -> SessionUsage:
        """Say of a session that was born again that its figures are not all."""
        if self._runs.in_trash is not self._in_trash:
            self._in_trash = self._runs.in_trash
            self._keys_in_trash = frozenset(map(session_key, self._in_trash))
        return structs.replace(usage, reborn=True) if usage.key in self._keys_in_trash else usage

    def _has_reborn(self) -> bool:
        """Whether a session that a prune deleted seems to be there while its past is in the trash.

        Only the healing itself looks at the rows: this is asked at every scan.
        """
        return any(session_id in self._state.table for session_id in self._runs.in_trash)

    def _revision(self) -> tuple[int, int]:
        """Moves when a session or a verdict does."""
        return self._state.passes, self._history.revision

    def _count_verdicts(self) -> None:
        if self._counted != self._revision():
            self._counted = self._revision()
            self._verdicts = self._history.counts(self._open)
            self._leaks = self._history.leaks(self._open)
            self._unknown = self._history.unknown()

    def _sessions_with_holds(self, request: ReadRequest) -> dict[str, OpenSession]:
        """The open sessions, each with what other tables, files and undos say in its favour."""
        since = self._clock() - request.undone_seconds
        restored = frozenset(key for key, when in self._runs.restored.items() if when >= since)
        seen = (self._state.table, self._state.passes, restored)
        if seen == self._open_seen:
            return self._open
        self._open_seen = seen
        sessions = dict(self._state.table.open)
        holds: dict[str, list[Hold]] = {}
        if self._state.routing is not None:
            holds.update((key, list(found)) for key, found in self._state.routing.holds.items())
        for session_id in restored:
            holds.setdefault(session_id, []).append(Hold.RESTORED)
        for session_id in holds.keys() & sessions.keys():
            session = sessions[session_id]
            sessions[session_id] = structs.replace(
                session, holds=with_holds(session, holds[session_id])
            )
        return sessions

    def _judge(self, request: ReadRequest) -> None:
        """Judge the open sessions; where there are very many, not at every scan."""
        since = self._monotonic() - self._judged_at
        if len(self._open) > _ALWAYS_JUDGE_SESSIONS and since < request.rules.interval_seconds:
            return
        self._judged_at = self._monotonic()
        blind = request.facts.blind
        if self._state.routing is None or not self._state.routing.readable:
            blind = (*blind, "routing")
        if not self._runs.readable:
            blind = (*blind, "run_journal")
        now = self._clock()
        signs = self._state.signs
        turns = frozenset(each for each, until in signs.turns.items() if until > now)
        self._facts = structs.replace(
            request.facts,
            blind=blind,
            plugins=self._has_plugins(),
            backend_beat_at=signs.backend_beat_at,
            turns=turns,
            turns_elsewhere=not turns <= self._open.keys(),
        )
        begun_anew = self._judged_table is not self._state.table
        self._judged_table = self._state.table
        self._history.update(
            self._open,
            self._facts,
            request.rules,
            now,
            reopened=self._judged_table.reopened,
            grown=self._grown,
            begun_anew=begun_anew,
        )
        self._grown = set()
        self._verdicts_are_new = True

    def explain(self, session_id: str) -> ExplainReply:
        """Everything that led to the verdict on an open session."""
        session = self._open.get(session_id)
        if session is None:
            return ExplainReply(None, None)
        return ExplainReply(session, self._history.judgement(session))

    def seen(self) -> Seen:
        """What a prune is planned from. Raise HomeError unless it was all seen just now."""
        from exporter.pruner.planning import Seen

        if not self._verdicts_are_new or self._request is None or self._disk is None:
            raise HomeError(f"{self._home} was not read and judged at the last look")
        return Seen(
            facts=self._facts,
            rules=self._request.rules,
            disk=self._disk[1],
            walked=self._walked,
            before_open=self._guard(self._request, _STATE),
        )

    def stocktaker(self) -> Stocktaker:
        """The one that knows the home from earlier plans."""
        if self._stocktaker is None:
            from exporter.pruner.gather.inventory_reader import Stocktaker

            self._stocktaker = Stocktaker(self._home, clock=self._clock, monotonic=self._monotonic)
        return self._stocktaker

    def judged_home(self, limits: ReapLimits, reaped_in_last_minute: int) -> JudgedHome:
        """What a reap is planned from. Raise HomeError unless it was all seen just now."""
        if not self._verdicts_are_new:
            raise HomeError(f"{self._home} was not read and judged at the last look")
        tripped = self._runs.report.tripped
        return JudgedHome(
            home=self._home,
            judged=[
                self._history.judged(session)
                for session_id, session in self._open.items()
                if self._history.verdict(session_id) is Verdict.DEAD
            ],
            open_sessions=len(self._open),
            limits=limits,
            reaped_in_last_minute=reaped_in_last_minute,
            tripped=tripped.why if tripped is not None else "",
        )

    def _guard(self, request: ReadRequest, name: str) -> Callable[[], None]:
        """What must hold at the very moment before a database is opened."""

        def guard() -> None:
            answer = OpenAnswer.LOCK_LOST
            if name in request.openable:
                owners = lock_owners({holding.shm_inode for holding in request.holdings})
                answer = may_open(request.holdings, owners)
            if answer is OpenAnswer.LOCK_LOST:
                raise DatabaseError(
                    Trouble.LOCKLESS_SHM_HOLDER,
                    f"a process lost its lock on {os.path.join(self._home, name)}-shm; "
                    "opening the database would kill it, so the last reading is kept",
                )

        return guard

    def _refuse_unfit(self, owner: int, name: str) -> None:
        path = os.path.join(self._home, name)
        database.refuse_unfit_files(database.look_at_files(path), owner, path)

    def _snapshot(self, request: ReadRequest, trouble: Trouble, detail: str) -> Snapshot:
        now = self._clock()
        state = self._state
        stale_trouble = trouble in (Trouble.LOCKLESS_SHM_HOLDER, Trouble.BUSY)
        keep = trouble is Trouble.NONE or stale_trouble
        return Snapshot(
            scanned_at=now,
            trouble=trouble,
            detail=detail,
            database_present=os.path.lexists(database.database_path(self._home)),
            health=self._health(trouble),
            sessions=self._summary(request, now) if keep and state.health else None,
            disk=self._walk(request, now),
            routing_readable=state.routing.readable if state.routing else True,
            routed=state.routing.routed if state.routing else 0,
            hermes_version=home_facts.hermes_version(self._home),
            cron_ticker_at=home_facts.cron_ticker_at(self._home),
            kanban=self._kanban(request),
            message_watermark=state.watermark,
            missing_columns=state.missing_columns[:32],
        )

    def _health(self, trouble: Trouble) -> DatabaseHealth | None:
        broken = trouble in (Trouble.CORRUPT, Trouble.NOT_A_DATABASE)
        health = self._state.health
        if broken:
            health = health or DatabaseHealth(None, 0, 0, 0, "unknown")
            return structs.replace(health, integrity_ok=False, integrity_checked_at=self._clock())
        if health is None or self._state.integrity is None:
            return health
        sound, when = self._state.integrity
        return structs.replace(health, integrity_ok=sound, integrity_checked_at=when)

    def _summary(self, request: ReadRequest, now: float) -> SessionSummary:
        own_limit = self._home_config().marathon_limit
        return self._state.table.summary(
            now,
            trivial_max_messages=request.trivial_max_messages,
            marathon_max=own_limit or request.marathon_max_messages,
            marathon_near=request.marathon_near_ratio,
        )

    def _home_config(self) -> home_facts.HomeConfig:
        """The home's own config.yaml; it is parsed only when it has changed."""
        seen = database.file_state(os.path.join(self._home, "config.yaml"))
        if self._config is None or self._config[0] != seen:
            self._config = (seen, home_facts.read_config(self._home))
        return self._config[1]

    def _has_plugins(self) -> bool:
        return self._home_config().enables_plugins or home_facts.has_plugin_folders(self._home)

    def _disk_scanner(self, request: ReadRequest) -> DiskScanner:
        """The one that knows the home from earlier scans; other settings begin anew."""
        settings = (request.stale_after_seconds, request.full_interval_seconds)
        if self._disk is None or self._disk[0] != settings:
            scanner = DiskScanner(
                self._home,
                stale_after_seconds=request.stale_after_seconds,
                full_interval_seconds=request.full_interval_seconds,
            )
            self._disk = (settings, scanner)
        return self._disk[1]

    def _walk(self, request: ReadRequest, now: float) -> DiskReport:
        self._walked = self._disk_scanner(request).scan(
            excluded_profiles=frozenset(request.excluded_profiles),
            now=now,
            monotonic=self._monotonic(),
        )
        return self._walked

    def _kanban(self, request: ReadRequest) -> list[KanbanClaim] | None:
        """Running tasks of all boards; None where there is no board, or one cannot be read."""
        boards = [self._board(request, name) for name in kanban.board_names(self._home)]
        if not boards or None in boards:
            return None
        return [claim for board in boards for claim in board or []][:512]

    def _board(self, request: ReadRequest, name: str) -> list[KanbanClaim] | None:
        path = os.path.join(self._home, name)
        known = self._boards.get(name)
        try:
            files = database.look_at_files(path)
            if known is not None and known[0] == files:
                return known[1]
            self._refuse_unfit(request.owner, name)
            self._guard(request, name)()
            opening = database.plan_opening(path)
            with database.reading(opening, deadline_seconds=5.0) as connection:
                claims = kanban.read_claims(connection)
        except (HomeError, OSError):
            return None
        self._boards[name] = (files, claims)
        return claims

    def _session_pages(self, request: ReadRequest) -> Iterator[SessionsPage]:
        sessions = self._open
        moved = self._sessions_sent != self._revision()
        due = self._monotonic() - self._sessions_sent_at >= _SEND_SESSIONS_SECONDS
        few = len(sessions) <= _ALWAYS_SEND_SESSIONS
        if not (request.every_session or few or (moved and due)):
            return
        self._sessions_sent_at, self._sessions_sent = self._monotonic(), self._revision()
        page: list[JudgedSession] = []
        first = True
        for session in sessions.values():
            page.append(self._history.judged(session))
            if len(page) == PAGE_ITEMS:
                yield SessionsPage(page, first)
                page, first = [], False
        if page or first:
            yield SessionsPage(page, first)


def _usage_pages(usage: Iterator[SessionUsage]) -> Iterator[UsagePage]:
    page: list[SessionUsage] = []
    for item in usage:
        page.append(item)
        if len(page) == PAGE_ITEMS:
            yield UsagePage(page)
            page = []
    if page:
        yield UsagePage(page)


def _identity(state: database.FileState | None) -> FileIdentity | None:
    return state.identity if state is not None else None


def _is_regular(state: database.FileState | None) -> bool:
    return state is not None and stat.S_ISREG(state.mode)
