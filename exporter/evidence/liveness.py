"""Whether a process that was written down somewhere is alive.

A PID alone proves nothing: it comes round again. With its start time it names a process, if the two
are of the same boot and the same PID namespace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Final

from exporter.evidence.boot import Clock, read_clock
from exporter.evidence.models import HIDES_PROCESSES, Blindness, HomeEvidence, Liveness
from exporter.evidence.procfs import read_stat
from exporter.snapshot import Timestamp

_TOLERANCE_SECONDS: Final = 3.0
"""psutil's start time has whole seconds of boot time in it, and clocks are nudged."""

StartTimes = Callable[[int], Timestamp | None]
"""When the living process of a PID began; None if there is none. OSError: it cannot be told."""


def start_times(proc: str = "/proc", platform: str = sys.platform) -> StartTimes:
    """The start times of this host's processes, by the wall clock as it is set now."""
    if platform != "linux":
        from exporter.evidence import psutil_survey  # psutil, of which Linux needs nothing

        return psutil_survey.started_at
    clock = read_clock()
    return lambda pid: _started_at(pid, proc, clock)


def lease_alive(
    pid: int,
    process_started_at: Timestamp | None,
    evidence: HomeEvidence,
    started: StartTimes | None = None,
) -> Liveness:
    """Whether the process of a lease is alive.

    Dead is said only if it is proven: the PID is free, or belongs to a process that began at
    another time and has nothing of this home open. A holder under that PID that began at another
    time may be the same process after somebody set the clock.
    """
    if pid <= 0:
        return Liveness.UNKNOWN
    holders = [h.started_at for h in evidence.holders if pid in (h.pid, h.namespace_pid)]
    try:
        began = (started or start_times())(pid)
    except OSError:
        return Liveness.UNKNOWN
    known = [*holders, *([] if began is None else [began])]
    if process_started_at is None:
        return Liveness.UNKNOWN if known or HIDES_PROCESSES & set(evidence.blind) else Liveness.DEAD
    if any(abs(moment - process_started_at) <= _TOLERANCE_SECONDS for moment in known):
        return Liveness.ALIVE
    if holders or _may_be_unseen(began, evidence.blind):
        return Liveness.UNKNOWN
    return Liveness.DEAD


def _may_be_unseen(began: Timestamp | None, blind: Collection[Blindness]) -> bool:
    """Whether the process, or what it has open, could be kept from us."""
    if HIDES_PROCESSES & set(blind):
        return True
    return began is not None and bool({Blindness.PERMISSIONS, Blindness.PLATFORM} & set(blind))


def _started_at(pid: int, proc: str, clock: Clock) -> Timestamp | None:
    stat = read_stat(proc, pid)
    return None if stat is None or stat.dead else clock.epoch(stat.start_ticks)
