"""Which worker scans which home, and what happens when a worker fails.

Homes of one owner share a worker. A home that is slower than one scan of all homes gets its own, so
that the others need not wait for it; at most `DEDICATED_MAX` homes of one owner do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from exporter import logs
from exporter.agent.home_state import HomeState
from exporter.agent.scheduler import Scheduler
from exporter.agent.watched_homes import WatchedHomes, is_foreign
from exporter.discovery.homes import Home
from exporter.errors import WorkerError
from exporter.snapshot import Trouble
from exporter.workers.pool import Pool
from exporter.workers.process import Worker
from exporter.workers.protocol import Plans

DEDICATED_MAX: Final = 8
"""Homes of one owner that may each have their own worker and be scanned on their own."""

log = logs.get("scan")


class HomeWorkers:
    """The workers of the watched homes: shared or dedicated, busy, failed, replaced."""

    def __init__(
        self, pool: Pool, homes: WatchedHomes, scheduler: Scheduler, clock: Callable[[], float]
    ) -> None:
        self._pool = pool
        self._homes = homes
        self._scheduler = scheduler
        self._clock = clock

    # Shared and dedicated workers

    def is_ready(self, state: HomeState) -> bool:
        return not (
            state.home.problem
            or self._scheduler.is_busy(state)
            or self._pool.is_stuck(state.home.path)
        )

    def is_dedicated(self, state: HomeState) -> bool:
        return self._pool.is_dedicated(state.home.path)

    def dedicated_paths(self) -> list[str]:
        return [path for homes in self._pool.dedicated_homes().values() for path in homes]

    def make_dedicated(self, slow: HomeState) -> None:
        self._pool.make_dedicated(slow.home.owner, slow.home.path)

    def take_another(self, slow: HomeState) -> bool:
        """Give a home that delays others its own worker.

        False if too many such homes of its owner are being scanned.
        """
        dedicated = self._pool.dedicated_homes().get(slow.home.owner, [])
        busy = {state.home.path for state in self._scheduler.busy()}
        if len(busy.intersection(dedicated)) >= DEDICATED_MAX:
            return False
        self.make_dedicated(slow)
        return True

    def limit_dedicated(self) -> None:
        """After a stall, healthy homes share a worker again; `DEDICATED_MAX` keep their own."""
        for owner, homes in self._pool.dedicated_homes().items():
            healthy = [path for path in homes if self._is_healthy(path)]
            for path in healthy[: max(0, len(homes) - DEDICATED_MAX)]:
                self._pool.make_shared(owner, path)

    def _is_healthy(self, path: str) -> bool:
        state = self._homes.by_path.get(path)
        return state is not None and not state.failed and not self._scheduler.is_busy(state)

    def end_unneeded(self) -> None:
        """End the workers of homes that are forgotten and no longer being scanned."""
        needed = [*self._homes.census.homes, *(state.home for state in self._scheduler.busy())]
        self._pool.keep_only({(home.owner, home.path) for home in needed})

    def is_busy(self, home: Home) -> bool:
        """True if a slow scan still uses this home's worker: it takes one call at a time."""
        return any(
            busy.home.path == home.path
            or (
                busy.home.owner == home.owner
                and not self._pool.is_dedicated(busy.home.path)
                and not self._pool.is_dedicated(home.path)
            )
            for busy in self._scheduler.busy()
        )

    # Requests of a scan, and workers that fail

    def ask(self, state: HomeState, ask: Callable[[Worker], None], seconds: float) -> bool:
        """Send a request to the home's worker; if the worker died, replace it and try once more."""
        home = state.home
        for last_try in (False, True):
            try:
                worker = self._pool.worker(home.owner, home.path)
                state.set_worker(worker, self._clock())
                ask(worker)
                return True
            except TimeoutError:
                self._pool.fail(home.owner, home.path, is_cause=True)
                why = f"{home.path} did not answer within {seconds:.0f} s"
                return self._lacks_only_plans(state, why) or self._timed_out(state, why)
            except WorkerError as error:
                self._pool.fail(home.owner, home.path, is_cause=last_try)
                if self._lacks_only_plans(state, str(error)):
                    return True
                if last_try and is_foreign(home):
                    why = f"{home.path} is another user's, and this agent could not become them"
                    self._homes.set_down(state, Trouble.PERMISSION, why)
                elif last_try:
                    self._homes.set_down(state, Trouble.WORKER_DIED, f"{home.path}: {error}")
            except BaseException:
                self._pool.fail(home.owner, home.path, is_cause=False)  # its answer is incomplete
                raise
        return False

    def _lacks_only_plans(self, state: HomeState, why: str) -> bool:
        """True if the worker delivered its reading and failed only at the plans: the home is up."""
        if state.was_read:
            state.plans = Plans(problem=f"the scan could not make a plan: {why}"[:300])
        return state.was_read

    def _timed_out(self, state: HomeState, why: str) -> bool:
        self._homes.set_down(state, Trouble.TIMEOUT, why)
        return False

    def replace_if_uncounted(self, state: HomeState) -> None:
        """Log when usage cannot be counted, and replace the worker: a new one reports all of it."""
        if state.uncounted or state.needs_new_worker(self._clock()):
            self._pool.fail(state.home.owner, state.home.path, is_cause=False)
        changes = self._homes.changes
        if changes.changed(("uncounted", state.home.path), state.uncounted, assumed=""):
            if state.uncounted:
                log.error("usage not counted", home=state.home.label, error=state.uncounted)
            else:
                log.info("usage is counted again", home=state.home.label)
