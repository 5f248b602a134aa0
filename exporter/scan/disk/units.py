"""What is remembered of the parts of a home between scans, and which parts to read again."""

from __future__ import annotations

import os
from operator import attrgetter
from typing import Final

from msgspec import Struct

from exporter.scan.disk.large_folder import FolderSample, Growth
from exporter.scan.disk.repository import RepoReading, RepoWalk
from exporter.scan.disk.walk import FolderListing, FolderStamp, FolderTotals, TreeWalk
from exporter.snapshot import DiskKind

ROUND_SCANS: Final = 60
"""After this many scans every node was at least checked."""
LARGE_ENTRIES: Final = 1000
"""A folder with more files is not read at its turn; at most this many files are checked."""


class DiskUnit:
    """A part of a home that is read as one."""

    __slots__ = (
        "checked",
        "entries",
        "kind",
        "newest",
        "path",
        "read_at",
        "seen",
        "settled",
        "skip_until",
    )

    def __init__(self, path: bytes, kind: DiskKind) -> None:
        self.path = path
        self.kind = kind
        self.seen: FolderStamp | None = None
        """The stamp of its folder when it was read; None before the first reading."""
        self.settled = False
        self.entries = 0
        self.newest = 0.0
        """The latest modification time of anything in it."""
        self.read_at = 0.0
        self.skip_until = float("-inf")
        """A huge node is not read again before this time, whatever changes."""
        self.checked = 0
        """The last scan that read it, or found a share of it unchanged."""

    @property
    def tallies(self) -> dict[DiskKind, FolderTotals]:
        """What was counted in it."""
        raise NotImplementedError


class FolderWalk(Struct):
    """The reading of a folder, which may take more than one scan; its stamp is from the start."""

    found: os.stat_result
    settled: bool
    work: FolderListing | TreeWalk


class FolderUnit(DiskUnit):
    """A folder with its files; a small one with everything below it."""

    __slots__ = ("_tallies", "children", "is_whole", "sample", "walk")

    def __init__(self, path: bytes, kind: DiskKind) -> None:
        super().__init__(path, kind)
        self._tallies: dict[DiskKind, FolderTotals] = {}
        self.children: set[bytes] = set()
        """Names of the subfolders that have their own nodes."""
        self.is_whole = False
        """True if the node covers everything below its folder."""
        self.sample: FolderSample | None = None
        """Only for a large folder."""
        self.walk: FolderWalk | None = None
        """A walk to continue at the next scan."""

    @property
    def prefix(self) -> bytes:
        return self.path + b"/" if self.path else b""

    @property
    def tallies(self) -> dict[DiskKind, FolderTotals]:
        return self._tallies

    def set_totals(self, tallies: dict[DiskKind, FolderTotals]) -> None:
        self._tallies = tallies
        self.entries = sum(tally.files + tally.folders for tally in tallies.values())
        self.newest = max(tally.newest for tally in tallies.values())

    def take_growth(self, kind: DiskKind, growth: Growth) -> None:
        """Update the figures for one of its files, which has this kind."""
        tally = self.tallies[kind]
        tally.blocks += growth.blocks
        tally.newest = max(tally.newest, growth.mtime)
        self.newest = max(self.newest, growth.mtime)


class RepositoryUnit(DiskUnit):
    """A shadow repository."""

    __slots__ = ("reading", "walk")

    def __init__(self, path: bytes, kind: DiskKind) -> None:
        super().__init__(path, kind)
        self.reading: RepoReading | None = None
        self.walk: RepoWalk | None = None
        """A walk to continue at the next scan."""

    @property
    def name(self) -> str:
        return self.path.rpartition(b"/")[2].decode()

    @property
    def tallies(self) -> dict[DiskKind, FolderTotals]:
        """Added up when asked for: there are many repositories, and the reading has the figures."""
        return {self.kind: self.reading.total()} if self.reading is not None else {}

    def take(self, reading: RepoReading) -> bool:
        """Store a reading; True if it differs from the one before."""
        before, total = self.reading, reading.total()
        self.reading = reading
        self.seen, self.settled = reading.seen, reading.settled
        self.entries, self.newest = total.files + total.folders, total.newest
        return (
            before is None
            or before.total() != total
            or (before.workdir, before.is_repository) != (reading.workdir, reading.is_repository)
        )


class ReadEffort(Struct, frozen=True):
    """How much of what did not visibly change each scan checks."""

    exact_entries: int
    """Up to this size everything is read again."""
    hot_entries: int
    """Beyond it: this many of the newest entries, and one part in `round_scans` of all. Not 0 where
    files grow in place; then the files of the root folder are always read.
    """
    round_scans: int = ROUND_SCANS


class UnitsToRead(Struct, frozen=True):
    """Nodes that did not change, and what to do with them anyway."""

    read: list[DiskUnit]
    look: list[DiskUnit]
    """A reading of a part of each is enough if it can show whether the node changed."""


def choose_units(nodes: list[DiskUnit], effort: ReadEffort, full: int) -> UnitsToRead:
    """Choose nodes: the `full` ones read longest ago, the newest, and the next in turn."""
    total = sum(node.entries for node in nodes)
    if total <= effort.exact_entries:
        return UnitsToRead(sorted(nodes, key=attrgetter("checked")), [])
    by_reading = sorted(nodes, key=attrgetter("read_at"))
    read, others = by_reading[:full], by_reading[full:]
    look: dict[DiskUnit, None] = {}
    if effort.hot_entries:
        by_time = sorted(others, key=attrgetter("newest"), reverse=True)
        look.update(dict.fromkeys(_first_with(effort.hot_entries, by_time)))
    share = -(-total // effort.round_scans) - sum(node.entries for node in read)
    look.update(
        dict.fromkeys(_first_with(share, sorted(others, key=attrgetter("checked", "read_at"))))
    )
    return UnitsToRead(read, list(look))


def _first_with(entries: int, nodes: list[DiskUnit]) -> list[DiskUnit]:
    """Return the first nodes that together have this many entries."""
    chosen: list[DiskUnit] = []
    for node in nodes:
        if entries <= 0:
            break
        chosen.append(node)
        entries -= min(node.entries, LARGE_ENTRIES)
    return chosen
