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


class Pool:
    """Finds the worker for a home, and replaces it when it fails. Any thread may call it."""

    def __init__(
        self, start: Callable[[int], Worker] = start_worker, family: list[Pool] | None = None
    ) -> None:
        """`family` are the pools of one agent; each knows the workers of all as ours."""
        self._start = start
        self._family = [] if family is None else family
        self._family.append(self)
        self._lock = threading.Lock()
        self._workers: dict[_Key, Worker] = {}
        self._dedicated: dict[str, int] = {}
        self._temporary: list[Worker] = []
        self._stuck: list[tuple[_Key, Worker]] = []
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
        self._stuck = [(where, worker) for where, worker in self._stuck if not worker.is_gone()]
        keys = [*self._workers, *(key for key, _ in self._stuck)]
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
            worker = self._start(owner)
            self._temporary.append(worker)
        try:
            yield worker
        finally:
            with self._lock:
                self._temporary.remove(worker)
            self._end(worker, owner, "")

    def beside(self) -> Pool:
        """Return another pool of the same agent, for a run that must not wait for scans."""
        return Pool(self._start, self._family)

    def pids(self) -> frozenset[int]:
        """Return the PIDs of all workers of the family, including those that do not end."""
        return frozenset(pid for pool in list(self._family) for pid in pool.own_pids())

    def own_pids(self) -> list[int]:
        """Return the PIDs of the workers of this pool."""
        with self._lock:
            stuck = [worker for _, worker in self._stuck]
            workers = [*self._workers.values(), *self._temporary, *stuck]
        return [worker.pid for worker in workers]

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
            with self._lock:
                self._stuck.append(((owner, home), worker))

    def is_stuck(self, home: str) -> bool:
        """True if a worker that was killed still hangs on this home: another would hang too.

        So a filesystem that hangs for a week costs one process, not one for each attempt.
        """
        with self._lock:
            self._stuck = [(where, worker) for where, worker in self._stuck if not worker.is_gone()]
            return any(where[1] == home for where, _ in self._stuck)

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
            workers = [*self._workers.values(), *self._temporary]
            self._workers.clear()
        for worker in workers:
            worker.end()
        deadline = time.monotonic() + END_WAIT_SECONDS
        gone = [worker.is_gone(max(0.0, deadline - time.monotonic())) for worker in workers]
        if all(gone) and self in self._family:  # what cannot be killed stays known as ours
            self._family.remove(self)
