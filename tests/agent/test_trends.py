"""The ring of figures that the host page draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from exporter.agent.state_store import StateStore
from exporter.agent.trends import KEPT_SECONDS, POINT_SECONDS, trends

HOME = "/h"
START = 1_800_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    with closing(StateStore.open(str(tmp_path))) as opened:
        opened.give_label(HOME, "default")
        yield opened


def figures(number: int) -> bytes:
    return b"[%d,1,2,3.5,[4,5]]" % number


def shown(store: StateStore) -> list[int]:
    found = trends(store, [(HOME, "default")])["homes"][0]
    assert len(found["at"]) == len(found["open"]) == len(found["disk"]["logs"])
    return list(found["open"])


def test_points_older_than_14_days_make_room(store: StateStore, tmp_path: Path) -> None:
    for number in range(4100):
        at = START + number * POINT_SECONDS
        store.keep_trend(HOME, at, figures(number), at - KEPT_SECONDS)
    assert shown(store) == list(range(4100 - 4033, 4100))
    size = sum(each.stat().st_size for each in tmp_path.glob("agent.db"))
    assert size < 2 << 20


def test_points_of_a_clock_that_was_ahead_are_dropped(store: StateStore) -> None:
    store.keep_trend(HOME, START + 10**6, figures(1), 0)
    store.keep_trend(HOME, START, figures(2), 0)
    assert shown(store) == [2]


def test_a_damaged_point_costs_only_itself(store: StateStore) -> None:
    store.keep_trend(HOME, START, figures(1), 0)
    store.keep_trend(HOME, START + 300, b"[1,", 0)
    store.keep_trend(HOME, START + 600, figures(3), 0)
    assert shown(store) == [1, 3]


def test_points_survive_a_restart(tmp_path: Path) -> None:
    for number in (1, 2):
        with closing(StateStore.open(str(tmp_path))) as opened:
            opened.give_label(HOME, "default")
            opened.keep_trend(HOME, START + number, figures(number), 0)
    with closing(StateStore.open(str(tmp_path))) as opened:
        assert shown(opened) == [1, 2]
        assert trends(opened, [("/unknown", "x")])["homes"][0]["at"] == []


def test_a_state_directory_from_before_the_trends_gets_them(tmp_path: Path) -> None:
    with closing(StateStore.open(str(tmp_path))) as opened:
        opened.give_label(HOME, "default")
    with closing(apsw.Connection(str(tmp_path / "agent.db"))) as connection:
        connection.execute("DROP TABLE trends")
    with closing(StateStore.open(str(tmp_path))) as opened:
        opened.keep_trend(HOME, START, figures(1), 0)
        assert shown(opened) == [1]
