"""Scanning homes side by side, those of one lane in turn, and waiting for none too long."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

from exporter.home_state import HomeState

_THREADS: Final = 64

Scan = Callable[[HomeState], None]


class Lane:
    """Homes that share a worker: the one being scanned, and those that wait for their turn."""

    def __init__(self, states: Iterable[HomeState]) -> None:
        self._waiting = deque(states)
        self._current: HomeState | None = None
        self._lock = threading.Lock()
        self.job: Future[None] = Future()

    def next(self) -> HomeState | None:
        with self._lock:
            self._current = self._waiting.popleft() if self._waiting else None
            return self._current

    def clear(self) -> tuple[HomeState | None, list[HomeState]]:
        """The home being scanned, and those that were waiting and now are not."""
        with self._lock:
            freed = list(self._waiting)
            self._waiting.clear()
            return self._current, freed


class Lanes:
    """The threads that scan. They stay, as a worker ends with the thread that started it."""

    def __init__(self, surprised: Callable[[HomeState, Exception], None]) -> None:
        self._surprised = surprised
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="scan")
        self._busy: dict[str, HomeState] = {}

    def busy(self) -> list[HomeState]:
        """The homes that are being scanned, or wait for it."""
        return list(self._busy.values())

    def is_busy(self, state: HomeState) -> bool:
        return state.home.path in self._busy

    def start(self, states: Sequence[HomeState], scan: Scan) -> Lane:
        """Begin to scan these homes, in order."""
        self._busy.update((state.home.path, state) for state in states)
        lane = Lane(states)
        lane.job = self._threads.submit(self._work_off, lane, scan)
        return lane

    def finish(self, lanes: Sequence[Lane], seconds: float) -> list[HomeState]:
        """Wait for the lanes; when time is up, return the homes that are still being scanned.

        Those behind them in their lanes have to wait no longer: they are left to the next round.
        """
        wait([lane.job for lane in lanes], max(0.0, seconds))
        unfinished: list[HomeState] = []
        for lane in lanes:
            current, freed = lane.clear()
            for state in freed:
                self._busy.pop(state.home.path, None)
            if current is not None:
                unfinished.append(current)
        return unfinished

    def _work_off(self, lane: Lane, scan: Scan) -> None:
        while (state := lane.next()) is not None:
            try:
                scan(state)
            except Exception as error:  # noqa: BLE001 - one home's surprise must not end the others
                self._surprised(state, error)
            finally:
                self._busy.pop(state.home.path, None)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
