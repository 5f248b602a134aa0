"""Scrapes while the agent scans, against scrapes while it rests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks import agent, hermes, homes, load
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import Rounds, percentile

_CLIENTS = 8
_SECONDS = 3.0
_MESSAGES = 300
_SESSIONS = 50


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    with hermes.holding(home) as writer:
        times = [
            (_p99(home, writer, "1s"), _p99(home, writer, "1h")) for _ in range(setting.rounds)
        ]
    rounds = Rounds([busy for busy, _ in times], [calm for _, calm in times])
    yield ratio_line("scrape p99 while scanning", "the agent at rest", rounds, 1.5)


def _p99(home: Path, writer: hermes.HermesProcess, interval: str) -> float:
    """Scrape an agent with this interval while Hermes writes, which costs both the same."""
    with agent.running(home, interval=interval) as scraped:
        scraped.wait_until_ready()
        writer.begin_appending(_MESSAGES, _SESSIONS, pause_seconds=_SECONDS / _MESSAGES)
        met = load.scrape(scraped.port, clients=_CLIENTS, seconds=_SECONDS)
        writer.appended()
    return percentile(met.latencies, 0.99)
