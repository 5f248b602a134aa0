"""Clocks that the test sets. Install them before anything of ours is imported.

Modules of the standard library that wait for threads or processes keep the real clocks: they are
imported here first.
"""

from __future__ import annotations

import concurrent.futures  # noqa: F401 - keeps the real clocks
import queue  # noqa: F401
import selectors  # noqa: F401
import socket  # noqa: F401
import subprocess  # noqa: F401
import tempfile  # noqa: F401
import threading  # noqa: F401
import time

_REAL_CLOCK = time.clock_gettime
BEGAN_AT = 1_900_000_000.0


class MadeUpTime:
    """The wall clock, the monotonic clock and the time since boot; `true` is never set back."""

    def __init__(self) -> None:
        self.wall = BEGAN_AT
        self.monotonic = 5_000.0
        self.since_boot = 5_000.0
        self.true = 0.0
        """Seconds since the campaign began, whatever the clocks say."""
        self.boots = 0

    @property
    def boot_id(self) -> str:
        return f"00000000-0000-4000-8000-{self.boots:012}"

    def advance(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds
        self.since_boot += seconds
        self.true += seconds

    def set_wall(self, by: float) -> None:
        self.wall += by

    def suspend(self, seconds: float) -> None:
        """The host sleeps: CLOCK_MONOTONIC stands still."""
        self.wall += seconds
        self.since_boot += seconds
        self.true += seconds

    def reboot(self) -> None:
        self.boots += 1
        self.advance(30.0)
        self.monotonic = self.since_boot = 20.0

    def read(self, clock: int) -> float:
        if clock == time.CLOCK_REALTIME:
            return self.wall
        if clock == time.CLOCK_MONOTONIC:
            return self.monotonic
        if clock == getattr(time, "CLOCK_BOOTTIME", -1):
            return self.since_boot
        return _REAL_CLOCK(clock)

    def install(self) -> None:
        """Give these clocks to everything that is imported from now on."""
        time.time = lambda: self.wall
        time.monotonic = lambda: self.monotonic
        time.sleep = self.advance  # type: ignore[assignment]
        time.clock_gettime = self.read
