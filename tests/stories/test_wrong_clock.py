"""The clock of the host is behind while something is given back: all of it is, and it stays."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.undo import undo
from exporter.pruner.gather.inventory_reader import InventoryReader
from exporter.pruner.models import PrunePlan
from exporter.reaper.reopen import undo as reopen
from exporter.snapshot import Hold
from exporter.workers.home import WorkerHome
from exporter.workers.protocol import SessionsPage
from tests.support.home_picture import picture
from tests.support.home_scans import read_request
from tests.support.old_sessions import old_sessions
from tests.support.prune_plans import plan, read_inventory
from tests.support.reaping import dump, reap, target_of
from tests.support.session_pruning import KEEP_SECONDS
from tests.support.small_homes import small_home

HOUR, DAY, YEAR = 3600.0, 86400.0, 365 * 86400.0
SESSIONS = 5


@pytest.fixture(params=[HOUR, YEAR])
def behind(request: pytest.FixtureRequest) -> Callable[[], float]:
    return lambda: time.time() - request.param


def wanted(home: Path, clock: Callable[[], float]) -> PrunePlan:
    reader = InventoryReader(str(home), clock=clock)
    return plan(read_inventory(home, inventory_reader=reader).inventory)


def test_what_was_pruned_comes_back_whole_and_no_prune_wants_it_again(
    tmp_path: Path, behind: Callable[[], float]
) -> None:
    """Neither by that clock nor once it is right again."""
    home = old_sessions(tmp_path / "home", SESSIONS)
    before = picture(home)
    taken = execute(wanted(home, time.time), target_of(home), keep_seconds=KEEP_SECONDS)
    assert len(taken.done) == 2 * SESSIONS
    back = undo(taken.run or "", target_of(home, clock=behind))
    assert len(back.done) == 2 * SESSIONS
    assert picture(home) == before
    assert wanted(home, behind).actions == ()
    assert wanted(home, time.time).actions == ()


def test_what_was_reaped_is_open_again_and_held(
    tmp_path: Path, behind: Callable[[], float]
) -> None:
    home = small_home(tmp_path / "home", SESSIONS)
    before = dump(home)
    ended = reap(home)
    assert len(ended.done) == SESSIONS
    assert len(reopen(ended.run or "", target_of(home, clock=behind)).done) == SESSIONS
    assert dump(home) == before
    request = structs.replace(read_request(home, home.stat().st_uid), undone_seconds=30 * DAY)
    for clock in (behind, time.time):
        pages = WorkerHome(str(home), clock=clock).read(request)
        held = [
            list(each.session.holds)
            for page in pages
            if isinstance(page, SessionsPage)
            for each in page.items
        ]
        assert held == [[Hold.RESTORED]] * SESSIONS
