"""Telling whether any file of a large folder changed, without looking at all of them.

Names that come or go move the folder itself. A file that grows in place does not; it is most
likely one of those written last, and otherwise it is found when its share has its turn.
"""

from __future__ import annotations

import os
import stat
from heapq import heapreplace
from typing import Final
from zlib import crc32

_BUCKETS: Final = 256
_RECENT: Final = 32


class Sample:
    """Sums over the files of one folder, by the hash of their name, and the files written last."""

    __slots__ = ("_files", "_recent", "_sums", "_turn")

    def __init__(self) -> None:
        self._files = 0
        self._sums = [0] * _BUCKETS
        self._recent = [(0, b"", 0)] * _RECENT
        self._turn = 0

    def add(self, name: bytes, found: os.stat_result) -> None:
        mtime = found.st_mtime_ns
        trace = mtime + found.st_ctime_ns + found.st_ino + found.st_blocks
        self._files += 1
        self._sums[crc32(name) % _BUCKETS] += trace
        if mtime > self._recent[0][0]:
            heapreplace(self._recent, (mtime, name, trace))

    def recent_are_same(self, prefix: bytes) -> bool:
        """Whether the files that were written last are as they were."""
        try:
            return all(
                _trace(os.lstat(prefix + name)) == trace for _, name, trace in self._recent if name
            )
        except OSError:
            return False

    def share_is_same(self, prefix: bytes, files: int) -> bool:
        """Whether the next share, of about so many files, is as it was."""
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


def _trace(found: os.stat_result) -> int:
    return found.st_mtime_ns + found.st_ctime_ns + found.st_ino + found.st_blocks
