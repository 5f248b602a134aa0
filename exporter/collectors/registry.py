"""Collectors register themselves; one guard runs them all.

A collector is a function from the host's view to samples. It declares the metrics it may export,
so that the reference page, the flags and the tests know them without running it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct
from prometheus_client import Metric

from exporter.collectors.exposition import GaugeHistogram
from exporter.collectors.view import HostView


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    GAUGE_HISTOGRAM = "gauge histogram"


class Description(Struct, frozen=True):
    """A metric: what it is called, what its labels are, what it means."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()


def gauge(name: str, help_text: str, *labels: str) -> Description:
    return Description(name, Kind.GAUGE, help_text, labels)


def counter(name: str, help_text: str, *labels: str) -> Description:
    return Description(name, Kind.COUNTER, help_text, labels)


def gauge_histogram(
    name: str, help_text: str, bounds: tuple[float, ...], *labels: str
) -> Description:
    return Description(name, Kind.GAUGE_HISTOGRAM, help_text, labels, bounds)


class Samples:
    """Where collectors put their values; a metric without any is left out."""

    def __init__(self, descriptions: Iterable[Description]) -> None:
        self._declared = frozenset(descriptions)
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
        if metric not in self._declared:
            raise KeyError(f"{metric.name} is not among the metrics this collector declares")

    def families(self) -> list[Metric]:
        return list(self._families.values())


Collect = Callable[[HostView, Samples], None]


class Collector(Struct, frozen=True):
    name: str
    about: str
    descriptions: tuple[Description, ...]
    collect: Collect


_registered: Final[dict[str, Collector]] = {}


def collector(name: str, about: str, *descriptions: Description) -> Callable[[Collect], Collect]:
    """Register the decorated function as a collector of this name."""

    def register(collect: Collect) -> Collect:
        _registered[name] = Collector(name, about, descriptions, collect)
        return collect

    return register


def registered() -> tuple[Collector, ...]:
    return tuple(_registered[name] for name in sorted(_registered))


COLLECTOR_SUCCESS: Final = gauge(
    "hermes_exporter_collector_success",
    "1 if the collector finished, 0 if it failed; its metrics are then left out.",
    "collector",
)
COLLECTOR_DURATION: Final = gauge(
    "hermes_exporter_collector_duration_seconds",
    "How long the collector took at the last round.",
    "collector",
)


def collect_guarded(
    collectors: Iterable[Collector],
    view: HostView,
    failed: Callable[[str, Exception], None],
    perf_counter: Callable[[], float] = time.perf_counter,
) -> list[Metric]:
    """Run the collectors; one that raises costs its own metrics and nothing else."""
    own = Samples((COLLECTOR_SUCCESS, COLLECTOR_DURATION))
    families: list[Metric] = []
    for each in collectors:
        samples = Samples(each.descriptions)
        began = perf_counter()
        success = True
        try:
            each.collect(view, samples)
            families.extend(samples.families())
        except Exception as error:  # noqa: BLE001 - whatever it is, the other collectors go on
            success = False
            failed(each.name, error)
        own.add(COLLECTOR_SUCCESS, float(success), each.name)
        own.add(COLLECTOR_DURATION, perf_counter() - began, each.name)
    return families + own.families()
