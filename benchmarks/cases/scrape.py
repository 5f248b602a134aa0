"""Scrapes of 400 series by 8 clients at once, against the client library's own server."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks import load, servers
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import Timings, percentile

_CLIENTS = 8
_SECONDS = 3.0
_PEER = "prometheus_client.start_http_server"


def run(setting: Setting) -> Iterator[Line]:
    with servers.serving("ours") as ours, servers.serving("peer") as peer:
        for port in (ours, peer):
            load.scrape(port, clients=_CLIENTS, seconds=0.5)
        pairs = [
            tuple(load.scrape(port, clients=_CLIENTS, seconds=_SECONDS) for port in (ours, peer))
            for _ in range(setting.rounds)
        ]
    slowest = Timings(
        [percentile(mine.latencies, 0.99) for mine, _ in pairs],
        [percentile(theirs.latencies, 0.99) for _, theirs in pairs],
    )
    yield ratio_line("scrape, p99 latency", _PEER, slowest, 0.25)
    rates = Timings(
        [mine.per_second for mine, _ in pairs], [theirs.per_second for _, theirs in pairs]
    )
    yield Line(
        job="scrape, requests per second",
        peer=_PEER,
        achieved=rates.ratio,
        limit=10,
        at_least=True,
        note=f"{median(rates.ours):.0f} to {median(rates.peer):.0f} a second",
        rounds=rates,
    )
