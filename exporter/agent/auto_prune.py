"""Prune automatically: check the thresholds at intervals, and act where the mode is `enforce`.

The check follows a scan, in the same thread and worker. It also computes the figures of the pruner
that metrics and pages show. A run has its own thread and worker, so scans continue meanwhile. Each
user has at most one run at a time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import apsw
from msgspec import structs

from exporter import logs
from exporter.agent.act_request import prune_request, settle_request
from exporter.agent.auto_upkeep import AutomaticUpkeep
from exporter.agent.clean_up_time import is_clean_up_due
from exporter.agent.disk_share import disk_share
from exporter.agent.home_state import HomeState
from exporter.agent.obstacles import Obstacles
from exporter.agent.state_store import StateStore
from exporter.collectors.prune_reasons import RUN_FAILED
from exporter.config.mode import Mode, When
from exporter.config.prune import Prune
from exporter.config.settings import HomeSettings, Settings
from exporter.errors import ExporterError, error_location
from exporter.evidence.models import HomeEvidence
from exporter.pruner.decide.thresholds import Pressure, note_done
from exporter.pruner.models import REASONS_MAX, PruneMemory, PruneReport
from exporter.pruner.requests import PrunePlanRequest, PrunePlanResult
from exporter.runs.models import Capped, Frees, Outcome, RunOutcome
from exporter.snapshot import Trouble
from exporter.workers import protocol
from exporter.workers.pool import Pool
from exporter.workers.process import Worker

_CLEAN_UP_CHECK_SECONDS: Final = 60.0
"""While the daily clean-up is due, the checks are this far apart."""
_RETRY_SECONDS_MAX: Final = 3600.0
"""Longest wait after runs that failed."""
Job = Callable[[Worker], None]

log = logs.get("pruner")


class _Failure(NamedTuple):
    """How many runs of a home failed in a row, and when the next one is tried."""

    times: int
    retry_at: float
    """By the monotonic clock."""


class AutomaticPruner:
    """Remembers the last check of each home, and which homes have a run in progress."""

    def __init__(
        self,
        pool: Pool,
        store: StateStore,
        monotonic: Callable[[], float],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._pool = pool
        self._store = store
        self._monotonic = monotonic
        self._clock = clock
        self._last_check: dict[str, float] = {}
        self._check_began: dict[str, float] = {}
        """By the monotonic clock: when the check of each home was requested."""
        self._check_from = float("-inf")
        """By the monotonic clock: figures that were asked for before this are out of date."""
        self._runs_at_check: dict[str, object] = {}
        """`HomeState.runs_revision` of each home at its last check: a run changes the figures."""
        self._upkeep = AutomaticUpkeep(monotonic)
        self._checked_homes: set[str] = set()
        """Homes that had a check since the agent started."""
        self._settling_tried: dict[str, tuple[str, ...]] = {}
        """The unfinished runs of each home when we last tried to settle them."""
        self._obstacles = Obstacles(log, "not pruned", "pruning goes on")
        self._failures = Obstacles(log, "prune failed, tried again later", "prunes succeed again")
        self._capped = logs.StateChange()
        self._locks: dict[int, threading.Lock] = {}
        self._busy: set[str] = set()
        """Homes that have a run in progress, or one that waits for its turn."""
        self._failed: dict[str, _Failure] = {}
        self._stopping = False
        self._host = os.uname().nodename
        self._by_age: set[str] = set()
        """Homes whose scan in progress plans the daily clean-up."""
        self._settings = Settings()
        """The current settings. A run that waits for its turn checks them again before it acts."""

    def is_due(self, state: HomeState, settings: Settings) -> bool:
        """True if this scan must also check the thresholds.

        The first scan of a home does not: it must not take longer than necessary.
        """
        self._settings = settings
        if state.snapshot is None or state.home.path in self._busy:
            return False
        own = settings.for_home(state.home).prune
        interval = own.interval_seconds
        if self._clean_up_is_due(state, own):
            interval = min(interval, _CLEAN_UP_CHECK_SECONDS)
        last = self._last_check.get(state.home.path)
        if last is None or last < self._check_from or self._has_new_runs(state):
            return True
        return self._monotonic() - last >= interval

    def check_soon(self) -> None:
        """Check every home again, with the next scan that begins."""
        self._check_from = self._monotonic()

    def _has_new_runs(self, state: HomeState) -> bool:
        path = state.home.path
        return path in self._last_check and self._runs_at_check.get(path) != state.runs_revision

    def _clean_up_is_due(self, state: HomeState, own: Prune) -> bool:
        if When.AGE not in own.when:
            return False
        last = self._store.prune_memory(state.home.path).cleaned_at
        return is_clean_up_due(self._clock(), last, self._host)

    def has_old_figures(self, state: HomeState) -> bool:
        """True if the home had no check yet, or a run since its last check."""
        if state.home.path not in self._checked_homes:
            return True
        return state.home.path not in self._busy and self._has_new_runs(state)

    def want(
        self, state: HomeState, settings: Settings, homes: Collection[HomeState] = ()
    ) -> PrunePlanRequest | None:
        """Return what the next scan must plan; None if no check is due.

        `homes` are all watched homes: if their filesystem is full, each has to free only its share.
        """
        if not self.is_due(state, settings):
            return None
        own = settings.for_home(state.home)
        memory = self._store.prune_memory(state.home.path)
        self._check_began[state.home.path] = self._monotonic()
        self._runs_at_check[state.home.path] = state.runs_revision
        by_age = self._clean_up_is_due(state, own.prune)
        if by_age:
            self._by_age.add(state.home.path)
        return PrunePlanRequest(
            own.prune,
            memory,
            own.reaper.end_reason,
            by_pressure=not by_age,
            disk_share=disk_share(state, homes),
            sessions_max=settings.limits.sessions_per_home,
        )

    def act(self, state: HomeState, settings: Settings) -> None:
        """Take the plan that the scan made, and start a run if one is due."""
        planned = state.plans.prune
        if state.trouble is not Trouble.NONE or state.evidence is None:
            return
        if planned is None and not state.plans.problem:
            return
        home, own = state.home, settings.for_home(state.home)
        by_age = home.path in self._by_age
        self._by_age.discard(home.path)
        # The time of the request, not of now: a `check_soon` in between must still count.
        self._last_check[home.path] = self._check_began.get(home.path, self._monotonic())
        self._checked_homes.add(home.path)
        # A plan made before a killed run is settled may be wrong: the next check plans again.
        if own.prune.mode is Mode.ENFORCE and self._starts_settling(state):
            return
        if planned is None:
            self._obstacles.note(state, state.plans.problem)
            return
        state.prune = self._with_failure(home.path, planned.report)
        acts = own.prune.mode is Mode.ENFORCE and home.may_write and bool(planned.plan.actions)
        # A clean-up with something to do counts as done after its run, and is due until then.
        cleaned = by_age and not acts and not planned.plan.blocked
        self._remember(state, self._with_clean_up(planned.memory, cleaned=cleaned))
        self._obstacles.note(state, planned.plan.why if planned.plan.blocked else "")
        self._log_caps(state, planned.plan.capped)
        if own.prune.mode is not Mode.ENFORCE or not home.may_write:
            return
        if planned.plan.actions and not self._may_try(home.path):
            return
        if planned.plan.actions:
            # Keep this evidence: a process that opens the database later then counts as new.
            evidence, planned_at = state.evidence, self._monotonic()
            self._start_run(
                state,
                lambda worker: self._prune(
                    worker, state, own, planned, evidence, planned_at, by_age=by_age
                ),
            )
        elif self._upkeep.is_due(state, own):
            self._upkeep.note_begun(state)
            self._start_run(state, lambda worker: self._upkeep.run(worker, state, own))

    def _starts_settling(self, state: HomeState) -> bool:
        """Start to settle the runs that were killed; True if that was started.

        Until they are settled, a plan may be wrong. Each set of unfinished runs is tried once here.
        Runs that cannot be settled do not block pruning; the next run tries them again.
        """
        open_runs, evidence = state.unfinished_runs, state.evidence
        if self._settling_tried.get(state.home.path) == open_runs or evidence is None:
            return False
        # The first time even if no run is unfinished: this makes the reserve for a full disk.
        self._settling_tried[state.home.path] = open_runs
        if not state.home.may_write:
            return False
        self._start_run(state, lambda worker: self._settle(worker, state, evidence))
        return True

    def _settle(self, worker: Worker, state: HomeState, evidence: HomeEvidence) -> None:
        reply = worker.call(protocol.SETTLE, settle_request(state.home, evidence, reserve=True))
        for run in reply.settled:
            log.info("killed run settled", home=state.home.label, run=run)
        for left in reply.left:
            log.warn("run not settled", home=state.home.label, run=left.target, why=left.why)

    def _remember(self, state: HomeState, memory: PruneMemory) -> None:
        try:
            self._store.keep_prune_memory(state.home.path, memory)
        except apsw.Error as error:
            self._obstacles.note(state, f"cannot write {self._store.path}: {error}")

    def _start_run(self, state: HomeState, job: Job) -> None:
        self._busy.add(state.home.path)
        threading.Thread(target=self._run, args=(state, job), name="prune", daemon=True).start()

    def _lock_of(self, owner: int) -> threading.Lock:
        """Return the lock of this user. Each user has one run at a time, and waits for no other."""
        return self._locks.setdefault(owner, threading.Lock())

    def _run(self, state: HomeState, job: Job) -> None:
        home = state.home
        try:
            with self._lock_of(home.owner), self._pool.temporary(home.owner) as worker:
                job(worker)
        except (ExporterError, TimeoutError) as error:
            self._note_result(state, str(error))
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the agent
            self._note_result(state, f"internal error: {error_location(error)}")
        finally:
            self._busy.discard(home.path)
            # The next scan shows the result. After a failure the usual interval goes on, or a
            # home that always fails would be checked at every scan.
            if home.path not in self._failed:
                self._last_check.pop(home.path, None)

    def _may_try(self, path: str) -> bool:
        failure = self._failed.get(path)
        return failure is None or self._monotonic() >= failure.retry_at

    def _note_result(self, state: HomeState, why: str) -> None:
        """Note how a run went; `why` is empty if it succeeded.

        After each failure in a row the next try waits longer: a run costs a process, and its
        cause (a read-only disk) often stays. The log has one line per change of state.
        """
        path = state.home.path
        if self._stopping:  # the worker was ended by us: this is no failure
            return
        if why:
            interval = self._settings.for_home(state.home).prune.interval_seconds
            times = self._failed[path].times + 1 if path in self._failed else 1
            pause = min(interval * 2.0**times, _RETRY_SECONDS_MAX)
            self._failed[path] = _Failure(times, self._monotonic() + pause)
            if state.prune is not None:
                state.prune = self._with_failure(path, state.prune)
        else:
            self._failed.pop(path, None)
        self._failures.note(state, why)

    def _with_failure(self, path: str, report: PruneReport) -> PruneReport:
        """Add to the report that runs fail: a plan that is never executed must not look healthy."""
        if path not in self._failed or RUN_FAILED in report.blocked:
            return report
        return structs.replace(report, blocked=[RUN_FAILED, *report.blocked][:REASONS_MAX])

    def _prune(
        self,
        worker: Worker,
        state: HomeState,
        own: HomeSettings,
        planned: PrunePlanResult,
        evidence: HomeEvidence,
        planned_at: float,
        *,
        by_age: bool,
    ) -> None:
        wanted = self._settings.for_home(state.home).prune.mode is Mode.ENFORCE
        waited = self._monotonic() - planned_at
        if not wanted or waited > own.prune.plan_ttl_seconds:
            return  # the plan is too old, or no longer wanted; the next check plans again
        request = prune_request(state.home, evidence, own, planned)
        pruned = worker.call(protocol.PRUNE, request)
        taken = frozenset(pruned.done)
        done = [each for each in planned.plan.actions if each.target in taken]
        failed = pruned.outcome is RunOutcome.FAILED
        self._note_result(state, _why_failed(pruned) if failed else "")
        if not failed:
            policies = Counter(each.policy for each in done)
            self._log_run(state, pruned, planned.pressure, policies, by_age=by_age)
        memory = note_done(planned.memory, planned.pressure, done, self._clock())
        self._remember(state, self._with_clean_up(memory, cleaned=by_age))

    def _with_clean_up(self, memory: PruneMemory, *, cleaned: bool) -> PruneMemory:
        return structs.replace(memory, cleaned_at=self._clock()) if cleaned else memory

    def _log_run(
        self,
        state: HomeState,
        outcome: Outcome,
        pressure: Pressure,
        by_policy: Counter[str],
        *,
        by_age: bool,
    ) -> None:
        due = [level.name.value for level in pressure.levels if level.due]
        log.info(
            "pruned",
            home=state.home.label,
            run=outcome.run,
            outcome=outcome.outcome.value,
            thresholds=",".join(due),
            when=When.AGE.value if by_age else When.PRESSURE.value,
            policies=",".join(f"{name}:{items}" for name, items in by_policy.items()),
            items=len(outcome.done),
            skipped=len(outcome.skipped),
            freed_bytes=outcome.freed.get(Frees.NOW, 0),
            in_trash_bytes=outcome.freed.get(Frees.AT_PURGE, 0),
        )
        if outcome.why:
            log.warn("part was not pruned", home=state.home.label, why=outcome.why)

    def _log_caps(self, state: HomeState, capped: Capped | None) -> None:
        """Log one line when the daily caps are reached, not at every check."""
        changed = self._capped.changed(state.home.path, capped is not None, assumed=False)
        if changed and capped is not None:
            log.warn(
                "prune capped",
                home=state.home.label,
                items=capped.items,
                bytes=capped.bytes,
                caps=",".join(capped.caps),
            )

    def close(self) -> None:
        """Stop. A run in progress ends with its worker; the next run settles what it has done."""
        self._stopping = True


def _why_failed(pruned: Outcome) -> str:
    """Return what stopped a run that took nothing, or why its first item could not be taken."""
    first = pruned.skipped[0].why if pruned.skipped else ""
    return pruned.why or first or "nothing could be taken"
