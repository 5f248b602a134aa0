"""The servers that the scrape benchmark loads, each in its own process.

`python -m benchmarks.servers ours|peer` prints its port and serves the same 400 series in both
cases until its input ends.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from exporter.collectors.exposition import render
from exporter.web.published import Published
from exporter.web.response import pack
from exporter.web.routes import Routes
from exporter.web.server import serve

_FAMILIES = 40
_SERIES_EACH = 10


class SampleCollector(Collector):
    """400 series that look like ours."""

    def collect(self) -> Iterable[Metric]:
        for number in range(_FAMILIES):
            family = GaugeMetricFamily(
                f"hermes_example_{number}_bytes", "A figure of a home.", labels=("home", "source")
            )
            for series in range(_SERIES_EACH):
                family.add_metric(("default", f"source-{series}"), number * 1e6 + series)
            yield family


@contextmanager
def serving(kind: str) -> Iterator[int]:
    """Start a server of this kind and yield its port; it ends with the block."""
    command = [sys.executable, "-m", "benchmarks.servers", kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        yield int(process.stdout.readline())


async def _serve_ours() -> None:
    published = Published()
    published.publish(
        metrics=render(SampleCollector().collect()), status=b"{}", sessions=pack([b"[]"])
    )
    server = await serve(["127.0.0.1:0"], Routes(published))
    print(server.addresses[0].rpartition(":")[2], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.drain()


def _serve_peer() -> None:
    registry = CollectorRegistry()
    registry.register(SampleCollector())
    server, _ = start_http_server(0, "127.0.0.1", registry)
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    if sys.argv[1] == "ours":
        asyncio.run(_serve_ours())
    else:
        _serve_peer()
