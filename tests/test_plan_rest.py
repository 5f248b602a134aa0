"""A home at rest is not read again and again; one that moves is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from exporter.config.prune import Prune, Threshold, Thresholds
from exporter.pruner.duty import Planned, Seen, plan
from exporter.pruner.memory import PruneMemory
from exporter.pruner.orders import PlanOrder
from exporter.pruner.stocktaking import Stocktaker
from exporter.reaper.findings import HomeFacts
from exporter.scan.disk import DiskScanner
from tests.plan_harness import SEEN
from tests.small_homes import small_home


class Looker:
    """Looks at a home as the agent does, and counts how often its database is opened."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.opened = 0
        self.hours = 0.0
        self.facts = SEEN
        self.settings = Prune()
        self._disk = DiskScanner(str(home))
        self._taker = Stocktaker(str(home), clock=lambda: time.time() + self.hours * 3600)
        self._memory = PruneMemory()

    def seen(self) -> Seen:
        walked = self._disk.scan(
            excluded_profiles=frozenset(), now=time.time(), monotonic=time.monotonic()
        )
        return Seen(self.facts, self._disk, walked, self._open, {}, ())

    def _open(self) -> None:
        self.opened += 1

    def stocktaker(self) -> Stocktaker:
        return self._taker

    def look(self, *, by_hand: bool = False) -> Planned:
        order = PlanOrder(str(self.home), os.getuid(), self.settings, self._memory, by_hand=by_hand)
        made = plan(order, self)
        self._memory = made.memory
        return made


@pytest.fixture
def looker(tmp_path: Path) -> Looker:
    return Looker(small_home(tmp_path / "home"))


def test_a_home_at_rest_is_read_once(looker: Looker) -> None:
    first = looker.look()
    assert first.report.thresholds
    again = looker.look()
    assert looker.opened == 1
    assert again.report.policies == first.report.policies
    assert again.plan.actions == ()


def test_whatever_moves_is_read(looker: Looker) -> None:
    looker.look()
    connection = apsw.Connection(str(looker.home / "state.db"))
    connection.execute("UPDATE sessions SET title = id")
    connection.close()
    looker.look()
    assert looker.opened == 2
    (looker.home / "sessions" / "20260101_000000_aaaaaa.json").write_text("{}")
    assert {each.name: each.value for each in looker.look().report.thresholds}["transcripts"]
    assert looker.opened == 3
    looker.facts = structs.replace(SEEN, blind=("hidepid",))
    assert looker.look().plan.blocked == "hidepid"
    assert looker.look().plan.blocked == "hidepid"
    assert looker.opened == 4


def test_a_look_is_good_for_an_hour_and_for_no_person(looker: Looker) -> None:
    looker.look()
    looker.hours = 0.9
    looker.look()
    assert looker.opened == 1
    looker.hours = 1.1
    looker.look()
    assert looker.opened == 2
    looker.look(by_hand=True)
    assert looker.opened == 3


def test_a_filesystem_that_fills_up_is_noticed_at_once(looker: Looker) -> None:
    looker.settings = Prune(
        thresholds=Thresholds(disk_used=Threshold(1e-9, 1e-10, for_seconds=7200.0))
    )
    looker.look()
    looker.look()
    assert looker.opened == 1
    looker.hours = 0.5
    looker.settings = Prune(thresholds=Thresholds(disk_used=Threshold(1e-9, 1e-10)))
    made = looker.look()
    assert looker.opened == 2
    assert {each.name for each in made.report.thresholds if each.pressure} == {"disk_used"}
    assert {each.reason for each in made.report.unreachable} == {"no_policy"}
    looker.look()
    assert looker.opened == 3


def test_nothing_is_believed_of_processes_that_were_not_looked_for(tmp_path: Path) -> None:
    looker = Looker(small_home(tmp_path / "home"))
    looker.facts = HomeFacts()
    assert looker.look().plan.blocked == "not_looked_yet"
