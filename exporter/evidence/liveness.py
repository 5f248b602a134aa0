"""Tell if a process that some file or row names is alive.

A PID alone proves nothing, because PIDs are reused. Start ticks count from boot, so they repeat
after a reboot; wall-clock start times change when the clock is set. So a process is named by boot
id, PID namespace, PID and start ticks.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from exporter.evidence.models import HIDES_PROCESSES, Blindness, Holder, HomeEvidence, Liveness
from exporter.evidence.procfs import read_file, read_stat
from exporter.hermes.routing import TaskOwner
from exporter.snapshot import Seconds, Timestamp

_TOLERANCE_SECONDS: Final = 3.0
"""psutil's start time is built from whole seconds of boot time, and clocks are adjusted."""

_BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_HIDES_FILES: Final = frozenset({Blindness.PERMISSIONS, Blindness.PLATFORM})

StartTimes = Callable[[int], Timestamp | None]
"""Return when the living process of a PID began; None if there is none.

Raise OSError if that is not known.
"""


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
        return read_file(f"{proc}/sys/kernel/random/boot_id").decode().strip() or None
    except (OSError, ValueError):
        return None


class BootTime(Struct, frozen=True):
    """The clocks that no user can set, read together."""

    boot_id: str
    """Empty if the system has none: then nothing is kept for the next worker."""
    monotonic: float
    since_boot: float


def read_boot_time() -> BootTime:
    return BootTime(read_boot_id() or "", time.monotonic(), time.clock_gettime(_BOOT_CLOCK))


def start_times(proc: str = "/proc", platform: str = sys.platform) -> StartTimes:
    """Return the start times of this host's processes, by the present wall clock."""
    if platform != "linux":
        from exporter.evidence import psutil_survey  # psutil; Linux does not need it

        return psutil_survey.started_at
    clock = read_clock()

    def started_at(pid: int) -> Timestamp | None:
        stat = read_stat(proc, pid)
        return None if stat is None or stat.dead else clock.epoch(stat.start_ticks)

    return started_at


def lease_alive(
    pid: int,
    process_started_at: Timestamp | None,
    evidence: HomeEvidence,
    started: StartTimes | None = None,
) -> Liveness:
    """Tell if the process of a lease is alive.

    The answer is dead only if that is proven: the PID is free, or its process began at another time
    and has no file of this home open. A holder with that PID that began at another time may be the
    same process after the clock was set.
    """
    if pid <= 0:
        return Liveness.UNKNOWN
    holders = [h.started_at for h in evidence.holders if pid in (h.pid, h.namespace_pid)]
    try:
        began = (started or start_times())(pid)
    except OSError:
        return Liveness.UNKNOWN
    known = holders if began is None else [*holders, began]
    blind = set(evidence.blind)
    if process_started_at is None:
        return Liveness.UNKNOWN if known or HIDES_PROCESSES & blind else Liveness.DEAD
    if any(abs(moment - process_started_at) <= _TOLERANCE_SECONDS for moment in known):
        return Liveness.ALIVE
    # The process, or the open files of the one that has this PID, could be hidden from us.
    hidden = HIDES_PROCESSES & blind or (began is not None and _HIDES_FILES & blind)
    return Liveness.UNKNOWN if holders or hidden else Liveness.DEAD


class LivingOwners:
    """Tells if the owner of a delegated task lives; True also if that is not known.

    Hermes notes PID and start ticks, and no boot: a process of another boot that has both is taken
    for the owner, which only protects.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self.holders: Sequence[Holder] = ()
        """Processes that have the database open: one in a container knows itself by another PID."""

    def __call__(self, owner: TaskOwner) -> bool:
        if owner.pid is None or owner.pid <= 0:
            return True
        if any(
            owner.pid in (each.pid, each.namespace_pid)
            and owner.start_ticks in (None, each.start_ticks)
            for each in self.holders
        ):
            return True
        try:
            stat = read_stat(self._proc, owner.pid)
        except OSError:
            return True
        if stat is None or stat.dead:
            # Without /proc no process is seen at all.
            return not os.path.exists(f"{self._proc}/self/stat")
        return owner.start_ticks in (None, stat.start_ticks)
