"""Heal prunes automatically, after a scan that saw a deleted session again.

This happens in every mode: what our own journal says the agent did is corrected even where the mode
is not `enforce`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from exporter import logs
from exporter.agent.act_request import heal_request
from exporter.agent.home_state import HomeState
from exporter.config.settings import Settings
from exporter.errors import RefusedError, WorkerError
from exporter.snapshot import Trouble
from exporter.workers import client, protocol
from exporter.workers.pool import Pool

_RETRY_SECONDS: Final = 60.0
"""Pause after a try that could not heal. Each try is written to the journal."""
_LOOK_SECONDS: Final = 5.0
"""Pause after a look that found nothing to heal."""

log = logs.get("pruner")


class AutomaticHealer:
    """Heals after scans, and pauses for homes where a try had no effect."""

    def __init__(self, pool: Pool, monotonic: Callable[[], float]) -> None:
        self._pool = pool
        self._monotonic = monotonic
        self._wait_until: dict[str, float] = {}
        self._changes = logs.StateChange()

    def act(self, state: HomeState, settings: Settings) -> None:
        """Heal if the scan succeeded and saw something to heal."""
        home, evidence = state.home, state.evidence
        if state.trouble is not Trouble.NONE or evidence is None:
            return
        if not state.reborn or not home.may_write:
            return
        if self._monotonic() < self._wait_until.get(home.path, 0.0):
            return
        self._wait_until[home.path] = self._monotonic() + _RETRY_SECONDS
        request = heal_request(home, evidence, settings.for_home(home))
        try:
            healed = client.call(self._pool, home, protocol.HEAL, request)
        except RefusedError as error:
            self._log_obstacle(state, str(error))
            return
        except (TimeoutError, WorkerError) as error:
            self._log_obstacle(state, f"{error}; the next try finds out what was done")
            return
        if healed.healed:
            log.warn(
                "pruned sessions came back and were given their past",
                home=home.label,
                sessions=healed.healed,
            )
        if not healed.left:
            pause = 0.0 if healed.healed or healed.finished else _LOOK_SECONDS
            self._wait_until[home.path] = self._monotonic() + pause
        if healed.finished:
            log.info("rows of emptied sessions deleted", home=home.label, rows=healed.finished)
        self._log_obstacle(state, healed.why)

    def _log_obstacle(self, state: HomeState, why: str) -> None:
        if self._changes.changed(state.home.path, why, assumed="") and why:
            log.warn("sessions not healed", home=state.home.label, why=why)
