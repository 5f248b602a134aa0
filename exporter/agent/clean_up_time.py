"""When the daily clean-up by age is due: once between 03:00 and 05:00 local time.

The minute is computed from the host's name, so that the hosts of a fleet do not all begin at once.
"""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Final
from zlib import crc32

_OPENS: Final = time(3, 0)
_CLOSES: Final = time(5, 0)
_MINUTES: Final = 110
"""Hosts begin between 03:00 and 04:50, so that even the last one has 10 minutes to begin."""


def minute_of(host: str) -> int:
    """Return how many minutes after 03:00 this host begins."""
    return crc32(host.encode(errors="surrogateescape")) % _MINUTES


def is_clean_up_due(now: float, last_at: float | None, host: str) -> bool:
    """True from the host's minute until 05:00, if there was no clean-up since that minute."""
    local = datetime.fromtimestamp(now)  # noqa: DTZ006 - local time is meant
    begins = _begins(local, host)
    if local < begins or local.time() >= _CLOSES:
        return False
    # A clean-up in the future was noted while the clock was wrong: it does not count.
    return last_at is None or not begins.timestamp() <= last_at <= now


def next_clean_up(now: float, host: str) -> float:
    """Return the next time at which the host's minute begins."""
    local = datetime.fromtimestamp(now)  # noqa: DTZ006 - local time is meant
    begins = _begins(local, host)
    if begins <= local:
        begins = _begins(local + timedelta(days=1), host)
    return begins.timestamp()


def _begins(local: datetime, host: str) -> datetime:
    return datetime.combine(local.date(), _OPENS) + timedelta(minutes=minute_of(host))
