"""What the reaper has done, and whether its breaker has stopped it.

hermes_reaper_reaped_total{home="default",source="cli",proof="proven"} 12
hermes_reaper_reopened_total{home="default",source="cli",proof="proven"} 0
hermes_reaper_breaker_open{home="default"} 0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from exporter.collectors.registry import Label, Samples, collector, counter, gauge
from exporter.collectors.sessions import shown_source
from exporter.collectors.view import HomeView, HostView
from exporter.runs.models import Proof
from exporter.runs.summary import ReapCount

PROOF = Label("proof", tuple(proof.value for proof in Proof))

REAPED = counter(
    "hermes_reaper_reaped_total",
    "Sessions ended by the agent or by hand: proven dead, or presumed dead after long idleness.",
    "home",
    "source",
    PROOF,
)
REOPENED = counter(
    "hermes_reaper_reopened_total",
    "Reaped sessions that a process was still using, and that were opened again: false positives.",
    "home",
    "source",
    PROOF,
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
        for source in sorted({source for source, _ in reaped} | _sources(home)):
            for proof in Proof:
                key = source, proof.value
                samples.add(REAPED, reaped[key], home.label, *key)
                samples.add(REOPENED, reopened[key], home.label, *key)
        samples.add(BREAKER_OPEN, home.runs.tripped is not None, home.label)


def _sources(home: HomeView) -> set[str]:
    """Every source of the home: an alert on the first false positive needs the zero before it."""
    sessions = home.snapshot.sessions if home.snapshot is not None else None
    return {shown_source(home, each.source) for each in sessions.messages} if sessions else set()


def _by_source(home: HomeView, tally: Iterable[ReapCount]) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for each in tally:
        found[shown_source(home, each.source), each.proof] += each.sessions
    return found
