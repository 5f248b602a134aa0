"""The metrics reference is what the collectors declare."""

from __future__ import annotations

from exporter import collectors
from exporter.collectors.agent import BLIND_REASONS
from exporter.reference.metrics import page
from exporter.snapshot import DiskKind
from tests.real.hermes import REPOSITORY

REFERENCE = REPOSITORY / "docs" / "metrics.md"


def test_the_committed_reference_is_the_one_the_code_writes() -> None:
    assert REFERENCE.read_text() == page(), "docs/metrics.md lags: run `make docs`"


def test_every_value_of_a_bounded_label_is_told() -> None:
    text = page()
    assert "`cause` (empty, mid_turn, after_turn)" in text
    assert "`verdict` (live, held, dead, exempt, unknown)" in text
    for reason in BLIND_REASONS:
        assert reason in text
    for kind in DiskKind:
        assert kind.value in text


def test_every_metric_is_declared_once_with_help_and_a_conventional_name() -> None:
    metrics = [metric for each in collectors.collectors() for metric in each.descriptions]
    names = [metric.name for metric in metrics]
    assert len(names) == len(set(names))
    for metric in metrics:
        assert metric.name.startswith("hermes_")
        assert metric.name.endswith("_total") == (metric.kind.value == "counter")
        assert metric.help.endswith(".")
        assert "home" in metric.labels or metric.name.startswith("hermes_exporter_")
