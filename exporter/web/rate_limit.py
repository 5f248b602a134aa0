"""A token bucket for all requests together, as exporter-toolkit has it."""

from __future__ import annotations

import time
from collections.abc import Callable


class RateLimiter:
    """Allows `burst` requests at once, and one more per interval."""

    def __init__(
        self, interval_seconds: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_seconds = interval_seconds
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock()

    def allows(self) -> bool:
        """Take a token if there is one; an interval of 0 means no limit."""
        if self._interval_seconds == 0:
            return True
        now = self._clock()
        gained = (now - self._filled_at) / self._interval_seconds
        self._filled_at = now
        self._tokens = min(float(self._burst), self._tokens + gained)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
