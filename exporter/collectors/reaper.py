"""What the reaper has done, and whether it has stopped.

hermes_reaper_reaped_total{home="default",source="cli"} 12
hermes_reaper_reopened_total{home="default",source="cli"} 0
hermes_reaper_breaker_open{home="default"} 0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from exporter.collectors.registry import Samples, collector, counter, gauge
from exporter.collectors.sessions import shown_source
from exporter.view import HomeView, HostView

REAPED = counter(
    "hermes_reaper_reaped_total",
    "Sessions ended because their process was proven dead, by the agent or by hand.",
    "home",
    "source",
)
REOPENED = counter(
    "hermes_reaper_reopened_total",
    "Sessions that were active after they had been reaped, and were opened again: false positives.",
    "home",
    "source",
)
BREAKER_OPEN = gauge(
    "hermes_reaper_breaker_open",
    "1 while automatic reaping has stopped and waits for a reap by hand.",
    "home",
)


@collector("reaper", "reaps, false positives and the breaker", REAPED, REOPENED, BREAKER_OPEN)
def collect(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.snapshot is None or not home.runs.readable:
            continue
        reaped = _by_source(home, home.runs.reaped)
        reopened = _by_source(home, home.runs.reopened)
        for source in sorted({*reaped, *_sources(home)}):
            samples.add(REAPED, reaped[source], home.label, source)
            samples.add(REOPENED, reopened[source], home.label, source)
        samples.add(BREAKER_OPEN, home.runs.tripped is not None, home.label)


def _sources(home: HomeView) -> set[str]:
    """All that there are: an alert on the first false positive needs the zero before it."""
    sessions = home.snapshot.sessions if home.snapshot is not None else None
    return {shown_source(home, each.source) for each in sessions.messages} if sessions else set()


def _by_source(home: HomeView, tally: Mapping[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for source, sessions in tally.items():
        found[shown_source(home, source)] += sessions
    return found
