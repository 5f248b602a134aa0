"""How many series a home and the agent itself can have at most.

A fleet is planned by these numbers, so they are computed from what the collectors declare, at its
worst: every label with every value that it can take. A metric that does not fit fails a test; then
it needs fewer label values, or another metric has to go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Final

from exporter import collectors
from exporter.collectors.labels import LIMITS, LabelFamily
from exporter.collectors.registry import Collector, Description, MetricKind

SERIES_PER_HOME: Final = 600
FREE_PER_HOME: Final = 100
"""Of these, kept free for what comes."""
SERIES_OF_AGENT: Final = 60
"""Without the client library's `process_*` and `python_*`."""

_FREE_TEXT: Final[tuple[tuple[frozenset[str], LabelFamily], ...]] = (
    (frozenset({"source", "model"}), LabelFamily.SOURCE_MODEL),
    (frozenset({"source", "end_reason"}), LabelFamily.SOURCE_END_REASON),
    (frozenset({"source"}), LabelFamily.SOURCE),
    (frozenset({"end_reason"}), LabelFamily.END_REASON),
)
"""Labels whose values come from a home; the first that applies to a metric counts."""


def series_of(metric: Description) -> int:
    """Return how many series of this metric one home can have; KeyError if a label is unbounded."""
    if metric.at_most is not None:
        return metric.at_most
    labels = set(metric.labels) - {"home"}
    is_histogram = metric.kind is MetricKind.GAUGE_HISTOGRAM
    values = 1
    for free_text, family in _FREE_TEXT:
        if free_text <= labels:
            limited = LabelFamily.HISTOGRAM_SOURCE if is_histogram else family
            values = LIMITS[limited] + 1  # and `other`
            labels -= free_text
            break
    lines = len(metric.bounds) + 3 if is_histogram else 1  # and +Inf, _sum, _count
    return values * lines * prod(len(metric.values_of(label)) for label in labels)


def worst_case(metrics: Iterable[Description]) -> int:
    """The series of a home that has everything at once."""
    return sum(series_of(metric) for metric in metrics if "home" in metric.labels)


def worst_case_of_agent(every: Sequence[Collector]) -> int:
    """The series that describe the agent: its own metrics, two of each collector, and their sum."""
    metrics = (metric for each in every for metric in each.descriptions)
    own = sum(series_of(metric) for metric in metrics if "home" not in metric.labels)
    return own + 2 * len(every) + 1


def values_of(metric: str, label: str) -> tuple[str, ...]:
    """Return every value this label of a metric can take; KeyError if no collector declares them.

    The name may lack `_total`: recorded rates are named so.
    """
    name = metric.removesuffix("_total")
    for each in collectors.collectors():
        for described in each.descriptions:
            if described.name.removesuffix("_total") == name:
                return described.values_of(label)
    raise KeyError(metric)
