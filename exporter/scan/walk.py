"""Counting what lies in folders, exactly as `du` does, with as few system calls as it takes.

A folder is named by a path that ends in a slash, `b""` being the working directory. Links are
counted themselves and never followed; a folder on another device is left out, as `du -x` does.
"""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Final
from zlib import crc32

from msgspec import Struct

from exporter.snapshot import DiskKind

# Places in a stat result: to read by place costs half of reading by name.
_MODE: Final = stat.ST_MODE
_INODE: Final = stat.ST_INO
_DEVICE: Final = stat.ST_DEV
_LINKS: Final = stat.ST_NLINK
_MTIME: Final = stat.ST_MTIME
_TYPE: Final = 0o170000
_FOLDER: Final = stat.S_IFDIR

_HUGE_FOLDER_BYTES: Final = 1_000_000
"""A folder file of this size holds more names than should be in memory at once."""
BUCKETS: Final = 256


class Tally(Struct, gc=False):
    """What was counted of one kind."""

    blocks: int = 0
    """Of 512 bytes, without those in `links`."""
    files: int = 0
    folders: int = 0
    newest: float = 0.0
    """The latest modification time, in whole seconds."""
    unreadable: int = 0
    links: bytes = b""
    """Pairs of inode and blocks of what has several names and is to be counted once in a home."""

    def add(self, other: Tally) -> None:
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


def descend(
    start: Iterable[bytes],
    device: int,
    hold: bytes | None = None,
    held: dict[bytes, int] | None = None,
) -> Tally:
    """Count everything below the folders of `start`, not those themselves.

    Subfolders of `hold` with a name of two letters are not entered but put into `held`, with the
    time of their last change.
    This loop reads hundreds of thousands of files, hence its local names and its flatness.
    """
    blocks = files = folders = unreadable = 0
    newest = 0.0
    links = array("Q")
    stack = list(start)
    huge: set[bytes] = set()
    lstat, listdir = os.lstat, os.listdir
    while stack:
        parent = stack.pop()
        try:
            for name in _stream_names(parent) if parent in huge else listdir(parent or b"."):
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
                    if parent == hold and held is not None and len(name) == 2:
                        held[path] = found.st_ctime_ns
                    else:
                        stack.append(path)
                        if found.st_size > _HUGE_FOLDER_BYTES:
                            huge.add(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            unreadable += 1
    return Tally(blocks, files, folders, newest, unreadable, links.tobytes())


class Listing(Struct):
    """One folder, without what is in its subfolders."""

    tallies: dict[DiskKind, Tally]
    subfolders: set[bytes]
    buckets: list[int] | None
    """Sums over the files by name, that move when one of them does. See `check_buckets`."""


def list_folder(
    path: bytes,
    found: os.stat_result,
    own_kind: DiskKind,
    kind_of: Callable[[bytes], DiskKind],
    *,
    with_buckets: bool = False,
) -> Listing:
    """Count a folder and its files by kind; `found` is the folder itself.

    What is on another device is left out only where it is a folder: on some union filesystems
    files and folders of one mount have different devices.
    """
    own = Tally()
    own.add_folder(found)
    tallies = {own_kind: own}
    links: dict[DiskKind, array[int]] = {}
    subfolders: set[bytes] = set()
    buckets = [0] * BUCKETS if with_buckets else None
    huge = found.st_size > _HUGE_FOLDER_BYTES
    try:
        for name in _stream_names(path) if huge else os.listdir(path or b"."):
            try:
                entry = os.lstat(path + name)
            except FileNotFoundError:
                continue
            except OSError:
                own.unreadable += 1
                continue
            if entry[_MODE] & _TYPE == _FOLDER:
                if entry[_DEVICE] == found[_DEVICE]:
                    subfolders.add(name)
                continue
            kind = kind_of(name)
            tally = tallies.get(kind)
            if tally is None:
                tally = tallies[kind] = Tally()
            tally.files += 1
            if entry[_MTIME] > tally.newest:
                tally.newest = entry[_MTIME]
            if entry[_LINKS] == 1:
                tally.blocks += entry.st_blocks
            else:
                links.setdefault(kind, array("Q")).extend((entry[_INODE], entry.st_blocks))
            if buckets is not None:
                buckets[crc32(name) % BUCKETS] += _trace(entry)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        own.unreadable += 1
    for kind, pairs in links.items():
        tallies[kind].links = pairs.tobytes()
    return Listing(tallies, subfolders, buckets)


def check_buckets(path: bytes, known: list[int], wanted: range) -> bool:
    """Whether the files of these buckets are as they were; only they are looked at.

    So a share of a large folder is checked for little more than that share's price.
    """
    sums = [0] * BUCKETS
    low, high = wanted.start, wanted.stop
    try:
        with os.scandir(path or b".") as entries:
            for entry in entries:
                if low <= (bucket := crc32(entry.name) % BUCKETS) < high:
                    found = entry.stat(follow_symlinks=False)
                    if found[_MODE] & _TYPE != _FOLDER:
                        sums[bucket] += _trace(found)
    except OSError:
        return False
    return sums[low:high] == known[low:high]


def _trace(entry: os.stat_result) -> int:
    return entry.st_mtime_ns + entry.st_ctime_ns + entry[_INODE] + entry.st_blocks


def _stream_names(path: bytes) -> Iterator[bytes]:
    with os.scandir(path or b".") as entries:
        for entry in entries:
            yield entry.name
