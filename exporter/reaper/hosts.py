"""Which process could be running which session.

Hermes notes nowhere which process a session belongs to, so the question is turned round: a session
is dead if no process that has the database open could be running it. Whatever cannot be told apart
here counts as a host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from msgspec import Struct

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


class Hosts(Struct, frozen=True):
    """What a number of processes could be running, all taken together.

    The question is asked for every session of a home, so the answer must not depend on how many
    processes there are. Moments are starts of processes, of the first one of its kind.
    """

    anything: bool = False
    """One of them could be on any session."""
    sessions: frozenset[str] = frozenset()
    """Sessions that they name or are known to be on."""
    gateway_since: float = inf
    cron_since: float = inf
    oneshot_since: float = inf
    chat_since: float = inf
    """Of the CLIs whose chat is known."""

    def may_run(self, session: OpenSession) -> bool:
        if self.anything or session.id in self.sessions:
            return True
        # Whoever was not there when a session was last active does not take it up later.
        seen = session.last_activity_at + _CLOCK_SLACK_SECONDS
        return (
            self.cron_since <= seen
            or (self.gateway_since <= seen and session.source not in _PEOPLE)
            or (self.chat_since <= seen and runs_aside(session))
            or self.oneshot_since <= session.started_at + _CLOCK_SLACK_SECONDS
        )


def hosts_of(holders: Iterable[Holder], accounted: Mapping[ProcessKey, frozenset[str]]) -> Hosts:
    """What these processes could be running.

    `accounted` names, for interactive CLIs, the chat that each is known to be on, with that
    session's descendants.
    """
    anything = False
    sessions: set[str] = set()
    since: dict[ProcessKind, float] = {}
    for holder in holders:
        if holder.heir or holder.kind in _HOSTS_NOTHING:
            continue
        sessions.update(mapped.id for mapped in holder.sessions)
        known = accounted.get(key_of(holder))
        match holder.kind:
            case ProcessKind.CLI if known is not None:
                sessions |= known
            case ProcessKind.ONESHOT | ProcessKind.SLASH_WORKER if not holder.may_resume:
                pass
            case ProcessKind.GATEWAY | ProcessKind.CRON:
                pass
            case _:
                anything = True
        since[holder.kind] = min(holder.started_at, since.get(holder.kind, inf))
    return Hosts(
        anything=anything,
        sessions=frozenset(sessions),
        gateway_since=since.get(ProcessKind.GATEWAY, inf),
        cron_since=since.get(ProcessKind.CRON, inf),
        oneshot_since=since.get(ProcessKind.ONESHOT, inf),
        chat_since=since.get(ProcessKind.CLI, inf),
    )


def could_host(
    holder: Holder,
    session: OpenSession,
    accounted: Mapping[ProcessKey, frozenset[str]],
) -> bool:
    """Whether this process may be running this session."""
    return hosts_of((holder,), accounted).may_run(session)


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
