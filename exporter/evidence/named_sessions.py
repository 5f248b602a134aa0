"""Sessions that a process says it runs, by its command line or by its children's environment."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from exporter.evidence.descriptor_scan import SeenProcess
from exporter.evidence.models import NamedSession
from exporter.evidence.process import PinnedProcess
from exporter.evidence.procfs import is_gone, list_pids, read_stat
from exporter.hermes.process_kinds import NamedBy, ProcessKind, session_in_environment

_CHILDREN_MAX: Final = 256


def sessions_of(
    seen_process: SeenProcess, proc: str, trusted: Collection[int] | None
) -> tuple[NamedSession, ...]:
    """Return the sessions that this process names; raise OSError if reading failed.

    `trusted` are the users whose children count; None for all users.
    """
    role = seen_process.role
    if role.kind is ProcessKind.MAINTENANCE:
        return ()
    named = [NamedSession(role.session_id, role.how)] if role.session_id and role.how else []
    named += [
        NamedSession(session_id, NamedBy.CHILD_ENVIRONMENT)
        for session_id in _named_by_children(seen_process, proc, trusted)
    ]
    return tuple(dict.fromkeys(named))


def _named_by_children(
    seen_process: SeenProcess, proc: str, trusted: Collection[int] | None
) -> list[str]:
    """Return the sessions in the environment of the process's children.

    Hermes puts its session id into the environment of the processes it starts. The id that Hermes
    itself was started with belongs to another process's session, so it is skipped. A child may have
    only that id: a forked child, or a child that was started before the session began.
    """
    children = _find_children(seen_process, proc)[:_CHILDREN_MAX]
    answers = [_named_by(pid, seen_process.pid, proc, trusted) for pid in children]
    named = [session_id for session_id in answers if session_id is not None]
    inherited = _inherited(seen_process, proc) if named else None
    return [session_id for session_id in named if session_id != inherited]


def _find_children(seen_process: SeenProcess, proc: str) -> list[int]:
    if seen_process.children is not None:
        return seen_process.children
    others = ((int(pid), read_stat(proc, int(pid))) for pid in list_pids(proc))
    return [pid for pid, stat in others if stat is not None and stat.parent == seen_process.pid]


def _inherited(seen_process: SeenProcess, proc: str) -> str | None:
    try:
        with PinnedProcess(proc, seen_process.pid) as process:
            return session_in_environment(process.environment())
    except OSError:
        return None  # then every session that its children name counts


def _named_by(pid: int, parent: int, proc: str, trusted: Collection[int] | None) -> str | None:
    try:
        with PinnedProcess(proc, pid) as child:
            stat = child.stat()
            session_id = session_in_environment(child.environment())
            if session_id is None or stat.parent != parent:
                return None
            if trusted is not None and child.user_and_namespace_pid()[0] not in trusted:
                return None
    except OSError as error:
        if is_gone(error) or isinstance(error, PermissionError):
            # a child that also hides its descriptors has made this survey blind already
            return None
        raise
    return session_id
