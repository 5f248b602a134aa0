"""The homes that the agent watches: found, changed, down, gone.

A home that is gone is shown as down for an hour before it is forgotten. The log gets one line when
the state of a home changes, and none while it is unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from exporter import logs
from exporter.agent.home_finder import HomeSource
from exporter.agent.home_state import HomeState
from exporter.agent.state_store import StateStore
from exporter.config.settings import Settings
from exporter.discovery.homes import Census, Home, RefusedHome
from exporter.evidence.models import PossibleHome as ProcessCandidate
from exporter.snapshot import Trouble

_SHOW_GONE_SECONDS: Final = 3600.0
"""How long a home that is gone is shown as down before it is forgotten."""
_REFUSALS_PER_HOUR: Final = 64
"""Log lines per hour; `check` lists all refused homes."""

ROOT_OWNED: Final = "it belongs to root, and no entry of homes names or selects it"
SELECT_IT: Final = "add an entry for it, e.g. homes: [{user: root}]"

log = logs.get("scan")


class WatchedHomes:
    """The state of each watched home, by its path."""

    def __init__(
        self,
        store: StateStore,
        discovery: HomeSource,
        monotonic: Callable[[], float],
        *,
        log_changes: bool,
        counts_usage: bool = True,
    ) -> None:
        """`log_changes` is False for a command: it prints the state of the homes itself.
        `counts_usage` is False for one that shows no counters.
        """
        self.by_path: dict[str, HomeState] = {}
        self.census = Census((), ())
        self.changes = logs.StateChange()
        self._store = store
        self._discovery = discovery
        self._monotonic = monotonic
        self._log_changes = log_changes
        self._counts_usage = counts_usage
        self._refused: set[str] = set()
        self._quota = logs.LogQuota(_REFUSALS_PER_HOUR, 3600.0, monotonic)
        self._closing = False

    def __iter__(self) -> Iterator[HomeState]:
        return iter(list(self.by_path.values()))  # a copy: commands ask in other threads

    def discover(self, settings: Settings, candidates: Sequence[ProcessCandidate]) -> None:
        """Find homes that are new, changed or gone."""
        watched = {
            path: state.home for path, state in self.by_path.items() if self._is_remembered(state)
        }
        self.census = self._discovery.find(settings, watched, candidates)
        paths = {home.path for home in self.census.homes}
        for home in self.census.homes:
            self._add_or_update(home)
            self._log_only_watched(home, settings)
        for path in self.by_path.keys() - paths:
            log.info("home forgotten", home=self.by_path.pop(path).home.label)
            self.changes.forget(path)
        for entry in self.census.unused:
            if self.changes.changed(("unused", entry), entry):
                log.info("an entry of homes selects no home here", entry=entry)
        self._log_refusals([each for each in self.census.refused if each.path not in paths])

    def refused(self) -> tuple[RefusedHome, ...]:
        """Return the refused homes of the last search that are not watched for another reason."""
        return tuple(each for each in self.census.refused if each.path not in self.by_path)

    def _log_refusals(self, refused: Sequence[RefusedHome]) -> None:
        """Log each refused home once while it lasts. Any user can create more, so the log has a
        limit.
        """
        for path in self._refused - {each.path for each in refused}:
            self.changes.forget(("refused", path))
        self._refused = {each.path for each in refused}
        for each in refused:
            if self.changes.changed(("refused", each.path), each.why) and self._quota.take():
                log.info("home not adopted", path=each.path, why=each.why, fix=each.fix)

    def _log_only_watched(self, home: Home, settings: Settings) -> None:
        only = not home.problem and settings.only_watches(home, may_write=home.may_write)
        if self.changes.changed(("only watched", home.path), only, assumed=False) and only:
            log.warn("home is only watched", home=home.label, why=ROOT_OWNED, fix=SELECT_IT)

    def _is_remembered(self, state: HomeState) -> bool:
        return not state.home.problem or (self._monotonic() - state.last_seen < _SHOW_GONE_SECONDS)

    def _add_or_update(self, home: Home) -> None:
        state = self.by_path.get(home.path)
        if state is None:
            state = self.by_path[home.path] = HomeState(
                home, self._store, counts_usage=self._counts_usage
            )
            if not home.problem and self._log_changes:
                log.info("home found", home=home.label, path=home.path, owner=home.owner)
        state.home = home
        if home.problem and self._discovery.hangs(home):
            self.set_down(state, Trouble.TIMEOUT, f"{home.path}: {home.problem}")
        elif home.problem and home.unreadable:
            self.set_down(state, Trouble.PERMISSION, f"{home.path}: {home.problem}")
        elif home.problem and is_foreign(home):
            self.set_down(
                state, Trouble.PERMISSION, f"{home.path} is another user's: {home.problem}"
            )
        elif home.problem:
            self.set_down(state, Trouble.HOME_GONE, f"{home.path}: {home.problem}")
        else:
            state.last_seen = self._monotonic()

    def set_down(self, state: HomeState, trouble: Trouble, detail: str) -> None:
        if not self._closing:
            state.fail(trouble, detail)
            self.log_state(state)

    def log_state(self, state: HomeState) -> None:
        if not self.changes.changed(state.home.path, state.trouble, assumed=Trouble.NONE):
            return
        if not self._log_changes:
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

    def stop_reporting(self) -> None:
        """From now on no home is set down: its worker is being ended on purpose."""
        self._closing = True


def is_foreign(home: Home) -> bool:
    """True if only a privileged agent can read this home. An owner of -1 is unknown."""
    return os.geteuid() not in (0, home.owner) and home.owner >= 0
