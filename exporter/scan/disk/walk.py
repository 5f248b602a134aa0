"""Count what is in folders, exactly as `du` does, with as few system calls as possible.

A folder is named by a path that ends in a slash; `b""` is the working directory. Links are counted
themselves and never followed. A folder on another device is skipped, as by `du -x`. A folder with
too many names for one scan is continued at the next.
"""

from __future__ import annotations

import os
import stat
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from msgspec import Struct, structs

from exporter.scan.disk.large_folder import FolderSample
from exporter.snapshot import DiskKind

# Indexes of a stat result: access by index costs half of access by name.
_MODE: Final = stat.ST_MODE
_INODE: Final = stat.ST_INO
_DEVICE: Final = stat.ST_DEV
_LINKS: Final = stat.ST_NLINK
_MTIME: Final = stat.ST_MTIME
_TYPE: Final = 0o170000
_FOLDER: Final = stat.S_IFDIR

HUGE_FOLDER_BYTES: Final = 1_000_000
"""A folder file of this size holds more names than should be in memory at once."""
PORTION_NAMES: Final = 4096
"""This many names are counted between two checks of the clock."""
_FOLDERS_PER_CHECK: Final = 64


class FolderTotals(Struct, array_like=True, gc=False):
    """What was counted of one kind."""

    blocks: int = 0
    """Blocks of 512 bytes, without those in `links`."""
    files: int = 0
    folders: int = 0
    newest: float = 0.0
    """The latest modification time, in whole seconds."""
    unreadable: int = 0
    links: bytes = b""
    """Pairs of inode and blocks of files with several names, which count once in a home."""

    def add(self, other: FolderTotals) -> None:
        self.blocks += other.blocks
        self.files += other.files
        self.folders += other.folders
        self.newest = max(self.newest, other.newest)
        self.unreadable += other.unreadable
        self.links += other.links

    def add_folder(self, found: os.stat_result) -> None:
        self.blocks += found.st_blocks
        self.folders += 1
        self.newest = max(self.newest, found[_MTIME])


def never() -> bool:
    """Return False: for a walk without a time limit."""
    return False


class OutOfTimeError(Exception):
    """A walk must continue at the next scan."""


class TreeWalk:
    """Counts everything below the folders of `start`, not these folders themselves.

    With `leaves`, a folder without subfolders is counted but not entered; `leaves` gets its change
    time. Such a folder has a link count of 2 on most filesystems. A folder directly in `leafy`
    counts as one on any filesystem. Folders below `growing` are always entered.
    """

    def __init__(
        self,
        start: Iterable[bytes],
        device: int,
        leaves: dict[bytes, int] | None = None,
        leafy: bytes = b"",
        growing: bytes = b"",
        *,
        start_is_huge: bool = False,
    ) -> None:
        self._stack = list(start)
        self._huge: dict[bytes, Iterator[bytes]] = {}
        if start_is_huge:
            self._huge.update((folder, stream_names(folder)) for folder in self._stack)
        self._device = device
        self._leaves = leaves
        self._leafy = leafy
        self._growing = growing
        self._links = array("Q")
        self._tally = FolderTotals()

    def run(self, is_over: Callable[[], bool] = never) -> bool:
        """Continue until all is counted, or the time is up; True if all is counted.

        This loop reads hundreds of thousands of files: hence local names, and one long function.
        """
        blocks = files = folders = unreadable = 0
        newest = 0.0
        stack, huge, links = self._stack, self._huge, self._links
        leaves, leafy, growing, device = self._leaves, self._leafy, self._growing, self._device
        lstat, listdir = os.lstat, os.listdir
        until_next_check = _FOLDERS_PER_CHECK
        while stack:
            until_next_check -= 1
            if not until_next_check:
                if is_over():
                    break
                until_next_check = _FOLDERS_PER_CHECK
            parent = stack.pop()
            try:
                for name in self._some_names(parent) if parent in huge else listdir(parent or b"."):
                    path = parent + name
                    try:
                        found = lstat(path)
                    except FileNotFoundError:
                        continue
                    except OSError:
                        unreadable += 1
                        continue
                    if found[_MTIME] > newest:
                        newest = found[_MTIME]
                    if found[_MODE] & _TYPE != _FOLDER:
                        files += 1
                        if found[_LINKS] == 1:
                            blocks += found.st_blocks
                        else:
                            links.extend((found[_INODE], found.st_blocks))
                    elif found[_DEVICE] == device:
                        folders += 1
                        blocks += found.st_blocks
                        path += b"/"
                        if (
                            leaves is not None
                            and (found[_LINKS] == 2 or parent == leafy)
                            and not path.startswith(growing)
                        ):
                            leaves[path] = found.st_ctime_ns
                        else:
                            stack.append(path)
                            if found.st_size > HUGE_FOLDER_BYTES:
                                huge[path] = stream_names(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                unreadable += 1
        self._tally.add(FolderTotals(blocks, files, folders, newest, unreadable))
        return not stack

    def _some_names(self, folder: bytes) -> Iterator[bytes]:
        """Return the next names of a huge folder; it stays on the stack while there may be more."""
        some = list(islice(self._huge[folder], PORTION_NAMES))
        if len(some) == PORTION_NAMES:
            self._stack.append(folder)
        return iter(some)

    @property
    def tally(self) -> FolderTotals:
        """The sums so far."""
        return structs.replace(self._tally, links=self._links.tobytes())


class FolderListing:
    """One folder by kind, without the contents of its subfolders; `found` is the folder itself.

    Only folders on another device are skipped, not files: on some union filesystems files and
    folders of one mount have different devices.
    """

    def __init__(
        self,
        path: bytes,
        found: os.stat_result,
        own_kind: DiskKind,
        classify: Callable[[bytes, bool], DiskKind],
        sample: FolderSample | None = None,
    ) -> None:
        self._path = path
        self._device = found[_DEVICE]
        self._own_kind = own_kind
        self._classify = classify
        self._links: dict[DiskKind, array[int]] = {}
        self._names: Iterator[bytes] | None = None
        self._is_huge = found.st_size > HUGE_FOLDER_BYTES
        self.found = found
        self.sample = sample
        self.subfolders: set[bytes] = set()
        self.tallies = {own_kind: FolderTotals()}
        self.tallies[own_kind].add_folder(found)

    def run(self, is_over: Callable[[], bool] = never) -> bool:
        """Continue until all is counted, or the time is up; True if all is counted."""
        try:
            if self._names is None:
                every = stream_names(self._path) if self._is_huge else _all_names(self._path)
                self._names = every
            while some := list(islice(self._names, PORTION_NAMES)):
                self._count(some)
                if len(some) == PORTION_NAMES and is_over():
                    return False
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            self.tallies[self._own_kind].unreadable += 1
        for kind, pairs in self._links.items():
            self.tallies[kind].links = pairs.tobytes()
        return True

    def _count(self, names: list[bytes]) -> None:
        path, device, classify, sample = self._path, self._device, self._classify, self.sample
        tally_kind, tally = self._own_kind, self.tallies[self._own_kind]
        lstat = os.lstat
        for name in names:
            try:
                entry = lstat(path + name)
            except FileNotFoundError:
                continue
            except OSError:
                self.tallies[self._own_kind].unreadable += 1
                continue
            if entry[_MODE] & _TYPE == _FOLDER:
                if entry[_DEVICE] == device:
                    self.subfolders.add(name)
                continue
            kind = classify(name, False)
            if kind is not tally_kind:  # a dictionary lookup costs as much as the stat
                tally_kind, tally = kind, self.tallies.setdefault(kind, FolderTotals())
            tally.files += 1
            if entry[_MTIME] > tally.newest:
                tally.newest = entry[_MTIME]
            if entry[_LINKS] == 1:
                tally.blocks += entry.st_blocks
            else:
                pairs = self._links.setdefault(kind, array("Q"))
                pairs.extend((entry[_INODE], entry.st_blocks))
            if sample is not None:
                sample.add(name, entry)


def _all_names(path: bytes) -> Iterator[bytes]:
    return iter(os.listdir(path or b"."))


def stream_names(path: bytes) -> Iterator[bytes]:
    """Yield the names in a folder, which is opened at the first name."""
    with os.scandir(path or b".") as entries:
        for entry in entries:
            yield entry.name


SETTLE_SECONDS: Final = 2.0
"""Coarser than the timestamps of any filesystem. A change younger than this may be followed by
another with the same time, so what was read then must be read again.
"""
_LONGEST_SCAN_SECONDS: Final = 3600.0

FolderStamp = tuple[int, int]
"""Change time and inode of a folder: they change with its entries. The modification time changes
too, but any user can set it.
"""


class ScanTime(Struct, frozen=True):
    """When and where a scan happens; its working directory is the home."""

    now: float
    monotonic: float
    deadline: float
    """By `clock`: what is not read by then is left to the next scan."""
    device: int
    home: int
    """A descriptor of the home."""
    clock: Callable[[], float] = time.monotonic

    def is_over(self) -> bool:
        return self.clock() > self.deadline

    def is_settled(self, ctime_ns: int) -> bool:
        """True if no later change can have the same time.

        A time far in the future comes from a clock that was set back: the next change will differ.
        """
        age = self.now - ctime_ns / 1e9
        return not -_LONGEST_SCAN_SECONDS < age < SETTLE_SECONDS


def folder_stamp(found: os.stat_result) -> FolderStamp:
    return (found.st_ctime_ns, found.st_ino)
