"""What the agent remembers of one home between scans."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import apsw

from exporter.agent.clean_up_time import next_clean_up
from exporter.agent.run_counters import load_counters
from exporter.agent.session_list import SessionList
from exporter.agent.state_store import StateStore
from exporter.collectors.labels import AllowedValues, LabelFamily, label_value, most_used_first
from exporter.collectors.view import CounterValue, HomeView
from exporter.config.mode import Mode, When
from exporter.config.settings import Settings
from exporter.discovery.homes import Home
from exporter.evidence.liveness import StartTimes
from exporter.evidence.models import HomeEvidence
from exporter.pruner.models import PruneReport
from exporter.reaper.models import LeakCount, UnknownCount, VerdictCount
from exporter.reaper.slow_start import SlowStart
from exporter.runs.models import RunKind
from exporter.runs.summary import RunSummary
from exporter.scan.filesystem import LOCAL_KINDS, NETWORK_KINDS
from exporter.snapshot import KanbanClaim, Probe, Snapshot, Trouble
from exporter.workers.protocol import Plans, ScanPart, ScanReply, SessionsPage, UsagePage

_PID_REUSE_SLACK_SECONDS = 120.0
"""A process that started this long after a claim cannot be the one that claimed."""
_WORKER_SECONDS_MAX = 30 * 86400.0
_NO_VALUES = AllowedValues(frozenset())
Weights = defaultdict[tuple[str, ...], float]


class HomeState:
    """One home: its last probe, its last snapshot, and the result of the last scan."""

    def __init__(self, home: Home, store: StateStore, *, counts_usage: bool = True) -> None:
        self.home = home
        self._counts_usage = counts_usage
        self.new_probe: Probe | None = None
        """Of the scan in progress. It is shown only when that scan is complete."""
        self.new_evidence: HomeEvidence | None = None
        self.probe: Probe | None = None
        self.evidence: HomeEvidence | None = None
        self.snapshot: Snapshot | None = None
        self.trouble = Trouble.NONE
        self.detail = ""
        self.failed = False
        self.uncounted = ""
        """Why usage seen by the last scan is not in the counters: the state directory failed."""
        self.last_seen = float("-inf")
        self._sessions = SessionList()
        self._store = store
        self._began = 0.0
        self._scanned_at: float | None = None
        self._scan_seconds = 0.0
        self._counters: tuple[CounterValue, ...] = tuple(store.counters(home.path))
        self._sources = self._histogram_sources = self._ended = self._end_reasons = _NO_VALUES
        self._weights: dict[LabelFamily, dict[tuple[str, ...], float]] = {}
        self._verdicts: tuple[VerdictCount, ...] = ()
        self._leaks: tuple[LeakCount, ...] = ()
        self._unknown: tuple[UnknownCount, ...] = ()
        self._runs = RunSummary()
        self._run_counters = load_counters(store.run_counters(home.path))
        self._slow_start = SlowStart()
        self.reborn = False
        """True if a session that a prune deleted seems to exist again."""
        self.plans = Plans()
        """The plans that the last scan was asked for."""
        self.prune: PruneReport | None = None
        """The pruner's report from its last check."""
        self.was_read = False
        """True if the scan in progress has delivered what it read; only its plans are missing."""
        self._worker: object = None
        self._worker_since = float("inf")
        self._all_reported = False
        """True if this worker has completed a scan, and so has reported every session once."""
        self._has_read = False
        """True if this worker has read the home."""

    @property
    def has_new_worker(self) -> bool:
        """True if its worker has not read the home yet, and does not know what was watched."""
        return not self._has_read

    def begin(self, monotonic: float) -> None:
        self._began = monotonic
        self.failed = False
        self.uncounted = ""
        self.new_probe = self.new_evidence = None
        self.plans, self.was_read = Plans(), False

    def set_worker(self, worker: object, now: float) -> None:
        """Remember which worker answers: a new worker knows nothing and reports every session."""
        if worker is not self._worker:
            self._worker, self._worker_since, self._all_reported = worker, now, False
            self._has_read = False

    def needs_new_worker(self, now: float) -> bool:
        """True if it is time for a new worker: only a new one shows which sessions are gone."""
        return now - self._worker_since > _WORKER_SECONDS_MAX

    def add_reply(self, part: ScanPart) -> None:
        """Store one part of a scan's reply."""
        match part:
            case UsagePage(usage) if self._counts_usage:
                self._write_to_store(lambda: self._store.count(self.home.path, usage))
            case SessionsPage(items, first):
                self._sessions.add(items, first=first)
            case ScanReply(snapshot, verdicts, leaks, runs, unknown, watched, reborn, slow_start):
                self._runs = self._count_runs(runs)  # before the labels, which need its sources
                self._add_snapshot(snapshot)
                self._has_read = self.was_read = True
                self.reborn = reborn
                self._verdicts, self._leaks = tuple(verdicts), tuple(leaks)
                self._unknown, self._slow_start = tuple(unknown), slow_start
                if watched is not None:
                    self._write_to_store(lambda: self._store.keep_idleness(self.home.path, watched))

    def _count_runs(self, read: RunSummary) -> RunSummary:
        counters = self._run_counters.add(read)
        if counters != self._run_counters:
            self._run_counters, path = counters, self.home.path
            self._write_to_store(lambda: self._store.keep_run_counters(path, counters.dump()))
        return counters.shown(read)

    def take_probe(self) -> None:
        """Use the probe and its evidence without a read of the home."""
        self.probe, self.evidence = self.new_probe, self.new_evidence
        if self.probe is not None:
            self.trouble, self.detail = self.probe.trouble, self.probe.detail

    def _add_snapshot(self, snapshot: Snapshot) -> None:
        if snapshot.trouble is Trouble.NONE:
            watermark = snapshot.message_watermark
            self._write_to_store(lambda: self._store.set_watermark(self.home.path, watermark))
            if not self._all_reported:
                self._all_reported = True
                self._write_to_store(
                    lambda: self._store.forget_sessions(self.home.path, self._worker_since)
                )
        self._write_to_store(lambda: self._limit_labels(snapshot))
        if snapshot.sessions is None:
            self._sessions.clear()
        self._sessions.close()
        self._counters = tuple(self._store.counters(self.home.path))
        self.probe, self.evidence, self.snapshot = self.new_probe, self.new_evidence, snapshot
        self.trouble, self.detail = snapshot.trouble, snapshot.detail

    def _write_to_store(self, write: Callable[[], None]) -> None:
        """Write to the state store. If that fails, the scan goes on: its metrics show a full disk.

        After a failure nothing more of this scan is written. With a new watermark, messages that
        were not counted would not be new at the next scan.
        """
        if self.uncounted:
            return
        try:
            write()
        except apsw.Error as error:
            self.uncounted = f"cannot write {self._store.path}: {error}"

    def _limit_labels(self, snapshot: Snapshot) -> None:
        """Reserve places for the label values of this snapshot."""
        sessions = snapshot.sessions
        if sessions is None:
            return
        sources: Weights = defaultdict(float)
        for histogram in sessions.messages:
            sources[(label_value(LabelFamily.SOURCE, histogram.source),)] += sum(histogram.buckets)
        ended: Weights = defaultdict(float)
        for group in sessions.ended:
            reason = label_value(LabelFamily.SOURCE_END_REASON, group.end_reason)
            ended[label_value(LabelFamily.SOURCE, group.source), reason] += group.sessions
        after_end: Weights = defaultdict(float)
        for reason, count in sessions.written_after_end.items():
            after_end[(label_value(LabelFamily.END_REASON, reason),)] += count
        self._histogram_sources = self._allowed_values(LabelFamily.HISTOGRAM_SOURCE, sources)
        # Counters of runs may have a source whose sessions are all gone. It needs a place too. Else
        # they count as `other` until a new session gives it a place, and then `other` would fall.
        for counted in (*self._runs.reaped, *self._runs.reopened):
            sources[(label_value(LabelFamily.SOURCE, counted.source),)] += counted.sessions
        self._sources = self._allowed_values(LabelFamily.SOURCE, sources)
        self._ended = self._allowed_values(LabelFamily.SOURCE_END_REASON, ended)
        self._end_reasons = self._allowed_values(LabelFamily.END_REASON, after_end)

    def _allowed_values(self, family: LabelFamily, weights: Weights) -> AllowedValues:
        """Return the values that are shown. A value is active if its weight has grown."""
        before = self._weights.get(family)
        active = (
            [value for value, weight in weights.items() if weight > before.get(value, 0)]
            if before is not None
            else []
        )
        self._weights[family] = dict(weights)
        return self._store.admit(self.home.path, family, most_used_first(weights), active)

    def finish(self, now: float, monotonic: float) -> None:
        self._scanned_at = now
        self._scan_seconds = monotonic - self._began

    def fail(self, trouble: Trouble, detail: str) -> None:
        """Mark the home as down: what was known of it may no longer be true."""
        self.trouble, self.detail = trouble, detail
        self.failed = True
        self.probe = self.snapshot = self.evidence = None
        self.new_probe = self.new_evidence = None
        self._sessions.clear()
        self._sessions.close()

    @property
    def reaping_has_stopped(self) -> bool:
        """True if automatic reaping has stopped itself until a person runs `reap --yes`."""
        return self._runs.tripped is not None

    @property
    def needs_healing(self) -> bool:
        """True if a session that was reaped may have been used again since."""
        return self._runs.to_heal

    @property
    def unfinished_runs(self) -> tuple[str, ...]:
        """Runs in progress or killed; one with an empty name if the journal is damaged."""
        return tuple(self._runs.unfinished) if self._runs.readable else ("",)

    @property
    def runs_revision(self) -> tuple[object, ...]:
        """Changes whenever a prune or a run by hand has begun, ended or been undone here.

        What the agent reaps by itself, perhaps every minute, is too little to plan anew for.
        """
        return tuple(
            (run.id, run.finished_at, run.undone)
            for run in self._runs.last
            if run.by_hand or run.kind is RunKind.PRUNE
        )

    @property
    def sessions_revision(self) -> tuple[str, int]:
        """Changes whenever `session_rows` would return something else."""
        return self.home.label, self._sessions.revision

    def session_rows(self, *, public: bool) -> Iterator[dict[str, Any]]:
        """Yield the open sessions as `sessions --json` prints them; `public` as HTTP shows them."""
        return self._sessions.rows(self.home.label, public=public)

    def view(
        self,
        settings: Settings,
        *,
        host: str,
        started: StartTimes,
        now: float,
        blind: tuple[str, ...] = (),
    ) -> HomeView:
        """Return the home as it is now; `blind` are reasons that apply to every home."""
        own = settings.for_home(self.home)
        # Read this first: a home that is scanned meanwhile may look older than it is, never newer.
        scanned_at = self._scanned_at
        return HomeView(
            label=self.home.label,
            path=self.home.path,
            up=self.snapshot is not None and self.trouble is Trouble.NONE,
            trouble=self.trouble,
            detail=self.detail,
            probe=self.probe,
            snapshot=self.snapshot,
            evidence=self.evidence,
            blind=(*self._blind(), *blind),
            counters=self._counters,
            sources=self._sources,
            histogram_sources=self._histogram_sources,
            ended=self._ended,
            end_reasons=self._end_reasons,
            verdicts=self._verdicts if self.snapshot is not None else (),
            leaks=self._leaks if self.snapshot is not None else (),
            unknown=self._unknown if self.snapshot is not None else (),
            kanban_dead_owner=None if blind else self._dead_owners(host, started),
            scanned_at=scanned_at,
            scan_seconds=self._scan_seconds,
            runs=self._runs,
            hourly_limit=self._slow_start.at(now, own.reaper.max_per_minute),
            prune=self.prune if self.snapshot is not None else None,
            sessions_left_out=self._sessions.left_out,
            reaper_enforcing=own.reaper.mode is Mode.ENFORCE and self.home.may_write,
            prune_enforcing=own.prune.mode is Mode.ENFORCE and self.home.may_write,
            next_clean_up_at=next_clean_up(time.time(), os.uname().nodename)
            if When.AGE in own.prune.when
            else None,
        )

    @property
    def has_too_many_open(self) -> bool:
        """True if the home has more open sessions than `limits.open_sessions_per_home`."""
        sessions = self.snapshot.sessions if self.snapshot is not None else None
        return sessions is not None and sessions.open_left_out > 0

    def _blind(self) -> tuple[str, ...]:
        """Return every reason why missing evidence proves nothing."""
        reasons = list(blindness(self.probe, self.evidence)) if self.probe is not None else []
        if self.snapshot is not None and not self.snapshot.routing_readable:
            reasons.append("routing")
        if self.snapshot is not None and not self._runs.readable:
            reasons.append("run_journal")
        if self.has_too_many_open:
            reasons.append("open_sessions")
        if self.trouble is not Trouble.NONE:
            reasons.append("database")
        return tuple(dict.fromkeys(reasons))

    def _dead_owners(self, host: str, started: StartTimes) -> int | None:
        """Count running kanban tasks of this host whose worker is gone; None if we cannot see."""
        claims = self.snapshot.kanban if self.snapshot is not None else None
        if claims is None or self.evidence is None or self.evidence.blind:
            return None if claims is None or claims else 0  # without claims there is none to see
        return sum(_is_dead(claim, host, started) for claim in claims)


def blindness(probe: Probe, evidence: HomeEvidence | None) -> tuple[str, ...]:
    """Return what could not be seen of a home before its database was opened."""
    reasons = ["processes"] if evidence is None else [each.value for each in evidence.blind]
    if probe.filesystem is not None and probe.filesystem.kind in NETWORK_KINDS:
        reasons.append("network_fs")
    elif probe.filesystem is None or probe.filesystem.kind not in LOCAL_KINDS:
        reasons.append("unknown_fs")
    if not probe.leases_readable:
        reasons.append("leases")
    return tuple(reasons)


def _is_dead(claim: KanbanClaim, host: str, started: StartTimes) -> bool:
    """True if the process of this claim is gone.

    The claim has no start time. A process that started well after the claim is another one (a
    reused PID).
    """
    if claim.host not in ("", host):
        return False
    try:
        began = started(claim.pid)
    except OSError:
        return False  # it cannot be seen, and may be alive
    return began is None or began > claim.started_at + _PID_REUSE_SLACK_SECONDS
