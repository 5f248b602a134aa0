"""Every query of every panel, asked of a real Prometheus.

It scrapes a real agent whose homes are in bad states, has a past of invented hosts with the rest
of what can be wrong, and evaluates the project's own recording rules.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from exporter import collectors
from exporter.collectors.registry import COLLECTOR_DURATION, COLLECTOR_SUCCESS
from exporter.collectors.render import SERIES
from tests.dashboards.expressions import NAMES, load, panels
from tests.dashboards.history import FEW, FLEET, host_series, now_and_then
from tests.dashboards.stage import stage
from tests.dashboards.troubled import BROKEN, LOST, dead, troubled_agent
from tests.real.agent import Agent
from tests.real.prometheus import Prometheus
from tests.real.waiting import wait_until
from tests.support.running_agent import when

REAL = "anvil-09:10749"
"""What the real agent is called among the invented ones."""
PANELS = [(name, panel["title"]) for name in NAMES for panel in panels(load(name))]

pytestmark = pytest.mark.xdist_group("dashboards")


@dataclass(frozen=True)
class Scene:
    server: Prometheus
    agent: Agent

    def answers(self, target: dict[str, Any], **chosen: str) -> list[dict[str, str]]:
        """The labels of every series that Grafana would draw."""
        expression = resolved(target["expr"], **chosen)
        if target.get("instant"):
            return [labels for labels, _ in self.server.query(expression)]
        now = time.time()
        found = self.server.get(
            "/api/v1/query_range",
            query=expression,
            start=f"{now - 600:.0f}",
            end=f"{now:.0f}",
            step="60",
        )
        return [series["metric"] for series in found["result"]]

    def wait_for_answers(self, target: dict[str, Any]) -> list[dict[str, str]]:
        """On a busy machine a scrape may come too late, and the next one mends it."""
        return wait_until(lambda: self.answers(target), f"an answer to {target['expr']}")

    def shows(
        self,
        dashboard: str,
        title: str,
        numbers: Callable[[], dict[tuple[str, ...], float]],
        **chosen: str,
    ) -> None:
        """Wait until a panel shows these numbers."""

        def agree() -> bool:
            return self.numbers(dashboard, title, **chosen) == numbers()

        try:
            wait_until(agree, f"{title} is right")
        except AssertionError:
            assert self.numbers(dashboard, title, **chosen) == numbers()

    def numbers(self, dashboard: str, title: str, **chosen: str) -> dict[tuple[str, ...], float]:
        """The values of a panel's first query, by instance and home as far as they have them."""
        (panel,) = (each for each in panels(load(dashboard)) if each["title"] == title)
        answer = self.server.query(resolved(panel["targets"][0]["expr"], **chosen))
        return {
            tuple(labels[key] for key in ("instance", "home") if key in labels): value
            for labels, value in answer
        }


def resolved(expression: str, **chosen: str) -> str:
    """With the variables as a user has them who chose nothing but this."""
    values = {"job": ".+", "instance": ".+", "home": ".+", **chosen}
    values |= {"__rate_interval": "4m", "__range": "6h"}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expression)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("scene")
    with troubled_agent(folder) as running:
        when(running, lambda metrics: dead(metrics) > 0, "leaked sessions are found dead")
        with stage(folder, FEW, now_and_then, {REAL: running.address}) as server:
            yield Scene(server, running)


@pytest.mark.parametrize(("dashboard", "title"), PANELS, ids=lambda value: value)
def test_every_query_of_a_panel_is_answered(dashboard: str, title: str, scene: Scene) -> None:
    """With at least one series, and with every label that the legend or the columns show."""
    for panel in panels(load(dashboard)):
        if panel["title"] == title:
            for target in panel["targets"]:
                found = scene.wait_for_answers(target)
                wanted = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                assert all(wanted <= labels.keys() for labels in found), (title, wanted, found)


@pytest.mark.parametrize("dashboard", NAMES)
def test_variables_offer_what_there_is(dashboard: str, scene: Scene) -> None:
    offered = {}
    for variable in load(dashboard)["templating"]["list"]:
        asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable.get("definition", ""))
        if asked:
            selector = resolved(asked[1])
            found = scene.server.get(f"/api/v1/label/{asked[2]}/values", **{"match[]": selector})
            offered[variable["name"]] = set(found)
    assert offered["job"] == {"hermes-exporter"}
    assert offered["instance"] == {REAL, *(host.name for host in FEW)}
    assert offered["home"] >= {"default", "night", LOST, BROKEN}


def test_the_fleet_points_at_what_is_wrong(scene: Scene) -> None:
    """The real wreck and the invented one, the silent host, the full disk, the false reaps."""
    fleet = "hermes-fleet"
    unreadable = {(REAL, BROKEN), ("anvil-01:10749", "night")}
    scene.shows(fleet, "Agents down", lambda: {(): 1})
    scene.shows(fleet, "Unreadable homes", lambda: {(): 2})
    scene.shows(fleet, "False reaps in a day", lambda: {("anvil-01:10749", "default"): 2})
    ill = {("kiln-01:10749",), *unreadable}
    wait_until(
        lambda: scene.numbers(fleet, "Down or unreadable").keys() == ill, "all are pointed at"
    )
    assert scene.numbers(fleet, "Blindness").keys() >= {("anvil-01:10749", "default")}
    ((full_in),) = scene.numbers(fleet, "Days until full", instance="anvil-01.+").values()
    assert full_in == pytest.approx(1.7, rel=0.05)


def test_a_host_shows_what_its_agent_says(scene: Scene) -> None:
    host = "hermes-host"

    def open_now() -> float:
        found = scene.agent.metrics().by("hermes_sessions_open", "home", "source")
        return sum(found.values())

    scene.shows(host, "Open sessions", lambda: {(): open_now()}, instance=REAL)
    scene.shows(host, "Leaked sessions", lambda: {(): dead(scene.agent.metrics())}, instance=REAL)
    scene.shows(host, "Unreadable homes", lambda: {(): 1}, instance=REAL)
    scene.shows(host, "Processes that lost the database", lambda: {(): 1}, instance=REAL)


def test_the_invented_past_has_the_names_and_labels_of_the_exporter() -> None:
    described = [each for collector in collectors.collectors() for each in collector.descriptions]
    labels = {
        each.name: {*each.labels, "job", "instance"}
        for each in (*described, COLLECTOR_SUCCESS, COLLECTOR_DURATION, SERIES)
    }
    for host in FLEET:
        for series in host_series(host, time.time()):
            if series.name.startswith("hermes_"):
                metric = series.name.removesuffix("_bucket")
                assert labels[metric] == series.labels.keys() - {"le"}, series.name
