"""Checkpoints: snapshots of working directories that Hermes keeps in git, in both layouts.

Up to 0.12 each working directory had a shadow repository of its own: `checkpoints/<hash16>/` with a
`HERMES_WORKDIR` file. Since 0.13 all of them share `checkpoints/store/`: each has a ref
`refs/hermes/<hash16>` and a file `projects/<hash16>.json`. Paths of working directories never leave
this process.
"""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from exporter.errors import HomeError
from exporter.hermes.git import GitError, run_git
from exporter.hermes.paths import is_project_name
from exporter.hermes.small_files import read_small

_PROJECT_FILE_BYTES: Final = 64 * 1024
_WORKDIR_BYTES: Final = 64 * 1024
_MARKER: Final = b"HERMES_WORKDIR"
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_REFS: Final = b"refs/hermes/"
_RETRY_SECONDS: Final = 600.0
_SUFFIX: Final = b".json"


class CheckpointLayout(StrEnum):
    LEGACY = "legacy"
    STORE = "store"


class ProjectState(StrEnum):
    ACTIVE = "active"
    ORPHAN = "orphan"
    STALE = "stale"


def project_state(
    last_touch: float, workdir_missing: bool, now: float, stale_after_seconds: float
) -> ProjectState:
    """Return the state, in the order of Hermes's own pruner: first a lost workdir, then age.

    A project with an unknown time (0) or a time in the future stays active.
    """
    if workdir_missing:
        return ProjectState.ORPHAN
    if last_touch > 0 and now - last_touch > stale_after_seconds:
        return ProjectState.STALE
    return ProjectState.ACTIVE


def prefetch_workdir(repo: bytes) -> None:
    """Ask the kernel to load the file that `read_workdir` will read.

    This file is the only content that a scan reads of a repository. Waiting for one file after the
    other would take a fifth of a first scan.
    """
    if not hasattr(os, "posix_fadvise"):
        return
    try:
        descriptor = os.open(repo + _MARKER, _OPEN)
    except OSError:
        return
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def read_workdir(repo: bytes) -> bytes | None:
    """Return the working directory of a shadow repository; None if it is not known."""
    try:
        content = read_small(os.fsdecode(repo + _MARKER), _WORKDIR_BYTES)
    except HomeError:
        return None
    return _absolute((content or b"").removesuffix(b"\n"))


def is_repository(repo: bytes, workdir: bytes | None) -> bool:
    """True if a folder with the name of a shadow repository is one: it has a marker or a HEAD."""
    return workdir is not None or os.path.lexists(repo + b"HEAD")


class StoreProject(Struct, frozen=True):
    """A project of the store, as its file describes it."""

    name: str
    workdir: bytes | None
    last_touch: float
    """0 if it is not known."""


class _ProjectFile(Struct):
    workdir: str | None = None
    last_touch: float | None = None


_PROJECT: Final = msgspec.json.Decoder(_ProjectFile)
"""Made once, before workers are forked: they share it."""


class StoreReader:
    """The projects of one store: those with a file, and those with only a ref.

    Hermes's pruner never sees projects with only a ref, so they must be shown here. A project file
    is read again when its stat changed. git runs only when a file that holds refs changed.
    """

    def __init__(self, store: bytes, git_dir: str) -> None:
        self._store = store
        self._git_dir = git_dir
        self._files: dict[bytes, tuple[tuple[int, ...], StoreProject]] = {}
        self._refs: frozenset[str] = frozenset()
        self._refs_seen: tuple[tuple[int, ...] | None, ...] | None = None
        self._refs_tried_at = 0.0
        self.problem: GitError | None = None
        """Why the refs are not known. Projects with a file are known even then."""

    def read(self, monotonic: float) -> list[StoreProject]:
        """Return all projects, sorted by name."""
        self._read_files()
        self._read_refs(monotonic)
        projects = {project.name: project for _, project in self._files.values()}
        for name in self._refs - projects.keys():
            projects[name] = StoreProject(name, None, self._index_time(name))
        return [projects[name] for name in sorted(projects)]

    def _read_files(self) -> None:
        folder = self._store + b"/projects/"
        try:
            names = [] if os.path.islink(folder[:-1]) else os.listdir(folder)
        except OSError:
            names = []
        known, self._files = self._files, {}
        for name in names:
            before = known.get(name)
            if before is None and not _is_project_file(name):
                continue
            seen = _seen(folder + name)
            if seen is None:
                continue
            if before is None or before[0] != seen:
                before = (seen, _read_project(folder + name, name))
            self._files[name] = before

    def _read_refs(self, monotonic: float) -> None:
        places = (b"/packed-refs", b"/refs/hermes", b"/reftable", b"/config", b"/HEAD")
        seen = tuple(_seen(self._store + place) for place in places)
        retry = self.problem is not None and monotonic - self._refs_tried_at > _RETRY_SECONDS
        if seen == self._refs_seen and not retry:
            return
        self._refs_seen, self._refs_tried_at = seen, monotonic
        self.problem = None
        packed, loose, reftable, _, head = seen
        if head is None or (packed is None and loose is None and reftable is None):
            self._refs = frozenset()
            return
        try:
            # Not by GitPython, which would stay in the memory of every scan worker.
            lines = run_git(self._git_dir, "for-each-ref", "--format=%(refname)", "refs/hermes/")
        except GitError as problem:
            self.problem = problem
            return
        names = [line.removeprefix(_REFS) for line in lines.splitlines()]
        self._refs = frozenset(name.decode() for name in names if is_project_name(name))

    def _index_time(self, name: str) -> float:
        try:
            return os.lstat(self._store + b"/indexes/" + name.encode()).st_mtime
        except OSError:
            return 0.0


def _is_project_file(name: bytes) -> bool:
    return name.endswith(_SUFFIX) and is_project_name(name.removesuffix(_SUFFIX))


def _read_project(path: bytes, name: bytes) -> StoreProject:
    """Read a project file. If it is not valid JSON, the project exists but its place is unknown."""
    project = name.removesuffix(_SUFFIX).decode()
    try:
        content = read_small(os.fsdecode(path), _PROJECT_FILE_BYTES)
        told = _PROJECT.decode(content or b"")
        workdir = _absolute(os.fsencode(told.workdir or ""))
    except (HomeError, msgspec.MsgspecError, UnicodeError):
        return StoreProject(project, None, 0.0)
    return StoreProject(project, workdir, told.last_touch or 0.0)


def _absolute(path: bytes) -> bytes | None:
    return path if path.startswith(b"/") and b"\0" not in path else None


def _seen(path: bytes) -> tuple[int, ...] | None:
    """Return values that change when a file is written or replaced; None if it is missing.

    The last value is the allocated size.
    """
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_blocks * 512)
