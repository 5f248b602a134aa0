"""A view of the host, rendered to the bytes of a scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Metric,
    PlatformCollector,
    ProcessCollector,
)

from exporter import collectors
from exporter.collectors.exposition import Rendered, render
from exporter.collectors.registry import Samples, collect_guarded, gauge
from exporter.collectors.view import HostView

SERIES: Final = gauge("hermes_exporter_series", "Series in this scrape, this one included.")


class MetricsRenderer:
    """The collectors that are switched on, and the client library's own."""

    def __init__(
        self,
        disabled: frozenset[str],
        failed: Callable[[str, Exception], None],
        *,
        of_process: bool = True,
    ) -> None:
        """Without `of_process` the `process_*` and `python_*` metrics are left out.

        A textfile leaves them out, because node_exporter exports its own of the same names.
        """
        self._collectors = [each for each in collectors.collectors() if each.name not in disabled]
        self._failed = failed
        self._own = CollectorRegistry(auto_describe=False)
        if of_process:
            ProcessCollector(registry=self._own)
            PlatformCollector(registry=self._own)
            GCCollector(registry=self._own)

    @property
    def file_patterns(self) -> tuple[str, ...]:
        """The files that a scan has to count for these collectors."""
        return tuple({pattern: 0 for each in self._collectors for pattern in each.file_patterns})

    def render(self, view: HostView) -> Rendered:
        families: list[Metric] = collect_guarded(self._collectors, view, self._failed)
        families.extend(self._own.collect())
        families.append(_series(families))
        return render(sorted(families, key=lambda family: family.name))


def _series(families: Iterable[Metric]) -> Metric:
    samples = Samples((SERIES,))
    count = sum(
        not sample.name.endswith("_created") for family in families for sample in family.samples
    )
    samples.add(SERIES, count + 1)
    return samples.families()[0]
