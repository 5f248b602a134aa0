"""Ten times as much data: polls should cost the same, full passes take ten times as long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks import agent, hermes, homes, load, peers, reading, walking
from benchmarks.cases import memory
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import Stopwatch, Timings, alternate, mean_of, percentile, timed

_FACTOR = 10
_CLIENTS = 8
_PEER = "itself at a tenth"


def run(setting: Setting) -> Iterator[Line]:
    with ExitStack() as running:
        small, large = (homes.home(setting.scale * factor) for factor in (1, _FACTOR))
        writers = {home: running.enter_context(hermes.holding(home)) for home in (small, large)}

        def line(job: str, subject: Callable[[Path], Stopwatch], limit: float) -> Line:
            rounds = alternate(subject(large), subject(small), setting.rounds)
            return ratio_line(f"growth, {job}", _PEER, rounds, limit)

        yield line("database poll, nothing changed", _poll, 2.0)
        yield line("database poll, 100 new messages", lambda h: _poll_new(h, writers[h]), 2.0)
        yield line("database, first full pass", _first_pass, 11.0)
        yield line("disk, full scan", _first_scan, 11.0)
        yield line("disk, re-scan, nothing changed", _rescan, 11.0)
        against_du = alternate(_rescan(large), lambda: peers.du(large), setting.rounds)
        yield ratio_line("disk, re-scan, nothing changed", "du -sb", against_du, 0.02)
    yield _scrape(small, large, setting)
    ours = [memory.measure(setting.scale * factor) for factor in (_FACTOR, 1)]
    yield Line(
        "growth, memory",
        achieved=ours[0] / ours[1],
        limit=1.5,
        peer=_PEER,
        note=f"{ours[0]:.0f} to {ours[1]:.0f} MiB",
    )


def _poll(home: Path) -> Stopwatch:
    reader = reading.first_pass(home)
    return lambda: mean_of(lambda: reading.poll(reader), reading.IDLE_POLLS)


def _poll_new(home: Path, writer: hermes.HermesProcess) -> Stopwatch:
    reader = reading.first_pass(home)

    def poll_after_writes() -> float:
        writer.append(100, 50)
        return timed(lambda: reading.poll(reader))

    return poll_after_writes


def _first_pass(home: Path) -> Stopwatch:
    return lambda: timed(lambda: reading.first_pass(home))


def _first_scan(home: Path) -> Stopwatch:
    return lambda: timed(lambda: walking.first_scan(home))


def _rescan(home: Path) -> Stopwatch:
    walker = walking.first_scan(home)
    return lambda: mean_of(walker.scan, 10)


def _scrape(small: Path, large: Path, setting: Setting) -> Line:
    with (
        agent.running(large, interval="1h") as of_large,
        agent.running(small, interval="1h") as of_small,
    ):
        times = []
        for each in (of_large, of_small):
            each.wait_until_ready()

        def p99(port: int) -> float:
            return percentile(load.scrape(port, clients=_CLIENTS, seconds=3).latencies, 0.99)

        times = [(p99(of_large.port), p99(of_small.port)) for _ in range(setting.rounds)]
    rounds = Timings([large for large, _ in times], [small for _, small in times])
    return ratio_line("growth, scrape p99", _PEER, rounds, 1.1)
