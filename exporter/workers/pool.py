"""The agent's worker processes: one per owner of homes, and one for each dedicated home.

Every call has a deadline. A worker that misses it, dies or sends invalid data is ended, and its
homes get a new one. A home that caused this, or that is slower than the others, gets its own
(dedicated) worker, so that it does not disturb other homes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from exporter.errors import WorkerError
from exporter.workers.process import END_WAIT_SECONDS, Worker, start_worker

PROCESSES_PER_OWNER_MAX: Final = 24
"""Includes workers that cannot be killed because a filesystem hangs. Limits what one user can take
of the host.
"""

_Key = tuple[int, str]
"""Owner of the home, and its path if it has its own worker."""


class Family:
    """The pools of one agent; each knows the workers of all as ours."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Of the fields below; the last lock that a thread takes."""
        self.pools: list[Pool] = []
        self._stuck: list[tuple[_Key, Worker]] = []

    def add_stuck(self, key: _Key, worker: Worker) -> None:
        """Remember a worker that was killed and does not end: its pool may be closed."""
        with self.lock:
            self._stuck.append((key, worker))

    def stuck(self) -> list[tuple[_Key, Worker]]:
        """Return the workers that were killed and are still there."""
        with self.lock:
            self._stuck = [(where, worker) for where, worker in self._stuck if not worker.is_gone()]
            return list(self._stuck)


class Pool:
    """Finds the worker for a home, and replaces it when it fails. Any thread may call it."""

    def __init__(
        self, start: Callable[[int], Worker] = start_worker, family: Family | None = None
    ) -> None:
        self._start = start
        self._family = family or Family()
        with self._family.lock:
            self._family.pools.append(self)
        self._lock = threading.Lock()
        self._workers: dict[_Key, Worker] = {}
        self._dedicated: dict[str, int] = {}
        self._temporary: list[Worker] = []
        self._closed = False

    def worker(self, owner: int, home: str) -> Worker:
        """Return the worker for this home."""
        with self._lock:
            if self._closed:
                raise WorkerError("the agent is stopping")
            key = self.worker_key(owner, home)
            worker = self._workers.get(key)
            if worker is not None and worker.alive():
                return worker
            self._refuse_more(owner)
            started = self._workers[key] = self._start(owner)
        if worker is not None:
            self._end(worker, owner, home)
        return started

    def _refuse_more(self, owner: int) -> None:
        keys = [*self._workers, *(key for key, _ in self._family.stuck())]
        if sum(key[0] == owner for key in keys) >= PROCESSES_PER_OWNER_MAX:
            raise WorkerError(
                f"uid {owner} has {PROCESSES_PER_OWNER_MAX} workers that are busy or do not end"
            )

    @contextmanager
    def temporary(self, owner: int) -> Iterator[Worker]:
        """Start a worker for one long run, so that no scan has to wait for the run."""
        with self._lock:
            if self._closed:
                raise WorkerError("the agent is stopping")
            self._refuse_more(owner)
            worker = self._start(owner)
            self._temporary.append(worker)
        try:
            yield worker
        finally:
            self._end(worker, owner, "")
            with self._lock:
                self._temporary.remove(worker)
            self._leave_family()

    def beside(self) -> Pool:
        """Return another pool of the same agent, for a run that must not wait for scans."""
        return Pool(self._start, self._family)

    def pids(self) -> frozenset[int]:
        """Return the PIDs of all workers of the family, including those that do not end."""
        with self._family.lock:
            pools = list(self._family.pools)
        running = [pid for pool in pools for pid in pool.own_pids()]
        return frozenset(running).union(worker.pid for _, worker in self._family.stuck())

    def own_pids(self) -> list[int]:
        """Return the PIDs of the workers of this pool."""
        with self._lock:
            return [worker.pid for worker in (*self._workers.values(), *self._temporary)]

    def worker_key(self, owner: int, home: str) -> _Key:
        """Return the key of the home's worker: homes with the same key are scanned in turn."""
        return owner, home if home in self._dedicated else ""

    def is_dedicated(self, home: str) -> bool:
        return home in self._dedicated

    def dedicated_homes(self) -> dict[int, list[str]]:
        """Return the homes with their own worker, by owner, longest first."""
        by_owner: dict[int, list[str]] = {}
        with self._lock:
            for home, owner in self._dedicated.items():
                by_owner.setdefault(owner, []).append(home)
        return by_owner

    def make_shared(self, owner: int, home: str) -> None:
        """Let a home share its owner's worker again."""
        with self._lock:
            self._dedicated.pop(home, None)
            worker = self._workers.pop((owner, home), None)
        if worker is not None:
            self._end(worker, owner, home)

    def make_dedicated(self, owner: int, home: str) -> None:
        """Give this home the worker that is busy with it; the owner's other homes get a new one."""
        with self._lock:
            if home not in self._dedicated:
                self._dedicated[home] = owner
                if (worker := self._workers.pop((owner, ""), None)) is not None:
                    self._workers[owner, home] = worker

    def fail(self, owner: int, home: str, *, is_cause: bool) -> None:
        """End the worker that failed on this home.

        With `is_cause` the home itself is to blame, and gets its own worker from now on.
        """
        with self._lock:
            worker = self._workers.pop(self.worker_key(owner, home), None)
            if is_cause:
                self._dedicated.setdefault(home, owner)
        if worker is not None:
            self._end(worker, owner, home)

    def _end(self, worker: Worker, owner: int, home: str) -> None:
        worker.end()
        if not worker.is_gone(END_WAIT_SECONDS):
            self._family.add_stuck((owner, home), worker)

    def is_stuck(self, home: str) -> bool:
        """True if a worker that was killed still hangs on this home: another would hang too.

        So a filesystem that hangs for a week costs one process, not one for each attempt.
        """
        return any(where[1] == home for where, _ in self._family.stuck())

    def keep_only(self, homes: set[tuple[int, str]]) -> None:
        """End the workers of owners and dedicated homes that no longer exist."""
        owners = {owner for owner, _ in homes}
        with self._lock:
            self._dedicated = {
                h: owner for h, owner in self._dedicated.items() if (owner, h) in homes
            }
            unneeded = [
                (key, self._workers.pop(key))
                for key in list(self._workers)
                if (key[1] and key not in homes) or key[0] not in owners
            ]
        for (owner, home), worker in unneeded:
            self._end(worker, owner, home)

    def close(self) -> None:
        """End all workers and start no more."""
        with self._lock:
            self._closed = True
            workers = list(self._workers.items())
            temporary = list(self._temporary)
        for worker in (*dict(workers).values(), *temporary):
            worker.end()
        deadline = time.monotonic() + END_WAIT_SECONDS
        for key, worker in workers:
            if not worker.is_gone(max(0.0, deadline - time.monotonic())):
                self._family.add_stuck(key, worker)
        with self._lock:
            self._workers.clear()  # those that did not end are known as ours by now
        self._leave_family()

    def _leave_family(self) -> None:
        """A temporary worker is known here until the thread that uses it has let it go."""
        with self._family.lock:
            if self._closed and not self._temporary and self in self._family.pools:
                self._family.pools.remove(self)
