"""Tell if any file of a large folder changed, without checking all of them.

Names that appear or disappear change the folder itself. A file that grows does not. So each scan
checks the newest files, and every few scans a share of all files, in turn. The growth of one of the
newest files is reported, so that the folder need not be read again.
"""

from __future__ import annotations

import os
import stat
from heapq import heapify, heapreplace
from typing import Final, NamedTuple
from zlib import crc32

from msgspec import Struct

_BUCKETS: Final = 256
_RECENT: Final = 32


class Growth(Struct, frozen=True):
    """How a file that was written again differs from what was counted."""

    name: bytes
    blocks: int
    """The increase; negative if it shrank."""
    mtime: float
    """In whole seconds."""


class _Recent(NamedTuple):
    """One of the newest files; sorts by modification time."""

    mtime_ns: int
    name: bytes
    trace: int
    inode: int
    """0 if the file has several names: then it is not counted in this folder alone."""
    blocks: int


class FolderSample:
    """Sums over the files of one folder, by the hash of their name, and the newest files."""

    __slots__ = ("_files", "_recent", "_sums", "_turn")

    def __init__(self) -> None:
        self._files = 0
        self._sums = [0] * _BUCKETS
        self._recent = [_Recent(0, b"", 0, 0, 0)] * _RECENT
        self._turn = 0

    def add(self, name: bytes, found: os.stat_result) -> None:
        trace = _trace(found)
        self._files += 1
        self._sums[crc32(name) % _BUCKETS] += trace
        if found.st_mtime_ns > self._recent[0].mtime_ns:
            heapreplace(self._recent, _recent(name, trace, found))

    def take_growth(self, prefix: bytes) -> list[Growth] | None:
        """Return how the newest files changed since the last call, and remember their new state.

        None if only a reading of the folder can tell its new figures: one of the files is gone, is
        another file, or looks older than before.
        """
        grown: list[Growth] = []
        recent: list[_Recent] = []
        try:
            for known in self._recent:
                found = os.lstat(prefix + known.name) if known.name else None
                if found is None or (trace := _trace(found)) == known.trace:
                    recent.append(known)
                    continue
                now = _recent(known.name, trace, found)
                if not known.inode or now.inode != known.inode or now.mtime_ns < known.mtime_ns:
                    return None
                recent.append(now)
                mtime = found[stat.ST_MTIME]
                grown.append(Growth(known.name, now.blocks - known.blocks, mtime))
        except OSError:
            return None
        if grown:
            for before, after in zip(self._recent, recent, strict=True):
                self._sums[crc32(before.name) % _BUCKETS] += after.trace - before.trace
            heapify(recent)
            self._recent = recent
        return grown

    def next_share_unchanged(self, prefix: bytes, files: int) -> bool:
        """True if the next share, of about this many files, is unchanged."""
        width = max(1, _BUCKETS * files // max(1, self._files))
        low, high = self._turn, min(self._turn + width, _BUCKETS)
        sums = [0] * _BUCKETS
        try:
            with os.scandir(prefix or b".") as entries:
                for entry in entries:
                    if low <= (bucket := crc32(entry.name) % _BUCKETS) < high:
                        found = entry.stat(follow_symlinks=False)
                        if not stat.S_ISDIR(found.st_mode):
                            sums[bucket] += _trace(found)
        except OSError:
            return False
        self._turn = high % _BUCKETS
        return sums[low:high] == self._sums[low:high]


def _recent(name: bytes, trace: int, found: os.stat_result) -> _Recent:
    inode = found.st_ino if found.st_nlink == 1 else 0
    return _Recent(found.st_mtime_ns, name, trace, inode, found.st_blocks)


def _trace(found: os.stat_result) -> int:
    return found.st_mtime_ns + found.st_ctime_ns + found.st_ino + found.st_blocks
