"""A real Prometheus scrapes the agent, and both formats are what their readers expect."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.real.agent import Agent, agent
from tests.real.hermes import NEWEST
from tests.real.homes import make_home
from tests.real.prometheus import check_metrics, prometheus

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("agent")
    home = make_home(NEWEST, folder)
    with agent(folder, [home.path]) as started:
        yield started


@pytest.mark.xdist_group("prometheus")
def test_prometheus_scrapes_every_series(running: Agent) -> None:
    told = running.metrics().by("hermes_sessions_open", "source")
    with prometheus([running.address]) as server:
        assert server.wait_for("up == 1")
        answer = server.wait_for("hermes_sessions_open")
    assert {(labels["source"],): value for labels, value in answer} == told


@pytest.mark.xdist_group("prometheus")
def test_promtool_has_nothing_to_say(running: Agent) -> None:
    assert check_metrics(running.exposition()) == ""


@pytest.mark.xdist_group("prometheus")
def test_both_formats_say_the_same(running: Agent) -> None:
    """Read with the client library's own parsers; the gauge histograms alone differ in name."""
    _, body = running.get("/metrics", Accept=OPENMETRICS)
    text = {family.name for family in parse_text(running.exposition())}
    openmetrics = {family.name for family in parse_openmetrics(body.decode())}  # type: ignore[no-untyped-call]
    assert {name.removesuffix("_total") for name in text} == openmetrics
