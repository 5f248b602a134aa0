"""The moment of a scan, and what a folder's times say about trusting what was read of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

SETTLE_SECONDS: Final = 2.0
"""Coarser than the timestamps of any filesystem: a change this young may not be the last to carry
its time, so what was read then must be read again."""
_LONGEST_SCAN_SECONDS: Final = 3600.0

Seen = tuple[int, int]
"""Change time and inode of a folder: they move when its entries do. The modification time does too,
but anyone can set it."""


class Moment(Struct, frozen=True):
    """When and where a scan happens; its working directory is the home."""

    now: float
    monotonic: float
    deadline: float
    """Of `clock`: what is not read by then is left to the next scan."""
    device: int
    home: int
    """A descriptor of the home."""
    clock: Callable[[], float] = time.monotonic

    def is_over(self) -> bool:
        return self.clock() > self.deadline

    def is_settled(self, ctime_ns: int) -> bool:
        """Whether a change of that time is surely the last one that can carry it.

        A time far in the future comes from a clock that was set back: the next change will differ.
        """
        age = self.now - ctime_ns / 1e9
        return not -_LONGEST_SCAN_SECONDS < age < SETTLE_SECONDS


def seen(found: os.stat_result) -> Seen:
    return (found.st_ctime_ns, found.st_ino)
