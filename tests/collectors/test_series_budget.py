"""A home has at most 600 series and the agent 60, computed from what the collectors declare."""

from __future__ import annotations

import pytest

from exporter import collectors
from exporter.collectors import prune
from exporter.collectors.prune import POLICY
from exporter.collectors.registry import Description, Label, MetricKind, Samples, gauge
from exporter.collectors.series_budget import (
    FREE_PER_HOME,
    SERIES_OF_AGENT,
    SERIES_PER_HOME,
    series_of,
    values_of,
    worst_case,
    worst_case_of_agent,
)
from exporter.pruner.models import PolicyReport, PruneReport, ThresholdReport
from exporter.runs.models import Unreachable

VERDICT = Label("verdict", values_of("hermes_sessions_open_by_verdict", "verdict"))
DECLARED = [metric for each in collectors.collectors() for metric in each.descriptions]


def test_a_home_that_has_everything_at_once_stays_within_its_share() -> None:
    assert worst_case(DECLARED) <= SERIES_PER_HOME, {m.name: series_of(m) for m in DECLARED}


def test_the_budget_is_600_for_a_home_with_100_of_them_free_and_60_for_the_agent() -> None:
    assert (SERIES_PER_HOME, FREE_PER_HOME, SERIES_OF_AGENT) == (600, 100, 60)
    costs = {metric.name: series_of(metric) for metric in DECLARED}
    assert worst_case(DECLARED) <= SERIES_PER_HOME - FREE_PER_HOME, costs
    assert worst_case_of_agent(collectors.collectors()) <= SERIES_OF_AGENT, costs


def test_a_metric_whose_labels_nobody_has_bounded_breaks_the_budget() -> None:
    labels = ("home", "colour")
    stranger = Description("hermes_new_thing", MetricKind.GAUGE, "New.", labels)
    with pytest.raises(KeyError, match="colour"):
        worst_case([*DECLARED, stranger])


def test_a_metric_too_many_breaks_the_budget() -> None:
    one_more = gauge("hermes_new_thing", "New.", "home", "source", VERDICT, POLICY)
    assert worst_case([*DECLARED, one_more]) > SERIES_PER_HOME


def test_every_line_of_a_histogram_counts() -> None:
    histogram = Description(
        "hermes_x", MetricKind.GAUGE_HISTOGRAM, "X.", ("home", "source"), (1.0, 2.0)
    )
    lines = ("1.0", "2.0", "+Inf", "_sum", "_count")
    assert series_of(histogram) == len(lines) * 4


def test_a_value_that_is_not_ours_is_other() -> None:
    assert prune.BLOCKED.shown("reason", "routing") == "routing"
    assert prune.BLOCKED.shown("reason", "/home/ada/secret") == "other"


def test_what_a_worker_makes_up_becomes_no_series() -> None:
    """It tells of its own home what it likes, but not in words of its own."""
    lies = PruneReport(
        thresholds=[ThresholdReport(f"mine{n}", 1.0, 2.0, 1.0, True) for n in range(16)],
        unreachable=[
            Unreachable(t, f"why{n}", 5) for t in ("state_db_payload", "mine") for n in range(20)
        ],
        blocked=[f"because{n}" for n in range(16)],
        policies=[PolicyReport("old_sessions", n) for n in range(16)],
    )
    samples = Samples(DECLARED)
    prune._policies("h", lies, samples)
    prune._thresholds("h", lies, samples)
    told = {
        (sample.name, *list(sample.labels.values())[1:]): sample.value
        for family in samples.families()
        for sample in family.samples
    }
    assert told == {
        ("hermes_disk_reclaimable_bytes", "old_sessions"): 15,
        ("hermes_retention_eligible", "old_sessions"): 0,
        ("hermes_prune_capped_items",): 0,
        ("hermes_prune_blocked", "other"): 1,
        ("hermes_prune_unreachable_bytes", "state_db_payload", "other"): 100,
    }
