"""Measuring one thing against another so that a noisy machine troubles both alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from msgspec import Struct

Stopwatch = Callable[[], float]
"""Does a job and tells how many seconds it took; what it prepares first does not count."""


class Timings(Struct, frozen=True):
    """What alternating rounds of two jobs took, in seconds."""

    ours: list[float]
    peer: list[float]

    @property
    def ratio(self) -> float:
        """Ours to the peer's: the median over rounds, so that drift cancels out."""
        return median(ours / peer for ours, peer in zip(self.ours, self.peer, strict=True))


def alternate(ours: Stopwatch, peer: Stopwatch, rounds: int) -> Timings:
    """Run both by turns; a first, uncounted turn warms caches up."""
    ours()
    peer()
    times = [(ours(), peer()) for _ in range(rounds)]
    return Timings([mine for mine, _ in times], [theirs for _, theirs in times])


def timed(job: Callable[[], object]) -> float:
    """The seconds that one run of a job takes."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def mean_of(job: Callable[[], object], repetitions: int) -> float:
    """The seconds per run of a job too short to be timed alone."""
    return timed(lambda: [job() for _ in range(repetitions)]) / repetitions


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def format_times(times: Sequence[float]) -> str:
    """The median of some times."""
    seconds = median(times)
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
