"""How many descriptors of one user a survey reads, so that no user can make it take for ever."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Final

from exporter.evidence.procfs import is_gone, read_real_uid

DESCRIPTORS_PER_USER: Final = 20_000
_ROOT: Final = 0
"""Has no limit: a host of containers has many, they would blind every home, and root needs no
trick to stop the agent."""


class DescriptorBudget:
    """What each user may still cost in this survey.

    Users are told apart only when all processes together cost more than one user may: on most hosts
    that never happens, and it takes one more read for every process.
    """

    def __init__(self, per_user: int, proc: str) -> None:
        self.limited: set[int] = set()
        """Users above the budget: some of their processes were not looked into."""
        self._per_user = per_user
        self._proc = proc
        self._by_process: Counter[int] | None = Counter()
        self._by_user: Counter[int] = Counter()
        self._total = 0

    def allowed(self, pid: int) -> int:
        """How many descriptors of this process may be read; raise OSError if it is gone."""
        if self._by_process is not None:
            return self._per_user - self._total
        uid = read_real_uid(self._proc, pid)
        return sys.maxsize if uid == _ROOT else self._per_user - self._by_user[uid]

    def spend(self, pid: int, count: int) -> None:
        if self._by_process is None:
            self._by_user[read_real_uid(self._proc, pid)] += count
        else:
            self._by_process[pid] += count
            self._total += count

    def exceed(self, pid: int) -> bool:
        """Note that a process is above what is allowed; False if that was not yet by user."""
        if self._by_process is None:
            self.limited.add(read_real_uid(self._proc, pid))
            return True
        by_user: Counter[int] = Counter()
        for counted, count in self._by_process.items():
            try:
                by_user[read_real_uid(self._proc, counted)] += count
            except OSError as error:
                if not is_gone(error):
                    raise
        self._by_process, self._by_user = None, by_user
        return False
