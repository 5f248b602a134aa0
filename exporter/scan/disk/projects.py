"""The checkpoint projects of a home, in both layouts, with their states."""

from __future__ import annotations

import math
import os
from collections import Counter

from exporter.hermes import paths
from exporter.hermes.checkpoints import (
    CheckpointLayout,
    ProjectState,
    StoreProject,
    StoreReader,
    project_state,
)
from exporter.hermes.git import GitError
from exporter.scan.disk.cache import DiskCache
from exporter.scan.disk.units import RepositoryUnit
from exporter.scan.workdirs import Workdirs
from exporter.snapshot import CheckpointCount, DiskKind


class Projects:
    """Finds the projects during a scan and keeps them for calls between scans."""

    def __init__(self, home: str, stale_after_seconds: float, mountinfo: str) -> None:
        self._stale_after_seconds = stale_after_seconds
        self._workdirs = Workdirs(home, mountinfo)
        self._store = StoreReader(paths.STORE, os.path.join(home, os.fsdecode(paths.STORE)))
        self._known: tuple[int, int, list[StoreProject]] | None = None
        self._judged_at = self._valid_until = math.inf
        """When the states were determined, and when the first of them changes by its age."""
        self._repos: list[ProjectState] = []
        self._stored: list[tuple[StoreProject, ProjectState]] = []
        self._counts = self._count()

    @property
    def problem(self) -> GitError | None:
        """Why projects known only by a ref are missing."""
        return self._store.problem

    def refresh(self, repos: DiskCache, now: float, monotonic: float, *, has_store: bool) -> None:
        """Look up the working directories of all projects; the current directory must be the home.

        The states are kept while nothing has changed and all answers are still valid.
        """
        self._workdirs.refresh(monotonic)
        stored = self._store.read(monotonic) if has_store else []
        known = (repos.revision, self._workdirs.revision, stored)
        if known == self._known and self._judged_at <= now < self._valid_until:
            return
        self._valid_until = math.inf
        self._repos = [
            self._state(reading.workdir, node.newest, now)
            for node in repos.nodes.values()
            if node.kind is DiskKind.CHECKPOINTS_LEGACY and isinstance(node, RepositoryUnit)
            if (reading := node.reading) is not None and reading.is_repository
        ]
        self._stored = [
            (project, self._state(project.workdir, project.last_touch, now)) for project in stored
        ]
        # With few working directories, each scan looks them all up again.
        self._known = known if self._workdirs.remembers() else None
        self._judged_at = now
        self._counts = self._count()

    def _state(self, workdir: bytes | None, last_touch: float, now: float) -> ProjectState:
        missing = self._workdirs.is_missing(workdir)
        state = project_state(last_touch, missing, now, self._stale_after_seconds)
        if state is ProjectState.ACTIVE and last_touch > 0:
            self._valid_until = min(self._valid_until, last_touch + self._stale_after_seconds)
        return state

    def counts(self) -> list[CheckpointCount]:
        """Return the number of projects of each layout and state, including zeros."""
        return list(self._counts)

    def _count(self) -> list[CheckpointCount]:
        found = {
            CheckpointLayout.LEGACY: Counter(self._repos),
            CheckpointLayout.STORE: Counter(state for _, state in self._stored),
        }
        return [
            CheckpointCount(layout, state, found[layout][state])
            for layout in CheckpointLayout
            for state in ProjectState
        ]

    def stored(self) -> list[StoreProject]:
        """Return the projects of the store as of the last scan."""
        return [project for project, _ in self._stored]
