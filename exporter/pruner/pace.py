"""How much work fits into one transaction, learnt from what the last ones took.

Work is counted in weights: a message without text is 1, and one with much text many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_FIRST_SECONDS: Final = 0.0005
_LEAST: Final = 8
_MOST: Final = 5_000
_OLD_SHARE: Final = 0.7


class Pace:
    """Aims at half the budget: looking again and committing need their share.

    What those take does not depend on the work, so only the time in between counts; else a busy
    machine would make for ever smaller transactions.
    """

    def __init__(self, budget_seconds: float) -> None:
        self._budget_seconds = budget_seconds
        self._seconds = _FIRST_SECONDS
        """For a weight of 1."""

    @property
    def capacity(self) -> int:
        """How much to do at a time."""
        fitting = int(self._budget_seconds / 2 / self._seconds)
        return max(_LEAST, min(fitting, _MOST))

    def fits(self, weight: int) -> bool:
        """Whether so much may go in one transaction."""
        return weight <= 2 * self.capacity

    def fitting(self, weights: Sequence[int]) -> int:
        """How many of these fit into one transaction; at least one. Each costs a bit itself."""
        left = self.capacity
        for taken, weight in enumerate(weights):
            left -= weight + 1
            if left < 0:
                return max(1, taken)
        return max(1, len(weights))

    def took(self, weight: int, seconds: float) -> None:
        """Learn from what so much took; twice as much the next time at most."""
        if weight:
            found = max(seconds / weight, self._seconds / 2)
            self._seconds = _OLD_SHARE * self._seconds + (1 - _OLD_SHARE) * found

    def was_too_long(self, weight: int, seconds: float) -> None:
        """It was taken back: half as much the next time at most."""
        self._seconds = max(2 * self._seconds, seconds / (weight + 1))
