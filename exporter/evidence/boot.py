"""This boot and its clocks. With them a PID and its start time name one process for ever.

Start ticks count from boot, so they repeat after a reboot. Wall-clock start times change when the
clock is set. So a process is named by boot id, PID namespace, PID and start ticks.
"""

from __future__ import annotations

import os
import time
from typing import Final

from msgspec import Struct

from exporter.snapshot import Seconds, Timestamp

_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Struct, frozen=True):
    """The wall clock and the time since boot, read together."""

    wall: Timestamp
    since_boot: Seconds
    ticks_per_second: int

    @property
    def boot_began_at(self) -> Timestamp:
        """When this boot began, by the present wall clock: it moves when that clock is set."""
        return self.wall - self.since_boot

    def epoch(self, start_ticks: int) -> Timestamp:
        """Return when a process with these start ticks began, by the present wall clock."""
        return self.boot_began_at + start_ticks / self.ticks_per_second


def read_clock() -> Clock:
    return Clock(
        wall=time.time(),
        since_boot=time.clock_gettime(_BOOT_CLOCK),
        ticks_per_second=os.sysconf("SC_CLK_TCK"),
    )


def read_boot_id(proc: str = "/proc") -> str | None:
    """Return the kernel's id of this boot; None if there is none (macOS, a bare /proc)."""
    try:
        with open(f"{proc}/sys/kernel/random/boot_id", "rb") as stream:
            return stream.read(64).decode().strip() or None
    except (OSError, ValueError):
        return None
