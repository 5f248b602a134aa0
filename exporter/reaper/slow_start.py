"""Slow start: how many sessions automatic reaping of a home may end in this hour.

It begins with 10 in an hour and doubles after each hour that had reaps and in which nothing was
reopened, up to `reaper.max_per_minute`. So a backlog of 900 is gone in a night without a person,
and most mistakes show while they are small. An hour begins with its first reap, so that the limits
of two hours cannot be used up within a minute.

This is a pure function of the home's run journal: it survives a restart of the agent. Reaps by hand
do not count. A wrong proof, which also stops automatic reaping, starts it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from exporter.runs.models import Reaps, Reopening
from exporter.snapshot import Count, Timestamp

FIRST_HOUR: Final = 10
_HOUR_SECONDS: Final = 3600.0


class HourlyLimit(Struct, frozen=True):
    """What automatic reaping may end in this hour."""

    sessions: Count
    left: Count


class SlowStart(Struct, frozen=True):
    """How far the slow start of a home is."""

    doublings: Count = 0
    hour_began_at: Timestamp | None = None
    """When the newest hour with reaps began; None if there was none."""
    reaped: Count = 0
    """Sessions reaped in that hour."""
    reopened: bool = False
    """True if anything was reopened since that hour began."""

    def at(self, now: float, max_per_minute: int) -> HourlyLimit:
        """Return the limit at this moment."""
        began_at, doublings, reaped = self.hour_began_at, self.doublings, self.reaped
        if began_at is not None and now >= began_at + _HOUR_SECONDS:
            doublings, reaped = doublings + (not self.reopened), 0
        # The largest number of doublings that matters: the limit must not become a huge number.
        limit = min(FIRST_HOUR << min(doublings, 32), 60 * max_per_minute)
        return HourlyLimit(limit, max(0, limit - reaped))


def slow_start(reaps: Iterable[Reaps], reopenings: Sequence[Reopening], now: float) -> SlowStart:
    """Return how far the slow start is, from what the journal says of automatic reaps.

    What lies less than an hour ahead counts as of now: the clock may have been set back, and it may
    be of this hour. What lies further ahead is left out: it was written with a wrong clock, and
    would make an hour that never ends.
    """
    until = now + _HOUR_SECONDS
    undone = sorted(min(each.at, now) for each in reopenings if each.at < until)
    anew_at = max(
        (each.at for each in reopenings if each.wrong_proof and each.at <= now), default=0
    )
    doublings, began_at, reaped = 0, None, 0
    for each in sorted(reaps, key=lambda each: each.at):
        if not anew_at < each.at < until:
            continue
        at = min(each.at, now)
        if began_at is None or at >= began_at + _HOUR_SECONDS:
            if began_at is not None and not _any_between(undone, began_at, at):
                doublings += 1
            began_at, reaped = at, 0
        reaped += each.sessions
    reopened = began_at is not None and _any_between(undone, began_at, now + 1.0)
    return SlowStart(doublings, began_at, reaped, reopened)


def _any_between(moments: Sequence[float], first: float, end: float) -> bool:
    return any(first <= each < end for each in moments)
