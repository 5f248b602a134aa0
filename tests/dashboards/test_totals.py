"""The totals of the pictures are the sums of the rows below them, at their one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.dashboards.expressions import load, panels
from tests.dashboards.history import DAY, FLEET, HOUR, MINUTE, host_series
from tests.dashboards.pictures import one_moment
from tests.dashboards.stage import stage
from tests.dashboards.test_dashboard_queries import resolved
from tests.real.prometheus import Prometheus

HOST = "anvil-02:10749"
BUSY_HOST = "anvil-01:10749"
"""One that prunes at work."""

pytestmark = pytest.mark.xdist_group("dashboards")


def around(moment: float) -> list[float]:
    """As few moments as these panels look at."""
    a_day_ago = [moment - DAY - number * MINUTE for number in range(3)]
    return sorted({*(moment - number * MINUTE for number in range(16)), *a_day_ago})


class Board:
    """What panels say at one moment."""

    def __init__(self, server: Prometheus, moment: float) -> None:
        self._server = server
        self._moment = moment

    def rows(
        self, dashboard: str, title: str, query: int = 0, kind: str = "", instance: str = ".+"
    ) -> list[float]:
        """The values of a query of the panel of this title, and of this kind if it has one."""
        panel = next(
            each
            for each in panels(load(dashboard))
            if each["title"] == title and kind in ("", each["type"])
        )
        expression = resolved(panel["targets"][query]["expr"], instance=instance)
        found = self._server.get("/api/v1/query", query=expression, time=f"{self._moment:.3f}")
        return [float(each["value"][1]) for each in found["result"]]

    def policies(self, query: int) -> dict[tuple[str, str], float]:
        """A column of the table of policies, by home and policy."""
        panel = next(e for e in panels(load("hermes-host")) if e["title"] == "Policies at work")
        expression = resolved(panel["targets"][query]["expr"], instance=BUSY_HOST)
        found = self._server.get("/api/v1/query", query=expression, time=f"{self._moment:.3f}")
        return {
            (each["metric"]["home"], each["metric"]["policy"]): float(each["value"][1])
            for each in found["result"]
        }

    def total(self, dashboard: str, title: str, instance: str = ".+") -> float:
        (value,) = self.rows(dashboard, title, kind="stat", instance=instance)
        return value


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    moment = one_moment() - HOUR
    folder = tmp_path_factory.mktemp("totals")
    with stage(
        folder, FLEET, around, {}, rules_of_the_past=True, rules_since=10 * MINUTE, until=moment
    ) as server:
        yield Board(server, moment)


def test_the_totals_of_the_fleet_are_the_sums_of_its_tables(board: Board) -> None:
    fleet = "hermes-fleet"
    leaked = board.rows(fleet, "Leaked sessions", kind="table")
    assert sum(leaked) == board.total(fleet, "Leaked sessions") > 0
    by_verdict = board.rows(fleet, "Open sessions by verdict")
    assert leaked != []
    assert sum(leaked) in by_verdict
    states = Counter(board.rows(fleet, "Down or unreadable"))
    assert states[-1] == board.total(fleet, "Agents down") == 1
    assert states[0] == board.total(fleet, "Unreadable homes") == 1
    under = [each for each in board.rows(fleet, "Pressure") if each >= 1]
    assert len(under) == board.total(fleet, "Homes under pressure") == 1


def test_the_totals_of_a_host_are_the_sums_of_its_homes(board: Board) -> None:
    host = "hermes-host"
    for title, column in (("Open sessions", 1), ("Leaked sessions", 2)):
        rows = board.rows(host, "Homes", column, instance=HOST)
        assert sum(rows) == board.total(host, title, instance=HOST) > 0, title
    unreadable = [1 - each for each in board.rows(host, "Homes", 0, instance=HOST)]
    assert sum(unreadable) == board.total(host, "Unreadable homes", instance=HOST)
    dead = board.total(host, "Leaked sessions", instance=HOST)
    assert sum(board.rows(host, "Leaked sessions by cause", instance=HOST)) == dead
    for title in ("Open sessions by verdict", "Open sessions by source"):
        shown = sum(board.rows(host, title, instance=HOST))
        assert shown == board.total(host, "Open sessions", instance=HOST)


def test_bytes_of_a_threshold_are_those_of_its_kinds() -> None:
    """And a pruner at work takes them from the high watermark to the low one."""
    moment = one_moment()
    host = next(each for each in FLEET if any(home.prunes_at_work for home in each.homes))
    series = {
        (each.name, *each.labels.values()): each.value
        for each in host_series(host, moment)
        if each.labels.get("home") == "default"
    }

    def value(name: str, label: str, t: float) -> float:
        key = (name, "hermes-exporter", host.name, "default", label)
        return series[key](t) or 0.0

    high = value("hermes_prune_threshold_high", "transcripts", moment)
    low = value("hermes_prune_threshold_low", "transcripts", moment)
    day = [moment - number * 2 * MINUTE for number in range(720)]
    seen = [value("hermes_prune_threshold_value", "transcripts", t) for t in day]
    assert max(seen) == pytest.approx(high, rel=0.01)
    assert min(seen) == pytest.approx(low, rel=0.01)
    for t in day[:: 6 * 30]:
        kinds = ("transcripts", "request_dumps")
        told = value("hermes_prune_threshold_value", "transcripts", t)
        assert sum(value("hermes_disk_bytes", kind, t) for kind in kinds) == pytest.approx(told)


def test_a_policy_has_bytes_to_free_exactly_where_it_has_eligible_items(board: Board) -> None:
    eligible, could_free = board.policies(0), board.policies(1)
    assert {each for each, items in eligible.items() if items} == {
        each for each, size in could_free.items() if size
    }
    assert any(eligible.values())
