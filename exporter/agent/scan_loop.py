"""Scan all homes: find them, probe each, survey the processes, read each.

- Homes are scanned in parallel; homes of one owner share a worker and are scanned in turn.
- A home that is slower than one scan of all homes gets its own worker from then on.
- A home that is still busy when the next scan starts is skipped: it has one scan at a time.
- A home that hangs, kills its worker or cannot be read is shown as down; no scan waits for it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from exporter import __version__
from exporter.agent.auto_heal import AutomaticHealer
from exporter.agent.auto_prune import AutomaticPruner
from exporter.agent.auto_reap import AutomaticReaper
from exporter.agent.home_finder import HomeFinder, HomeSource
from exporter.agent.home_state import HomeState
from exporter.agent.home_workers import DEDICATED_MAX, HomeWorkers
from exporter.agent.scan_request import ScanPurpose, scan_request, survey_targets, target_key
from exporter.agent.scheduler import ScanHome, Scheduler, WorkerQueue
from exporter.agent.state_store import StateStore
from exporter.agent.watched_homes import WatchedHomes
from exporter.collectors.view import HostView
from exporter.config.settings import Settings
from exporter.discovery.homes import Census, Home
from exporter.errors import WorkerError, error_location
from exporter.evidence.liveness import read_boot_id, read_clock, start_times
from exporter.evidence.models import HomeEvidence, HomeFiles, Survey
from exporter.evidence.models import PossibleHome as ProcessCandidate
from exporter.evidence.survey import survey as survey_processes
from exporter.pruner.models import PruneMemory
from exporter.reaper.models import Judgement
from exporter.runs.past_session import PastSession
from exporter.snapshot import OpenSession, Probe, Trouble
from exporter.workers import client, protocol
from exporter.workers.cancellation import Cancellation
from exporter.workers.path_prober import PathProber
from exporter.workers.pool import Pool
from exporter.workers.process import Worker
from exporter.workers.protocol import (
    Call,
    ExplainReply,
    ExplainRequest,
    ProbeRequest,
    ScanRequest,
    Want,
)
from exporter.workers.starter import Starter

Request = TypeVar("Request")
Part = TypeVar("Part")
Reply = TypeVar("Reply")

PROBE_SECONDS: Final = 10.0
READ_SECONDS: Final = 120.0
_CLOCK_STEP_SECONDS: Final = 3600.0
"""Policies count in days. A clock that is corrected in small steps stays within this limit."""

_AUTOMATIC: Final = ScanPurpose()
"""A scan of the agent's own accord, not for a command."""


class ScanLoop:
    """The state that is kept from one scan to the next."""

    def __init__(
        self,
        settings: Settings,
        store: StateStore,
        *,
        named: Sequence[str] = (),
        pool: Pool | None = None,
        starter: Starter | None = None,
        discovery: HomeSource | None = None,
        survey: Callable[[Sequence[HomeFiles]], Survey] | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        probe_seconds: float = PROBE_SECONDS,
        read_seconds: float | None = None,
        every_session: bool = False,
        acting: bool = True,
        counts_usage: bool = True,
        file_patterns: Sequence[str] = (),
    ) -> None:
        self.settings = settings
        self.config_reload_successful = True
        self.web_config_in_use = True
        """False while the web configuration file has a problem."""
        self._store = store
        self._starter = starter or Starter()
        if pool is None:
            self._starter.prepare()
        self._pool = pool or Pool(self._starter.worker)
        self._discovery: HomeSource = discovery or HomeFinder(
            store, named=named, prober=PathProber(self._starter.path_probe)
        )
        self._survey = survey or self._survey_processes
        self._clock = clock
        self._monotonic = monotonic
        self._probe_seconds = probe_seconds
        self._read_seconds = read_seconds
        self._every_session = every_session
        self._purpose = _AUTOMATIC
        self._counts_usage = counts_usage
        self._file_patterns = file_patterns
        self._homes = WatchedHomes(
            store, self._discovery, monotonic, log_changes=acting, counts_usage=counts_usage
        )
        self._scheduler = Scheduler(self._handle_bug)
        self._workers = HomeWorkers(self._pool, self._homes, self._scheduler, clock)
        self._healer = AutomaticHealer(self._pool, monotonic) if acting else None
        self._reaper = AutomaticReaper(self._pool, monotonic) if acting else None
        self._pruner = AutomaticPruner(self._pool, store, monotonic, clock) if acting else None
        self._process_candidates: tuple[ProcessCandidate, ...] = ()
        self._last_survey: Survey | None = None

    @property
    def acts(self) -> bool:
        """True for the loop of an agent, False for that of a command."""
        return self._reaper is not None

    @property
    def census(self) -> Census:
        """The homes and refusals that the last search found."""
        return self._homes.census

    @property
    def state_advice(self) -> list[str]:
        """What to do about the state file; nothing if it is not damaged."""
        found = self._store.damage
        advice = (
            f"{self._store.path} is damaged ({found}), and the agent goes on in memory; "
            "move it away: the next scan writes a new one"
        )
        return [advice] if found else []

    def replace_workers(self) -> None:
        """End the worker of each home: a new one reports all usage, to a store that has none."""
        for state in self._homes:
            self._pool.fail(state.home.owner, state.home.path, is_cause=False)

    # One scan of all homes

    def run(self, timeout_seconds: float, purpose: ScanPurpose = _AUTOMATIC) -> HostView:
        """Scan every home that is not busy; wait at most `timeout_seconds` for all of them."""
        self._purpose = purpose
        self.discover()
        self._workers.limit_dedicated()
        until = self._monotonic() + timeout_seconds
        ready = [state for state in self._homes if self._workers.is_ready(state)]
        dedicated = self._scheduler.next_homes(
            [state for state in ready if self._workers.is_dedicated(state)],
            self._workers.dedicated_paths(),
            DEDICATED_MAX,
        )
        # Do not wait for a home that failed last time. Asked before the scan, which clears it.
        awaited = [not state.failed for state in dedicated]
        before = self._last_survey
        jobs = [self._scheduler.start([state], self._scan_dedicated) for state in dedicated]
        shared = [state for state in ready if not self._workers.is_dedicated(state)]
        # Probes that hang get half of the time, so that the other homes can still be read.
        self._in_queues(shared, self._probe_one, (until - self._monotonic()) / 2)
        if probed := self._probed(shared):
            surveyed = self._take_survey(probed)
            self._in_queues(
                probed, lambda state: self._read(state, surveyed), until - self._monotonic()
            )
        self._finish([job for job, wait in zip(jobs, awaited, strict=True) if wait], until)
        if self._last_survey is before:  # no home was read: processes may still name a new one
            self._take_survey(())
        return self._view()

    def probe(self, timeout_seconds: float) -> None:
        """Find out only which processes have which database open; read no home."""
        self.discover()
        ready = [state for state in self._homes if self._workers.is_ready(state)]
        self._in_queues(ready, self._probe_one, timeout_seconds)
        probed = self._probed(ready)
        surveyed = self._take_survey(probed)
        for state in probed:
            state.new_evidence = surveyed.get(target_key(state.home.path, "state.db"))
            state.take_probe()

    def _probed(self, states: Sequence[HomeState]) -> list[HomeState]:
        return [state for state in states if state.new_probe and not self._scheduler.is_busy(state)]

    def _in_queues(self, states: Sequence[HomeState], scan: ScanHome, seconds: float) -> None:
        """Scan these homes, in turn where they share a worker; return when the time is up."""
        queues: dict[tuple[int, str], list[HomeState]] = {}
        for state in states:
            queues.setdefault(self._pool.worker_key(state.home.owner, state.home.path), []).append(
                state
            )
        jobs = [self._scheduler.start(queue, scan) for queue in queues.values()]
        self._finish(jobs, self._monotonic() + seconds)

    def _finish(self, queues: Sequence[WorkerQueue], until: float) -> None:
        for slow in self._scheduler.finish(
            queues, until - self._monotonic(), self._workers.take_another
        ):
            self._workers.make_dedicated(slow)

    def discover(self) -> None:
        """Find homes that are new, changed or gone."""
        self._homes.discover(self.settings, self._process_candidates)
        self._workers.end_unneeded()

    # Scanning one home, in the thread of its worker's queue

    def _scan_dedicated(self, state: HomeState) -> None:
        self._probe_one(state)
        if state.new_probe is not None:
            self._read(state, self._take_survey([state]))

    def _probe_one(self, state: HomeState) -> None:
        state.begin(self._monotonic())
        request = ProbeRequest(state.home.path, state.home.owner)

        def probe(worker: Worker) -> None:
            state.new_probe = worker.call(protocol.PROBE, request, self._probe_seconds)

        self._workers.ask(state, probe, self._probe_seconds)

    def _read(self, state: HomeState, surveyed: Mapping[str, HomeEvidence]) -> None:
        found = state.new_probe
        if found is None:
            return
        state.new_evidence = surveyed.get(target_key(state.home.path, "state.db"))
        seconds = self._read_seconds or self.settings.limits.seconds_per_home

        def scan(worker: Worker) -> None:
            # Built for each worker: a new worker must be told what earlier ones watched.
            request = self._scan_request(state, found, surveyed)
            state.plans = worker.call(protocol.SCAN, request, seconds, part=state.add_reply)
            if self._purpose.readings is not None and state.plans.kept:
                self._purpose.readings.save(state.home.path, state.plans.kept)
            if not state.was_read:
                raise WorkerError("a worker did not tell what it read; it is ended")

        if self._workers.ask(state, scan, seconds):
            state.finish(self._clock(), self._monotonic())
            self._homes.log_state(state)
            self._act(state)  # by the worker that knows what this scan saw
            self._workers.replace_if_uncounted(state)

    def _scan_request(
        self, state: HomeState, probe: Probe, surveyed: Mapping[str, HomeEvidence]
    ) -> ScanRequest:
        purpose = self._purpose
        want = (purpose.want or self._due)(state)
        return scan_request(
            state.home,
            probe,
            surveyed,
            settings=self.settings,
            clock_stepped=self._clock_stepped(),
            watched=self._store.watched(state.home.path) if state.has_new_worker else b"",
            watermark=self._store.watermark(state.home.path),
            homes=self._homes.by_path.keys(),
            file_patterns=self._file_patterns,
            every_session=self._every_session,
            purpose=purpose,
            want=want,
            report_usage=self._counts_usage,
        )

    def _due(self, state: HomeState) -> Want:
        """Return the plans that are due by the configuration."""
        return Want(
            self._reaper.want(state, self.settings) if self._reaper is not None else None,
            self._pruner.want(state, self.settings, list(self._homes))
            if self._pruner is not None
            else None,
        )

    def _act(self, state: HomeState) -> None:
        if self._healer is not None:
            self._healer.act(state, self.settings)
        if self._reaper is not None:
            self._reaper.act(state, self.settings)
        if self._pruner is not None:
            self._pruner.act(state, self.settings)

    def _handle_bug(self, state: HomeState, error: Exception) -> None:
        """Handle a bug of ours: it costs this home its metrics, and nothing else."""
        self._homes.set_down(state, Trouble.IO_ERROR, f"{state.home.path}: {error_location(error)}")

    # Evidence

    def _clock_stepped(self) -> bool:
        """True if the wall clock was stepped since the agent first saw this boot.

        Then the ages of files and sessions, which the pruner uses, may be wrong.
        """
        boot_id = read_boot_id()
        if boot_id is None:
            return False
        now = read_clock()
        began_at = self._store.boot_began_at(boot_id, now.boot_began_at)
        return abs(now.boot_began_at - began_at) > _CLOCK_STEP_SECONDS

    def _survey_processes(self, homes: Sequence[HomeFiles]) -> Survey:
        most = self.settings.limits.descriptors_per_user
        return survey_processes(homes, ours=self._pool.pids, descriptors_per_user=most)

    def _take_survey(self, states: Sequence[HomeState]) -> Mapping[str, HomeEvidence]:
        found = self._survey(
            [
                each
                for state in states
                if state.new_probe
                for each in survey_targets(state.home, state.new_probe, self.settings)
            ]
        )
        self._process_candidates = found.candidates
        self._last_survey = found
        return found.homes

    # The result

    def _view(self) -> HostView:
        started = start_times()
        host = socket.gethostname()
        clock = ("clock",) if self._clock_stepped() else ()
        blind = self._last_survey.blind if self._last_survey is not None else ()
        now = self._clock()
        return HostView(
            homes=tuple(
                state.view(self.settings, host=host, started=started, now=now, blind=clock)
                for state in self.states()
            ),
            version=__version__,
            blind=tuple(reason.value for reason in blind),
            config_reload_successful=self.config_reload_successful and self.web_config_in_use,
            now=now,
            limited_users=self._last_survey.limited_users if self._last_survey is not None else 0,
            slow_homes=sum(state.trouble is Trouble.TIMEOUT for state in self._homes),
            large_homes=sum(state.has_too_many_open for state in self._homes),
            refused=self._homes.refused(),
        )

    def explain(
        self, session_id: str, states: Sequence[HomeState] | None = None
    ) -> list[tuple[str, OpenSession, Judgement]]:
        """Return the session and its judgement in the last scan, with the label of each home where
        it is open. If `states` is None, all homes are asked.
        """
        return [
            (label, reply.session, reply.judgement)
            for label, reply in self._ask_about(session_id, states)
            if reply.session and reply.judgement
        ]

    def past_sessions(
        self, session_id: str, states: Sequence[HomeState]
    ) -> list[tuple[str, PastSession]]:
        """Return what became of a session that is not open, for each home that knows of it."""
        found = self._ask_about(session_id, states)
        return [(label, reply.past) for label, reply in found if reply.past is not None]

    def _ask_about(
        self, session_id: str, states: Sequence[HomeState] | None
    ) -> Iterator[tuple[str, ExplainReply]]:
        for state in self.states() if states is None else states:
            if state.snapshot is None or self._workers.is_busy(state.home):
                continue
            request = ExplainRequest(state.home.path, state.home.owner, session_id)
            reply = self.call(state.home, protocol.EXPLAIN, request, self._probe_seconds)
            yield state.home.label, reply

    def call(
        self,
        home: Home,
        what: Call[Request, Part, Reply],
        request: Request,
        seconds: float = 0.0,
        *,
        progress: Callable[[int, int], None] | None = None,
        cancellation: Cancellation | None = None,
    ) -> Reply:
        """Send a request to the worker of this home; see `workers.client.call`."""
        if self._workers.is_busy(home):
            raise WorkerError(f"{home.path} is still being scanned")
        return client.call(
            self._pool,
            home,
            what,
            request,
            seconds,
            progress=progress,
            cancellation=cancellation,
        )

    def is_busy(self, home: Home) -> bool:
        """True while the worker of this home has not answered a scan, and so can answer no call."""
        return self._workers.is_busy(home)

    def prune_memory(self, home: Home) -> PruneMemory:
        """Return what the agent remembers of this home for the pruner."""
        return self._store.prune_memory(home.path)

    def check_soon(self) -> None:
        """Have the next scan that begins plan anew what could be pruned; any thread may call it."""
        if self._pruner is not None:
            self._pruner.check_soon()

    def has_old_figures(self) -> bool:
        """True if homes were scanned for the first time, or had a run: the next scan completes
        their figures.
        """
        return self._pruner is not None and any(
            self._pruner.has_old_figures(state)
            for state in self._homes
            if state.snapshot is not None and state.trouble is Trouble.NONE
        )

    def keep_prune_reports(self) -> HostView:
        """Return the last scan with what the pruner would do about it."""
        for state in self.states():
            planned = state.plans.prune
            if planned is not None:
                state.prune = planned.report
                self._store.keep_prune_memory(state.home.path, planned.memory)
        return self._view()

    def states(self) -> list[HomeState]:
        return sorted(self._homes, key=lambda state: state.home.label)

    def pool_beside(self) -> Pool:
        """Return a pool for a run by command; the surveys of this loop know its workers as ours."""
        return self._pool.beside()

    def close(self) -> None:
        """End all workers; threads that wait for a worker then return."""
        self._homes.stop_reporting()
        if self._pruner is not None:
            self._pruner.close()
        self._discovery.close()
        self._starter.stop()  # before the pool: a thread that waits for a start holds its lock
        self._pool.close()
        self._scheduler.close()
        self._starter.close()
