"""How much work fits into one transaction, learnt from what the last ones took.

Work is counted in units of the caller: sessions to end, pages to merge, or weights of messages (one
without text is 1, one with much text many).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median


class BatchSize:
    """The one adaptive size; the defaults are those for messages of sessions.

    It aims at a share of the budget, because checks and commit need their share too. They do not
    depend on the work, so the caller reports only the time in between; otherwise batches would get
    ever smaller on a busy machine. One transaction that met a merge of the text index, or lost its
    processor for a while, says nothing about the next: the median of the last ones does.
    """

    def __init__(
        self,
        budget_seconds: float,
        *,
        first_seconds: float = 0.0005,
        share: float = 0.6,
        least: int = 8,
        most: int = 5_000,
        growth: float = 2,
        remembered: int = 9,
    ) -> None:
        """`first_seconds`: what a unit takes, before anything is known of it."""
        self._goal_seconds = share * budget_seconds
        self._least = least
        self._most = most
        self._growth = growth
        self._unit_seconds = deque([first_seconds], maxlen=remembered)
        """What a unit took, the last few times."""

    @property
    def size(self) -> int:
        """The amount of work of the next transaction."""
        fitting = int(self._goal_seconds / median(self._unit_seconds))
        return max(self._least, min(fitting, self._most))

    @property
    def is_least(self) -> bool:
        """True if no transaction could be smaller."""
        return self.size == self._least

    def fits(self, work: int) -> bool:
        """True if this much work may go into one transaction."""
        return work <= self.size

    def fitting(self, works: Sequence[int]) -> int:
        """Return how many of these fit into one transaction; at least one. Each costs 1 more."""
        left = self.size
        for taken, work in enumerate(works):
            left -= work + 1
            if left < 0:
                return max(1, taken)
        return max(1, len(works))

    def record(self, work: int, seconds: float) -> None:
        """Learn from what so much took; the next size is at most `growth` times as large."""
        if work:
            fastest = median(self._unit_seconds) / self._growth
            self._unit_seconds.append(max(seconds / work, fastest))

    def record_too_long(self, work: int, seconds: float) -> None:
        """It was rolled back: the next size is at most half as large."""
        slow = max(2 * median(self._unit_seconds), seconds / (work + 1))
        self._unit_seconds.clear()
        self._unit_seconds.append(slow)

    def use_least(self) -> None:
        """Make the next transaction as small as possible, and learn anew from there."""
        self._unit_seconds.clear()
        self._unit_seconds.append(self._goal_seconds / self._least)
