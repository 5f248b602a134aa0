"""Reading a home that is about to be written: again where that may help, and never blindly."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest

from exporter.errors import DatabaseError
from exporter.evidence.openers import KnownOpeners
from exporter.snapshot import Trouble
from exporter.writing.target import Target, read_with_retry
from exporter.writing.write_checks import WriteError
from tests.support.evidence import puppet
from tests.support.home_scans import trace
from tests.support.small_homes import small_home


class Asked:
    """A question that fails as often as it is told to."""

    def __init__(self, trouble: Trouble, failures: int) -> None:
        self.trouble = trouble
        self.failures = failures
        self.times = 0

    def __call__(self, connection: apsw.Connection) -> int:
        self.times += 1
        if self.times <= self.failures:
            raise DatabaseError(self.trouble, "for a moment")
        found: int = connection.execute("SELECT COUNT(*) FROM sessions").get
        return found


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def target(tmp_path: Path, pauses: list[float]) -> Target:
    home = small_home(tmp_path / "home")
    return Target(str(home), home.stat().st_uid, pause_seconds=0.5, sleep=pauses.append)


@pytest.mark.parametrize("trouble", [Trouble.BUSY, Trouble.IO_ERROR, Trouble.MOVED_WHILE_READING])
def test_what_may_pass_is_tried_again_after_a_pause(
    trouble: Trouble, target: Target, pauses: list[float]
) -> None:
    ask = Asked(trouble, failures=4)
    assert read_with_retry(target, ask) > 0
    assert (ask.times, pauses) == (5, [0.5] * 4)


def test_trying_ends(target: Target, pauses: list[float]) -> None:
    ask = Asked(Trouble.BUSY, failures=5)
    with pytest.raises(DatabaseError, match="for a moment"):
        read_with_retry(target, ask)
    assert (ask.times, pauses) == (5, [0.5] * 4)


def test_what_does_not_pass_is_tried_once(target: Target, pauses: list[float]) -> None:
    ask = Asked(Trouble.CORRUPT, failures=1)
    with pytest.raises(DatabaseError, match="for a moment"):
        read_with_retry(target, ask)
    assert (ask.times, pauses) == (1, [])


@pytest.mark.parametrize(
    "failure", [None, apsw.CorruptError("malformed"), DatabaseError(Trouble.CORRUPT, "malformed")]
)
def test_what_was_read_counts_for_nothing_if_a_process_wrote_meanwhile(
    target: Target, failure: Exception | None
) -> None:
    """A cold database is read without locks; also what looks damaged may be half of a write."""

    def read_beside() -> None:
        with puppet() as process, target.reading() as connection:
            assert connection.execute("SELECT COUNT(*) FROM sessions").get == 3
            process.do(f"connection = connect({target.database!r})")
            if failure is not None:
                raise failure

    with pytest.raises(DatabaseError) as caught:
        read_beside()
    assert caught.value.trouble is Trouble.MOVED_WHILE_READING


@pytest.mark.parametrize("file", ["state.db", "state.db-shm"])
def test_nothing_is_opened_beside_a_process_that_lost_a_lock(tmp_path: Path, file: str) -> None:
    """Even a reader would start the WAL again below that process, which then loses its writes."""
    home = small_home(tmp_path / "home")
    with puppet() as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        process.do(f"touch({str(home / file)!r})")
        target = Target(str(home), home.stat().st_uid, KnownOpeners((process.pid,)))
        before = trace(home)
        with pytest.raises(DatabaseError, match=f"process {process.pid} "), target.reading():
            raise AssertionError("it was opened")
        assert trace(home) == before
        assert process.do("connection.execute('SELECT COUNT(*) FROM sessions').fetchone()")


def test_a_database_with_another_name_and_another_wal_can_be_read(tmp_path: Path) -> None:
    """Only a write would destroy it."""
    home, other = small_home(tmp_path / "home"), tmp_path / "other"
    other.mkdir()
    os.link(home / "state.db", other / "state.db")
    with puppet() as process:
        process.do(f"connection = connect({str(other / 'state.db')!r})")
        target = Target(str(home), home.stat().st_uid, KnownOpeners((process.pid,)))
        with target.reading() as connection:
            assert connection.execute("SELECT COUNT(*) FROM sessions").get
        with pytest.raises(WriteError, match="2 names"):
            target.refuse_unwritable()
