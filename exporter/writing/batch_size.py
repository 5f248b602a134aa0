"""How much work fits into one transaction, estimated from the time that the last ones took.

The caller chooses the unit of work: sessions to end, pages to merge, or weights of messages (1
without text, more with much text).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median


class BatchSize:
    """A batch size that adapts; the defaults are for messages of sessions.

    The work gets a share of the budget, because checks and commit need time too. Their time does
    not depend on the work, so the caller does not report it; otherwise batches would get ever
    smaller on a busy machine. The median of the last transactions counts: a single one may have
    met a merge of the text index, or lost its processor for a while.
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
        """`first_seconds`: the estimate for one unit, until a transaction is measured."""
        self._goal_seconds = share * budget_seconds
        self._least = least
        self._most = most
        self._growth = growth
        self._unit_seconds = deque([first_seconds], maxlen=remembered)
        """Seconds per unit of the last transactions."""

    @property
    def size(self) -> int:
        """The amount of work of the next transaction."""
        estimate = int(self._goal_seconds / median(self._unit_seconds))
        return max(self._least, min(estimate, self._most))

    @property
    def is_least(self) -> bool:
        """True if no transaction could be smaller."""
        return self.size == self._least

    def fits(self, work: int) -> bool:
        """True if this much work may go into one transaction."""
        return work <= self.size

    def fitting(self, works: Sequence[int]) -> int:
        """Return how many of these fit into one transaction, at least one. Each costs 1 extra."""
        left = self.size
        for count, work in enumerate(works):
            left -= work + 1
            if left < 0:
                return max(1, count)
        return max(1, len(works))

    def record(self, work: int, seconds: float) -> None:
        """Note the time of a transaction; the next size is at most `growth` times as large."""
        if work:
            fastest = median(self._unit_seconds) / self._growth
            self._unit_seconds.append(max(seconds / work, fastest))

    def record_too_long(self, work: int, seconds: float) -> None:
        """Note a transaction that was rolled back; the next size is at most half as large."""
        slow = max(2 * median(self._unit_seconds), seconds / (work + 1))
        self._unit_seconds.clear()
        self._unit_seconds.append(slow)

    def use_least(self) -> None:
        """Make the next transaction as small as possible; forget the earlier ones."""
        self._unit_seconds.clear()
        self._unit_seconds.append(self._goal_seconds / self._least)
