"""What is counted over all runs of a home; it does not fall when old actions leave the journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, TypeVar

from msgspec import Meta, Struct

Key = TypeVar("Key")
_MINUTES_PER_HOUR = 60

Total = Annotated[int, Meta(ge=0, le=1 << 53)]
Time = Annotated[float, Meta(ge=0.0, le=1e15)]
"""Finite, so that it can be sent and printed."""


class RunTotals(Struct, frozen=True):
    """Counts over all runs."""

    trimmed_at: Time = 0.0
    """Of those that left the journal: when all that could go had gone; 0 if some is left."""
    reaped: dict[tuple[str, str], Total] = {}
    """Sessions ever ended by us, by source and proof."""
    mistakes: dict[tuple[str, str], Total] = {}
    """Those of them that healing opened again."""
    healed: Total = 0
    """Pruned sessions that got their past back, without those that only came along."""
    pruned: dict[str, Total] = {}
    """Actions of prunes, by policy."""
    freed_bytes: dict[str, Total] = {}
    """What they freed at once, by policy."""
    reaps: dict[Total, Total] = {}
    """Sessions that automatic runs ended, by the minute since 1970."""
    reopenings: dict[Time, bool] = {}
    """When reaped sessions were opened again, and whether one of them was proven dead."""

    def plus(self, other: RunTotals) -> RunTotals:
        return RunTotals(
            self.trimmed_at,
            _sum(self.reaped, other.reaped),
            _sum(self.mistakes, other.mistakes),
            self.healed + other.healed,
            _sum(self.pruned, other.pruned),
            _sum(self.freed_bytes, other.freed_bytes),
            _sum(self.reaps, other.reaps),
            other.reopenings | self.reopenings,
        )

    def minus(self, other: RunTotals) -> RunTotals:
        """Return what must be added to the other to get this."""
        return RunTotals(
            self.trimmed_at,
            _rest(self.reaped, other.reaped),
            _rest(self.mistakes, other.mistakes),
            max(0, self.healed - other.healed),
            _rest(self.pruned, other.pruned),
            _rest(self.freed_bytes, other.freed_bytes),
            _rest(self.reaps, other.reaps),
            {at: w for at, w in self.reopenings.items() if other.reopenings.get(at) != w},
        )

    def as_past(self, trimmed_at: float, hours_max: int) -> RunTotals:
        """Return what is kept of the past: reaps by the hour, and only so many hours of them."""
        by_hour: Counter[int] = Counter()
        for minute, sessions in self.reaps.items():
            by_hour[minute - minute % _MINUTES_PER_HOUR] += sessions
        kept = {hour: by_hour[hour] for hour in sorted(by_hour)[-hours_max:]}
        first_at = min(kept, default=0) * 60.0
        return RunTotals(
            trimmed_at,
            self.reaped,
            self.mistakes,
            self.healed,
            self.pruned,
            self.freed_bytes,
            kept,
            {at: wrong for at, wrong in self.reopenings.items() if at >= first_at},
        )


def _sum(first: Mapping[Key, int], second: Mapping[Key, int]) -> dict[Key, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in {**first, **second}}


def _rest(whole: Mapping[Key, int], part: Mapping[Key, int]) -> dict[Key, int]:
    return {key: n - part.get(key, 0) for key, n in whole.items() if n > part.get(key, 0)}
