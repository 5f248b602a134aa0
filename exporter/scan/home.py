"""Read one home into a Snapshot: its database, its disk and its small files. Nothing is judged."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from msgspec import structs

from exporter.errors import DatabaseError, HomeError
from exporter.evidence.openers import may_open
from exporter.hermes import database, home_facts, kanban
from exporter.hermes.routing import OwnerLives
from exporter.scan.database import StateReader
from exporter.scan.disk.repository import KeptRepos
from exporter.scan.disk.scanner import DiskScanner
from exporter.scan.matched_files import FileCounter
from exporter.scan.options import ScanOptions
from exporter.scan.probe import STATE, refuse_changed_home, refuse_unfit_database
from exporter.snapshot import (
    DatabaseHealth,
    DiskReport,
    KanbanClaim,
    SessionSummary,
    SessionUsage,
    Snapshot,
    Trouble,
)


class HomeScanner:
    """Reads one home scan after scan, and keeps what makes the next scan cheap."""

    def __init__(
        self,
        home: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        owner_lives: OwnerLives | None = None,
    ) -> None:
        self._home = home
        self._clock = clock
        self._monotonic = monotonic
        self.state = StateReader(home, clock=clock, monotonic=monotonic, owner_lives=owner_lives)
        self.walked: DiskReport
        """The disk report of the last snapshot."""
        self._disk: tuple[tuple[float, float], DiskScanner] | None = None
        self._kept: KeptRepos | None = None
        self._file_counter = FileCounter(home, monotonic)
        self._boards: dict[str, tuple[database.DatabaseFiles, list[KanbanClaim]]] = {}
        self._config: tuple[database.FileState | None, home_facts.HomeConfig] | None = None
        self._has_read = False

    def update(self, options: ScanOptions) -> Iterator[SessionUsage]:
        """Update what is known of the database; yield the changes of each session.

        Raise DatabaseError or OSError if it cannot be read.
        """
        # Set this first: only the very first reading skips the check, even if it fails.
        had_read, self._has_read = self._has_read, True
        before_open = self.guard(options, STATE)
        refuse_changed_home(self._home, options.owner)
        refuse_unfit_database(self._home, options.owner, STATE)
        self.state.limit_open_sessions(options.open_sessions_max)
        self.state.report_usage(options.report_usage)
        yield from self.state.update(options.watermark, before_open)
        if options.quiet and had_read:
            self.state.check_integrity(options.full_interval_seconds, before_open)

    @property
    def disk(self) -> DiskScanner | None:
        """The scanner that remembers the files of the home; None before the first snapshot."""
        return self._disk[1] if self._disk is not None else None

    def use(self, kept: KeptRepos) -> None:
        """Start the first walk with what an earlier process knew."""
        self._kept = kept

    def guard(self, options: ScanOptions, name: str) -> Callable[[], None]:
        """Return a function that raises unless the database may be opened at this very moment."""

        def guard() -> None:
            if name not in options.openable or not may_open(options.holders):
                raise DatabaseError(
                    Trouble.LOCKLESS_SHM_HOLDER,
                    f"a process lost its lock on {os.path.join(self._home, name)}-shm; "
                    "opening the database would kill it, so the last reading is kept",
                )

        return guard

    def snapshot(self, options: ScanOptions, trouble: Trouble, detail: str) -> Snapshot:
        """Return the current picture of the home, with the trouble of its database."""
        now = self._clock()
        state = self.state
        stale_trouble = trouble in (Trouble.LOCKLESS_SHM_HOLDER, Trouble.BUSY)
        keep = trouble is Trouble.NONE or stale_trouble
        return Snapshot(
            trouble=trouble,
            detail=detail,
            database_present=os.path.lexists(database.database_path(self._home)),
            health=self._health(trouble),
            sessions=self._summary(options, now) if keep and state.health else None,
            disk=self._walk(options, now),
            routing_readable=state.routing.readable if state.routing else True,
            hermes_version=home_facts.hermes_version(self._home),
            cron_ticker_at=home_facts.cron_ticker_at(self._home),
            kanban=self._kanban(options),
            message_watermark=state.watermark,
            matched_files=self._file_counter.count(options.file_patterns),
        )

    def _health(self, trouble: Trouble) -> DatabaseHealth | None:
        broken = trouble in (Trouble.CORRUPT, Trouble.NOT_A_DATABASE)
        health = self.state.health
        if broken:
            health = health or DatabaseHealth(None, 0, 0, 0)
            return structs.replace(health, integrity_ok=False)
        if health is None or self.state.integrity is None:
            return health
        return structs.replace(health, integrity_ok=self.state.integrity)

    def _summary(self, options: ScanOptions, now: float) -> SessionSummary:
        own_limit = self._home_config().marathon_limit
        limit = own_limit or options.marathon_max_messages
        found = self.state.table.summary(
            now,
            trivial_max_messages=options.trivial_max_messages,
            marathon_max=limit,
            marathon_near=options.marathon_near_ratio,
        )
        return structs.replace(found, marathon_limit=limit)

    def _home_config(self) -> home_facts.HomeConfig:
        """Return the home's own config.yaml; it is parsed only when it has changed."""
        seen = database.file_state(os.path.join(self._home, "config.yaml"))
        if self._config is None or self._config[0] != seen:
            self._config = (seen, home_facts.read_config(self._home))
        return self._config[1]

    def has_plugins(self) -> bool:
        """True if plugins or hooks may run agents in threads of any Hermes process."""
        return (
            self._home_config().enables_plugins
            or home_facts.has_plugin_folders(self._home)
            or home_facts.read_host_config().enables_plugins
        )

    def hermes_prunes_after_days(self) -> int | None:
        """Return the age, from its start, at which Hermes deletes an ended session by itself."""
        configs = (self._home_config(), home_facts.read_host_config())
        return home_facts.prunes_after_days(configs)

    def _disk_scanner(self, options: ScanOptions) -> DiskScanner:
        """Return the scanner that knows the home from earlier scans; a new one for new settings."""
        settings = (options.stale_after_seconds, options.full_interval_seconds)
        if self._disk is None or self._disk[0] != settings:
            scanner = DiskScanner(
                self._home,
                stale_after_seconds=options.stale_after_seconds,
                full_interval_seconds=options.full_interval_seconds,
            )
            if self._kept is not None:
                scanner.use(self._kept)
                self._kept = None
            self._disk = (settings, scanner)
        return self._disk[1]

    def _walk(self, options: ScanOptions, now: float) -> DiskReport:
        if not options.walk_disk:
            return DiskReport({}, [], complete=False)
        self.walked = self._disk_scanner(options).scan(
            excluded_profiles=frozenset(options.excluded_profiles),
            now=now,
            monotonic=self._monotonic(),
        )
        return self.walked

    def _kanban(self, options: ScanOptions) -> list[KanbanClaim] | None:
        """Return running tasks of all boards; None if there is no board, or one cannot be read."""
        boards = [self._board(options, name) for name in kanban.board_names(self._home)]
        if not boards or None in boards:
            return None
        return [claim for board in boards for claim in board or []][:512]

    def _board(self, options: ScanOptions, name: str) -> list[KanbanClaim] | None:
        path = os.path.join(self._home, name)
        known = self._boards.get(name)
        try:
            files = database.stat_files(path)
            if known is not None and known[0] == files:
                return known[1]
            refuse_unfit_database(self._home, options.owner, name)
            self.guard(options, name)()
            opening = database.plan_open(path)
            with database.reading(opening, deadline_seconds=5.0) as connection:
                claims = kanban.read_claims(connection)
        except (HomeError, OSError):
            return None
        self._boards[name] = (files, claims)
        return claims
