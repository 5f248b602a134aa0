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

from msgspec import Struct

from exporter.scan.sample import Sample
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
    leaves: dict[bytes, int] | None = None,
    leafy: bytes = b"",
    growing: bytes = b"",
) -> Tally:
    """Count everything below the folders of `start`, not those themselves.

    With `leaves` given, a folder without subfolders is counted but not entered; it is put there
    with the time of its last change. A link count of 2 tells such a folder on most filesystems,
    and to be in the folder `leafy` does everywhere; what is below `growing` is entered always.

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
                    if (
                        leaves is not None
                        and (found[_LINKS] == 2 or parent == leafy)
                        and not path.startswith(growing)
                    ):
                        leaves[path] = found.st_ctime_ns
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


def list_folder(
    path: bytes,
    found: os.stat_result,
    own_kind: DiskKind,
    classify: Callable[[bytes, bool], DiskKind],
    sample: Sample | None = None,
) -> Listing:
    """Count a folder and its files by kind; `found` is the folder itself.

    What is on another device is left out only where it is a folder: on some union filesystems
    files and folders of one mount have different devices.
    """
    own = tally = Tally()
    own.add_folder(found)
    tallies = {own_kind: own}
    tally_kind = own_kind
    links: dict[DiskKind, array[int]] = {}
    subfolders: set[bytes] = set()
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
            kind = classify(name, False)
            if kind is not tally_kind:  # a look into the dictionary costs as much as the stat
                tally_kind, tally = kind, tallies.setdefault(kind, Tally())
            tally.files += 1
            if entry[_MTIME] > tally.newest:
                tally.newest = entry[_MTIME]
            if entry[_LINKS] == 1:
                tally.blocks += entry.st_blocks
            else:
                links.setdefault(kind, array("Q")).extend((entry[_INODE], entry.st_blocks))
            if sample is not None:
                sample.add(name, entry)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError:
        own.unreadable += 1
    for kind, pairs in links.items():
        tallies[kind].links = pairs.tobytes()
    return Listing(tallies, subfolders)


def _stream_names(path: bytes) -> Iterator[bytes]:
    with os.scandir(path or b".") as entries:
        for entry in entries:
            yield entry.name
