"""The files of a home by kind, and its checkpoints by layout and state.

A home has three caches: the checkpoint store, the shadow repositories, and everything else. Their
kinds add up to what `du -s` reports for the home. Nothing here opens state.db or its sidecars:
closing a descriptor of them would drop the locks of this process.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from exporter.hermes import paths
from exporter.hermes.checkpoints import StoreProject
from exporter.scan.disk.cache import DiskCache
from exporter.scan.disk.projects import Projects
from exporter.scan.disk.repository import KeptRepos
from exporter.scan.disk.units import DiskUnit, ReadEffort
from exporter.scan.disk.walk import FolderTotals, ScanTime
from exporter.snapshot import DiskKind, DiskReport, DiskUsage

_REST: Final = ReadEffort(exact_entries=2000, hot_entries=2000)
_STORE: Final = ReadEffort(exact_entries=250, hot_entries=0)
_REPOS: Final = ReadEffort(exact_entries=1000, hot_entries=0, round_scans=240)
"""Hermes has not written to shadow repositories since 0.13: all of them once an hour is enough."""
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_BLOCK_BYTES: Final = 512


class DiskScanner:
    """Scans one home scan after scan, at little cost while little changes.

    Only for a process without threads: during a scan its working directory is the home.
    """

    def __init__(
        self,
        home: str,
        *,
        stale_after_seconds: float = 14 * 86400,
        processes: int = 2,
        full_interval_seconds: float = 6 * 3600,
        walk_seconds: float = 20.0,
        clock: Callable[[], float] = time.monotonic,
        mountinfo: str = "/proc/self/mountinfo",
    ) -> None:
        self._home = home
        self._processes = processes
        self._full_interval_seconds = full_interval_seconds
        self._walk_seconds = walk_seconds
        self._clock = clock
        self._projects = Projects(home, stale_after_seconds, mountinfo)
        self._identity: tuple[int, int] | None = None
        self._excluded: frozenset[bytes] = frozenset()
        self._kept: KeptRepos | None = None
        self._scanned_at = 0.0
        self._clock_began_at = 0.0
        self._reset()

    def scan(
        self, *, excluded_profiles: frozenset[str], now: float, monotonic: float
    ) -> DiskReport:
        """Update the figures; a home that cannot be entered keeps its old ones.

        In each of the three caches a walk stops after `walk_seconds` and continues at the next
        scan. Until all is read, the report is not complete.
        """
        self._exclude(frozenset(os.fsencode(name) for name in excluded_profiles))
        try:
            with _inside(self._home) as home:
                self._refresh(home, now, monotonic)
        except OSError:
            return self._report(unreadable=1)
        return self._report(unreadable=0)

    def use(self, kept: KeptRepos) -> None:
        """Start with what an earlier process knew; call it before the first scan."""
        self._kept = kept

    def kept(self) -> KeptRepos | None:
        """Return what a later process can start with; None before the first scan."""
        if self._identity is None:
            return None
        return KeptRepos(self._identity, self._scanned_at, self._repos.kept(self._clock_began_at))

    def repositories(self) -> list[DiskUnit]:
        """Return the nodes below checkpoints/, without the store, as of the last scan."""
        return list(self._repos.nodes.values())

    def stored_projects(self) -> list[StoreProject]:
        """Return the projects of the store as of the last scan."""
        return self._projects.stored()

    def _refresh(self, home: int, now: float, monotonic: float) -> None:
        found = os.fstat(home)
        if self._identity != (found.st_dev, found.st_ino):
            self._identity = (found.st_dev, found.st_ino)
            self._reset()
            if self._kept is not None and self._kept.home == self._identity:
                self._repos.use(self._kept.repos, now - self._kept.taken_at)
            self._kept = None
        self._scanned_at, self._clock_began_at = now, now - monotonic
        for cache in self._caches:
            moment = ScanTime(
                now=now,
                monotonic=monotonic,
                deadline=self._clock() + self._walk_seconds,
                device=found.st_dev,
                home=home,
                clock=self._clock,
            )
            cache.refresh(moment, self._is_outside)
        self._projects.refresh(self._repos, now, monotonic, has_store=bool(self._store.nodes))

    def _reset(self) -> None:
        """Start with nothing known."""
        interval = self._full_interval_seconds
        self._rest = DiskCache(b"", DiskKind.OTHER, _REST, full_interval_seconds=interval)
        self._repos = DiskCache(
            paths.CHECKPOINTS,
            DiskKind.CHECKPOINTS_STORE,
            _REPOS,
            full_interval_seconds=interval,
            processes=self._processes,
        )
        self._store = DiskCache(
            paths.STORE, DiskKind.CHECKPOINTS_STORE, _STORE, full_interval_seconds=interval
        )
        self._caches = (self._rest, self._store, self._repos)

    def _exclude(self, profiles: frozenset[bytes]) -> None:
        if profiles != self._excluded:
            self._excluded = profiles
            self._rest.forget(paths.PROFILES)

    def _is_outside(self, folder: bytes, name: bytes) -> bool:
        """True if a subfolder belongs to another cache, or to another home."""
        if folder == b"":
            return name == paths.CHECKPOINTS
        if folder == paths.PROFILES:
            return name in self._excluded
        return folder == paths.CHECKPOINTS and folder + b"/" + name == paths.STORE

    def _report(self, unreadable: int) -> DiskReport:
        totals = {kind: FolderTotals() for kind in DiskKind}
        links: list[tuple[DiskKind, bytes]] = []
        for cache in self._caches:
            for kind, tally in cache.totals().items():
                totals[kind].blocks += tally.blocks
                totals[kind].files += tally.files
                unreadable += tally.unreadable
                if tally.links:
                    links.append((kind, tally.links))
        _add_links(totals, links)
        unreadable += self._projects.problem is not None
        return DiskReport(
            usage={
                kind: DiskUsage(total.blocks * _BLOCK_BYTES, total.files)
                for kind, total in totals.items()
            },
            checkpoints=self._projects.counts(),
            complete=not unreadable and all(cache.is_complete() for cache in self._caches),
            unreadable=unreadable,
        )


def _add_links(totals: dict[DiskKind, FolderTotals], links: list[tuple[DiskKind, bytes]]) -> None:
    """Count files with several names once, under the kind where they were found first."""
    counted: set[int] = set()
    for kind, packed in links:
        pairs = array("Q", packed)
        for inode, blocks in zip(pairs[::2], pairs[1::2], strict=True):
            if inode not in counted:
                counted.add(inode)
                totals[kind].blocks += blocks


@contextmanager
def _inside(home: str) -> Iterator[int]:
    """Make the home the working directory, and yield a descriptor of it.

    Relative paths cost a third of absolute ones. They also stay in this home if it is renamed.
    """
    descriptor = os.open(home, _OPEN_FOLDER | os.O_NOFOLLOW)
    try:
        try:
            before = os.open(".", _OPEN_FOLDER)
        except OSError:
            before = os.open("/", _OPEN_FOLDER)
        try:
            os.fchdir(descriptor)
            yield descriptor
        finally:
            os.fchdir(before)
            os.close(before)
    finally:
        os.close(descriptor)
