"""The past of some invented hosts, as the metrics an agent would have exported.

Nothing can be scraped yesterday, so a day of it is written down in OpenMetrics for
`promtool tsdb create-blocks-from openmetrics`. Each host has one thing wrong with it. A test holds
names and labels against those that the exporter declares.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from exporter.snapshot import IDLE_BUCKETS, MESSAGE_BUCKETS

JOB = "hermes-exporter"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
GIB, MIB = 2.0**30, 2.0**20

Value = Callable[[float], float | None]
"""Of a moment; None: the series has no sample then."""


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    labels: Mapping[str, str]
    value: Value


@dataclass(frozen=True, slots=True)
class Home:
    """What is particular about a home; the rest is as homes usually are."""

    name: str = "default"
    size: float = 1.0
    """How much of everything there is."""
    leaks_per_hour: float = 0.4
    after_upgrade: float = 1.0
    """How many times more it leaks since the upgrade."""
    reaps: bool = True
    false_reaps: int = 0
    prunes: bool = True
    prunes_at_work: bool = False
    """Its transcripts reach their high watermark twice a day, and are pruned to the low one."""
    growth_per_day: float = 0.1 * GIB
    fills_in_days: float = 400.0
    pressed: float = 0.6
    """The value of the fullest threshold, as a share of its high watermark."""
    blind: str = ""
    unreadable_since: float | None = None
    """How many seconds ago."""
    gateway: bool = True
    gateway_down_for: float = 0.0
    marathons: int = 0
    stuck_tools: int = 2
    damaged: bool = False
    lost: int = 0
    """Processes that write into a deleted WAL."""

    @property
    def upgraded_ago(self) -> float:
        """Not all at once."""
        return 10 * HOUR - 0.8 * HOUR * self.size


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    homes: tuple[Home, ...] = field(default_factory=lambda: (Home(),))
    down_for: float = 0.0
    """How many seconds ago the agent was last scraped."""
    version: str = "0.1.0"
    failing: str = ""
    """A collector that fails; its configuration could not be reloaded either."""


FLEET = (
    Host(
        "anvil-01:10749",
        (Home(size=1.4, prunes_at_work=True), Home("work", size=0.5, gateway=False)),
    ),
    Host(
        "anvil-02:10749",
        (
            Home(size=2.2, leaks_per_hour=0.8, after_upgrade=9, reaps=False, marathons=3),
            Home("research", size=0.9, leaks_per_hour=0.6, false_reaps=2, stuck_tools=14),
        ),
    ),
    Host(
        "forge-01:10749",
        (Home(size=3.0, fills_in_days=1.7, growth_per_day=9 * GIB, pressed=1.24, prunes=False),),
    ),
    Host("forge-02:10749", (Home(size=0.8, blind="pid_namespace", leaks_per_hour=0, reaps=False),)),
    Host(
        "kiln-01:10749",
        (Home(size=1.1, lost=1, gateway_down_for=2 * HOUR),),
        failing="processes",
    ),
    Host("kiln-02:10749", (Home(size=0.7),), down_for=40 * MINUTE),
    Host("loom-01:10749", (Home(size=1.0), Home("night", size=0.4, unreadable_since=3 * HOUR))),
    Host("loom-02:10749", (Home(size=1.7, damaged=True, pressed=0.93, growth_per_day=2 * GIB),)),
)
"""Hosts with all that can be wrong."""

FEW = (
    Host(
        "anvil-01:10749",
        (
            Home(
                size=2.2,
                leaks_per_hour=0.8,
                after_upgrade=9,
                reaps=False,
                false_reaps=2,
                marathons=3,
                stuck_tools=14,
                fills_in_days=1.7,
                growth_per_day=9 * GIB,
                pressed=1.24,
                blind="pid_namespace",
                lost=1,
            ),
            Home("night", size=0.4, unreadable_since=3 * HOUR),
        ),
        failing="processes",
    ),
    Host("kiln-01:10749", down_for=40 * MINUTE),
)
"""The same in fewer series."""


def all_day(now: float) -> list[float]:
    """Every other minute of a day and a bit."""
    return [now - number * 2 * MINUTE for number in reversed(range(800))]


def now_and_then(now: float) -> list[float]:
    """As few moments as the panels and the recording rules look at."""
    late = [now - number * MINUTE for number in range(16)]
    six_hours = [now - number * 5.9 * MINUTE for number in range(3, 64)]
    a_day_ago = [now - DAY - number * MINUTE for number in range(-3, 12)]
    return sorted({*late, *six_hours, *a_day_ago})


def write_history(
    path: Path,
    hosts: Iterable[Host],
    now: float,
    times: list[float],
    recorded: bool,
    still: float = 0.0,
) -> None:
    """In OpenMetrics. `recorded`: with the few recorded series that rules look far back at.

    For the last seconds, `still`, nothing changes but the times of scans and ticks.
    """
    with path.open("w") as file:
        for host in hosts:
            for series in host_series(host, now):
                _write(file.write, _held(series, now - still), times)
            if recorded:
                for series in recorded_series(host, now):
                    _write(file.write, series, times)
        file.write("# EOF\n")


def host_series(host: Host, now: float) -> Iterator[Series]:
    """All that Prometheus would have of a host."""
    gone = now - host.down_for if host.down_for else math.inf
    labels = {"job": JOB, "instance": host.name}
    yield Series("up", labels, lambda t: 1.0 if t < gone else 0.0)
    for series in _agent(host, now):
        yield Series(series.name, {**labels, **series.labels}, _until(gone, series.value))
    for home in host.homes:
        for series in _home(home, now):
            placed = {**labels, "home": home.name, **series.labels}
            yield Series(series.name, placed, _until(gone, series.value))


def recorded_series(host: Host, now: float) -> Iterator[Series]:
    """What the recording rules would have made of it where other rules look back for hours."""
    sums = {
        "hermes_sessions_leaked": "home:hermes_sessions_leaked:sum",
        "hermes_disk_bytes": "home:hermes_disk_bytes:sum",
        "hermes_filesystem_avail_bytes": "home:hermes_filesystem_avail_bytes:min",
        "hermes_gateway_up": "home:hermes_gateway_up:max",
    }
    for metric, record in sums.items():
        parts: dict[str, list[Value]] = {}
        for series in host_series(host, now):
            if series.name == metric:
                parts.setdefault(series.labels["home"], []).append(series.value)
        for home, values in parts.items():
            labels = {"job": JOB, "instance": host.name, "home": home}
            yield Series(record, labels, _total(values))


def _total(values: list[Value]) -> Value:
    def value(t: float) -> float | None:
        known = [found for each in values if (found := each(t)) is not None]
        return sum(known) if known else None

    return value


def _until(gone: float, value: Value) -> Value:
    return lambda t: value(t) if t < gone else None


def _held(series: Series, since: float) -> Series:
    if series.name.endswith("_timestamp_seconds"):
        return series
    return Series(series.name, series.labels, lambda t: series.value(min(t, since)))


def _write(write: Callable[[str], object], series: Series, times: list[float]) -> None:
    labels = ",".join(f'{key}="{value}"' for key, value in series.labels.items())
    head = f"{series.name}{{{labels}}} "
    for at in times:
        value = series.value(at)
        if value is not None:
            write(f"{head}{value:.10g} {at:.3f}\n")


def _agent(host: Host, now: float) -> Iterator[Series]:
    """Of the agent itself."""
    beat = float(sum(host.name.encode()) % 97)
    yield _plain("scrape_duration_seconds", lambda t: 0.004 + 0.002 * _wave(t, 700, beat))
    yield _plain("hermes_exporter_series", lambda t: 60 + 236.0 * len(host.homes))
    yield _plain("hermes_exporter_build_info", _always(1), version=host.version)
    reloaded = 0 if host.failing else 1
    yield _plain("hermes_exporter_config_last_reload_successful", _always(reloaded))
    yield _plain("process_resident_memory_bytes", lambda t: (38 + 4 * _wave(t, 9000, beat)) * MIB)
    yield _plain("process_cpu_seconds_total", lambda t: 0.006 * (t - now + 40 * DAY))
    yield _plain("process_start_time_seconds", _always(now - 12 * DAY - beat * HOUR))
    yield _plain("process_open_fds", lambda t: round(22 + 4 * _wave(t, 500, beat)))
    yield _plain("process_max_fds", _always(1024))
    for index, name in enumerate(("agent", "database", "disk", "processes", "sessions", "usage")):
        fails = name == host.failing
        yield _plain(
            "hermes_exporter_collector_duration_seconds",
            lambda t, i=index: 0.0004 * (i + 1) * (1 + 0.5 * _wave(t, 900, beat + i)),  # type: ignore[misc]
            collector=name,
        )
        yield _plain(
            "hermes_exporter_collector_success", _always(0 if fails else 1), collector=name
        )


def _home(home: Home, now: float) -> Iterator[Series]:
    since = math.inf if home.unreadable_since is None else now - home.unreadable_since
    yield _plain("hermes_home_up", lambda t: 1.0 if t < since else 0.0)
    yield _plain(
        "hermes_exporter_scan_timestamp_seconds",
        lambda t: t - t % 15 if t < since else since,
    )
    yield _plain(
        "hermes_exporter_scan_duration_seconds",
        lambda t: 0.05 * home.size * (1 + 0.4 * _wave(t, 800, home.size)),
    )
    yield _plain("hermes_reaper_enforcing", _always(1 if home.reaps else 0))
    yield _plain("hermes_prune_enforcing", _always(1 if home.prunes else 0))
    stopped_at = _reaping_stopped_at(home, now)
    yield _plain("hermes_reaper_breaker_open", lambda t: 1.0 if t > stopped_at else 0.0)
    if home.blind:
        yield _plain("hermes_exporter_blind", _always(1), reason=home.blind)
    parts = (_sessions, _usage, _disk, _pruning, _database, _processes)
    for part in parts:
        for series in part(home, now):
            yield Series(series.name, series.labels, _until(since, series.value))


_SOURCES = {"cli": 0.5, "telegram": 0.3, "cron": 0.2}


def _reaping_stopped_at(home: Home, now: float) -> float:
    """When the first wrong proof stopped automatic reaping."""
    return now - 5 * HOUR if home.false_reaps else math.inf


def _leaked(home: Home, now: float) -> Value:
    """Leaks pile up; where the reaper works it ends them every hour."""
    upgrade = now - home.upgraded_ago
    stopped_at = _reaping_stopped_at(home, now)

    def value(t: float) -> float:
        before = home.leaks_per_hour * home.size
        rate = before * (home.after_upgrade if t > upgrade else 1)
        if home.reaps:
            return math.floor(rate * (t % HOUR if t <= stopped_at else t - stopped_at) / HOUR * 2)
        begun = before * max(0.0, min(t, upgrade) - (now - 1.5 * DAY)) / HOUR
        return math.floor(begun + rate * max(0.0, t - upgrade) / HOUR)

    return value


_CAUSES = {"mid_turn": 0.3, "after_turn": 0.6, "empty": 0.1}


def _part(total: Value, shares: Mapping[str, float], name: str) -> Value:
    """The whole number that falls to a name; all names together have exactly the total."""
    names = list(shares)
    before = sum(shares[each] for each in names[: names.index(name)])
    last = name == names[-1]

    def value(t: float) -> float:
        whole = total(t) or 0.0
        upto = whole if last else round(whole * (before + shares[name]))
        return upto - round(whole * before)

    return value


def _sessions(home: Home, now: float) -> Iterator[Series]:
    leaked = _leaked(home, now)
    totals: dict[str, Value] = {
        "live": lambda t: round(6 * home.size * (0.3 + 0.7 * _daylight(t))),
        "held": _always(round(9 * home.size)),
        "dead": leaked,
        "unknown": _always(round((14 if home.blind else 1) * home.size)),
    }
    reason = "blind" if home.blind else "chat"
    yield _plain("hermes_sessions_unknown", totals["unknown"], reason=reason)
    yield _plain("hermes_sessions_unreadable", _always(0))
    for source, share in _SOURCES.items():
        verdicts = {name: _part(total, _SOURCES, source) for name, total in totals.items()}
        yield _plain(
            "hermes_sessions_open",
            lambda t, v=verdicts: sum(each(t) or 0 for each in v.values()),  # type: ignore[misc]
            source=source,
        )
        for verdict, value in verdicts.items():
            yield _plain("hermes_sessions_open_by_verdict", value, source=source, verdict=verdict)
        for cause in _CAUSES:
            part = _part(verdicts["dead"], _CAUSES, cause)
            yield _plain("hermes_sessions_leaked", part, source=source, cause=cause)
        ends = {"cli": ("cli_close", "reaped"), "telegram": ("session_reset",)}
        for number, reason in enumerate(ends.get(source, ("cron_complete",)), 1):
            yield _plain(
                "hermes_sessions_ended",
                lambda t, s=share, n=number: round(700 * home.size * s / n + (t - now) / 900),  # type: ignore[misc]
                source=source,
                end_reason=reason,
            )
        for bound, below in _cumulative(MESSAGE_BUCKETS, (36, 9, 8, 15, 11, 8, 6, 4, 2, 0.7, 0.2)):
            yield _plain(
                "hermes_session_messages_bucket",
                lambda t, b=below, s=share: round(  # type: ignore[misc]
                    9 * home.size * s * b * (1 + (t - now) / (9 * DAY))
                ),
                source=source,
                le=bound,
            )
    for bound, below in _cumulative(IDLE_BUCKETS, (8, 14, 20, 26, 18, 9, 4, 1)):
        yield _plain(
            "hermes_session_open_idle_seconds_bucket",
            lambda t, b=below: round(3 * home.size * b * (1 + 0.1 * _wave(t, 20000, 1))),  # type: ignore[misc]
            le=bound,
        )
    yield _plain("hermes_sessions_empty", lambda t: round(240 * home.size + (t - now) / 1200))
    yield _plain("hermes_sessions_trivial", lambda t: round(390 * home.size + (t - now) / 800))
    yield _plain("hermes_sessions_marathon", _always(2 + home.marathons), level="near")
    yield _plain("hermes_sessions_marathon", _always(home.marathons), level="over")
    yield _plain(
        "hermes_session_messages_max",
        lambda t: round(150 + 90 * home.marathons + (t - now) / 1800),
    )
    yield _plain("hermes_session_open_oldest_timestamp_seconds", _always(now - 6.3 * DAY))
    yield _plain("hermes_tool_error_streak_max", lambda t: round(home.stuck_tools * _rise(t, now)))
    yield _plain(
        "hermes_tool_repeat_streak_max", lambda t: round(1 + 1.5 * home.stuck_tools * _rise(t, now))
    )
    yield _plain(
        "hermes_sessions_written_after_end",
        _always(home.false_reaps),
        end_reason="reaped",
    )
    stopped_at = _reaping_stopped_at(home, now)
    for source in ("cli", "cron"):
        reaped = _counter(
            "hermes_reaper_reaped_total",
            2 * home.leaks_per_hour * home.size * _SOURCES[source] if home.reaps else 0.0,
            now,
            in_steps=True,
            source=source,
            proof="proven",
        )
        yield _held(reaped, stopped_at)
    yield _plain(
        "hermes_reaper_reopened_total",
        lambda t: float(home.false_reaps if t > stopped_at else 0),
        source="cli",
        proof="proven",
    )


def _usage(home: Home, now: float) -> Iterator[Series]:
    models = {"orchard-large": 0.7, "orchard-small": 0.3}
    kinds = {"input": 900, "output": 260, "cache_read": 2400, "cache_write": 180, "reasoning": 90}
    for source, share in _SOURCES.items():
        for name, per_hour in {"messages": 90, "tool_calls": 55, "api_calls": 60}.items():
            yield _counter(f"hermes_{name}_total", per_hour * home.size * share, now, source=source)
        for model, part in models.items():
            for kind, per_minute in kinds.items():
                yield _counter(
                    "hermes_tokens_total",
                    60 * per_minute * home.size * share * part,
                    now,
                    source=source,
                    model=model,
                    kind=kind,
                )
            for status, price in {"estimated": 0.9, "actual": 0.75}.items():
                yield _counter(
                    "hermes_cost_usd_total",
                    price * home.size * share * part,
                    now,
                    source=source,
                    model=model,
                    status=status,
                )


_KINDS = {
    "transcripts": 0.42, "request_dumps": 0.05, "checkpoints_legacy": 1.3, "checkpoints_store": 0.6,
    "checkpoints_archive": 0.2, "state_db": 0.9, "state_wal": 0.02, "logs": 0.12, "cache": 0.2,
    "cron": 0.03, "trash": 0.25, "other": 0.06,
}  # fmt: skip
_FILES_PER_GIB = {
    "transcripts": 12_000, "request_dumps": 3600, "checkpoints_legacy": 40_000,
    "checkpoints_store": 900, "checkpoints_archive": 20, "state_db": 1, "state_wal": 1, "logs": 60,
}  # fmt: skip


_MARKS = {
    "transcripts": (2 * GIB, 0.75),
    "checkpoints": (10 * GIB, 0.7),
    "state_db_payload": (2 * GIB, 0.75),
    "disk_used": (0.9, 0.944),
    "empty_sessions": (1000.0, 0.1),
}
"""The high watermark of each threshold, and the share of it that the low one is."""
_BETWEEN_PRUNES, _SINCE_PRUNE = 12 * HOUR, 4 * HOUR
_MEASURED = {
    "transcripts": {"transcripts": 0.92, "request_dumps": 0.08},
    "checkpoints": {
        "checkpoints_legacy": 0.62,
        "checkpoints_store": 0.28,
        "checkpoints_archive": 0.1,
    },
}
"""The kinds of bytes that a threshold adds up, with their shares of it."""
_GROWS = {"cache": 0.7, "state_db": 0.2, "logs": 0.1}


def _prunes_until(t: float, now: float) -> int:
    return math.floor((t - now + _SINCE_PRUNE) / _BETWEEN_PRUNES)


def _measured(home: Home, threshold: str, now: float) -> Value:
    """The value of a threshold. Where a pruner is at work it rises to the high watermark."""
    high, low = _MARKS[threshold]
    if home.prunes_at_work and threshold == "transcripts":
        return lambda t: (
            high
            * (low + (1 - low) * ((t - now + _SINCE_PRUNE) % _BETWEEN_PRUNES) / _BETWEEN_PRUNES)
        )
    share = home.pressed / (1 + 0.35 * list(_MARKS).index(threshold))
    return lambda t: high * share * (1 + 0.06 * (t - now) / DAY)


def _bytes_of(home: Home, kind: str, now: float) -> Value:
    for threshold, kinds in _MEASURED.items():
        if kind in kinds:
            whole = _measured(home, threshold, now)
            return lambda t: (whole(t) or 0.0) * kinds[kind]
    size = _KINDS[kind] * home.size * GIB
    if kind == "state_wal":
        return lambda t: size * (1 + 2 * _wave(t, 4000, 1))
    if kind == "trash" and home.prunes_at_work:
        return _always(3 * DAY / _BETWEEN_PRUNES * _taken_bytes())  # as much comes as goes
    growth = home.growth_per_day * _GROWS.get(kind, 0.0)
    return lambda t: max(size + growth * (t - now) / DAY, 0.3 * size)


def _taken_bytes() -> float:
    """By one run of the pruner that is at work."""
    high, low = _MARKS["transcripts"]
    return high * (1 - low)


def _disk(home: Home, now: float) -> Iterator[Series]:
    for kind, size in _KINDS.items():
        yield _plain("hermes_disk_bytes", _bytes_of(home, kind, now), kind=kind)
        count = _FILES_PER_GIB.get(kind, 1000) * size * home.size
        yield _plain("hermes_disk_files", _always(max(round(count), 1)), kind=kind)
    size_bytes = 200 * GIB
    used = 0.55 + 0.35 * (home.fills_in_days < 30)
    disk = f"{zlib.crc32(home.name.encode()):08x}"
    yield _plain("hermes_filesystem_size_bytes", _always(size_bytes), filesystem=disk)
    avail = size_bytes * (1 - used)
    yield _plain(
        "hermes_filesystem_avail_bytes",
        lambda t: avail - avail / home.fills_in_days * (t - now) / DAY,
        filesystem=disk,
    )
    for (layout, state), count in _PROJECTS.items():
        yield _plain(
            "hermes_checkpoint_projects",
            _always(round(count * home.size)),
            layout=layout,
            state=state,
        )


_PROJECTS = {
    ("legacy", "active"): 40, ("legacy", "orphan"): 18, ("legacy", "stale"): 11,
    ("store", "active"): 26, ("store", "orphan"): 4, ("store", "stale"): 3,
}  # fmt: skip
_POLICIES = {
    "request_dumps": 0.05, "orphan_files": 0.01, "orphan_checkpoints": 0.4,
    "stale_checkpoints": 0.3, "empty_sessions": 0.02, "trivial_sessions": 0.04,
    "old_sessions": 0.12,
}  # fmt: skip


def _pruning(home: Home, now: float) -> Iterator[Series]:
    for threshold, (high, low) in _MARKS.items():
        value = _measured(home, threshold, now)
        crossed = (value(now) or 0.0) > high
        yield _plain("hermes_prune_threshold_high", _always(high), threshold=threshold)
        yield _plain("hermes_prune_threshold_low", _always(high * low), threshold=threshold)
        yield _plain("hermes_prune_threshold_value", value, threshold=threshold)
        yield _plain("hermes_prune_pressure", _always(crossed), threshold=threshold)
    for policy, part in _POLICIES.items():
        # What is pruned every night leaves nothing that is past its policy.
        by_night = home.prunes and not home.prunes_at_work
        items = 0 if by_night else _eligible(home, policy, part)
        bytes_now = part * home.size * GIB * (1.0 if home.prunes else 3.0) if items else 0.0
        yield _plain("hermes_disk_reclaimable_bytes", _always(bytes_now), policy=policy)
        yield _plain("hermes_retention_eligible", _always(items), policy=policy)
        yield _plain(
            "hermes_retention_oldest_timestamp_seconds",
            _always(now - (30 + 100 * part) * DAY),
            policy=policy,
        )
        if home.prunes_at_work:
            continue
        pace = part * home.size * (1.0 if home.prunes else 0.0)
        yield _counter("hermes_prune_deleted_total", 40 * pace, now, in_steps=True, policy=policy)
        yield _counter(
            "hermes_prune_freed_bytes_total", 90 * MIB * pace, now, in_steps=True, policy=policy
        )
    if home.prunes_at_work:
        yield from _work_of_pruner(now)
        return
    for outcome, pace in {"done": 1.0, "partial": 0.1, "failed": 0.04}.items():
        runs = pace if home.prunes else 0.0
        yield _counter("hermes_prune_runs_total", runs, now, in_steps=True, outcome=outcome)
    if home.prunes:
        yield _plain(
            "hermes_prune_last_run_timestamp_seconds",
            lambda t: (
                t - t % (2 * HOUR) + 7 * MINUTE
                if t % (2 * HOUR) > 7 * MINUTE
                else t - t % (2 * HOUR) - 2 * HOUR + 7 * MINUTE
            ),
            outcome="done",
        )
    trash = 0.2 * GIB * home.size * (home.pressed > 1)
    yield _plain(
        "hermes_prune_unreachable_bytes", _always(trash), threshold="transcripts", reason="trash"
    )
    yield _plain("hermes_prune_blocked", _always(home.pressed > 1), reason="too_many_orphans")
    yield _plain("hermes_prune_by_age", _always(home.prunes))
    yield _plain("hermes_prune_capped_items", _always(40 * (home.pressed > 1)))


def _eligible(home: Home, policy: str, part: float) -> int:
    """Of checkpoints, as many as there are in that state."""
    state = policy.partition("_")[0]
    if policy.endswith("checkpoints"):
        counts = [count for (_, each), count in _PROJECTS.items() if each == state]
        return sum(round(count * home.size) for count in counts)
    return max(1, round(300 * part * home.size))


def _work_of_pruner(now: float) -> Iterator[Series]:
    """Two runs a day: sessions and their transcripts go, and trash of three days ago comes free."""
    runs: Value = lambda t: 40.0 + _prunes_until(t, now)  # noqa: E731
    for policy, items in {"old_sessions": 180, "trivial_sessions": 90, "request_dumps": 60}.items():
        yield _plain(
            "hermes_prune_deleted_total",
            lambda t, n=items: n * (runs(t) or 0.0),  # type: ignore[misc]
            policy=policy,
        )
    yield _plain(
        "hermes_prune_freed_bytes_total",
        lambda t: _taken_bytes() * (runs(t) or 0.0),
        policy="expired_trash",
    )
    yield _plain("hermes_prune_runs_total", runs, outcome="done")
    yield _plain(
        "hermes_prune_last_run_timestamp_seconds",
        lambda t: now - _SINCE_PRUNE + _BETWEEN_PRUNES * _prunes_until(t, now),
        outcome="done",
    )
    yield _plain("hermes_prune_blocked", _always(0), reason="too_many_orphans")
    yield _plain("hermes_prune_by_age", _always(0))
    yield _plain("hermes_prune_capped_items", _always(0))
    yield _plain(
        "hermes_prune_unreachable_bytes", _always(0), threshold="transcripts", reason="trash"
    )


def _database(home: Home, now: float) -> Iterator[Series]:
    pages = 0.9 * home.size * GIB / 4096
    yield _plain("hermes_state_db_schema_version", _always(22))
    yield _plain("hermes_state_db_pages", _always(round(pages)))
    yield _plain(
        "hermes_state_db_free_pages", lambda t: round(pages * (0.2 + 0.05 * _wave(t, 9e4, 2)))
    )
    yield _plain("hermes_state_db_page_size_bytes", _always(4096))
    yield _plain(
        "hermes_state_db_integrity_ok",
        lambda t: 0.0 if home.damaged and t > now - 4 * HOUR else 1.0,
    )
    yield _plain("hermes_state_db_lockless_holders", _always(0))
    yield _plain(
        "hermes_state_db_deleted_wal_holders",
        lambda t: float(home.lost if t > now - 90 * MINUTE else 0),
    )


def _processes(home: Home, now: float) -> Iterator[Series]:
    down_since = now - home.gateway_down_for if home.gateway_down_for else math.inf
    if home.gateway:
        yield _plain("hermes_gateway_up", lambda t: 1.0 if t < down_since else 0.0)
        yield _plain(
            "hermes_gateway_start_time_seconds",
            lambda t: now - 3.2 * DAY if t < down_since else None,
        )
        storm = home.gateway_down_for > 0
        yield _plain(
            "hermes_gateway_starts_recent",
            lambda t: 7.0 if storm and abs(t - down_since) < 20 * MINUTE else 0.0,
        )
        yield _plain(
            "hermes_cron_ticker_timestamp_seconds",
            lambda t: t - t % 60 if t < down_since else down_since,
        )
        yield _plain("hermes_kanban_tasks_dead_owner", _always(1 if storm else 0))
    upgrade = now - home.upgraded_ago
    yield _plain("hermes_agent_info", lambda t: 1.0 if t < upgrade else None, version="0.18.2")
    yield _plain("hermes_agent_info", lambda t: 1.0 if t >= upgrade else None, version="0.19.0")
    for kind, count in {
        "gateway": int(home.gateway),
        "cli": 4,
        "tui": 1,
        "cron": 1,
        "other": 0,
    }.items():
        yield _plain(
            "hermes_processes",
            lambda t, c=count, k=kind: round(c * (home.size * _daylight(t) if k == "cli" else 1)),  # type: ignore[misc]
            kind=kind,
        )


def _plain(name: str, value: Value, **labels: str) -> Series:
    return Series(name, labels, value)


def _counter(
    name: str, per_hour: float, now: float, in_steps: bool = False, **labels: str
) -> Series:
    """Grows with the day's work, or in steps, nine an hour."""
    start = now - 20 * DAY
    if in_steps:
        return Series(
            name, labels, lambda t: math.floor(per_hour / 9 * math.floor((t - start) / HOUR * 9))
        )
    # The integral of the rate 0.55 + 0.45 sin, so that it never falls.
    turn = 2 * math.pi / DAY
    own = len(name) + per_hour

    def value(t: float) -> float:
        hours = (t - start) / HOUR
        bend = 0.45 * (math.cos(turn * start) - math.cos(turn * t)) / turn / HOUR
        ripple = sum(
            part * math.sin(t / period + own * period) * period / HOUR
            for part, period in ((0.12, 1900), (0.1, 760), (0.08, 290))
        )
        return per_hour * (0.75 * hours + bend + ripple)

    return Series(name, labels, value)


def _always(value: float) -> Value:
    return lambda _: float(value)


def _wave(t: float, period: float, phase: float) -> float:
    """Wanders between 0 and 1, the same way every time."""
    place = t / period * 4 + phase * 1000
    step, part = divmod(place, 1)
    smooth = part * part * (3 - 2 * part)
    return _chance(step) * (1 - smooth) + _chance(step + 1) * smooth


def _chance(number: float) -> float:
    return math.sin(number * 12.9898) * 43758.5453 % 1


def _daylight(t: float) -> float:
    return 0.5 - 0.5 * math.cos(2 * math.pi * (t % DAY) / DAY)


def _rise(t: float, now: float) -> float:
    """From nothing to all within the last two hours."""
    return max(0.0, min(1.0, 1 - (now - t) / (2 * HOUR)))


def _cumulative(
    bounds: tuple[float, ...], weights: tuple[float, ...]
) -> Iterator[tuple[str, float]]:
    total = 0.0
    for bound, weight in zip(bounds, weights, strict=True):
        total += weight
        yield str(float(bound)), total
    yield "+Inf", total + 0.1
