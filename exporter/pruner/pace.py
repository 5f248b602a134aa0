"""How many messages fit into one transaction, learnt from what the last ones took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_FIRST_SECONDS: Final = 0.001
_SMALLEST: Final = 4
_LARGEST: Final = 500
_OLD_SHARE: Final = 0.7


class Pace:
    """Aims at half the budget: looking again and committing need their share.

    What those take does not depend on the number of messages, so only the time in between counts;
    else a busy machine would make for ever smaller transactions.
    """

    def __init__(self, budget_seconds: float) -> None:
        self._budget_seconds = budget_seconds
        self._seconds = _FIRST_SECONDS
        """For one message."""

    @property
    def slice(self) -> int:
        """How many messages to take at a time."""
        fitting = int(self._budget_seconds / 2 / self._seconds)
        return max(_SMALLEST, min(fitting, _LARGEST))

    def fits(self, messages: int) -> bool:
        """Whether so many may go in one transaction."""
        return messages <= 2 * self.slice

    def fitting(self, messages: Sequence[int]) -> int:
        """How many of these sessions fit into one transaction; at least one. Each costs a bit."""
        left = self.slice
        for taken, count in enumerate(messages):
            left -= count + 1
            if left < 0:
                return max(1, taken)
        return max(1, len(messages))

    def took(self, messages: int, seconds: float) -> None:
        """Learn from what changing so many took; twice as many the next time at most."""
        found = max(seconds / (messages + 1), self._seconds / 2)
        self._seconds = _OLD_SHARE * self._seconds + (1 - _OLD_SHARE) * found

    def was_too_long(self, messages: int, seconds: float) -> None:
        """It was taken back: half as many the next time at least."""
        self._seconds = max(2 * self._seconds, seconds / (messages + 1))
