"""Random instants at which to kill something that takes a while, on a machine of any speed."""

from __future__ import annotations

import random


class Instants:
    """Some in time to kill it, some too late.

    How long it takes depends on what else the machine does: whoever was killed is given a little
    more time, and whoever got through less.
    """

    def __init__(self, chance: random.Random, seconds: float) -> None:
        self._chance = chance
        self._seconds = seconds

    def draw(self) -> float:
        """Seconds from the beginning."""
        return self._chance.uniform(0, self._seconds)

    def heed(self, *, killed: bool) -> None:
        """Take in what came of the last one."""
        self._seconds *= 1.1 if killed else 0.8
