"""A home at rest is not read again and again; one that moves is."""

from __future__ import annotations

import os
import time
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from exporter.config.mode import Mode
from exporter.config.prune import Prune, Threshold, Thresholds
from exporter.evidence.models import ProcessFacts
from exporter.pruner.gather.inventory_reader import InventoryReader
from exporter.pruner.models import PruneMemory
from exporter.pruner.planning import Seen, plan
from exporter.pruner.requests import PrunePlanRequest, PrunePlanResult
from exporter.reaper.models import ReaperRules
from exporter.scan.disk.scanner import DiskScanner
from exporter.scan.fork_pool import is_single_threaded
from tests.support.prune_plans import SEEN
from tests.support.small_homes import small_home


class Looker:
    """Looks at a home as the agent does, and counts how often its database is opened."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.opened = 0
        self.hours = 0.0
        self.facts = SEEN
        self.settings = Prune()
        self._disk = DiskScanner(str(home))
        self.inventory_reader = InventoryReader(
            str(home), clock=lambda: time.time() + self.hours * 3600
        )
        self._memory = PruneMemory()

    def plan_input(self) -> Seen:
        walked = self._disk.scan(
            excluded_profiles=frozenset(), now=time.time(), monotonic=time.monotonic()
        )
        return Seen(
            str(self.home),
            os.getuid(),
            self.facts,
            self._disk,
            walked,
            self._open,
            ReaperRules(),
        )

    def _open(self) -> None:
        self.opened += 1

    def look(self, *, by_hand: bool = False, in_child: bool = False) -> PrunePlanResult:
        wish = PrunePlanRequest(self.settings, self._memory, by_hand=by_hand)
        made = plan(wish, self.inventory_reader, self.plan_input(), in_child=in_child)
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
    soft = Thresholds(disk_used=Threshold(1e-9, 1e-10, for_seconds=1800.0))
    looker.settings = Prune(thresholds=soft)
    looker.look()
    looker.hours = 0.4
    looker.look()
    assert looker.opened == 1
    looker.hours = 0.6
    made = looker.look()
    assert looker.opened == 2
    assert {each.name for each in made.report.thresholds if each.pressure} == {"disk_used"}
    assert {each.reason for each in made.report.unreachable} == {"no_policy"}


@pytest.mark.parametrize(("mode", "opened"), [(Mode.OBSERVE, 1), (Mode.ENFORCE, 2)])
def test_under_pressure_only_a_home_that_is_observed_is_at_rest(
    looker: Looker, mode: Mode, opened: int
) -> None:
    full = Thresholds(disk_used=Threshold(1e-9, 1e-10))
    looker.settings = Prune(mode=mode, thresholds=full)
    first = looker.look()
    again = looker.look()
    assert looker.opened == opened
    assert again.report.unreachable
    assert again.report.would_items == first.report.would_items


def test_nothing_is_believed_of_processes_that_were_not_looked_for(tmp_path: Path) -> None:
    looker = Looker(small_home(tmp_path / "home"))
    looker.facts = ProcessFacts()
    assert looker.look().plan.blocked == "not_looked_yet"


def test_a_child_plans_the_same_and_what_it_measured_is_kept(
    tmp_path: Path,
) -> None:
    home = small_home(tmp_path / "home", sessions=5)
    here, there = Looker(home), Looker(home)
    looked = here.look()
    told = there.look(in_child=is_single_threaded())
    assert told.report.policies == looked.report.policies
    assert _but_the_disk(told) == _but_the_disk(looked)
    assert there.inventory_reader.measurements() == here.inventory_reader.measurements()
    assert there.look().report.made_at == told.report.made_at


def _but_the_disk(made: PrunePlanResult) -> dict[str, float | None]:
    """Others write to it too."""
    thresholds = {each.name: each.value for each in made.report.thresholds}
    del thresholds["disk_used"]
    return thresholds
