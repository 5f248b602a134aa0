"""Sessions: open and ended, messages per session, idle time, streaks of tool calls.

hermes_sessions_open{home="default",source="cli"} 41
hermes_sessions_ended{home="default",source="cli",end_reason="cli_close"} 312
hermes_session_messages_bucket{home="default",source="cli",le="5.0"} 237
"""

from __future__ import annotations

from collections import defaultdict

from exporter.collectors.labels import LabelFamily, label_value
from exporter.collectors.registry import Label, Samples, collector, gauge, gauge_histogram
from exporter.collectors.view import HomeView, HostView
from exporter.snapshot import IDLE_BUCKETS, MESSAGE_BUCKETS, SessionSummary

OPEN = gauge("hermes_sessions_open", "Sessions whose ended_at is NULL.", "home", "source")
ENDED = gauge(
    "hermes_sessions_ended",
    "Ended sessions now in the database.",
    "home",
    "source",
    "end_reason",
)
MESSAGES = gauge_histogram(
    "hermes_session_messages",
    "Messages (active rows) per session now in the database.",
    MESSAGE_BUCKETS,
    "home",
    "source",
)
OPEN_IDLE = gauge_histogram(
    "hermes_session_open_idle_seconds",
    "Time since the last activity of open sessions.",
    IDLE_BUCKETS,
    "home",
)
EMPTY = gauge("hermes_sessions_empty", "Ended sessions without any message.", "home")
TRIVIAL = gauge(
    "hermes_sessions_trivial",
    "Ended sessions with at least one and at most prune.policies.trivial_sessions.max_messages "
    "messages.",
    "home",
)
MARATHON = gauge(
    "hermes_sessions_marathon",
    "Live and held sessions near and over marathon.max_messages.",
    "home",
    Label("level", ("near", "over")),
)
MESSAGES_MAX = gauge(
    "hermes_session_messages_max", "Messages of the longest session in the database.", "home"
)
OLDEST = gauge(
    "hermes_session_open_oldest_timestamp_seconds",
    "When the oldest open session began; absent where none is open.",
    "home",
)
UNREADABLE = gauge(
    "hermes_sessions_unreadable",
    "Session rows that no other metric counts and that are never reaped or pruned, because their "
    "id is too long or not text.",
    "home",
)
AFTER_END = gauge(
    "hermes_sessions_written_after_end",
    "Ended sessions with messages newer than their end: some reaper, ours or Hermes's, was wrong.",
    "home",
    "end_reason",
)
ERROR_STREAK = gauge(
    "hermes_tool_error_streak_max",
    "Longest current run of failed tool calls in an open session.",
    "home",
)
REPEAT_STREAK = gauge(
    "hermes_tool_repeat_streak_max",
    "Longest current run of calls of one and the same tool in an open session.",
    "home",
)


@collector(
    "sessions",
    "sessions by source and end, their messages, idle time",
    OPEN,
    ENDED,
    MESSAGES,
    OPEN_IDLE,
    EMPTY,
    TRIVIAL,
    MARATHON,
    MESSAGES_MAX,
    OLDEST,
    UNREADABLE,
    ERROR_STREAK,
    REPEAT_STREAK,
)
def collect(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.snapshot is not None and home.snapshot.sessions is not None:
            _by_source(home, home.snapshot.sessions, samples)
            _whole_home(home.label, home.snapshot.sessions, samples)


def _by_source(home: HomeView, sessions: SessionSummary, samples: Samples) -> None:
    open_now: dict[str, int] = defaultdict(int)
    histograms: dict[str, tuple[list[int], int]] = {}
    for histogram in sessions.messages:
        source = shown_source(home, histogram.source)
        open_now[source] += sessions.open_by_source.get(histogram.source, 0)
        (few,) = home.histogram_sources(label_value(LabelFamily.HISTOGRAM_SOURCE, histogram.source))
        counts, total = histograms.get(few, ([0] * len(histogram.buckets), 0))
        merged = [a + b for a, b in zip(counts, histogram.buckets, strict=True)]
        histograms[few] = (merged, total + histogram.sum)
    ended: dict[tuple[str, ...], int] = defaultdict(int)
    for group in sessions.ended:
        ended[shown_end(home, group.source, group.end_reason)] += group.sessions
    for source in sorted(open_now):
        samples.add(OPEN, open_now[source], home.label, source)
    for source, (counts, total) in sorted(histograms.items()):
        samples.add_histogram(MESSAGES, counts, total, home.label, source)
    for (source, reason), count in sorted(ended.items()):
        samples.add(ENDED, count, home.label, source, reason)


def _whole_home(label: str, sessions: SessionSummary, samples: Samples) -> None:
    samples.add_histogram(
        OPEN_IDLE, sessions.open_idle_buckets, sessions.open_idle_sum_seconds, label
    )
    samples.add(EMPTY, sessions.empty, label)
    samples.add(TRIVIAL, sessions.trivial, label)
    samples.add(MARATHON, sessions.marathon_near, label, "near")
    samples.add(MARATHON, sessions.marathon_over, label, "over")
    samples.add(MESSAGES_MAX, sessions.messages_max, label)
    if sessions.open_oldest_started_at is not None:
        samples.add(OLDEST, sessions.open_oldest_started_at, label)
    samples.add(UNREADABLE, sessions.unreadable, label)
    samples.add(ERROR_STREAK, sessions.tool_error_streak_max, label)
    samples.add(REPEAT_STREAK, sessions.tool_repeat_streak_max, label)


def shown_source(home: HomeView, source: str) -> str:
    """The source as a label value of this home."""
    return home.sources(label_value(LabelFamily.SOURCE, source))[0]


def shown_end(home: HomeView, source: str, end_reason: str) -> tuple[str, ...]:
    """Source and end reason as a pair of label values of this home."""
    return home.ended(
        label_value(LabelFamily.SOURCE, source),
        label_value(LabelFamily.SOURCE_END_REASON, end_reason),
    )


@collector("written_after_end", "sessions that were written to after they had ended", AFTER_END)
def collect_written_after_end(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.snapshot is None or home.snapshot.sessions is None:
            continue
        counts: dict[str, int] = defaultdict(int)
        for reason, sessions in home.snapshot.sessions.written_after_end.items():
            counts[home.end_reasons(label_value(LabelFamily.END_REASON, reason))[0]] += sessions
        for reason in sorted(counts):
            samples.add(AFTER_END, counts[reason], home.label, reason)
