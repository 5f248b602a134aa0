"""Collectors register themselves; `collect_guarded` runs them all.

A collector is a function from the host's view to samples. It declares the metrics that it may
export, their labels and the files that it counts. The flags, the reference page, the series budget
and the scans are made from these declarations, so a collector is one file in this folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from prometheus_client import Metric

from exporter.collectors.exposition import GaugeHistogram
from exporter.collectors.view import HostView
from exporter.scan.matched_files import check_pattern
from exporter.snapshot import OTHER


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    GAUGE_HISTOGRAM = "gauge histogram"


class Label(Struct, frozen=True):
    """A label and every value it can take.

    `home`, `source`, `model` and `end_reason` are plain strings in a description instead: their
    values come from the homes, and `exporter.collectors.labels.LIMITS` bounds their number.
    """

    name: str
    values: tuple[str, ...]


_WITHOUT_VALUES: Final = frozenset({"home", "source", "model", "end_reason", "collector"})
"""Labels that need not declare their values."""


class Description(Struct, frozen=True):
    """A metric: its name, its meaning, its labels and what they can be."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()
    bounded: tuple[Label, ...] = ()
    """Those of `labels` that say what they can be."""
    at_most: int | None = None
    """Series per home, where the collector exports fewer than the label values would allow."""
    no_panel: str = ""
    """Why no rule and no dashboard reads it; empty: one does, which a test checks."""

    def values_of(self, label: str) -> tuple[str, ...]:
        """Every value this label can take; raise KeyError where the description does not say."""
        for each in self.bounded:
            if each.name == label:
                return each.values
        raise KeyError(f"{self.name}: nothing says what the label {label} can be")

    def shown(self, label: str, value: str) -> str:
        """The value if it was declared, else `other`: the agent trusts no value from a worker."""
        return value if value in self.values_of(label) else OTHER


def gauge(
    name: str, help_text: str, *labels: str | Label, at_most: int | None = None, no_panel: str = ""
) -> Description:
    """A value that goes up and down."""
    names, bounded = _names(name, labels, at_most), _bounded(labels)
    return Description(name, MetricKind.GAUGE, help_text, names, (), bounded, at_most, no_panel)


def counter(name: str, help_text: str, *labels: str | Label, no_panel: str = "") -> Description:
    """A sum that never falls; its name ends in `_total`."""
    names, bounded = _names(name, labels), _bounded(labels)
    return Description(name, MetricKind.COUNTER, help_text, names, (), bounded, None, no_panel)


def gauge_histogram(
    name: str, help_text: str, bounds: tuple[float, ...], *labels: str | Label
) -> Description:
    """Declare a histogram of present values."""
    names, bounded = _names(name, labels), _bounded(labels)
    return Description(name, MetricKind.GAUGE_HISTOGRAM, help_text, names, bounds, bounded)


def _names(
    metric: str, labels: tuple[str | Label, ...], at_most: int | None = None
) -> tuple[str, ...]:
    """Return the names of the labels; raise ValueError for one whose values are not declared."""
    for each in labels:
        if isinstance(each, str) and each not in _WITHOUT_VALUES and at_most is None:
            raise ValueError(
                f"{metric}: the label {each} has no declared values; write "
                f"Label({each!r}, (…)) with every value, or at_most= for how many series it makes"
            )
    return tuple(each.name if isinstance(each, Label) else each for each in labels)


def _bounded(labels: tuple[str | Label, ...]) -> tuple[Label, ...]:
    return tuple(each for each in labels if isinstance(each, Label))


class Samples:
    """Takes the values of one collector; a metric without any value is left out."""

    def __init__(self, descriptions: Iterable[Description]) -> None:
        self._declared = frozenset(each.name for each in descriptions)
        self._families: dict[str, Metric] = {}
        self._histograms: dict[str, GaugeHistogram] = {}

    def add(self, metric: Description, value: float, *labels: str) -> None:
        named = dict(zip(metric.labels, labels, strict=True))
        self._family(metric).add_sample(metric.name, named, float(value))

    def add_histogram(
        self, metric: Description, counts: Sequence[int], total: float, *labels: str
    ) -> None:
        self._check(metric)
        found = self._histograms.get(metric.name)
        if found is None:
            found = GaugeHistogram(metric.name, metric.help, metric.bounds, metric.labels)
            self._families[metric.name] = self._histograms[metric.name] = found
        found.add(labels, counts, total)

    def _family(self, metric: Description) -> Metric:
        self._check(metric)
        found = self._families.get(metric.name)
        if found is None:
            found = Metric(metric.name.removesuffix("_total"), metric.help, metric.kind.value)
            self._families[metric.name] = found
        return found

    def _check(self, metric: Description) -> None:
        if metric.name not in self._declared:
            raise KeyError(f"{metric.name} is not among the metrics this collector declares")

    def families(self) -> list[Metric]:
        return list(self._families.values())


Collect = Callable[[HostView, Samples], None]


class Collector(Struct, frozen=True):
    """A collector as it was declared."""

    name: str
    about: str
    descriptions: tuple[Description, ...]
    collect: Collect
    file_patterns: tuple[str, ...] = ()
    """Patterns of files that every scan counts for it; see `exporter.scan.matched_files`."""


_registered: Final[dict[str, Collector]] = {}


def collector(
    name: str, about: str, *descriptions: Description, file_patterns: Iterable[str] = ()
) -> Callable[[Collect], Collect]:
    """Register the decorated function as a collector of this name.

    `about` says in half a sentence what it tells, for the reference page. `file_patterns` are
    patterns of files in a home; `HomeView.matched_files` has what the last scan found of them.
    """
    patterns = tuple(file_patterns)
    for pattern in patterns:
        check_pattern(pattern)

    def register(collect: Collect) -> Collect:
        if name in _registered:  # two files with one name: the second would hide the first
            raise ValueError(f"there are two collectors of the name {name}")
        _registered[name] = Collector(name, about, descriptions, collect, patterns)
        return collect

    return register


def registered() -> tuple[Collector, ...]:
    """All collectors, sorted by name."""
    return tuple(_registered[name] for name in sorted(_registered))


COLLECTOR_SUCCESS: Final = gauge(
    "hermes_exporter_collector_success",
    "1 if the collector finished, 0 if it failed; its metrics are then left out.",
    "collector",
)
COLLECTOR_DURATION: Final = gauge(
    "hermes_exporter_collector_duration_seconds",
    "How long the collector took at the last scan.",
    "collector",
)


def collect_guarded(
    collectors: Iterable[Collector],
    view: HostView,
    failed: Callable[[str, Exception], None],
) -> Iterator[Metric]:
    """Run the collectors one by one; one that raises costs its own metrics and nothing else."""
    own = Samples((COLLECTOR_SUCCESS, COLLECTOR_DURATION))
    for each in collectors:
        samples = Samples(each.descriptions)
        began = time.perf_counter()
        success = True
        try:
            each.collect(view, samples)
        except Exception as error:  # noqa: BLE001 - the other collectors must still run
            success = False
            failed(each.name, error)
        own.add(COLLECTOR_SUCCESS, float(success), each.name)
        own.add(COLLECTOR_DURATION, time.perf_counter() - began, each.name)
        if success:
            yield from samples.families()
    yield from own.families()
