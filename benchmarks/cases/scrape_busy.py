"""Scrapes while the agent scans, against scrapes of the same agent while it is idle.

A Hermes writes during the whole test, so that each scan has something to read. The clients ask
often and leave the processors idle in between. Clients without pauses would only measure how many
processes share two cores.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import agent, hermes, homes, load
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import alternate, percentile

_CLIENTS = 8
_EVERY_SECONDS = 0.02
"""For each client: a thousand times as often as a Prometheus."""
_SECONDS = 3.0
_MESSAGES = 300
_SESSIONS = 50
_BUSY, _AT_REST = "1s", "1h"


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    with hermes.holding(home) as writer, agent.running(home, interval=_BUSY) as scraped:
        scraped.wait_until_ready()

        def p99(interval: str) -> float:
            scraped.scan_every(interval)
            writer.begin_appending(_MESSAGES, _SESSIONS, pause_seconds=_SECONDS / _MESSAGES)
            met = load.scrape(
                scraped.port, clients=_CLIENTS, seconds=_SECONDS, every_seconds=_EVERY_SECONDS
            )
            writer.appended()
            return percentile(met.latencies, 0.99)

        rounds = alternate(lambda: p99(_BUSY), lambda: p99(_AT_REST), setting.rounds)
    yield ratio_line("scrape p99 while scanning", "the agent at rest", rounds, 1.5)
