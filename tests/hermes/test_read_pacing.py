"""Long reads pause while another process writes, on real WAL databases."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from exporter.hermes.read_pacing import ReadPacer

MEGABYTE = 1024 * 1024
FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI


class Shelf:
    """A database that one connection writes and another one reads with pauses."""

    def __init__(self, name: str) -> None:
        self.writer = apsw.Connection(name, flags=FLAGS | apsw.SQLITE_OPEN_CREATE)
        self.writer.pragma("journal_mode", "wal")
        self.writer.pragma("synchronous", "off")
        self.writer.wal_autocheckpoint(1000)
        self.writer.execute("CREATE TABLE shelf (book BLOB)")
        self.reader = apsw.Connection(name, flags=FLAGS)
        self.moment = 0.0
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def pace(self, *, first: int = 100) -> ReadPacer:
        self.reader.execute("BEGIN")
        return ReadPacer(
            self.reader,
            first=first,
            sizes=range(10, 1000),
            monotonic=lambda: self.moment,
            pause=self._pause,
        )

    def _pause(self, seconds: float) -> None:
        assert not self.reader.in_transaction
        self.pauses.append(seconds)
        self.meanwhile()

    def write(self, size: int = 1) -> None:
        self.writer.execute("INSERT INTO shelf VALUES (zeroblob(?))", (size,))

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf(str(tmp_path / "shelf.db"))
    yield made
    made.close()


def test_there_is_no_pause_while_no_process_writes(shelf: Shelf) -> None:
    pace = shelf.pace()
    for _ in range(5):
        pace.end()
        pace.begin()
    assert shelf.pauses == []
    assert shelf.reader.in_transaction


def test_after_a_write_the_pause_is_as_long_as_the_last_transaction(shelf: Shelf) -> None:
    pace = shelf.pace()
    shelf.write()
    shelf.moment += 0.03
    pace.end()
    pace.begin()
    assert shelf.pauses == [pytest.approx(0.03)]


def test_the_size_of_a_transaction_adapts_to_its_duration(shelf: Shelf) -> None:
    pace = shelf.pace(first=100)
    pace.end()
    assert pace.size == 200
    pace.begin()
    shelf.moment += 0.2
    pace.end()
    assert pace.size == 20
    pace.begin()
    shelf.moment += 60
    pace.end()
    assert pace.size == 10


def test_pauses_go_on_while_a_wal_that_should_restart_still_grows(
    shelf: Shelf,
) -> None:
    deeds = [lambda: shelf.write(5 * MEGABYTE), lambda: shelf.write(7 * MEGABYTE)]
    shelf.meanwhile = lambda: deeds.pop(0)() if deeds else shelf.write()
    pace = shelf.pace()
    shelf.write()
    pace.end()
    pace.begin()
    assert deeds == []
    assert len(shelf.pauses) == 3


def test_the_folder_of_the_database_may_have_any_name(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/h\xff"))
    folder.mkdir()
    named = "file:" + urllib.parse.quote(os.fsencode(folder / "shelf.db"))
    shelf = Shelf(named)
    pace = shelf.pace()
    shelf.write()
    pace.end()
    pace.begin()
    assert len(shelf.pauses) == 1
    shelf.close()


def test_waiting_for_a_wal_that_never_restarts_has_a_limit(shelf: Shelf) -> None:
    shelf.writer.wal_autocheckpoint(0)
    shelf.write(5 * MEGABYTE)
    shelf.meanwhile = shelf.write
    pace = shelf.pace()
    shelf.write()
    for _ in range(3):
        pace.end()
        pace.begin()
        shelf.write()
    assert 4 < sum(shelf.pauses) < 6
