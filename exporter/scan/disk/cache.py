"""A part of a home, kept up to date by reading little of it.

Each scan checks the folder of every node and reads again what changed. A file that grows does not
change its folder's times. So small parts are read whole at each scan, large ones partly: recent
files at each scan, the rest in turn. A node is a folder, a small subtree or a shadow repository.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from typing import Final

from exporter.hermes import paths
from exporter.scan.disk.large_folder import FolderSample
from exporter.scan.disk.repository import KeptRepo, RepoReading, RepoWalk, read_repo
from exporter.scan.disk.units import (
    LARGE_ENTRIES,
    DiskUnit,
    FolderUnit,
    FolderWalk,
    ReadEffort,
    RepositoryUnit,
    choose_units,
)
from exporter.scan.disk.walk import (
    HUGE_FOLDER_BYTES,
    FolderListing,
    FolderTotals,
    OutOfTimeError,
    ScanTime,
    TreeWalk,
    folder_stamp,
)
from exporter.scan.fork_pool import ForkPool
from exporter.snapshot import DiskKind

WHOLE_ENTRIES: Final = 128
"""A subtree up to this size is one node, so that there are few nodes for many folders."""
MANY_FOLDERS: Final = 1024
"""A folder with more subfolders forms one node with them, whatever its size."""
HUGE_ENTRIES: Final = 20_000
HUGE_PAUSE_RATIO: Final = 50
"""A node beyond that size is skipped for fifty times as long as its reading took."""
_SHARED_REPOS: Final = 12
"""Below that, starting another process costs more than it saves."""
_SHARE_SCANS: Final = 4
"""One scan in this many lists a large folder and checks the next share of its files."""

_KEPT_SHARE: Final = 20
"""At the start, at most one in this many kept readings is due to be made again."""

Skip = Callable[[bytes, bytes], bool]
"""Called with a folder and a name: True if this subfolder is not part of the cache."""


class DiskCache:
    """All nodes at and below one folder of a home."""

    def __init__(
        self,
        root: bytes,
        kind: DiskKind,
        effort: ReadEffort,
        *,
        full_interval_seconds: float,
        processes: int = 1,
    ) -> None:
        self._root = root
        self._kind = kind
        self._effort = effort
        self._full_interval_seconds = full_interval_seconds
        self._fork_pool = ForkPool(processes, RepoReading)
        self._new_folders: list[FolderUnit] = []
        self._new_repos: list[RepositoryUnit] = []
        self._scan = 0
        self._refreshed_at: float | None = None
        self._owed = 0.0
        self._kept: dict[bytes, KeptRepo] = {}
        self.nodes: dict[bytes, DiskUnit] = {}
        self.revision = 0
        """Changes when a node appears, disappears, must be read again, or has new figures."""
        self._totals: tuple[int, dict[DiskKind, FolderTotals]] = (-1, {})
        self._complete: tuple[int, bool] = (-1, False)

    def use(self, kept: list[KeptRepo], seconds_ago: float) -> None:
        """Start with readings of an earlier process, which ended `seconds_ago`.

        A repository whose folder has changed since is read. The others are read again in turn, the
        oldest reading first, as if that process went on: so a wrong reading is corrected in time.
        """
        self._kept = {each.path: each for each in kept}
        turn = max(0.0, seconds_ago) / self._full_interval_seconds
        self._owed = len(kept) * min(turn, 1 / _KEPT_SHARE)

    def kept(self, clock_began_at: float) -> list[KeptRepo]:
        """Return the readings of repositories; the monotonic clock began at this wall time."""
        return [
            KeptRepo(node.path, clock_began_at + node.read_at, node.reading)
            for node in self.nodes.values()
            if isinstance(node, RepositoryUnit) and node.reading is not None and node.settled
        ]

    def refresh(self, moment: ScanTime, skip: Skip) -> None:
        """Update the nodes, as far as the time of this scan allows."""
        self._scan += 1
        if not _is_own_folder(self._root, moment.device):
            self.nodes.clear()
            self._new_folders.clear()
            self._new_repos.clear()
            self.revision += 1
            return
        if self._root not in self.nodes:
            self._add(FolderUnit(self._root, self._kind))
        if self._effort.hot_entries:
            self.forget(self._root)
        self._read_new(moment, skip)
        self._read(self._moved(moment), moment, skip)
        self._read_new(moment, skip)
        self._read(self._in_turn(moment), moment, skip)
        self._read_new(moment, skip)

    def totals(self) -> dict[DiskKind, FolderTotals]:
        """Return the sums over all nodes; added again only after a change."""
        if self._totals[0] != self.revision:
            totals: dict[DiskKind, FolderTotals] = {}
            for node in self.nodes.values():
                for kind, tally in node.tallies.items():
                    totals.setdefault(kind, FolderTotals()).add(tally)
            self._totals = (self.revision, totals)
        return self._totals[1]

    def is_complete(self) -> bool:
        """True if every node was read at least once."""
        if self._complete[0] != self.revision:
            complete = all(node.seen is not None for node in self.nodes.values())
            self._complete = (self.revision, complete)
        return self._complete[1]

    def forget(self, path: bytes) -> None:
        """Read a folder again at the next scan even if it has not changed."""
        if path in self.nodes:
            self.nodes[path].settled = False

    # Which nodes to read

    def _moved(self, moment: ScanTime) -> list[DiskUnit]:
        """Return the nodes whose folder changed since they were read."""
        moved: list[DiskUnit] = []
        lstat, inode, device = os.lstat, stat.ST_INO, stat.ST_DEV
        for node in self.nodes.values():
            known = node.seen
            if known is None:
                continue
            try:
                found = lstat(node.path or b".")
            except OSError:
                moved.append(node)
                continue
            same = known == (found.st_ctime_ns, found[inode])
            if not same or not node.settled or found[device] != moment.device:
                moved.append(node)
        return moved

    def _in_turn(self, moment: ScanTime) -> list[DiskUnit]:
        """Return the nodes to read in full although their folder did not change."""
        nodes = [n for n in self.nodes.values() if n.seen is not None]
        awake = [n for n in nodes if n.checked < self._scan and n.skip_until <= moment.monotonic]
        turn = choose_units(awake, self._effort, self._due(len(nodes), moment.monotonic))
        return turn.read + [n for n in turn.look if not self._is_unchanged(n, moment)]

    def _due(self, nodes: int, monotonic: float) -> int:
        """Return how many nodes to read now, to spread all of them evenly over a full interval."""
        passed = monotonic - self._refreshed_at if self._refreshed_at is not None else 0.0
        self._refreshed_at = monotonic
        self._owed = min(nodes, self._owed + nodes * passed / self._full_interval_seconds)
        due = int(self._owed)
        self._owed -= due
        return due

    def _is_unchanged(self, node: DiskUnit, moment: ScanTime) -> bool:
        """True if a cheap check finds the node unchanged, or updates it; False: it must be read."""
        if isinstance(node, RepositoryUnit):
            self._read_repos([node], moment, trust=True)
            return True
        if not isinstance(node, FolderUnit) or node.sample is None:
            return False
        began = moment.clock()
        growth = node.sample.take_growth(node.prefix)
        if growth is None:
            return False
        for each in growth:
            node.take_growth(_classifier(node)(each.name, False), each)
        self.revision += bool(growth)
        if self._scan % _SHARE_SCANS == 0:
            if not node.sample.next_share_unchanged(node.prefix, LARGE_ENTRIES):
                return False
            self._mark_checked(node, moment, began)
        return True

    # Reading them

    def _read(self, nodes: Iterable[DiskUnit], moment: ScanTime, skip: Skip) -> None:
        repos: list[RepositoryUnit] = []
        for node in nodes:
            if self.nodes.get(node.path) is not node or moment.monotonic < node.skip_until:
                continue
            if isinstance(node, RepositoryUnit):
                repos.append(node)
            elif isinstance(node, FolderUnit) and not moment.is_over():
                self._read_folder(node, moment, skip)
        self._read_repos(repos, moment, trust=False)

    def _read_repos(self, repos: list[RepositoryUnit], moment: ScanTime, *, trust: bool) -> None:
        """Read repositories; many of them with several processes."""

        def read(number: int) -> RepoReading | None:
            if moment.is_over():
                return None
            repo = repos[number]
            if repo.walk is None or (repo.walk.trusted is not None) is not trust:
                repo.walk = RepoWalk(repo.reading if trust else None)
            try:
                reading = read_repo(repo.path, moment, repo.walk)
            except OutOfTimeError:
                return None
            repo.walk = None
            return reading

        many = len(repos) >= _SHARED_REPOS and self._fork_pool.can_fork()
        readings = self._fork_pool.map(len(repos), read) if many else {}
        for number, repo in enumerate(repos):
            began = moment.clock()
            reading = readings.get(number) or read(number)
            if reading is not None:
                self.revision += repo.take(reading)
                repo.read_at = repo.read_at if trust else moment.monotonic
                self._mark_checked(repo, moment, began)
            elif not moment.is_over():
                self._drop(repo)

    def _read_folder(self, node: FolderUnit, moment: ScanTime, skip: Skip) -> None:
        began = moment.clock()
        node.walk = walk = node.walk or self._start_walk(node, moment)
        if walk is None:
            return self._drop(node)
        before, was_unread = node.tallies, node.seen is None
        while walk.work.run(moment.is_over):
            if self._take(node, walk, skip):
                node.walk = None
                self.revision += was_unread or node.tallies != before
                node.read_at = moment.monotonic
                return self._mark_checked(node, moment, began)
        return None

    def _start_walk(self, node: FolderUnit, moment: ScanTime) -> FolderWalk | None:
        """Start to read a folder; None if it is not a folder, or not part of this home."""
        try:
            found = os.lstat(node.path or b".")
        except OSError:
            return None
        if not stat.S_ISDIR(found.st_mode) or found.st_dev != moment.device:
            return None
        settled = moment.is_settled(found.st_ctime_ns)
        if node.is_whole:
            return FolderWalk(found, settled, _whole(node, found))
        sample = FolderSample() if node.entries > LARGE_ENTRIES else None
        listing = FolderListing(node.prefix, found, node.kind, _classifier(node), sample)
        return FolderWalk(found, settled, listing)

    def _take(self, node: FolderUnit, walk: FolderWalk, skip: Skip) -> bool:
        """Store what a walk has counted; False if the subfolders must be read too."""
        work = walk.work
        node.seen, node.settled = folder_stamp(walk.found), walk.settled
        if isinstance(work, TreeWalk):
            self._take_whole(node, walk.found, work.tally)
            return True
        names = {name for name in work.subfolders if not skip(node.path, name)}
        if len(names) > MANY_FOLDERS and not paths.stands_alone(node.path):
            self._drop_children(node, node.children)
            node.is_whole = True
            self._mark_unread(node)
            walk.work = _whole(node, walk.found)
            return False
        self._take_listing(node, work, names)
        return True

    def _take_whole(self, node: FolderUnit, found: os.stat_result, tally: FolderTotals) -> None:
        tally.add_folder(found)
        node.set_totals({node.kind: tally})
        node.sample = None
        if node.entries > 2 * WHOLE_ENTRIES and tally.folders <= MANY_FOLDERS:
            node.is_whole = False
            self._mark_unread(node)
            self._new_folders.append(node)

    def _mark_unread(self, node: FolderUnit) -> None:
        """Mark a node as unread: until it is read in its new form, the cache is not complete."""
        node.seen = None
        self.revision += 1

    def _take_listing(self, node: FolderUnit, listing: FolderListing, names: set[bytes]) -> None:
        node.sample = listing.sample
        node.set_totals(listing.tallies)
        self._drop_children(node, node.children - names)
        classify = _classifier(node)
        for name in names - node.children:
            is_repo = paths.is_shadow_repo(node.path, name)
            path, kind = node.prefix + name, classify(name, True)
            self._add(RepositoryUnit(path, kind) if is_repo else FolderUnit(path, kind))
        node.children = names

    def _mark_checked(self, node: DiskUnit, moment: ScanTime, began: float) -> None:
        node.checked = self._scan
        if node.entries > HUGE_ENTRIES:
            node.skip_until = moment.monotonic + HUGE_PAUSE_RATIO * (moment.clock() - began)

    # The tree of nodes

    def _read_new(self, moment: ScanTime, skip: Skip) -> None:
        """Read new nodes; folders depth first, so that small ones can be merged."""
        while self._new_folders and not moment.is_over():
            node = self._new_folders[-1]
            if self.nodes.get(node.path) is node and node.seen is None:
                self._read_folder(node, moment, skip)
            else:
                self._new_folders.pop()
                self._merge(node)
        self._take_kept(moment)
        self._read_repos([n for n in self._new_repos if n.seen is None], moment, trust=False)
        self._new_repos = [
            n for n in self._new_repos if n.seen is None and self.nodes.get(n.path) is n
        ]

    def _take_kept(self, moment: ScanTime) -> None:
        """Give new nodes their kept reading, if their folder is as it was then."""
        for node in self._new_repos if self._kept else ():
            kept = self._kept.pop(node.path, None)
            if kept is None or not kept.reading.settled:
                continue
            try:
                found = os.lstat(node.path)
            except OSError:
                continue
            if kept.reading.seen == folder_stamp(found) and found.st_dev == moment.device:
                self.revision += node.take(kept.reading)
                node.read_at = moment.monotonic - max(0.0, moment.now - kept.read_at)

    def _merge(self, node: FolderUnit) -> None:
        """Make a small subtree that was read completely one node."""
        if self.nodes.get(node.path) is not node or paths.stands_alone(node.path):
            return
        children = [self.nodes[node.prefix + name] for name in node.children]
        if any(not isinstance(child, FolderUnit) or child.children for child in children):
            return
        if not children or node.entries + sum(c.entries for c in children) > WHOLE_ENTRIES:
            return
        for child in children:
            node.tallies[node.kind].add(child.tallies[child.kind])
            node.settled = node.settled and child.settled
        node.set_totals(node.tallies)
        self._drop_children(node, node.children)
        node.is_whole = True

    def _add(self, node: DiskUnit) -> None:
        self.nodes[node.path] = node
        self.revision += 1
        if isinstance(node, FolderUnit):
            self._new_folders.append(node)
        elif isinstance(node, RepositoryUnit):
            self._new_repos.append(node)

    def _drop(self, node: DiskUnit) -> None:
        """Forget a node that is gone, with everything below it."""
        self.nodes.pop(node.path, None)
        self.revision += 1
        if isinstance(node, FolderUnit):
            self._drop_children(node, node.children)
        parent = self.nodes.get(node.path.rpartition(b"/")[0])
        if isinstance(parent, FolderUnit):
            parent.children.discard(node.path.rpartition(b"/")[2])

    def _drop_children(self, node: FolderUnit, names: set[bytes]) -> None:
        for name in list(names):
            self._drop(self.nodes[node.prefix + name])
        node.children = node.children - names


def _classifier(node: FolderUnit) -> paths.Classify:
    return paths.classifier(node.path) or (lambda _name, _is_folder: node.kind)


def _whole(node: FolderUnit, found: os.stat_result) -> TreeWalk:
    huge = found.st_size > HUGE_FOLDER_BYTES
    return TreeWalk([node.prefix], found.st_dev, start_is_huge=huge)


def _is_own_folder(path: bytes, device: int) -> bool:
    """True if a path leads to a folder of the home, through no link and into no mount."""
    parts = path.split(b"/")
    for depth in range(len(parts)):
        try:
            found = os.lstat(b"/".join(parts[: depth + 1]) or b".")
        except OSError:
            return False
        if not stat.S_ISDIR(found.st_mode) or found.st_dev != device:
            return False
    return True
