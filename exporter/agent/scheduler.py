"""Scan homes in parallel, homes that share a worker in turn, within a time limit.

No user can delay the others: a slow home gets its own worker, so that the homes behind it continue.
Of the homes with their own worker, only a few of each user are scanned at once.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from exporter.agent.home_state import HomeState

_THREADS: Final = 512
"""More than a few users can keep busy; a thread starts only when it is needed."""
_SLOW_SHARE: Final = 0.25
_SLOW_SECONDS_MIN: Final = 1.0
"""A home that uses this share of the total time while others wait must let them pass."""
_STEP_SECONDS: Final = 0.1

ScanHome = Callable[[HomeState], None]
TakeAnotherWorker = Callable[[HomeState], bool]
"""Gives a slow home its own worker; False if it cannot have one."""


class WorkerQueue:
    """Homes that share a worker: the home being scanned, and those that wait."""

    def __init__(self, states: Iterable[HomeState], scan: ScanHome) -> None:
        self._waiting = deque(states)
        self._current: HomeState | None = None
        self._current_since = 0.0
        self._lock = threading.Lock()
        self.scan = scan
        self.job: Future[None] = Future()

    def next(self) -> HomeState | None:
        with self._lock:
            self._current = self._waiting.popleft() if self._waiting else None
            self._current_since = time.monotonic()
            return self._current

    def slow_home(self, slow_seconds: float) -> HomeState | None:
        """Return the home being scanned if others have waited behind it for so long."""
        with self._lock:
            long = time.monotonic() - self._current_since >= slow_seconds
            return self._current if self._waiting and long else None

    def clear(self) -> tuple[HomeState | None, list[HomeState]]:
        """Empty the queue; return the home being scanned, and the homes that waited."""
        with self._lock:
            freed = list(self._waiting)
            self._waiting.clear()
            return self._current, freed


class Scheduler:
    """The threads that scan. They are kept: a worker ends with the thread that started it."""

    def __init__(self, surprised: Callable[[HomeState, Exception], None]) -> None:
        self._on_error = surprised
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="scan")
        self._busy: dict[str, HomeState] = {}
        self._turns = itertools.count()
        self._last_turn: dict[str, int] = {}

    def busy(self) -> list[HomeState]:
        """Return the homes that are being scanned or wait for it."""
        return list(self._busy.values())

    def is_busy(self, state: HomeState) -> bool:
        return state.home.path in self._busy

    def next_homes(
        self, alone: Sequence[HomeState], dedicated: Iterable[str], at_once: int
    ) -> list[HomeState]:
        """Return which of the homes with their own worker to scan now.

        At most `at_once` of one owner, including busy homes in `dedicated`. Homes that failed last
        time go last; otherwise the home scanned longest ago goes first.
        """
        busy_by_owner = Counter(
            self._busy[path].home.owner for path in dedicated if path in self._busy
        )
        paths = {state.home.path for state in alone} | self._busy.keys()
        self._last_turn = {p: turn for p, turn in self._last_turn.items() if p in paths}
        chosen: list[HomeState] = []
        for state in sorted(alone, key=lambda each: (each.failed, self._turn_of(each))):
            if busy_by_owner[state.home.owner] < at_once:
                busy_by_owner[state.home.owner] += 1
                chosen.append(state)
                self._last_turn[state.home.path] = next(self._turns)
        return chosen

    def _turn_of(self, state: HomeState) -> int:
        return self._last_turn.get(state.home.path, -1)

    def start(self, states: Sequence[HomeState], scan: ScanHome) -> WorkerQueue:
        """Start to scan these homes, in order."""
        self._busy.update((state.home.path, state) for state in states)
        queue = WorkerQueue(sorted(states, key=_failed_last), scan)
        queue.job = self._threads.submit(self._scan_queue, queue)
        return queue

    def finish(
        self,
        queues: Sequence[WorkerQueue],
        seconds: float,
        make_way: TakeAnotherWorker = lambda _: False,
    ) -> list[HomeState]:
        """Wait for the queues; when time is up, return the homes that are still being scanned.

        While there is time, a slow home gets its own worker and the homes behind it continue. When
        time is up, homes that still wait are left to the next scan.
        """
        until = time.monotonic() + seconds
        slow_seconds = max(_SLOW_SECONDS_MIN, _SLOW_SHARE * seconds)
        running = list(queues)
        waiting = [queue.job for queue in running]
        while waiting and (left := until - time.monotonic()) > 0:
            wait(waiting, min(left, _STEP_SECONDS))
            for queue in list(running):
                slow = queue.slow_home(slow_seconds)
                if slow is not None and make_way(slow):
                    running.append(self.start(queue.clear()[1], queue.scan))
            waiting = [queue.job for queue in running if not queue.job.done()]
        return self._empty_queues(running)

    def _empty_queues(self, queues: Sequence[WorkerQueue]) -> list[HomeState]:
        unfinished: list[HomeState] = []
        for queue in queues:
            current, freed = queue.clear()
            for state in freed:
                self._busy.pop(state.home.path, None)
            if current is not None:
                unfinished.append(current)
        return unfinished

    def _scan_queue(self, queue: WorkerQueue) -> None:
        while (state := queue.next()) is not None:
            try:
                queue.scan(state)
            except Exception as error:  # noqa: BLE001 - one home must not end the others
                self._on_error(state, error)
            finally:
                self._busy.pop(state.home.path, None)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


def _failed_last(state: HomeState) -> tuple[bool, bool]:
    """Sort key: homes that failed last time go last, homes not read yet just before them."""
    return state.failed, state.snapshot is None
