"""Reads the checkpoints of a home: both layouts, archives, and files that a killed git left."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from exporter.hermes.checkpoints import CheckpointLayout, StoreProject
from exporter.hermes.git import GitError, run_git
from exporter.hermes.paths import STORE, is_archive
from exporter.hermes.prunable_names import is_temporary_object
from exporter.pruner.decide.inventory import Archive, Checkpoint, HomeFile, WorkdirState
from exporter.pruner.expected import ExpectedFolder, ExpectedProject
from exporter.pruner.gather.policy_files import home_file
from exporter.scan.disk.scanner import DiskScanner
from exporter.scan.disk.units import DiskUnit, RepositoryUnit
from exporter.scan.fork_pool import ForkPool
from exporter.scan.mount_namespaces import MountNamespaces
from exporter.scan.workdirs import MissingWorkdirs
from exporter.snapshot import DiskKind

_BLOCK_BYTES: Final = 512
_PACKS: Final = STORE + b"/objects/pack"
_GIT_SECONDS: Final = 5.0
_SIZES_PER_PLAN: Final = 10
"""Projects that git measures for one plan; a large store needs a few plans."""
_SIZES_IF_THOROUGH: Final = 1000
_PROCESSES: Final = 2
_SHARED_PROJECTS: Final = 20
"""Two processes measure so many projects; an agent's plan, which is in no hurry, has fewer."""


class KnownWorkdirs:
    """What the agent knows about working directories; each has the name of its checkpoint."""

    def __init__(
        self,
        namespaces: MountNamespaces,
        present: Iterable[str] = (),
        missing: Mapping[str, float] | None = None,
    ) -> None:
        self.namespaces = namespaces
        """The mount namespaces of the processes that use the home."""
        self.present = set(present)
        """Those that the agent has seen on this host."""
        self.missing = dict(missing or {})
        """When the agent first knew that each is missing."""


class CheckpointReader:
    """Reads checkpoints, and remembers the sizes of projects, which git needs long to measure."""

    def __init__(self, home: str) -> None:
        self._home = os.fsencode(home)
        self._store = os.path.join(home, os.fsdecode(STORE))
        self._absences = MissingWorkdirs(home)
        self.sizes: dict[str, tuple[float, int]] = {}
        """By project: its last write before it was measured, and its bytes."""

    def read(
        self,
        disk: DiskScanner,
        owner: int,
        known: KnownWorkdirs,
        now: float,
        monotonic: float,
        *,
        thorough: bool,
        figures_only: bool = False,
    ) -> tuple[tuple[Checkpoint, ...], KnownWorkdirs]:
        """Return all checkpoints as of the last walk, and the updated `known`."""
        self._absences.refresh(monotonic)
        projects = tuple(disk.stored_projects())
        self._measure(projects, _SIZES_IF_THOROUGH if thorough else _SIZES_PER_PLAN)
        updated = KnownWorkdirs(known.namespaces)
        found = [
            *self._repos(disk.repositories(), owner, known, updated, now),
            *self._projects(projects, owner, known, updated, now, with_states=not figures_only),
        ]
        return tuple(found), updated

    # Hermes before 0.13: one repository per project

    def _repos(
        self,
        units: Iterable[DiskUnit],
        owner: int,
        known: KnownWorkdirs,
        updated: KnownWorkdirs,
        now: float,
    ) -> Iterator[Checkpoint]:
        archives: dict[bytes, list[DiskUnit]] = {}
        for unit in units:
            if unit.kind is DiskKind.CHECKPOINTS_ARCHIVE:
                archives.setdefault(b"/".join(unit.path.split(b"/")[:2]), []).append(unit)
                continue
            if unit.seen is None:
                continue  # not walked yet
            reading = unit.reading if isinstance(unit, RepositoryUnit) else None
            if reading is None or not reading.is_repository:
                continue
            name = unit.path.rpartition(b"/")[2].decode()
            state, since = self._workdir(name, reading.workdir, known, updated, now)
            yield self._folder(CheckpointLayout.LEGACY, unit.path, [unit], owner, now, state, since)
        for path, parts in archives.items():
            was_walked = all(part.seen is not None for part in parts)
            if was_walked and is_archive(path) and any(part.path == path for part in parts):
                yield self._folder(Archive.ARCHIVE, path, parts, owner, now)

    def _folder(
        self,
        layout: CheckpointLayout | Archive,
        path: bytes,
        parts: list[DiskUnit],
        owner: int,
        now: float,
        workdir: WorkdirState = WorkdirState.UNKNOWN,
        missing_since: float | None = None,
    ) -> Checkpoint:
        blocks = sum(tally.blocks for part in parts for tally in part.tallies.values())
        touched_at = max(part.newest for part in parts)
        is_own = False
        expected: ExpectedFolder | None = None
        try:
            found = os.lstat(os.path.join(self._home, path))
        except OSError:
            touched_at = now
        else:
            is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == owner
            expected = ExpectedFolder.of(found)
            top = next((part for part in parts if part.path == path), parts[0])
            if top.seen != (found.st_ctime_ns, found.st_ino):
                touched_at = now  # it has changed since it was walked
        return Checkpoint(
            layout=layout,
            target=os.fsdecode(path),
            allocated_bytes=blocks * _BLOCK_BYTES,
            touched_at=touched_at,
            workdir=workdir,
            missing_since=missing_since,
            is_own=is_own and _is_text(path),
            expected=expected,
        )

    def _workdir(
        self,
        name: str,
        workdir: bytes | None,
        known: KnownWorkdirs,
        updated: KnownWorkdirs,
        now: float,
    ) -> tuple[WorkdirState, float | None]:
        """Return whether a working directory exists, and since when it is known to be missing.

        It is missing only if it was seen on this host, and no process of the home has it either.
        """
        if name in known.present:
            updated.present.add(name)
        absence = self._absences.of(workdir)
        if workdir is None or absence is None:
            there = workdir is not None and self._absences.is_there(workdir)
            if workdir is not None and there and self._absences.is_folder_of_its_disk(workdir):
                updated.present.add(name)
            return (WorkdirState.PRESENT if there else WorkdirState.UNKNOWN), None
        if name not in known.present or not known.namespaces.is_gone(workdir):
            return WorkdirState.UNKNOWN, None
        since = min(known.missing.get(name, now), now)
        if not known.namespaces.any_other:
            since = min(since, absence.since)
        updated.missing[name] = since
        return WorkdirState.MISSING, since

    # Hermes from 0.13 on: one store for all projects

    def _projects(
        self,
        projects: Iterable[StoreProject],
        owner: int,
        known: KnownWorkdirs,
        updated: KnownWorkdirs,
        now: float,
        *,
        with_states: bool,
    ) -> Iterator[Checkpoint]:
        is_own = _is_folder_of(self._store, owner)
        for project in projects:
            state, since = self._workdir(project.name, project.workdir, known, updated, now)
            size = self.sizes.get(project.name)
            yield Checkpoint(
                layout=CheckpointLayout.STORE,
                target=project.name,
                allocated_bytes=size[1] if size is not None else 0,
                touched_at=project.last_touch,
                workdir=state,
                missing_since=since,
                is_own=is_own,
                expected=ExpectedProject.of(self._store, project.name) if with_states else None,
            )

    def _measure(self, projects: Sequence[StoreProject], most: int) -> None:
        """Measure projects that are new or have changed."""
        changed = [
            each for each in projects if self.sizes.get(each.name, (None,))[0] != each.last_touch
        ]
        del changed[most:]
        pool = ForkPool(_PROCESSES, int)
        shared = len(changed) >= _SHARED_PROJECTS and pool.can_fork()
        sizes = pool.map(len(changed), lambda n: self._size(changed[n].name)) if shared else {}
        for number, project in enumerate(changed):
            # A child that was lost has sent no sizes: measure its projects here.
            size = sizes[number] if number in sizes else self._size(project.name)
            self.sizes[project.name] = (project.last_touch, size)

    def _size(self, name: str) -> int:
        """Return the bytes that no other project shares; 0 if git cannot tell."""
        try:
            # Not by GitPython: a plan is part of a scan. The child that plans would load it anew
            # each time (0.1 s), and a worker that plans itself would keep it in memory.
            printed = run_git(
                self._store,
                "rev-list",
                "--disk-usage",
                "--objects",
                f"refs/hermes/{name}",
                "--not",
                f"--exclude=refs/hermes/{name}",
                "--glob=refs/hermes/*",
                timeout_seconds=_GIT_SECONDS,
            )
            return int(printed)
        except (GitError, ValueError):
            return 0

    def collected_at(self) -> float:
        """Return when git last collected garbage in the store."""
        try:
            return os.lstat(os.path.join(self._store, "objects/info/packs")).st_mtime
        except OSError:
            return 0.0

    def leftovers(self, owner: int) -> tuple[HomeFile, ...]:
        """Return the half-written packs of the store."""
        folder = os.path.join(self._home, _PACKS)
        if os.path.islink(os.path.join(self._home, STORE)) or os.path.islink(folder):
            return ()
        found: list[HomeFile] = []
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            return ()
        for name in names:
            path = _PACKS + b"/" + name
            if not is_temporary_object(path):
                continue
            try:
                entry = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            found.append(home_file(path.decode(), entry, owner))
        return tuple(found)


def _is_folder_of(path: str, owner: int) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == owner


def _is_text(path: bytes) -> bool:
    try:
        path.decode()
    except UnicodeDecodeError:
        return False
    return True
