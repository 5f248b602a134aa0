"""What the agent knows after a scan of all homes: the input of every collector and page."""

from __future__ import annotations

from msgspec import Struct

from exporter.collectors.labels import AllowedValues
from exporter.discovery.homes import RefusedHome
from exporter.evidence.models import HomeEvidence
from exporter.pruner.models import PruneReport
from exporter.reaper.models import LeakCount, UnknownCount, VerdictCount
from exporter.reaper.slow_start import HourlyLimit
from exporter.runs.summary import RunSummary
from exporter.snapshot import MatchedFiles, Probe, Snapshot, Trouble


class CounterValue(Struct, frozen=True):
    """One counter series of a home; `model` and `kind` are empty where it has none."""

    name: str
    source: str
    model: str
    kind: str
    value: float


class HomeView(Struct, frozen=True):
    """What is known of one home; of a home that cannot be read, what is still valid."""

    label: str
    path: str
    up: bool
    trouble: Trouble
    detail: str
    probe: Probe | None
    snapshot: Snapshot | None
    """Of the last scan, None while the home cannot be read; its parts are None until read once."""
    evidence: HomeEvidence | None
    blind: tuple[str, ...]
    counters: tuple[CounterValue, ...]
    sources: AllowedValues
    histogram_sources: AllowedValues
    ended: AllowedValues
    end_reasons: AllowedValues
    verdicts: tuple[VerdictCount, ...]
    leaks: tuple[LeakCount, ...]
    unknown: tuple[UnknownCount, ...]
    kanban_dead_owner: int | None
    scanned_at: float | None
    """When the last finished scan ended."""
    scan_seconds: float
    runs: RunSummary
    """What reap and prune runs did to the home."""
    hourly_limit: HourlyLimit
    """What slow start allows automatic reaping in this hour."""
    prune: PruneReport | None
    """What the pruner would do; None before its first plan."""
    sessions_left_out: int
    """Open sessions that are counted and judged, but too many to be listed."""
    reaper_enforcing: bool
    prune_enforcing: bool
    next_clean_up_at: float | None = None
    """When the next daily clean-up by age is; None where there is none."""

    @property
    def known(self) -> bool:
        """True once it was scanned or found unreadable; False while the first scan runs."""
        return self.scanned_at is not None or self.trouble is not Trouble.NONE

    def matched_files(self, pattern: str) -> MatchedFiles | None:
        """Return what the last scan counted for a pattern that a collector declared.

        None where the home cannot be read, the pattern matches too much to be counted, or no
        collector has it in its `file_patterns`.
        """
        return self.snapshot.matched_files.get(pattern) if self.snapshot is not None else None


class HostView(Struct, frozen=True):
    """All homes of this host, and the agent itself."""

    homes: tuple[HomeView, ...]
    version: str
    blind: tuple[str, ...]
    """What this agent cannot see on this host, for every home."""
    config_reload_successful: bool
    now: float
    limited_users: int = 0
    """Users with more open files than a scan looks at."""
    slow_homes: int = 0
    """Homes that did not answer in their time at the last scan."""
    large_homes: int = 0
    """Homes with more open sessions than a worker keeps."""
    refused: tuple[RefusedHome, ...] = ()
    """Directories that look like homes and were refused."""
