"""Workers that cannot be killed, because a filesystem hangs, stay known and are counted."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator

import pytest

from exporter.errors import WorkerError
from exporter.workers.pool import PROCESSES_PER_OWNER_MAX, Pool
from exporter.workers.process import Started, Worker

OWNER = 1000


class Hanging:
    """A process that no signal ends while its filesystem hangs, until `answers` is called."""

    def __init__(self, channel: socket.socket) -> None:
        self._process = subprocess.Popen(["sleep", "600"], stdin=channel.fileno())
        self.pid = self._process.pid
        self.poll = self._process.poll

    def wait(self, timeout: float) -> int:
        return self._process.wait(timeout)

    def kill(self) -> None:
        pass

    def answers(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def hanging() -> Iterator[list[Hanging]]:
    """The processes of the pool."""
    started: list[Hanging] = []
    yield started
    for process in started:
        process.answers()


@pytest.fixture
def pool(hanging: list[Hanging], monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    channels: list[socket.socket] = []
    monkeypatch.setattr("exporter.workers.pool.END_WAIT_SECONDS", 0.0)

    def start(_: int) -> Worker:
        ours, theirs = socket.socketpair()
        hanging.append(Hanging(theirs))
        theirs.close()
        channels.append(ours)
        return Worker(Started(ours, hanging[-1]))

    yield Pool(start)
    for channel in channels:
        channel.close()


def test_a_closed_pool_still_knows_a_worker_that_did_not_end(
    pool: Pool, hanging: list[Hanging]
) -> None:
    """It may still have a database open, and is no unknown process there."""
    run = pool.beside()
    worker = run.worker(OWNER, "/home/ada/.hermes")
    run.close()
    assert pool.pids() == {worker.pid}
    hanging[0].answers()
    assert pool.pids() == frozenset()


def test_so_does_one_whose_worker_was_for_a_single_run(pool: Pool, hanging: list[Hanging]) -> None:
    run = pool.beside()
    with run.temporary(OWNER) as worker:
        run.close()
        assert pool.pids() == {worker.pid}
    assert pool.pids() == {worker.pid}
    hanging[0].answers()
    assert pool.pids() == frozenset()


def test_runs_on_a_home_that_hangs_leave_a_limited_number_of_processes(
    pool: Pool, hanging: list[Hanging]
) -> None:
    for _ in range(PROCESSES_PER_OWNER_MAX):
        run = pool.beside()
        run.worker(OWNER, "/home/ada/.hermes")
        run.close()
    run = pool.beside()
    with pytest.raises(WorkerError, match="uid 1000 has 24 workers"):
        run.worker(OWNER, "/home/ada/.hermes")
    with pytest.raises(WorkerError, match="uid 1000 has 24 workers"), run.temporary(OWNER):
        pass
    assert run.worker(OWNER + 1, "/home/ben/.hermes").pid == hanging[-1].pid
    hanging[0].answers()
    assert run.worker(OWNER, "/home/ada/.hermes").pid == hanging[-1].pid


def test_a_scan_knows_that_a_worker_of_a_run_hangs_on_the_home(pool: Pool) -> None:
    run = pool.beside()
    run.worker(OWNER, "/home/ada/.hermes")
    run.fail(OWNER, "/home/ada/.hermes", is_cause=True)
    assert pool.is_stuck("/home/ada/.hermes")
