"""Tell if a process that some file or row names is alive.

A PID alone proves nothing, because PIDs are reused. PID and start time name a process, if both are
of the same boot and the same PID namespace.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from exporter.evidence.boot import read_clock
from exporter.evidence.models import HIDES_PROCESSES, Blindness, Holder, HomeEvidence, Liveness
from exporter.evidence.procfs import read_stat
from exporter.hermes.routing import TaskOwner
from exporter.snapshot import Timestamp

_TOLERANCE_SECONDS: Final = 3.0
"""psutil's start time is built from whole seconds of boot time, and clocks are adjusted."""

_HIDES_FILES: Final = frozenset({Blindness.PERMISSIONS, Blindness.PLATFORM})

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
