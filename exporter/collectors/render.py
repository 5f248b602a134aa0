"""A view of the host, rendered to the bytes of a scrape."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Metric,
    PlatformCollector,
    ProcessCollector,
)

from exporter import collectors
from exporter.collectors.exposition import Rendered, join, render_family
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
        families = chain(collect_guarded(self._collectors, view, self._failed), self._own.collect())
        # Each is rendered before the next collector runs: its samples take much more memory.
        rendered = [render_family(family) for family in families]
        rendered.append(render_family(_series(sum(each.series for each in rendered) + 1)))
        return join(sorted(rendered, key=lambda family: family.name))


def _series(count: int) -> Metric:
    samples = Samples((SERIES,))
    samples.add(SERIES, count)
    return samples.families()[0]
