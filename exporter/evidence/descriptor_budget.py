"""A limit on the descriptors that a survey reads per user, so that no user can make it endless."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import suppress
from typing import Final

from exporter.evidence.procfs import GONE, read_real_uid

DESCRIPTORS_PER_USER: Final = 20_000
_ROOT: Final = 0
"""Root has no limit.

A host of containers has many descriptors of root, and a limit would make every home blind. Root has
simpler ways to stop the agent anyway.
"""


class DescriptorBudget:
    """The number of descriptors of each user that this survey may still read.

    Users are counted separately only after all processes together exceed the limit of one user. On
    most hosts that never happens, and counting by user costs one more read per process.
    """

    def __init__(self, per_user: int, proc: str) -> None:
        self.limited: set[int] = set()
        """Users above the limit: some of their processes were not read."""
        self._per_user = per_user
        self._proc = proc
        self._by_process: Counter[int] | None = Counter()
        self._by_user: Counter[int] = Counter()
        self._total = 0

    def allowed(self, pid: int) -> int:
        """Return how many descriptors of this process may be read; raise OSError if it is gone."""
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
        """Note that a process exceeds the limit; False if users were not counted separately yet.

        After False the caller tries again, now with the count of the process's own user.
        """
        if self._by_process is None:
            self.limited.add(read_real_uid(self._proc, pid))
            return True
        by_user: Counter[int] = Counter()
        for counted, count in self._by_process.items():
            with suppress(*GONE):
                by_user[read_real_uid(self._proc, counted)] += count
        self._by_process, self._by_user = None, by_user
        return False
