"""A round of scans over all homes: find them, look at each, survey the processes, read each.

Homes are scanned side by side, one thread per worker. A home that is still busy when the next round
comes is left alone (single flight); one that hangs, kills its worker or cannot be read is shown as
down, and nobody waits for it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from exporter import __version__, logs, wire
from exporter.config.settings import Settings
from exporter.errors import WorkerError
from exporter.evidence.findings import Candidate as ProcessCandidate
from exporter.evidence.findings import HomeEvidence, HomeFiles, Survey
from exporter.evidence.liveness import start_times
from exporter.evidence.survey import survey as survey_processes
from exporter.home_state import HomeState
from exporter.homes import (
    Account,
    Candidate,
    Census,
    Home,
    Origin,
    accounts,
    found_candidates,
    take_census,
)
from exporter.journal import Journal
from exporter.pool import Pool, reap_stragglers
from exporter.scan.inspect import Inspection
from exporter.snapshot import DatabaseLook, Look, Trouble
from exporter.view import HostView

INSPECT_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 10.0
READ_SECONDS: Final = 120.0
_LINGER_SECONDS: Final = 3600.0
"""How long a home that has gone is shown as down before it is forgotten."""
_HUNG_PATH_SECONDS: Final = 600.0
"""How long a path that hung the scout is left alone."""
_THREADS: Final = 16

log = logs.get("scan")


class Rounds:
    """The state that survives from one round to the next."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        *,
        named: Sequence[str] = (),
        pool: Pool | None = None,
        survey: Callable[[Sequence[HomeFiles]], Survey] = survey_processes,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        every_session: bool = False,
    ) -> None:
        self.settings = settings
        self.config_reload_successful = True
        self._journal = journal
        self._named = tuple(named)
        self._pool = pool or Pool()
        self._survey = survey
        self._environment = environment
        self._clock = clock
        self._monotonic = monotonic
        self._every_session = every_session
        self._own_uid = os.geteuid()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="scan")
        self._pool_lock = threading.Lock()
        self._states: dict[str, HomeState] = {}
        self._busy: dict[str, Future[None]] = {}
        self._hung_paths: dict[str, float] = {}
        self._process_candidates: tuple[ProcessCandidate, ...] = ()
        self._last_survey: Survey | None = None
        self._changes = logs.StateChange()
        self.census = Census((), ())

    # One round

    def run(self, patience_seconds: float) -> HostView:
        """Scan every home that is not busy; wait no longer than `patience_seconds` for any."""
        until = self._monotonic() + patience_seconds
        reap_stragglers()
        self._discover()
        ready = [state for path, state in self._states.items() if path not in self._busy_paths()]
        scannable = [state for state in ready if not state.home.problem]
        self._in_parallel(scannable, self._look, until)
        looked = [state for state in scannable if state.look is not None and not state.failed]
        surveyed = self._take_survey(looked)
        self._in_parallel(looked, lambda state: self._read(state, surveyed), until)
        return self._view()

    def _busy_paths(self) -> set[str]:
        self._busy = {path: job for path, job in self._busy.items() if not job.done()}
        return set(self._busy)

    def _in_parallel(
        self, states: Sequence[HomeState], scan: Callable[[HomeState], None], until: float
    ) -> None:
        """Scan the homes, those of one worker one after another; go on when time is up."""
        lanes: dict[tuple[int | None, str], list[HomeState]] = {}
        for state in states:
            lanes.setdefault(self._pool.lane(state.home.owner, state.home.path), []).append(state)
        jobs: list[Future[None]] = []
        for lane in lanes.values():
            job = self._threads.submit(_each, lane, scan)
            jobs.append(job)
            for state in lane:
                self._busy[state.home.path] = job
        wait(jobs, max(0.0, until - self._monotonic()))

    # Finding homes

    def _discover(self) -> None:
        labels = self._journal.labels()
        watched = {path: state.home for path, state in self._states.items() if self._lingers(state)}
        users = accounts()
        census = take_census(
            self._candidates(users),
            self._inspect,
            labels=labels,
            watched=watched,
            own_uid=self._own_uid,
            user_names={user.uid: user.name for user in users},
        )
        self.census = census
        for home in census.homes:
            if labels.get(home.path) != home.label:
                self._journal.give_label(home.path, home.label)
            self._notice(home)
        for path in self._states.keys() - {home.path for home in census.homes}:
            log.info("home forgotten", home=self._states.pop(path).home.label)
            self._changes.forget(path)
        for refusal in census.refused:
            if self._changes.changed(("refused", refusal.path), refusal.why):
                log.info("home not adopted", path=refusal.path, why=refusal.why, fix=refusal.fix)
        self._pool.keep_only({home.owner for home in census.homes} | {None})

    def _lingers(self, state: HomeState) -> bool:
        return not state.home.problem or (self._monotonic() - state.last_seen < _LINGER_SECONDS)

    def _notice(self, home: Home) -> None:
        state = self._states.get(home.path)
        if state is None:
            state = self._states[home.path] = HomeState(home, self._journal)
            log.info("home found", home=home.label, path=home.path, owner=home.owner)
        state.home = home
        if home.problem:
            state.fail(Trouble.HOME_GONE, f"{home.path}: {home.problem}")
            self._tell(state)
        else:
            state.last_seen = self._monotonic()

    def _candidates(self, users: Sequence[Account]) -> list[Candidate]:
        if self._named:
            return [Candidate(os.path.abspath(path), Origin.NAMED) for path in self._named]
        if self.settings.homes:
            return [
                Candidate(os.path.abspath(home.path), Origin.NAMED, home.name or "", home.profiles)
                for home in self.settings.homes
            ]
        found = found_candidates(users, self._own_uid, self._environment)
        found.extend(
            Candidate(each.directory, Origin.PROCESS, uid=each.uid, database=each.database)
            for each in self._process_candidates
        )
        return found

    def _inspect(self, path: str) -> Inspection:
        """Ask the scout; a path that hangs it is left alone for a while."""
        if self._hung_paths.get(path, float("-inf")) > self._monotonic():
            return Inspection(exists=True, unreadable=f"{path}: does not answer")
        try:
            deadline = self._monotonic() + INSPECT_SECONDS
            for reply in self._pool.worker(None).ask(wire.InspectRequest(path), deadline):
                if isinstance(reply, wire.InspectReply):
                    return reply.inspection
        except TimeoutError:
            self._pool.fail(None, hung=False)
            self._hung_paths[path] = self._monotonic() + _HUNG_PATH_SECONDS
        except WorkerError as error:
            self._pool.fail(None, hung=False)
            log.warn("scout failed", error=str(error))
        return Inspection(exists=True, unreadable=f"{path}: does not answer")

    # Scanning one home, in a thread of its worker

    def _look(self, state: HomeState) -> None:
        state.begin(self._monotonic())
        request = wire.LookRequest(state.home.path, state.home.owner)
        self._exchange(state, request, LOOK_SECONDS)

    def _read(self, state: HomeState, surveyed: Mapping[str, HomeEvidence]) -> None:
        if state.look is None:
            return
        state.evidence = surveyed.get(_key(state.home.path, "state.db"))
        request = self._read_request(state, state.look, surveyed)
        if self._exchange(state, request, READ_SECONDS):
            state.finish(self._clock(), self._monotonic())
            if self._pool.quarantined(state.home.path):
                self._pool.release(state.home.owner, state.home.path)
        self._tell(state)

    def _exchange(self, state: HomeState, request: wire.Request, seconds: float) -> bool:
        """Ask the home's worker; a worker that died is replaced and asked once more."""
        home = state.home
        for last_try in (False, True):
            deadline = self._monotonic() + seconds
            try:
                with self._pool_lock:
                    worker = self._pool.worker(home.owner, home.path)
                for reply in worker.ask(request, deadline):
                    state.take(reply)
                return True
            except TimeoutError:
                with self._pool_lock:
                    self._pool.fail(home.owner, home.path, hung=True)
                state.fail(Trouble.TIMEOUT, f"{home.path} did not answer within {seconds:.0f} s")
                self._tell(state)
                return False
            except WorkerError as error:
                with self._pool_lock:
                    self._pool.fail(home.owner, home.path, hung=False)
                if last_try:
                    state.fail(Trouble.WORKER_DIED, f"{home.path}: {error}")
                    self._tell(state)
        return False

    def _read_request(
        self, state: HomeState, look: Look, surveyed: Mapping[str, HomeEvidence]
    ) -> wire.ReadRequest:
        home = state.home
        databases = [look.state, *look.boards]
        evidence = {d.name: surveyed.get(_key(home.path, d.name)) for d in databases}
        own = self.settings.for_home(home.named_as)
        main = evidence["state.db"]
        return wire.ReadRequest(
            home=home.path,
            owner=home.owner,
            openable=[name for name, found in evidence.items() if _may_open(found)],
            holdings=[
                wire.Holding(holder.pid, holder.shm_inode)
                for found in evidence.values()
                if found is not None
                for holder in found.holders
                if holder.holds_shm and holder.shm_inode is not None and not holder.heir
            ],
            quiet=main is not None and not main.holders and not main.blind,
            watermark=self._journal.watermark(home.path),
            excluded_profiles=list(home.profile_names),
            trivial_max_messages=own.prune.policies.trivial_sessions.max_messages or 5,
            marathon_max_messages=self.settings.marathon.max_messages,
            marathon_near_ratio=self.settings.marathon.near_ratio,
            stale_after_seconds=own.prune.policies.stale_checkpoints.older_than_seconds,
            full_interval_seconds=self.settings.scan.full_interval_seconds,
            every_session=self._every_session,
        )

    def _tell(self, state: HomeState) -> None:
        """One line when a home's state changes; none while it stays as it is."""
        if not self._changes.changed(state.home.path, state.trouble, assumed=Trouble.NONE):
            return
        if state.trouble is Trouble.NONE:
            log.info("home is readable again", home=state.home.label)
        else:
            log.warn(
                "home cannot be read",
                home=state.home.label,
                reason=state.trouble.value,
                detail=state.detail,
            )

    # Evidence

    def _take_survey(self, states: Sequence[HomeState]) -> dict[str, HomeEvidence]:
        targets = [
            _files(state, each)
            for state in states
            if state.look is not None
            for each in (state.look.state, *state.look.boards)
        ]
        found = self._survey(targets)
        self._process_candidates = found.candidates
        self._last_survey = found
        return found.homes

    # The outcome

    def _view(self) -> HostView:
        started = start_times()
        host = socket.gethostname()
        blind = self._last_survey.blind if self._last_survey is not None else ()
        return HostView(
            homes=tuple(
                state.view(self.settings, host=host, started=started)
                for state in sorted(self._states.values(), key=lambda s: s.home.label)
            ),
            version=__version__,
            blind=tuple(reason.value for reason in blind),
            config_reload_successful=self.config_reload_successful,
            now=self._clock(),
        )

    def states(self) -> list[HomeState]:
        return sorted(self._states.values(), key=lambda state: state.home.label)

    def close(self) -> None:
        """End all workers; threads that wait for one then come back by themselves."""
        self._pool.close()
        self._threads.shutdown(wait=True, cancel_futures=True)


def _each(states: Sequence[HomeState], scan: Callable[[HomeState], None]) -> None:
    for state in states:
        scan(state)


def _key(path: str, name: str) -> str:
    return f"{path}\0{name}"


def _files(state: HomeState, each: DatabaseLook) -> HomeFiles:
    is_state = state.look is not None and each is state.look.state
    return HomeFiles(
        key=_key(state.home.path, each.name),
        database=each.database,
        wal=each.wal,
        shm=each.shm,
        wal_mode=each.wal_mode,
        gateway=state.look.gateway if is_state and state.look is not None else None,
        lock_probe=each.lock_probe,
        name=os.path.basename(each.name),
        directory=os.path.dirname(os.path.join(state.home.path, each.name)),
    )


def _may_open(found: HomeEvidence | None) -> bool:
    """Nobody known to be without a lock on -shm. Where locks cannot be seen there is no telling."""
    return found is not None and not found.lockless_shm
