"""Tell if a home's gateway runs: compare its record, its process and its lock.

A gateway holds a flock on gateway.lock as long as it lives. The holder is read from /proc. Trying
to take the lock would make a gateway that starts at that moment give up.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from exporter.evidence.holders import SurveyContext
from exporter.evidence.models import (
    HIDES_PROCESSES,
    Blindness,
    GatewayEvidence,
    GatewayState,
    HomeFiles,
)
from exporter.evidence.process import PinnedProcess
from exporter.evidence.procfs import GONE
from exporter.hermes.process_kinds import UNREADABLE, ProcessKind, classify
from exporter.snapshot import GatewayFiles

_DOWN: Final = GatewayEvidence(GatewayState.DOWN)
_UNKNOWN: Final = GatewayEvidence(GatewayState.UNKNOWN)


class _Candidate(NamedTuple):
    """A living process that may be the gateway."""

    pid: int
    namespace_pid: int
    start_ticks: int
    kind: ProcessKind


def judge_gateway(
    home: HomeFiles, files: GatewayFiles, context: SurveyContext, blind: Collection[Blindness]
) -> GatewayEvidence:
    """Return up, down or unknown; unknown also if process and lock contradict each other.

    The recorded PID is the gateway's own view. In a container it differs from the PID that we see,
    so a holder of the database may be the recorded process too.
    """
    owners = _lock_owners(files, context)
    holders = context.process_scan.seen_processes.of(home)
    contained = {seen.pid for seen, _ in holders if seen.namespace_pid == files.pid}
    pids = {*owners, *contained, *([files.pid] if files.pid else [])}
    try:
        suspects = {
            pid: found for pid in sorted(pids) if (found := _read_candidate(context.proc, pid))
        }
    except OSError:
        return _UNKNOWN
    recorded = next((found for found in suspects.values() if _is_recorded(found, files)), None)
    if recorded is not None:
        return _up(recorded, context) if recorded.pid in owners else _UNKNOWN
    for pid in owners & suspects.keys():
        if suspects[pid].kind is ProcessKind.GATEWAY:
            return _up(suspects[pid], context)  # its record is not written yet
    locks = context.locks
    if locks is None or locks.failed or HIDES_PROCESSES & set(blind):
        return _UNKNOWN
    # A lock whose owner is gone is kept by a child that the gateway forked: the gateway is down.
    return _UNKNOWN if owners & suspects.keys() else _DOWN


def _lock_owners(files: GatewayFiles, context: SurveyContext) -> set[int]:
    """Return the processes that took the lock.

    They are read from the processes that have the file open. If some processes are hidden, the lock
    table is used too.
    """
    if files.lock is None or context.locks is None:
        return set()
    owners = set(context.process_scan.seen_processes.flock_owners(files.lock))
    if context.blind:
        owners |= context.locks.flock_owners(files.lock.inode)
    return owners


def _is_recorded(suspect: _Candidate, files: GatewayFiles) -> bool:
    if files.pid is None or files.pid not in (suspect.pid, suspect.namespace_pid):
        return False
    if files.start_ticks is None:
        return suspect.kind is ProcessKind.GATEWAY
    return suspect.start_ticks == files.start_ticks


def _up(suspect: _Candidate, context: SurveyContext) -> GatewayEvidence:
    return GatewayEvidence(GatewayState.UP, context.clock.epoch(suspect.start_ticks))


def _read_candidate(proc: str, pid: int) -> _Candidate | None:
    """Return the process; None if it is dead, gone or hidden; raise OSError if not known."""
    if pid <= 0:
        return None
    try:
        with PinnedProcess(proc, pid) as process:
            stat = process.stat()
            if stat.dead:
                return None
            command_line = process.command_line()
            kind = (UNREADABLE if command_line is None else classify(command_line)).kind
            namespace_pid = process.user_and_namespace_pid()[1]
            return _Candidate(pid, namespace_pid, stat.start_ticks, kind)
    except GONE:
        return None
