"""Homes that hang, and the turns of all other homes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from exporter.agent.home_state import HomeState
from exporter.agent.scheduler import Scheduler
from exporter.agent.state_store import StateStore
from exporter.discovery.homes import Home
from exporter.errors import WorkerError
from exporter.workers.pool import PROCESSES_PER_OWNER_MAX, Pool
from exporter.workers.process import Worker

HOSTILE, HONEST = 1001, 1003


@pytest.fixture
def journal() -> Iterator[StateStore]:
    opened = StateStore.in_memory()
    yield opened
    opened.close()


def state(journal: StateStore, path: str, owner: int) -> HomeState:
    return HomeState(Home(path, path, owner, may_write=True), journal)


class Scans:
    """Homes that hang until they are released; all others finish at once."""

    def __init__(self, *hanging: str) -> None:
        self._hanging = hanging
        self._go = threading.Event()
        self.done: list[str] = []

    def __call__(self, scanned: HomeState) -> None:
        if scanned.home.path in self._hanging:
            self._go.wait(60)
        self.done.append(scanned.home.path)

    def let_go(self) -> None:
        self._go.set()


def surprised(state: HomeState, error: Exception) -> None:
    raise AssertionError(state.home.path) from error


@contextmanager
def queues(scans: Scans) -> Iterator[Scheduler]:
    running = Scheduler(surprised)
    try:
        yield running
    finally:
        scans.let_go()
        running.close()


def test_homes_behind_one_that_hangs_are_scanned_in_the_same_round(journal: StateStore) -> None:
    scans = Scans("first", "third")
    names = ["first", "second", "third", "fourth"]
    with queues(scans) as running:
        queue = running.start([state(journal, name, HOSTILE) for name in names], scans)
        dedicated: list[str] = []

        def make_way(slow: HomeState) -> bool:
            dedicated.append(slow.home.path)
            return True

        slow = running.finish([queue], 8.0, make_way)
        assert scans.done == ["second", "fourth"]
        assert [each.home.path for each in slow] == dedicated == ["first", "third"]


def test_where_no_more_may_make_way_the_rest_is_left_to_the_next_round(journal: StateStore) -> None:
    scans = Scans("first")
    with queues(scans) as running:
        states = [state(journal, name, HOSTILE) for name in ("first", "second")]
        (slow,) = running.finish([running.start(states, scans)], 1.5, lambda _: False)
        assert (slow.home.path, scans.done) == ("first", [])
        assert running.busy() == [slow]


def test_more_hanging_homes_than_threads_leave_the_others_their_turn(journal: StateStore) -> None:
    """Each user has a limit on turns at once, and homes that failed wait for those that did not."""
    hostile = [f"{owner}/{n}" for owner in (HOSTILE, HOSTILE + 1) for n in range(400)]
    scans = Scans(*hostile)
    alone = [state(journal, path, int(path[:4])) for path in hostile]
    with queues(scans) as running:
        begun = [
            running.start([each], scans)
            for each in running.next_homes(alone, dedicated=hostile, at_once=8)
        ]
        assert len(begun) == 16
        waiting = [each for each in alone if not running.is_busy(each)]
        assert running.next_homes(waiting, dedicated=hostile, at_once=8) == []
        honest = running.start([state(journal, "honest", HONEST)], scans)
        assert running.finish([honest], 60.0) == []
        assert scans.done == ["honest"]


def test_turns_go_round_and_those_that_failed_come_last(journal: StateStore) -> None:
    scans = Scans()
    alone = [state(journal, name, HOSTILE) for name in "abcd"]
    alone[0].failed = True
    with queues(scans) as running:
        turns = [
            "".join(each.home.path for each in running.next_homes(alone, (), at_once=2))
            for _ in range(3)
        ]
        assert turns == ["bc", "db", "cd"]
        for each in alone:
            each.failed = True
        turns = [
            "".join(each.home.path for each in running.next_homes(alone, (), at_once=2))
            for _ in range(3)
        ]
        assert turns == ["ab", "cd", "ab"]


def sleeper(_: int) -> Worker:
    return Worker(["sleep", "600"])


def test_a_user_gets_no_more_than_so_many_processes() -> None:
    pool = Pool(sleeper)
    try:
        for number in range(PROCESSES_PER_OWNER_MAX):
            pool.make_dedicated(HOSTILE, f"/home/{number}")
            pool.worker(HOSTILE, f"/home/{number}")
        pool.make_dedicated(HOSTILE, "/one/more")
        with pytest.raises(WorkerError, match="uid 1001 has"):
            pool.worker(HOSTILE, "/one/more")
        assert pool.worker(HONEST, "/home/honest").alive()
        pool.make_shared(HOSTILE, "/home/0")
        assert pool.worker(HOSTILE, "/one/more").alive()
    finally:
        pool.close()
