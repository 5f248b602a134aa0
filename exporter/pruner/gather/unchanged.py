"""A plan that led to no action is reused for up to an hour while its inputs are unchanged.

Reading ten thousand sessions takes a second of CPU time. The plan of a quiet home, or of one that
is only observed, stays right until something in the home changes. Only the use of the disk is read
each time.
"""

from __future__ import annotations

import os
from typing import Any, Final

from msgspec import Struct, structs

from exporter.config.mode import Mode
from exporter.config.prune import Prune, ThresholdName
from exporter.evidence.models import ProcessFacts
from exporter.hermes import database
from exporter.hermes.routing import routing_file
from exporter.pruner.decide.report import threshold_reports
from exporter.pruner.decide.thresholds import Pressure, Reading, assess, disk_reading
from exporter.pruner.models import PruneMemory, PruneReport
from exporter.runs.folder import NAME as RUNS
from exporter.scan.filesystem import filesystem_of
from exporter.snapshot import DiskReport

VALID_SECONDS: Final = 3600.0
_FILES: Final = (
    "sessions",
    "config.yaml",
    os.path.join("checkpoints", ".last_prune"),
    os.path.join(RUNS, "journal.db"),
)


class _Entry(Struct, frozen=True):
    stamp: tuple[Any, ...]
    made_at: float
    readings: dict[ThresholdName, Reading]
    report: PruneReport


class CachedResult(Struct, frozen=True):
    """The report, pressure and memory of a home that has not changed."""

    report: PruneReport
    pressure: Pressure
    memory: PruneMemory


class UnchangedCache:
    """Keeps the last plan of one home if it led to no action."""

    def __init__(self, home: str) -> None:
        self._home = home
        self._path = database.database_path(home)
        self._last: _Entry | None = None

    def stamp(self, facts: ProcessFacts, settings: Prune, walked: DiskReport) -> tuple[Any, ...]:
        """Return everything that a plan depends on, except time and the use of the disk.

        Call it only while no connection of this process is open: it reads the WAL index.
        """
        files = database.stat_files(self._path)
        holders = tuple((each.pid, each.start_ticks, each.sessions) for each in facts.holders)
        return (
            files.database,
            files.wal,
            database.read_commit_stamp(self._path, files),
            database.file_state(routing_file(self._home)),
            tuple(database.file_state(os.path.join(self._home, name)) for name in _FILES),
            walked.usage,
            walked.complete,
            (holders, facts.leases, facts.lock_probe, facts.blind),
            settings,
        )

    def store(
        self, stamp: tuple[Any, ...], settings: Prune, pressure: Pressure, report: PruneReport
    ) -> None:
        """Keep a plan. One that leads to an action is not kept: the action changes the home."""
        is_quiet = not report.would_items and not any(each.pressure for each in report.thresholds)
        readings = {
            level.name: level.reading for level in pressure.levels if level.reading is not None
        }
        self._last = None
        if is_quiet or settings.mode is Mode.OBSERVE:
            self._last = _Entry(stamp, report.made_at, readings, report)

    def lookup(
        self, stamp: tuple[Any, ...], settings: Prune, memory: PruneMemory, now: float
    ) -> CachedResult | None:
        """Return the last plan as of now; None if an input changed or it is too old."""
        last = self._last
        if last is None or last.stamp != stamp or not 0 <= now - last.made_at < VALID_SECONDS:
            return None
        readings = dict(last.readings)
        known = readings.pop(ThresholdName.DISK_USED, None)
        found = disk_reading(filesystem_of(self._home), known)
        if found is not None:
            readings[ThresholdName.DISK_USED] = found
        pressure, remembered = assess(readings, settings, memory, now)
        report = structs.replace(last.report, thresholds=threshold_reports(pressure))
        if pressure.emergency != report.emergency or _pressing(report) != _pressing(last.report):
            return None
        return CachedResult(report, pressure, remembered)


def _pressing(report: PruneReport) -> list[str]:
    return [each.name for each in report.thresholds if each.pressure]
