"""Sessions that a process says it is running: by its command line, or by what its children say."""

from __future__ import annotations

from typing import Final

from exporter.evidence.boot import Clock
from exporter.evidence.findings import MappedSession
from exporter.evidence.procfs import PinnedProcess, list_pids, read_stat
from exporter.evidence.sightings import Sighting
from exporter.hermes.processes import Mapping, ProcessKind, session_in_environment
from exporter.snapshot import Timestamp

_CHILDREN_MAX: Final = 256


def sessions_of(sighting: Sighting, proc: str, clock: Clock) -> tuple[MappedSession, ...]:
    """What is known of the sessions in this process, newest word first."""
    role = sighting.role
    if role.kind in {ProcessKind.EXPORTER, ProcessKind.MAINTENANCE}:
        return ()
    said: dict[tuple[str, Mapping], Timestamp] = {}
    if role.session_id is not None and role.how is not None:
        said[role.session_id, role.how] = clock.epoch(sighting.stat.start_ticks)
    for session_id, since in _said_by_children(sighting, proc, clock):
        key = session_id, Mapping.CHILD_ENVIRONMENT
        said[key] = max(since, said.get(key, since))
    newest = sorted(said.items(), key=lambda item: -item[1])
    return tuple(MappedSession(id_, how, since) for (id_, how), since in newest)


def _said_by_children(sighting: Sighting, proc: str, clock: Clock) -> list[tuple[str, Timestamp]]:
    """Hermes puts its session into the environment of what it starts.

    What it was itself started with is somebody else's session, and all that a child knows which
    was forked, or started before a session began.
    """
    try:
        with PinnedProcess(proc, sighting.pid) as process:
            stat = process.stat()
            if stat is None or stat.start_ticks != sighting.stat.start_ticks:
                return []
            inherited = session_in_environment(process.environment())
            children = _children(process, proc)
    except OSError:
        return []
    heard = (_said_by(pid, sighting.pid, proc, clock) for pid in children[:_CHILDREN_MAX])
    return [said for said in heard if said is not None and said[0] != inherited]


def _children(process: PinnedProcess, proc: str) -> list[int]:
    try:
        return process.children()
    except FileNotFoundError:
        # A kernel without lists of children, or a thread that has just ended.
        parents = ((int(pid), read_stat(proc, int(pid))) for pid in list_pids(proc))
        return [pid for pid, stat in parents if stat is not None and stat.parent == process.pid]


def _said_by(pid: int, parent: int, proc: str, clock: Clock) -> tuple[str, Timestamp] | None:
    try:
        with PinnedProcess(proc, pid) as child:
            stat = child.stat()
            session_id = session_in_environment(child.environment())
    except OSError:
        return None
    if stat is None or stat.parent != parent or session_id is None:
        return None
    return session_id, clock.epoch(stat.start_ticks)
