"""Tell if a process that some file or row names is alive.

A PID alone proves nothing, because PIDs are reused. PID and start time name a process, if both are
of the same boot and the same PID namespace.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Final

from exporter.evidence.boot import Clock, read_clock
from exporter.evidence.models import HIDES_PROCESSES, Blindness, Holder, HomeEvidence, Liveness
from exporter.evidence.procfs import read_stat
from exporter.hermes.routing import TaskOwner
from exporter.snapshot import Timestamp

_TOLERANCE_SECONDS: Final = 3.0
"""psutil's start time is built from whole seconds of boot time, and clocks are adjusted."""

StartTimes = Callable[[int], Timestamp | None]
"""Return when the living process of a PID began; None if there is none.

Raise OSError if that is not known.
"""


def start_times(proc: str = "/proc", platform: str = sys.platform) -> StartTimes:
    """Return the start times of this host's processes, by the present wall clock."""
    if platform != "linux":
        from exporter.evidence import psutil_survey  # psutil; Linux does not need it

        return psutil_survey.started_at
    clock = read_clock()
    return lambda pid: _started_at(pid, proc, clock)


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
    known = [*holders, *([] if began is None else [began])]
    if process_started_at is None:
        return Liveness.UNKNOWN if known or HIDES_PROCESSES & set(evidence.blind) else Liveness.DEAD
    if any(abs(moment - process_started_at) <= _TOLERANCE_SECONDS for moment in known):
        return Liveness.ALIVE
    if holders or _may_be_unseen(began, evidence.blind):
        return Liveness.UNKNOWN
    return Liveness.DEAD


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
        for holder in self.holders:
            if owner.pid in (holder.pid, holder.namespace_pid) and owner.start_ticks in (
                None,
                holder.start_ticks,
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


def _may_be_unseen(began: Timestamp | None, blind: Collection[Blindness]) -> bool:
    """True if the process, or its open files, could be hidden from us."""
    if HIDES_PROCESSES & set(blind):
        return True
    return began is not None and bool({Blindness.PERMISSIONS, Blindness.PLATFORM} & set(blind))


def _started_at(pid: int, proc: str, clock: Clock) -> Timestamp | None:
    stat = read_stat(proc, pid)
    return None if stat is None or stat.dead else clock.epoch(stat.start_ticks)
