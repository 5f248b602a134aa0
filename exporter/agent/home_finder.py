"""Find the homes at each scan, and remember those that are not found now."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import apsw
from msgspec import structs

from exporter.agent.state_store import StateStore
from exporter.config.settings import Settings
from exporter.discovery.homes import (
    Account,
    Census,
    Home,
    HomeCandidate,
    Origin,
    accounts,
    found_candidates,
    take_census,
)
from exporter.discovery.inspection import Inspection
from exporter.evidence.models import PossibleHome as ProcessCandidate
from exporter.workers.path_probe import is_text
from exporter.workers.path_prober import PathProber


class HomeSource(Protocol):
    """Says which homes there are."""

    def find(
        self,
        settings: Settings,
        watched: Mapping[str, Home],
        processes: Iterable[ProcessCandidate],
    ) -> Census: ...

    def hangs(self, home: Home) -> bool: ...

    def close(self) -> None: ...


class ChosenHomes:
    """A `HomeSource` that always finds these homes, as an agent has found them."""

    def __init__(self, homes: Sequence[Home]) -> None:
        self._census = Census(tuple(homes), ())

    def find(
        self,
        settings: Settings,
        watched: Mapping[str, Home],
        processes: Iterable[ProcessCandidate],
    ) -> Census:
        del settings, watched, processes
        return self._census

    def hangs(self, home: Home) -> bool:
        del home
        return False  # one that hung when the agent looked has a problem that says so

    def close(self) -> None:
        """There is nothing to close."""


class HomeFinder:
    """Finds homes through the path prober, and gives each a permanent label."""

    def __init__(
        self,
        store: StateStore,
        *,
        named: Sequence[str] = (),
        environment: Mapping[str, str] = os.environ,
        prober: PathProber | None = None,
    ) -> None:
        self._store = store
        self._named = tuple(named)
        self._environment = environment
        self._prober = prober or PathProber()
        self._own_uid = os.geteuid()
        self._resolved: dict[str, str] = {}
        self._asked: set[str] = set()

    def find(
        self,
        settings: Settings,
        watched: Mapping[str, Home],
        processes: Iterable[ProcessCandidate],
    ) -> Census:
        """Return all homes that exist now; `watched` homes that are not found are shown as down."""
        self._prober.begin_scan()
        self._asked = set()
        labels = self._store.labels()
        users = accounts()
        candidates = self._candidates(settings, users, processes)
        used: set[str] = set()

        def is_wanted(paths: Sequence[str], owner_name: str) -> bool:
            entry, _ = settings.entry(paths, owner_name)
            if entry is not None:
                used.add(entry.selector)
            return bool(self._named) or settings.wants(paths, owner_name)

        census = take_census(
            candidates,
            self._inspect,
            labels=labels,
            watched={
                path: home
                for path, home in watched.items()
                if self._is_still_wanted(home, settings, candidates)
            },
            own_uid=self._own_uid,
            user_names={user.uid: user.name for user in users},
            labels_by_owner=self._store.labels_by_owner(),
            is_wanted=is_wanted,
        )
        self._resolved = {path: led for path, led in self._resolved.items() if path in self._asked}
        homes = tuple(
            _with_word(settings, self._label(home, labels.get(home.path))) for home in census.homes
        )
        self._remember_homes(homes)
        return Census(homes, census.refused, () if self._named else _unused(settings, used))

    def _is_still_wanted(
        self, home: Home, settings: Settings, candidates: Iterable[HomeCandidate]
    ) -> bool:
        """True if a home that is not found now is to be shown as down.

        The operator may have removed it from the list, or may have left it out.
        """
        known_as = home.named_as or home.path
        if home.named or self._named:
            named = (each for each in candidates if each.origin is Origin.NAMED)
            if not any(_is_or_has(each, known_as) for each in named):
                return False
        return bool(self._named) or settings.wants((known_as, home.path), home.owner_name)

    def _remember_homes(self, homes: Iterable[Home]) -> None:
        try:
            self._store.keep_homes({home.path: home.owner for home in homes})
        except apsw.Error:
            pass  # the labels were stored before; the next scan tries again

    def hangs(self, home: Home) -> bool:
        """True if the home is on a path that does not answer."""
        return self._prober.hangs(home.named_as or home.path)

    def close(self) -> None:
        self._prober.close()

    def _candidates(
        self, settings: Settings, users: Sequence[Account], processes: Iterable[ProcessCandidate]
    ) -> list[HomeCandidate]:
        names = {home.single_path: home.name or "" for home in settings.homes}
        if self._named:
            paths = [os.path.abspath(path) for path in self._named]
            return [HomeCandidate(path, Origin.NAMED, names.get(path, "")) for path in paths]
        found = [
            HomeCandidate(home.single_path, Origin.NAMED, home.name or "", home.profiles)
            for home in settings.homes
            if home.single_path is not None and home.watch
        ]
        if not settings.discover and not any(
            home.watch and home.single_path is None for home in settings.homes
        ):
            return found  # a closed list: nothing else is even looked at
        found.extend(found_candidates(users, self._own_uid, self._environment))
        found.extend(
            HomeCandidate(
                each.directory,
                Origin.PROCESS,
                uid=each.uid,
                database=each.database,
                named_by_uid=each.uid,
            )
            for each in processes
            if is_text(each.directory)
        )
        return found

    def _inspect(self, candidate: HomeCandidate) -> Inspection:
        """Return what the path prober found; if the path does not resolve now, where it led before.

        A path named by a process is read with the rights of that process's user: it may be any
        path.
        """
        path = candidate.path
        self._asked.add(path)
        if not is_text(path):
            return Inspection(exists=True, unreadable="its name is not UTF-8")
        from_process = candidate.origin is Origin.PROCESS
        seen = self._prober.inspect(path, candidate.named_by_uid, with_rights_of_user=from_process)
        if seen is None:
            seen = Inspection(exists=True, unreadable="it does not answer")
        if seen.resolved:
            self._resolved[path] = seen.resolved
            return seen
        return structs.replace(seen, resolved=self._resolved.get(path, ""))

    def _label(self, home: Home, remembered: str | None) -> Home:
        if home.label == remembered:
            return home
        try:
            self._store.give_label(home.path, home.label)
        except apsw.Error as error:
            return structs.replace(home, problem=f"its label cannot be kept: {error}")
        return home


def _is_or_has(candidate: HomeCandidate, path: str) -> bool:
    """True if this is the candidate's path, or that of one of its profiles."""
    above = os.path.join(candidate.path, "profiles")
    return path == candidate.path or (candidate.profiles and os.path.dirname(path) == above)


def _with_word(settings: Settings, home: Home) -> Home:
    """Return the home; an entry that selects it, by pattern or user, is the operator's word too."""
    if home.may_write or home.problem:
        return home
    entry, _ = settings.entry((home.named_as, home.path), home.owner_name)
    return structs.replace(home, may_write=entry is not None)


def _unused(settings: Settings, used: Collection[str]) -> tuple[str, ...]:
    """Return the entries for many homes that select none; a single path is shown as a home."""
    return tuple(
        entry.selector
        for entry in settings.homes
        if entry.single_path is None and entry.selector not in used
    )
