"""Scrapes while the agent scans, against scrapes while it rests."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import agent, hermes, homes, load
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import Rounds, percentile

_CLIENTS = 8
_SECONDS = 3.0


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    with (
        hermes.holding(home) as writer,
        agent.running(home, interval="1h") as resting,
        agent.running(home, interval="1s") as scanning,
    ):
        for each in (resting, scanning):
            each.wait_until_ready()
        busy, calm = [], []
        for _ in range(setting.rounds):
            writer.begin_appending(300, 50, pause_seconds=_SECONDS / 300)
            busy.append(_p99(scanning.port))
            writer.appended()
            calm.append(_p99(resting.port))
    rounds = Rounds(busy, calm)
    yield ratio_line("scrape p99 while scanning", "the agent at rest", rounds, 1.5)


def _p99(port: int) -> float:
    return percentile(load.scrape(port, clients=_CLIENTS, seconds=_SECONDS).latencies, 0.99)
