"""Between transactions other writers get a turn, and the next is as large as the last allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from exporter.evidence.openers import KnownOpeners
from exporter.writing.batch_size import BatchSize
from exporter.writing.connection import LOCK_LIMIT_SECONDS, Writer
from exporter.writing.pacing import Pacer
from exporter.writing.target import Target
from tests.support.small_homes import small_home

PAUSE = 0.1


class Clock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Recorded(BatchSize):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__(0.05)
        self.told: list[tuple[str, float, float]] = []

    def record(self, done: int, seconds: float) -> None:
        self.told.append(("done", done, seconds))

    def record_too_long(self, planned: int, seconds: float) -> None:
        self.told.append(("too long", planned, seconds))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pauses() -> list[float]:
    return []


@contextmanager
def pacing(
    folder: Path, clock: Clock, pauses: list[float], pids: tuple[int, ...] = (7,)
) -> Iterator[tuple[Pacer, Writer]]:
    """The pacer of a run that knows of another process, and a connection that may write."""
    home = small_home(folder / "home")
    target = Target(str(home), home.stat().st_uid, pause_seconds=PAUSE, monotonic=clock)
    beside = replace(target, openers=KnownOpeners(pids), sleep=pauses.append)
    with target.writing() as writer:
        yield Pacer(beside), writer


@pytest.mark.parametrize(("held", "pause"), [(0.0, 0.005), (0.0625, 0.0625), (0.125, PAUSE)])
def test_the_pause_is_as_long_as_the_lock_was_held_within_its_limits(
    held: float, pause: float, tmp_path: Path, clock: Clock, pauses: list[float]
) -> None:
    with pacing(tmp_path, clock, pauses) as (pacer, writer):
        with pacer.transaction(writer, 0):
            clock.now += held
        pacer.wait_turn()
    assert pauses == [pytest.approx(pause)]


def test_what_is_done_between_two_transactions_belongs_to_the_pause(
    tmp_path: Path, clock: Clock, pauses: list[float]
) -> None:
    with pacing(tmp_path, clock, pauses) as (pacer, writer):
        with pacer.transaction(writer, 0):
            clock.now += 0.0625
        clock.now += 0.03125
        pacer.wait_turn()
        clock.now += 0.03125
        pacer.wait_turn()
    assert pauses == [pytest.approx(0.03125)]


def test_there_is_no_pause_without_another_process(
    tmp_path: Path, clock: Clock, pauses: list[float]
) -> None:
    with pacing(tmp_path, clock, pauses, pids=()) as (pacer, writer):
        with pacer.transaction(writer, 0):
            clock.now += 0.0625
        pacer.wait_turn()
    assert pauses == []


def test_the_size_learns_what_the_text_index_writes_too(
    tmp_path: Path, clock: Clock, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FTS5 would do that in the commit, after the time was taken."""
    size = Recorded()
    with pacing(tmp_path, clock, pauses) as (pacer, writer):
        flush = writer.flush_index

        def slow_flush() -> None:
            flush()
            clock.now += 0.0625

        monkeypatch.setattr(writer, "flush_index", slow_flush)
        with pacer.transaction(writer, 9, size) as transaction:
            transaction.done = 7
    assert size.told == [("done", 7, 0.0625)]


def test_the_text_index_is_written_before_the_commit(
    tmp_path: Path, clock: Clock, pauses: list[float]
) -> None:
    changes: list[int] = []
    with (
        pacing(tmp_path, clock, pauses) as (pacer, writer),
        pacer.transaction(writer, 0),
    ):
        writer.connection.execute("UPDATE messages SET content = 'other words'")
        changes.append(writer.connection.total_changes())
        writer.flush_index()
        changes.append(writer.connection.total_changes())
        writer.flush_index()
        changes.append(writer.connection.total_changes())
    assert changes[0] < changes[1] == changes[2]


def test_the_size_learns_from_work_done_and_the_hold_is_remembered(
    tmp_path: Path, clock: Clock, pauses: list[float]
) -> None:
    size = Recorded()
    with pacing(tmp_path, clock, pauses) as (pacer, writer):
        with pacer.transaction(writer, 9, size) as transaction:
            clock.now += 0.125
            transaction.checked()  # checks take as long for few rows as for many
            clock.now += 0.0625
            transaction.done = 7
        with pacer.transaction(writer, 9, size):
            pass
    assert size.told == [("done", 7, 0.0625), ("done", 0, 0.0)]
    assert pacer.longest_hold_seconds == 0.1875
    assert pauses == [pytest.approx(PAUSE)]


@pytest.mark.parametrize("planned", [9, 0])
def test_a_transaction_that_lasted_too_long_is_taken_back_and_learnt_from(
    planned: int, tmp_path: Path, clock: Clock, pauses: list[float]
) -> None:
    def delete_too_slowly(pacer: Pacer, planned: int) -> None:
        with pacer.transaction(writer, planned, size):
            writer.connection.execute("DELETE FROM messages")
            clock.now += LOCK_LIMIT_SECONDS + 1

    size = Recorded()
    with pacing(tmp_path, clock, pauses) as (pacer, writer):
        count = "SELECT COUNT(*) FROM messages"
        before = writer.connection.execute(count).get
        with pytest.raises(apsw.InterruptError):
            delete_too_slowly(pacer, planned)
        assert writer.connection.execute(count).get == before > 0
    assert size.told == ([("too long", 9, LOCK_LIMIT_SECONDS)] if planned else [])
    assert pacer.longest_hold_seconds == LOCK_LIMIT_SECONDS + 1
    assert pauses == []
