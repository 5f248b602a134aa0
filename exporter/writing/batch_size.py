"""How much work fits into one transaction, learnt from what the last ones took.

Work is counted in weights: a message without text is 1, and one with much text many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Final

_FIRST_SECONDS: Final = 0.0005
_LEAST: Final = 8
_MOST: Final = 5_000
_AIM: Final = 0.6
"""Of the budget."""
_REMEMBERED: Final = 9


class Pace:
    """Aims at a good half of the budget: looking again and committing need their share.

    What those take does not depend on the work, so only the time in between counts; else a busy
    machine would make for ever smaller transactions. One that met with a merge of the text index,
    or lost its processor for a while, says nothing about the next: the median does.
    """

    def __init__(self, budget_seconds: float) -> None:
        self._budget_seconds = budget_seconds
        self._found = deque([_FIRST_SECONDS], maxlen=_REMEMBERED)
        """What a weight of 1 took, the last few times."""

    @property
    def capacity(self) -> int:
        """How much to do at a time."""
        fitting = int(_AIM * self._budget_seconds / median(self._found))
        return max(_LEAST, min(fitting, _MOST))

    def fits(self, weight: int) -> bool:
        """Whether so much may go in one transaction."""
        return weight <= self.capacity

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
            self._found.append(max(seconds / weight, median(self._found) / 2))

    def was_too_long(self, weight: int, seconds: float) -> None:
        """It was taken back: half as much the next time at most."""
        slow = max(2 * median(self._found), seconds / (weight + 1))
        self._found.clear()
        self._found.append(slow)
