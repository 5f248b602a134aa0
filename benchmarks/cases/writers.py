"""Hermes's own writers while the agent scans every second, against the same writers alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from statistics import median

from msgspec import Struct

from benchmarks import agent, hermes, homes
from benchmarks.line import Line, Setting
from benchmarks.measure import Timings, percentile
from tests.support.wal import wal_watched

_MESSAGES = 600
_SESSIONS = 50
_PAUSE_SECONDS = 0.005
_NOTE = "two writers, FTS optimize put off"


class _Run(Struct, frozen=True):
    p50: float
    p99: float
    wal_bytes: int


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    alone, watched = [], []
    _write(home, scanning=False)
    for _ in range(max(setting.rounds, 4)):
        alone.append(_write(home, scanning=False))
        watched.append(_write(home, scanning=True))
    for name in ("p50", "p99"):
        usual = [getattr(each, name) for each in alone]
        rounds = Timings([getattr(each, name) for each in watched], [max(usual)] * len(watched))
        yield Line(
            f"Hermes's writes, {name}, within the spread alone",
            achieved=rounds.ratio,
            limit=1.0,
            peer="the writers alone",
            note=f"{median(rounds.ours) * 1e3:.2f} ms; alone {min(usual) * 1e3:.2f} to"
            f" {max(usual) * 1e3:.2f} ms; {_NOTE}",
            rounds=rounds,
        )
    sizes = Timings([each.wal_bytes for each in watched], [each.wal_bytes for each in alone])
    largest, usual_wal = max(sizes.ours), max(sizes.peer)
    yield Line(
        "Hermes's WAL",
        achieved=largest / usual_wal,
        limit=2.0,
        peer="the writers alone",
        note=f"{largest / 1e6:.1f} to {usual_wal / 1e6:.1f} MB",
        rounds=sizes,
    )


def _write(home: Path, *, scanning: bool) -> _Run:
    with (
        hermes.holding(home) as first,
        hermes.holding(home) as second,
        agent.running(home, interval="1s") if scanning else nullcontext() as watching,
    ):
        if watching is not None:
            watching.wait_until_ready()
        with wal_watched(home) as largest_wal:
            for writer in (first, second):
                writer.begin_appending(_MESSAGES, _SESSIONS, pause_seconds=_PAUSE_SECONDS)
            latencies = first.appended() + second.appended()
    return _Run(percentile(latencies, 0.5), percentile(latencies, 0.99), largest_wal[0])
