"""Pruning without being asked: look at the thresholds now and then, and act where it is enforced.

The look follows a scan, in its thread and its worker, and gives the figures that are shown. A run
has a thread and a worker of its own, so that scans go on while it lasts; a user has one at a time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import apsw

from exporter import logs
from exporter.agent.act_request import prune_request, settle_request
from exporter.agent.home_state import HomeState
from exporter.agent.state_store import StateStore
from exporter.config.mode import Mode
from exporter.config.settings import HomeSettings, Settings
from exporter.errors import ExporterError, error_location
from exporter.evidence.models import HomeEvidence
from exporter.evidence.openers import KnownOpeners
from exporter.pruner.decide.thresholds import Pressure, note_done
from exporter.pruner.models import Frees, PruneMemory
from exporter.pruner.requests import PruneWish
from exporter.runs.models import Outcome
from exporter.snapshot import Trouble
from exporter.workers import protocol
from exporter.workers.pool import Pool
from exporter.workers.process import Worker
from exporter.workers.protocol import PrunePlanResult, UpkeepRequest

_NOTHING: Final = ""
_UPKEEP_SECONDS: Final = 24 * 3600.0
Job = Callable[[Worker], None]

log = logs.get("pruner")


class AutomaticPruner:
    """Remembers when each home was looked at last, and which run is under way."""

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
        self._last_upkeep: dict[str, float] = {}
        self._checked: set[str] = set()
        self._recovery_tried: dict[str, tuple[str, ...]] = {}
        """The open runs of each home that were to be settled the last time."""
        self._changes = logs.StateChange()
        self._locks: dict[int, threading.Lock] = {}
        self._busy: set[str] = set()
        self._stopping = False
        self._settings = Settings()
        """As they are now: a run that waits for its turn may not be wanted any more."""

    def is_due(self, state: HomeState, settings: Settings) -> bool:
        """Whether this scan is to be followed by a look at the thresholds.

        The first scan of a home is not: whoever waits for it should not wait longer.
        """
        self._settings = settings
        if state.snapshot is None or state.home.path in self._busy:
            return False
        last = self._last_check.get(state.home.path)
        interval = settings.for_home(state.home.named_as).prune.interval_seconds
        return last is None or self._monotonic() - last >= interval

    def is_new(self, state: HomeState) -> bool:
        """Whether all that is known of this home is from its first scan."""
        return state.home.path not in self._checked

    def wish(self, state: HomeState, settings: Settings) -> PruneWish | None:
        """What the next scan is to plan; None while no look is due."""
        if not self.is_due(state, settings):
            return None
        own = settings.for_home(state.home.named_as)
        memory = self._store.prune_memory(state.home.path)
        return PruneWish(own.prune, memory, own.reaper.end_reason)

    def act(self, state: HomeState, settings: Settings) -> None:
        """Take in the plan of a scan that made one, and begin a run if one is due."""
        planned = state.plans.prune
        if state.trouble is not Trouble.NONE or state.evidence is None:
            return
        if planned is None and not state.plans.problem:
            return
        home, own = state.home, settings.for_home(state.home.named_as)
        self._last_check[home.path] = self._monotonic()
        self._checked.add(home.path)
        # A plan made while a killed run is not settled may be wrong: the next look plans anew.
        if own.prune.mode is Mode.ENFORCE and self._settles_first(state):
            return
        if planned is None:
            self._log_blocked(state, state.plans.problem)
            return
        state.prune = planned.report
        self._remember(state, planned.memory)
        self._log_blocked(state, planned.plan.why if planned.plan.blocked else _NOTHING)
        if own.prune.mode is not Mode.ENFORCE or not home.may_write:
            return
        if planned.plan.actions:
            # Whoever comes from now on is not among those that the plan has reckoned with.
            evidence, planned_at = state.evidence, self._monotonic()
            self._start_run(
                state,
                lambda worker: self._prune(worker, state, own, planned, evidence, planned_at),
            )
        elif self._upkeep_is_due(state, own):
            self._last_upkeep[home.path] = self._monotonic()
            self._start_run(state, lambda worker: self._upkeep(worker, state, own))

    def _settles_first(self, state: HomeState) -> bool:
        """Whether what killed runs left open is being settled: until then no plan would be right.

        What could not be settled is tried again by the next run, and is in the way of none.
        """
        open_runs, evidence = state.unfinished_runs, state.evidence
        if self._recovery_tried.get(state.home.path, ()) == open_runs or evidence is None:
            return False
        self._recovery_tried[state.home.path] = open_runs
        if not open_runs or not state.home.may_write:
            return False
        self._start_run(state, lambda worker: self._settle(worker, state, evidence))
        return True

    def _settle(self, worker: Worker, state: HomeState, evidence: HomeEvidence) -> None:
        reply = worker.call(protocol.SETTLE, settle_request(state.home, evidence))
        for run in reply.settled:
            log.info("killed run settled", home=state.home.label, run=run)
        for left in reply.left:
            log.warn("run not settled", home=state.home.label, run=left.target, why=left.why)

    def _remember(self, state: HomeState, memory: PruneMemory) -> None:
        try:
            self._store.keep_prune_memory(state.home.path, memory)
        except apsw.Error as error:
            self._log_blocked(state, f"cannot write {self._store.path}: {error}")

    def _start_run(self, state: HomeState, job: Job) -> None:
        self._busy.add(state.home.path)
        threading.Thread(target=self._run, args=(state, job), name="prune", daemon=True).start()

    def _lock_of(self, owner: int) -> threading.Lock:
        """One run at a time for each user: nobody can keep another's from beginning."""
        return self._locks.setdefault(owner, threading.Lock())

    def _run(self, state: HomeState, job: Job) -> None:
        home = state.home
        try:
            with self._lock_of(home.owner), self._pool.temporary(home.owner) as worker:
                job(worker)
        except (ExporterError, TimeoutError) as error:
            if not self._stopping:
                self._log_blocked(state, str(error))
        except Exception as error:  # noqa: BLE001 - a fault of ours must not end the agent
            log.error("prune failed", home=home.label, error=error_location(error))
        finally:
            self._busy.discard(home.path)
            self._last_check.pop(home.path, None)

    def _prune(
        self,
        worker: Worker,
        state: HomeState,
        own: HomeSettings,
        planned: PrunePlanResult,
        evidence: HomeEvidence,
        planned_at: float,
    ) -> None:
        wanted = self._settings.for_home(state.home.named_as).prune.mode is Mode.ENFORCE
        waited = self._monotonic() - planned_at
        if not wanted or waited > own.prune.plan_ttl_seconds:
            return  # the next look plans anew, if it is to
        request = prune_request(state.home, evidence, own, planned)
        pruned = worker.call(protocol.PRUNE, request)
        taken = frozenset(pruned.done)
        done = [each for each in planned.plan.actions if each.target in taken]
        self._log_result(state, pruned, planned.pressure, Counter(each.policy for each in done))
        self._remember(state, note_done(planned.memory, planned.pressure, done, self._clock()))

    def _upkeep_is_due(self, state: HomeState, own: HomeSettings) -> bool:
        """Once a day, where it is wanted and nobody is there."""
        wanted = own.prune.upkeep.vacuum or own.prune.upkeep.gc
        if not wanted or state.evidence is None:
            return False
        from exporter.pruner.apply.upkeep import is_quiet  # few want any

        if not is_quiet(state.evidence):
            return False
        last = self._last_upkeep.get(state.home.path)
        return last is None or self._monotonic() - last >= _UPKEEP_SECONDS

    def _upkeep(self, worker: Worker, state: HomeState, own: HomeSettings) -> None:
        if state.evidence is None:
            return
        from exporter.pruner.apply.upkeep import is_quiet  # few want any

        wanted = own.prune.upkeep
        request = UpkeepRequest(
            state.home.path,
            state.home.owner,
            KnownOpeners.of(state.evidence),
            quiet=is_quiet(state.evidence),
            vacuum=wanted.vacuum,
            gc=wanted.gc,
        )
        for each in worker.call(protocol.UPKEEP, request):
            log.info(
                "upkeep not done" if each.why else "upkeep",
                home=state.home.label,
                work=each.work,
                why=each.why,
                before_bytes=each.before_bytes,
                after_bytes=each.after_bytes,
            )

    def _log_result(
        self, state: HomeState, outcome: Outcome, pressure: Pressure, by_policy: Counter[str]
    ) -> None:
        due = [level.name.value for level in pressure.levels if level.due]
        log.info(
            "pruned",
            home=state.home.label,
            run=outcome.run,
            outcome=outcome.outcome.value,
            thresholds=",".join(due),
            policies=",".join(f"{name}:{items}" for name, items in by_policy.items()),
            items=len(outcome.done),
            skipped=len(outcome.skipped),
            freed_bytes=outcome.freed.get(Frees.NOW, 0),
            in_trash_bytes=outcome.freed.get(Frees.AT_PURGE, 0),
        )
        self._log_blocked(state, outcome.why)

    def _log_blocked(self, state: HomeState, why: str) -> None:
        """One line when something comes into the way of pruning, and one when it has gone."""
        if not self._changes.changed(state.home.path, why, assumed=_NOTHING):
            return
        if why:
            log.warn("not pruned", home=state.home.label, why=why)
        else:
            log.info("pruning goes on", home=state.home.label)

    def close(self) -> None:
        """A run under way ends with its worker; the next one finds out what it had done."""
        self._stopping = True
