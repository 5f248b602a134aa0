"""Which process could be running which session.

Hermes notes nowhere which process a session belongs to, so the question is turned round: a session
is dead if no process that has the database open could be running it. Whatever cannot be told apart
here counts as a host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from exporter.evidence.findings import Holder, MappedSession
from exporter.hermes.processes import Mapping as Says
from exporter.hermes.processes import ProcessKind, is_background_task
from exporter.snapshot import OpenSession

ProcessKey = tuple[int, int]
"""PID and start ticks: a process, not a number that comes round again."""

_HOSTS_NOTHING: Final = frozenset({ProcessKind.EXPORTER, ProcessKind.MAINTENANCE})
_ONE_AT_A_TIME: Final = frozenset({ProcessKind.CLI})
_PEOPLE: Final = frozenset({"cli", "tui", "desktop", "webui"})
"""A person sits at these. A gateway runs one only if it routes to it, and then it is held."""
_CLOCK_SLACK_SECONDS: Final = 5.0


def key_of(holder: Holder) -> ProcessKey:
    return holder.pid, holder.start_ticks


def could_host(
    holder: Holder,
    session: OpenSession,
    accounted: Mapping[ProcessKey, frozenset[str]],
) -> bool:
    """Whether this process may be running this session.

    `accounted` names, for interactive CLIs, the chat that each is known to be on, with that
    session's descendants.
    """
    if holder.heir or holder.kind in _HOSTS_NOTHING:
        return False
    if any(mapped.id == session.id for mapped in holder.sessions):
        return True
    match holder.kind:
        case ProcessKind.SLASH_WORKER:
            return False
        case ProcessKind.GATEWAY:
            return session.source not in _PEOPLE and _was_there(holder, session)
        case ProcessKind.CRON:
            return _was_there(holder, session)
        case ProcessKind.ONESHOT:
            return holder.may_resume or _began_in(holder, session)
        case ProcessKind.CLI:
            known = accounted.get(key_of(holder))
            if known is None or session.id in known:
                return True
            return runs_aside(session) and _was_there(holder, session)
    return True


def runs_aside(session: OpenSession) -> bool:
    """Not surely a chat at somebody's prompt.

    A CLI shows one chat at a time, but beside it runs background tasks, sub-agents (up to 0.16
    they have their parent's source) and the curator.
    """
    return (
        session.source not in _PEOPLE
        or session.parent_id is not None
        or is_background_task(session.id)
    )


def _was_there(holder: Holder, session: OpenSession) -> bool:
    """It ran when the session was last active; such a host never takes up an older session."""
    return holder.started_at <= session.last_activity_at + _CLOCK_SLACK_SECONDS


def _began_in(holder: Holder, session: OpenSession) -> bool:
    """The session began after the process: a one-shot that resumes nothing runs only such."""
    return session.started_at >= holder.started_at - _CLOCK_SLACK_SECONDS


def mapped_account(
    holders: tuple[Holder, ...], sessions: Mapping[str, OpenSession]
) -> dict[ProcessKey, str]:
    """Interactive CLIs whose session is known from an exact mapping.

    A CLI ends its row when it leaves it, so a row that it was started on, and that is still open,
    is the one it is on; unless another process names the same row, which may then be the one that
    keeps it open. Its children may have been started by what runs beside the chat.
    """
    named: dict[str, list[ProcessKey]] = {}
    for holder in holders:
        for mapped in holder.sessions:
            named.setdefault(mapped.id, []).append(key_of(holder))
    account: dict[ProcessKey, str] = {}
    for holder in holders:
        if holder.kind not in _ONE_AT_A_TIME:
            continue
        candidates = {
            mapped.id
            for mapped in holder.sessions
            if mapped.id in sessions
            and set(named[mapped.id]) == {key_of(holder)}
            and _names_its_chat(mapped, sessions[mapped.id])
        }
        if len(candidates) == 1:
            account[key_of(holder)] = candidates.pop()
    return account


def _names_its_chat(mapped: MappedSession, session: OpenSession) -> bool:
    match mapped.how:
        case Says.RESUME:
            return True
        case Says.CHILD_ENVIRONMENT:
            return not runs_aside(session)
    return False
