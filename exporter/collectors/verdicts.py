"""Verdicts on the open sessions, which of them leaked, and why others are unknown.

hermes_sessions_open_by_verdict{home="default",source="cli",verdict="dead"} 12
hermes_sessions_leaked{home="default",source="cli",cause="after_turn"} 9
hermes_sessions_unknown{home="default",reason="chat"} 3
hermes_sessions_overdue{home="default",reason="chat"} 0
"""

from __future__ import annotations

from collections import Counter

from exporter.collectors.registry import Label, Samples, collector, gauge
from exporter.collectors.sessions import shown_source
from exporter.collectors.view import HomeView, HostView
from exporter.reaper.models import UnknownReason, Verdict
from exporter.snapshot import TurnState

BY_VERDICT = gauge(
    "hermes_sessions_open_by_verdict",
    "Open sessions by verdict: live, held (not running, but a chat or handoff will return to it), "
    "dead, exempt (its source is never reaped), or unknown.",
    "home",
    "source",
    Label("verdict", tuple(verdict.value for verdict in Verdict)),
)
LEAKED = gauge(
    "hermes_sessions_leaked",
    "Dead sessions by how their last message left them: in the middle of a turn, after one, or "
    "empty.",
    "home",
    "source",
    Label("cause", tuple(turn.value for turn in TurnState)),
)
UNKNOWN = gauge(
    "hermes_sessions_unknown",
    "Open sessions of verdict unknown by what stands in the way: a server, chat or program of "
    "unknown kind that may have them, a stopped process, something that cannot be seen, or chat "
    "routing that cannot be read.",
    "home",
    Label("reason", tuple(reason.value for reason in UnknownReason)),
)


OVERDUE = gauge(
    "hermes_sessions_overdue",
    "Those of hermes_sessions_unknown that have been idle for longer than reaper.presume_after (or "
    "reaper.min_idle, where time alone never makes them dead), by the timestamps of Hermes.",
    "home",
    Label("reason", tuple(reason.value for reason in UnknownReason)),
)


@collector(
    "verdicts",
    "open sessions by verdict, and those that leaked",
    BY_VERDICT,
    LEAKED,
    UNKNOWN,
    OVERDUE,
)
def collect(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.snapshot is not None and home.snapshot.sessions is not None:
            _verdicts(home, samples)
            _leaks(home, samples)
            _unknown(home, samples)


def _verdicts(home: HomeView, samples: Samples) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for each in home.verdicts:
        found[shown_source(home, each.source), each.verdict.value] += each.sessions
    for source in sorted({source for source, _ in found}):
        for verdict in Verdict:
            samples.add(BY_VERDICT, found[source, verdict.value], home.label, source, verdict.value)


def _unknown(home: HomeView, samples: Samples) -> None:
    found = {each.reason: each for each in home.unknown}
    for reason in UnknownReason:
        each = found.get(reason)
        samples.add(UNKNOWN, each.sessions if each else 0, home.label, reason.value)
        samples.add(OVERDUE, each.overdue if each else 0, home.label, reason.value)


def _leaks(home: HomeView, samples: Samples) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for each in home.leaks:
        found[shown_source(home, each.source), each.cause.value] += each.sessions
    for source in sorted({source for source, _ in found}):
        for cause in TurnState:
            samples.add(LEAKED, found[source, cause.value], home.label, source, cause.value)
