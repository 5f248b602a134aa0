"""What is remembered of the parts of a home between scans, and which of it to read again."""

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
"""After so many scans every node was at least looked at."""
LARGE_ENTRIES: Final = 1000
"""A folder with more files is not read at its turn; at most so many of them are looked at."""


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
        "tallies",
    )

    def __init__(self, path: bytes, kind: DiskKind) -> None:
        self.path = path
        self.kind = kind
        self.seen: FolderStamp | None = None
        """Of its folder when it was read; None before the first time."""
        self.settled = False
        self.tallies: dict[DiskKind, FolderTotals] = {}
        self.entries = 0
        self.newest = 0.0
        """When anything in it was last modified."""
        self.read_at = 0.0
        self.skip_until = float("-inf")
        """A monster is not read again before this, whatever moves."""
        self.checked = 0
        """The last scan that read it, or found a share of it to be as it was."""

    def set_totals(self, tallies: dict[DiskKind, FolderTotals]) -> None:
        self.tallies = tallies
        self.entries = sum(tally.files + tally.folders for tally in tallies.values())
        self.newest = max(tally.newest for tally in tallies.values())


class FolderWalk(Struct):
    """The reading of a folder, which may take more than one scan; its age is as of the first."""

    found: os.stat_result
    settled: bool
    work: FolderListing | TreeWalk


class FolderUnit(DiskUnit):
    """A folder with its files; a small one with all that is below it."""

    __slots__ = ("children", "is_whole", "sample", "walk")

    def __init__(self, path: bytes, kind: DiskKind) -> None:
        super().__init__(path, kind)
        self.children: set[bytes] = set()
        """Names of the subfolders that have nodes of their own."""
        self.is_whole = False
        """Whether the node stands for everything below its folder."""
        self.sample: FolderSample | None = None
        """Of a large folder."""
        self.walk: FolderWalk | None = None
        """What is to go on at the next scan."""

    @property
    def prefix(self) -> bytes:
        return self.path + b"/" if self.path else b""

    def take_growth(self, kind: DiskKind, growth: Growth) -> None:
        """Count one of its files, which is of this kind, as it is now."""
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
        """What is to go on at the next scan."""

    @property
    def name(self) -> str:
        return self.path.rpartition(b"/")[2].decode()

    def take(self, reading: RepoReading) -> bool:
        """Take a reading in; whether it tells anything new."""
        before, tallies = self.reading, self.tallies
        total = FolderTotals()
        total.add(reading.rest)
        total.add(reading.leaves)
        self.reading = reading
        self.seen, self.settled = reading.seen, reading.settled
        self.set_totals({self.kind: total})
        return (
            before is None
            or tallies != self.tallies
            or (before.workdir, before.is_repository) != (reading.workdir, reading.is_repository)
        )


class ReadEffort(Struct, frozen=True):
    """How much of what did not visibly move is looked at by each scan."""

    exact_entries: int
    """Up to this size everything is read again."""
    hot_entries: int
    """Beyond, so much of what was written last, besides one part in `round_scans` of all. Not 0
    where files grow in place; then the files of the root folder are always read."""
    round_scans: int = ROUND_SCANS


class UnitsToRead(Struct, frozen=True):
    """Nodes that did not move, and what to do with them nevertheless."""

    read: list[DiskUnit]
    look: list[DiskUnit]
    """Only a part of each need be read, if that is enough to tell whether it changed."""


def choose_units(nodes: list[DiskUnit], effort: ReadEffort, full: int) -> UnitsToRead:
    """Whose turn it is: the `full` nodes longest not read, the hottest, and those next in line."""
    total = sum(node.entries for node in nodes)
    if total <= effort.exact_entries:
        return UnitsToRead(sorted(nodes, key=attrgetter("checked")), [])
    by_reading = sorted(nodes, key=attrgetter("read_at"))
    read, others = by_reading[:full], by_reading[full:]
    look: dict[DiskUnit, None] = {}
    if effort.hot_entries:
        by_time = sorted(others, key=attrgetter("newest"), reverse=True)
        look.update(dict.fromkeys(_first_of_size(effort.hot_entries, by_time)))
    share = -(-total // effort.round_scans) - sum(node.entries for node in read)
    look.update(dict.fromkeys(_first_of_size(share, sorted(others, key=attrgetter("checked")))))
    return UnitsToRead(read, list(look))


def _first_of_size(entries: int, nodes: list[DiskUnit]) -> list[DiskUnit]:
    """The first nodes that together are worth so many entries."""
    chosen: list[DiskUnit] = []
    for node in nodes:
        if entries <= 0:
            break
        chosen.append(node)
        entries -= min(node.entries, LARGE_ENTRIES)
    return chosen
