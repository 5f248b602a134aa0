"""Watch a running agent: its reports on each home, scan by scan, under constant scrapes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psutil

from tests.real.agent import Agent, Metrics
from tests.real.waiting import wait_until

SCANNED = "hermes_exporter_scan_timestamp_seconds"


def configuration(homes: Mapping[str, Path], more: str = "") -> str:
    """Return a configuration with these homes by name, scanned every second."""
    entries = [{"path": str(path), "name": name} for name, path in homes.items()]
    return f"scan: {{interval: 1s}}\ndiscover: false\nhomes: {json.dumps(entries)}\n{more}"


def when(agent: Agent, condition: Callable[[Metrics], bool], what: str) -> Metrics:
    """Return the first scrape that fulfils the condition."""

    def scrape() -> list[Metrics]:
        metrics = agent.metrics()
        return [metrics] if condition(metrics) else []

    try:
        return wait_until(scrape, what)[0]
    except AssertionError as error:
        raise AssertionError(f"{error}\n{agent.log()}") from None


def when_up(agent: Agent, *homes: str) -> Metrics:
    return when(agent, lambda metrics: all(is_up(metrics, home) for home in homes), f"{homes} up")


def when_down(agent: Agent, *homes: str) -> Metrics:
    def all_down(metrics: Metrics) -> bool:
        return all(is_up(metrics, home) is False for home in homes)

    return when(agent, all_down, f"{homes} down")


def is_up(metrics: Metrics, home: str) -> bool | None:
    """Return the home's state; None if it has no metric."""
    value = metrics.get(("hermes_home_up", frozenset({("home", home)})))
    return None if value is None else value == 1


def scanned_again(agent: Agent, home: str, times: int = 3) -> Metrics:
    """Return the metrics after the home was scanned this many more times."""
    metrics = agent.metrics()
    for _ in range(times):
        last = metrics.value(SCANNED, home=home)

        def newer(metrics: Metrics, last: float = last) -> bool:
            return metrics.value(SCANNED, home=home) != last  # a clock may be set back

        metrics = when(agent, newer, f"{home} is scanned again")
    return metrics


def complaints(agent: Agent, home: str) -> list[str]:
    """Return the log lines that say that this home cannot be read."""
    return _lines(agent, "home cannot be read", home)


def recoveries(agent: Agent, home: str) -> list[str]:
    return _lines(agent, "home is readable again", home)


def _lines(agent: Agent, phrase: str, home: str) -> list[str]:
    return [
        line
        for line in agent.log().splitlines()
        if f'msg="{phrase}"' in line and f" home={home} " in f"{line} "
    ]


def children(agent: Agent, module: str = "exporter.workers.worker") -> list[psutil.Process]:
    """Return the agent's processes that run this module."""
    found = []
    for child in psutil.Process(agent.pid).children():
        try:
            if module in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


class Scraper:
    """Scrapes without pause, and remembers what failed."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._scrape, daemon=True)
        self.scrapes = 0
        self.failures: list[str] = []

    def _scrape(self) -> None:
        while not self._stop.wait(0.02):
            try:
                status, body = self._agent.get("/metrics")
                if status != 200 or b"hermes_exporter_build_info" not in body:
                    self.failures.append(f"{status}: {body[:80]!r}")
            except OSError as error:
                self.failures.append(repr(error))
            self.scrapes += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


@contextmanager
def always_answering(agent: Agent) -> Iterator[None]:
    """Fail if a single scrape fails while the block runs."""
    with Scraper(agent) as scraper:
        yield
    assert scraper.scrapes > 0
    assert scraper.failures == []
