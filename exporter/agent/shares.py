"""Limits on the connections and runs of users: what some users take keeps no other user out."""

from __future__ import annotations

from collections import Counter
from typing import Final

_ROOT: Final = 0
_CROWD: Final = 4
"""When this many times `most` places are taken, only root gets another one."""


class Shares:
    """How many places each user has taken.

    A user has `each` places at most. When `most` are taken in all, a user who has none still gets
    one. When `_CROWD` times as many are taken, only root does: one user can own thousands of uids
    (/etc/subuid), and the agent's memory is limited.
    """

    def __init__(self, each: int, most: int) -> None:
        self._each = each
        self._most = most
        self._taken: Counter[int] = Counter()

    @property
    def total(self) -> int:
        return self._taken.total()

    def take(self, uid: int) -> bool:
        """Take a place for this user; False if there is none."""
        own, total = self._taken[uid], self.total
        has_room = total < self._most or (own == 0 and total < _CROWD * self._most)
        if own >= self._each or not (has_room or uid == _ROOT):
            return False
        self._taken[uid] += 1
        return True

    def give_back(self, uid: int) -> None:
        self._taken[uid] -= 1
        if not self._taken[uid]:
            del self._taken[uid]
