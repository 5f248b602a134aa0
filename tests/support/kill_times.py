"""Random moments to kill something that takes a while, on a machine of any speed."""

from __future__ import annotations

import random


class Instants:
    """Some moments are in time to kill it, some are too late.

    The duration depends on the load of the machine. So the range grows after a kill, and shrinks
    after a run that finished.
    """

    def __init__(self, chance: random.Random, seconds: float) -> None:
        self._chance = chance
        self._seconds = seconds

    def draw(self) -> float:
        """Return seconds from the start."""
        return self._chance.uniform(0, self._seconds)

    def heed(self, *, killed: bool) -> None:
        """Adapt to the result of the last moment."""
        self._seconds *= 1.1 if killed else 0.8
