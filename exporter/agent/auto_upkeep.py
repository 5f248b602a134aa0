"""Do upkeep automatically: VACUUM and `git gc`, once a day, in a home that no process uses.

Both are off by default (`prune.upkeep`). The automatic pruner starts it where there is nothing to
prune, with a worker of its own as for a prune.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from exporter import logs
from exporter.agent.home_state import HomeState
from exporter.config.settings import HomeSettings
from exporter.evidence.openers import KnownOpeners
from exporter.pruner.requests import UpkeepRequest, is_quiet
from exporter.workers import protocol
from exporter.workers.process import Worker

_EVERY_SECONDS: Final = 24 * 3600.0

log = logs.get("pruner")


class AutomaticUpkeep:
    """Remembers when each home last had its upkeep."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last: dict[str, float] = {}

    def is_due(self, state: HomeState, own: HomeSettings) -> bool:
        """True once a day, if upkeep is configured and no process uses the home."""
        wanted = own.prune.upkeep.vacuum or own.prune.upkeep.gc
        if not wanted or state.evidence is None or not is_quiet(state.evidence):
            return False
        last = self._last.get(state.home.path)
        return last is None or self._monotonic() - last >= _EVERY_SECONDS

    def note_begun(self, state: HomeState) -> None:
        """The next one is due in a day, also if this one cannot be done."""
        self._last[state.home.path] = self._monotonic()

    def run(self, worker: Worker, state: HomeState, own: HomeSettings) -> None:
        """Have the worker do it, and log the result of each kind of work."""
        if state.evidence is None:
            return
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
