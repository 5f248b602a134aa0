"""Log what stands in the way of automatic work: one line when it begins, one when it is over."""

from __future__ import annotations

from exporter import logs
from exporter.agent.home_state import HomeState


class Obstacles:
    """The present obstacle of each home to one kind of work."""

    def __init__(self, log: logs.Log, blocked: str, goes_on: str) -> None:
        self._log = log
        self._blocked = blocked
        self._goes_on = goes_on
        self._changes = logs.StateChange()

    def note(self, state: HomeState, why: str) -> None:
        """Note what stands in the way; empty if nothing does."""
        if not self._changes.changed(state.home.path, why, assumed=""):
            return
        if why:
            self._log.warn(self._blocked, home=state.home.label, why=why)
        else:
            self._log.info(self._goes_on, home=state.home.label)
