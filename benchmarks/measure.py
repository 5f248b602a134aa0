"""Compare two jobs so that a busy machine affects both equally."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

from msgspec import Struct

Stopwatch = Callable[[], float]
"""Does a job and returns its seconds, without the preparation."""


class Timings(Struct, frozen=True):
    """What alternating rounds of two jobs took: seconds, or another measure of both."""

    ours: list[float]
    peer: list[float]

    @property
    def ratios(self) -> list[float]:
        """Ours divided by the peer's, of each round."""
        return [ours / peer for ours, peer in zip(self.ours, self.peer, strict=True)]

    @property
    def ratio(self) -> float:
        """The median over rounds, so that drift cancels out."""
        return median(self.ratios)


def alternate(ours: Stopwatch, peer: Stopwatch, rounds: int) -> Timings:
    """Run both in turn; a first round that does not count warms up caches."""
    ours()
    peer()
    times = [(ours(), peer()) for _ in range(rounds)]
    return Timings([mine for mine, _ in times], [theirs for _, theirs in times])


def timed(job: Callable[[], object]) -> float:
    """Return the seconds that one run of a job takes."""
    began = time.perf_counter()
    job()
    return time.perf_counter() - began


def mean_of(job: Callable[[], object], repetitions: int) -> float:
    """Return the seconds per run of a job that is too short to be timed alone."""
    return timed(lambda: [job() for _ in range(repetitions)]) / repetitions


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def format_times(times: Sequence[float]) -> str:
    """Return the median of some times as text."""
    seconds = median(times)
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
