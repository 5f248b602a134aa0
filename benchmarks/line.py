"""One line of the report: a target, what was achieved, and whether that meets it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from benchmarks.measure import Timings, format_times


class Verdict(StrEnum):
    MET = "met"
    MISSED = "missed"
    FAILED = "failed"
    """It could not be measured; the note says why."""


class Setting(Struct, frozen=True):
    """What the caller asked for."""

    scale: float = 1.0
    rounds: int = 5


class Line(Struct, frozen=True):
    """A figure and its limit, as written to the report and to JSON."""

    job: str
    achieved: float
    limit: float
    peer: str = ""
    at_least: bool = False
    """True if the limit is a lower limit."""
    unit: str = ""
    """Empty for a ratio to the peer."""
    note: str = ""
    rounds: Timings | None = None
    error: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.error:
            return Verdict.FAILED
        met = self.achieved >= self.limit if self.at_least else self.achieved <= self.limit
        return Verdict.MET if met else Verdict.MISSED


def ratio_line(job: str, peer: str, rounds: Timings, limit: float, note: str = "") -> Line:
    """Return a line for a time that is compared with a peer."""
    times = f"{format_times(rounds.ours)} to {format_times(rounds.peer)}"
    return Line(
        job=job,
        achieved=rounds.ratio,
        limit=limit,
        peer=peer,
        note=f"{times}; {note}" if note else times,
        rounds=rounds,
    )
