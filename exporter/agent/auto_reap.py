"""Reap automatically: after a scan, at intervals, in homes whose mode is `enforce`.

A reap acts only on what the scan before it read and judged, and runs in the thread of that scan. If
something prevents a reap, this is logged once, and the next interval tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from exporter import logs
from exporter.agent.act_request import reap_request
from exporter.agent.home_state import HomeState
from exporter.agent.obstacles import Obstacles
from exporter.agent.session_list import public_id
from exporter.config.mode import Mode
from exporter.config.settings import Settings
from exporter.errors import RefusedError, WorkerError
from exporter.reaper.plan import ReapLimits, ReapPlanRequest
from exporter.runs.models import Outcome
from exporter.snapshot import Trouble
from exporter.workers import client, protocol
from exporter.workers.pool import Pool

_LOGGED_MAX: Final = 5

log = logs.get("reaper")


class AutomaticReaper:
    """Remembers when each home was last reaped."""

    def __init__(self, pool: Pool, monotonic: Callable[[], float]) -> None:
        self._pool = pool
        self._monotonic = monotonic
        self._last_reap: dict[str, float] = {}
        self._obstacles = Obstacles(log, "not reaped", "reaping goes on")

    def is_due(self, state: HomeState, settings: Settings) -> bool:
        """True if this scan must be followed by a reap."""
        own = settings.for_home(state.home).reaper
        if own.mode is not Mode.ENFORCE or not state.home.may_write:
            return False
        last = self._last_reap.get(state.home.path)
        return last is None or self._monotonic() - last >= own.interval_seconds

    def want(self, state: HomeState, settings: Settings) -> ReapPlanRequest | None:
        """Return what the next scan must plan; None if no reap is due."""
        if not self.is_due(state, settings):
            return None
        return ReapPlanRequest(ReapLimits.of(settings.for_home(state.home).reaper))

    def act(self, state: HomeState, settings: Settings) -> None:
        """Execute the plan that the scan made, if it made one, and heal what needs it."""
        if state.trouble is not Trouble.NONE or state.evidence is None:
            return
        home, plan = state.home, state.plans.reap
        if plan is not None:
            self._last_reap[home.path] = self._monotonic()
        elif state.plans.problem and self.is_due(state, settings):
            self._last_reap[home.path] = self._monotonic()
            self._obstacles.note(state, state.plans.problem)
        # Sessions that we ended by mistake are healed within one scan, also in the mode `observe`.
        if plan is None and not (state.needs_healing and home.may_write):
            return
        own = settings.for_home(home)
        request = reap_request(home, state.evidence, own, plan)
        try:
            self._log_outcome(state, client.call(self._pool, home, protocol.REAP, request))
        except RefusedError as error:
            self._obstacles.note(state, str(error))
        except TimeoutError:
            self._obstacles.note(state, "it took too long; the next pass finds out what was done")
        except WorkerError as error:
            self._obstacles.note(state, f"{error}; the next pass finds out what was done")

    def _log_outcome(self, state: HomeState, outcome: Outcome) -> None:
        label = state.home.label
        if outcome.reopened:
            log.error(
                "sessions reaped wrongly were put right",
                home=label,
                sessions=len(outcome.reopened),
                ids=" ".join(public_id(each) for each in outcome.reopened[:_LOGGED_MAX]),
            )
        if outcome.resumed:
            log.info("reaped sessions were resumed", home=label, sessions=len(outcome.resumed))
        if outcome.done or outcome.skipped:
            log.info(
                "reaped",
                home=label,
                run=outcome.run,
                sessions=len(outcome.done),
                skipped=len(outcome.skipped),
                later=outcome.deferred,
            )
        self._obstacles.note(state, outcome.why)
