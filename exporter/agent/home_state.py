"""What the agent remembers of one home between scans."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import apsw

from exporter.agent.session_list import SessionList
from exporter.agent.state_store import StateStore
from exporter.collectors.labels import AllowedValues, LabelFamily, label_value, most_used_first
from exporter.collectors.view import CounterValue, HomeView
from exporter.config.mode import Mode
from exporter.config.settings import Settings
from exporter.discovery.homes import Home
from exporter.evidence.liveness import StartTimes
from exporter.evidence.models import HomeEvidence
from exporter.pruner.models import PruneReport
from exporter.pruner.requests import PruneWish
from exporter.reaper.models import LeakCount, UnknownCount, VerdictCount
from exporter.reaper.plan import ReapPlanRequest
from exporter.runs.summary import RunSummary
from exporter.scan.filesystem import LOCAL_KINDS, NETWORK_KINDS
from exporter.snapshot import KanbanClaim, Probe, Snapshot, Trouble
from exporter.workers.protocol import Plans, ScanPart, ScanReply, SessionsPage, UsagePage

_PID_REUSE_SLACK_SECONDS = 120.0
_NEW_WORKER_AFTER_SECONDS = 30 * 86400.0
_NO_VALUES = AllowedValues(frozenset())
Weights = defaultdict[tuple[str, ...], float]


class PlansWanted(NamedTuple):
    """The plans that a scan is to make besides."""

    reap: ReapPlanRequest | None = None
    prune: PruneWish | None = None


class HomeState:
    """One home: its last look, its last snapshot, and how the last scan went."""

    def __init__(self, home: Home, store: StateStore) -> None:
        self.home = home
        self.new_probe: Probe | None = None
        """Of the scan that is under way; what a scan has seen is shown when it is complete."""
        self.new_evidence: HomeEvidence | None = None
        self.probe: Probe | None = None
        self.evidence: HomeEvidence | None = None
        self.snapshot: Snapshot | None = None
        self.trouble = Trouble.NONE
        self.detail = ""
        self.failed = False
        self.uncounted = ""
        """Why usage seen at the last scan is not in the counters: the state directory failed."""
        self.last_seen = float("-inf")
        self._sessions = SessionList()
        self._store = store
        self._began = 0.0
        self._scanned_at: float | None = None
        self._scan_seconds = 0.0
        self._counters: tuple[CounterValue, ...] = tuple(store.counters(home.path))
        self._sources = self._histogram_sources = self._ended = self._end_reasons = _NO_VALUES
        self._verdicts: tuple[VerdictCount, ...] = ()
        self._leaks: tuple[LeakCount, ...] = ()
        self._unknown: tuple[UnknownCount, ...] = ()
        self._runs = RunSummary()
        self.reborn = False
        """A session that a prune deleted seems to be there again."""
        self.plans = Plans()
        """As they were wished for at the last scan."""
        self.prune: PruneReport | None = None
        """As the pruner found it when it last looked."""
        self.was_read = False
        """The scan that is under way has told what it read; only its plans are still to come."""
        self._worker: object = None
        self._worker_since = float("inf")
        self._every_session_seen = False
        self._has_read = False

    @property
    def has_new_worker(self) -> bool:
        """Its worker has not read the home yet, and knows nothing of what was watched."""
        return not self._has_read

    def begin(self, monotonic: float) -> None:
        self._began = monotonic
        self.failed = False
        self.uncounted = ""
        self.new_probe = self.new_evidence = None
        self.plans, self.was_read = Plans(), False

    def set_worker(self, worker: object, now: float) -> None:
        """Note who is about to answer: a new worker knows nothing and tells of every session."""
        if worker is not self._worker:
            self._worker, self._worker_since, self._every_session_seen = worker, now, False
            self._has_read = False

    def needs_new_worker(self, now: float) -> bool:
        """Whether it is time for a new worker, to learn which sessions are gone."""
        return now - self._worker_since > _NEW_WORKER_AFTER_SECONDS

    def add_reply(self, part: ScanPart) -> None:
        """Take in one part of a scan."""
        match part:
            case UsagePage(usage):
                self._try_write(lambda: self._store.count(self.home.path, usage))
            case SessionsPage(items, first):
                self._sessions.add(items, first=first)
            case ScanReply(snapshot, verdicts, leaks, runs, unknown, watched, reborn):
                self._add_snapshot(snapshot)
                self._has_read = self.was_read = True
                self.reborn = reborn
                self._verdicts, self._leaks = tuple(verdicts), tuple(leaks)
                self._unknown, self._runs = tuple(unknown), runs
                if watched is not None:
                    self._try_write(lambda: self._store.keep_idleness(self.home.path, watched))

    def take_probe(self) -> None:
        """Only the probe and its evidence are wanted; nothing is read."""
        self.probe, self.evidence = self.new_probe, self.new_evidence
        if self.probe is not None:
            self.trouble, self.detail = self.probe.trouble, self.probe.detail

    def _add_snapshot(self, snapshot: Snapshot) -> None:
        if snapshot.trouble is Trouble.NONE:
            watermark = snapshot.message_watermark
            self._try_write(lambda: self._store.set_watermark(self.home.path, watermark))
            if not self._every_session_seen:
                self._every_session_seen = True
                self._try_write(
                    lambda: self._store.forget_sessions(self.home.path, self._worker_since)
                )
        self._try_write(lambda: self._limit_labels(snapshot))
        if snapshot.sessions is None:
            self._sessions.clear()
        self._sessions.close()
        self._counters = tuple(self._store.counters(self.home.path))
        self.probe, self.evidence, self.snapshot = self.new_probe, self.new_evidence, snapshot
        self.trouble, self.detail = snapshot.trouble, snapshot.detail

    def _try_write(self, write: Callable[[], None]) -> None:
        """Write to the journal. A full disk must not cost the metrics that would tell of it."""
        if self.uncounted:
            return
        try:
            write()
        except apsw.Error as error:
            self.uncounted = f"cannot write {self._store.path}: {error}"

    def _limit_labels(self, snapshot: Snapshot) -> None:
        """Give the label values of this snapshot their places."""
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
        self._sources = self._allowed_values(LabelFamily.SOURCE, sources)
        self._histogram_sources = self._allowed_values(LabelFamily.HISTOGRAM_SOURCE, sources)
        self._ended = self._allowed_values(LabelFamily.SOURCE_END_REASON, ended)
        self._end_reasons = self._allowed_values(LabelFamily.END_REASON, after_end)

    def _allowed_values(self, family: LabelFamily, weights: Weights) -> AllowedValues:
        return self._store.admit(self.home.path, family, most_used_first(weights))

    def finish(self, now: float, monotonic: float) -> None:
        self._scanned_at = now
        self._scan_seconds = monotonic - self._began

    def fail(self, trouble: Trouble, detail: str) -> None:
        """The home could not be scanned: what was known of it is no longer vouched for."""
        self.trouble, self.detail = trouble, detail
        self.failed = True
        self.probe = self.snapshot = self.evidence = None
        self.new_probe = self.new_evidence = None
        self._sessions.clear()
        self._sessions.close()

    @property
    def reaping_has_stopped(self) -> bool:
        """By itself, until a person has looked."""
        return self._runs.tripped is not None

    @property
    def needs_healing(self) -> bool:
        """A session that was reaped may have gone on since."""
        return self._runs.to_heal

    @property
    def unfinished_runs(self) -> tuple[str, ...]:
        """Runs that are under way or were killed; one without a name if the journal is damaged."""
        return tuple(self._runs.unfinished) if self._runs.readable else ("",)

    @property
    def sessions_revision(self) -> tuple[str, int]:
        """Moves when `session_rows` would tell something else."""
        return self.home.label, self._sessions.revision

    def session_rows(self, *, public: bool) -> Iterator[dict[str, Any]]:
        """The open sessions as `sessions --json` prints them; `public` as HTTP shows them."""
        return self._sessions.rows(self.home.label, public=public)

    def view(
        self, settings: Settings, *, host: str, started: StartTimes, blind: tuple[str, ...] = ()
    ) -> HomeView:
        """The home as it stands; `blind` is what cannot be seen of any home."""
        own = settings.for_home(self.home.named_as)
        # Before the rest: a home scanned meanwhile may look older than it is, never newer.
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
            prune=self.prune if self.snapshot is not None else None,
            sessions_left_out=self._sessions.left_out,
            reaper_enforcing=own.reaper.mode is Mode.ENFORCE and self.home.may_write,
            prune_enforcing=own.prune.mode is Mode.ENFORCE and self.home.may_write,
        )

    def _blind(self) -> tuple[str, ...]:
        """Everything that keeps the absence of evidence from being evidence."""
        reasons = list(blindness(self.probe, self.evidence)) if self.probe is not None else []
        if self.snapshot is not None and not self.snapshot.routing_readable:
            reasons.append("routing")
        if self.snapshot is not None and not self._runs.readable:
            reasons.append("run_journal")
        if self.trouble is not Trouble.NONE:
            reasons.append("database")
        return tuple(dict.fromkeys(reasons))

    def _dead_owners(self, host: str, started: StartTimes) -> int | None:
        """Running kanban tasks of this host whose worker is gone; unknown while we are blind."""
        claims = self.snapshot.kanban if self.snapshot is not None else None
        if claims is None or self.evidence is None or self.evidence.blind:
            return None if claims is None or claims else 0
        return sum(_is_dead(claim, host, started) for claim in claims)


def blindness(look: Probe, evidence: HomeEvidence | None) -> tuple[str, ...]:
    """What could not be seen of a home before its database was opened."""
    reasons = ["processes"] if evidence is None else [each.value for each in evidence.blind]
    if look.filesystem is not None and look.filesystem.kind in NETWORK_KINDS:
        reasons.append("network_fs")
    elif look.filesystem is None or look.filesystem.kind not in LOCAL_KINDS:
        reasons.append("unknown_fs")
    if not look.leases_readable:
        reasons.append("leases")
    return tuple(reasons)


def _is_dead(claim: KanbanClaim, host: str, started: StartTimes) -> bool:
    """The claim names no start time: a process that began well after it is another one."""
    if claim.host not in ("", host):
        return False
    try:
        began = started(claim.pid)
    except OSError:
        return False
    return began is None or began > claim.started_at + _PID_REUSE_SLACK_SECONDS
