"""Which ended sessions a living process may still have in memory.

"Ended" does not mean idle: somebody else may end a row while a chat goes on, and Hermes then keeps
appending to it. But whoever takes up an ended session opens its row again, in the command line and
the TUI of every release. So a process has an ended session in memory only if it was there when the
session was last active or ended. The editor integration opens nothing again: while one lives, all
its sessions may be in its memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final

from msgspec import Struct

from exporter.evidence.findings import Holder
from exporter.hermes.processes import ProcessKind
from exporter.pruner.inventory import Link, StockedSession
from exporter.reaper.hosts import ProcessKey, key_of

_HOSTS_NOTHING: Final = frozenset({ProcessKind.EXPORTER, ProcessKind.MAINTENANCE})
_MAY_BE_AN_EDITOR: Final = frozenset({ProcessKind.ACP, ProcessKind.HERMES, ProcessKind.OTHER})
_EDITOR_SOURCE: Final = "acp"
_PEOPLE: Final = frozenset({"cli", "tui", "desktop", "webui"})
"""A person sits at these; a gateway has none of them in memory that it does not route to."""
_LEFT_BY_GATEWAY: Final = frozenset(
    {
        *("cron_complete", "webhook_complete", "session_reset", "session_switch"),
        *("idle", "daily", "suspended", "resume_pending_expired"),
    }
)
"""Ends that a gateway writes when it is done with a session. Of a home there is one at a time."""
_CLOCK_SLACK_SECONDS: Final = 5.0


class Memories(Struct, frozen=True):
    """What a number of processes may have in memory, all taken together."""

    sessions: frozenset[str] = frozenset()
    """Sessions that they name or are known to be on."""
    since: float = inf
    """Start of the first process that may be on anything."""
    gateway_since: float = inf
    chat_since: float = inf
    """Of the CLIs whose chat is known; beside it they run tasks of which nothing is known."""
    editor: bool = False

    def may_hold(self, session: StockedSession, reaped_at: float | None = None) -> bool:
        """Whether one of them may have this session in memory.

        `reaped_at` is when we ended it: the end that we write lies before that.
        """
        if session.id in self.sessions or (self.editor and session.source == _EDITOR_SOURCE):
            return True
        seen = max(session.last_activity_at, reaped_at or 0.0) + _CLOCK_SLACK_SECONDS
        aside = session.source not in _PEOPLE or session.link is not Link.NONE
        return (
            self.since <= seen
            or (self.gateway_since <= seen and _may_be_a_gateways(session))
            or (self.chat_since <= seen and aside)
        )


def _may_be_a_gateways(session: StockedSession) -> bool:
    """Whether a gateway that was there when it ended may go on with it."""
    if session.source in _PEOPLE:
        return False
    ended_at = session.ended_at or 0.0
    was_left = session.end_reason in _LEFT_BY_GATEWAY
    return not was_left or session.last_activity_at > ended_at + _CLOCK_SLACK_SECONDS


def memories_of(
    holders: Iterable[Holder], accounted: Mapping[ProcessKey, frozenset[str]]
) -> Memories:
    """What these processes may have in memory; `accounted` as in `exporter.reaper.hosts`."""
    sessions: set[str] = set()
    since = gateway_since = chat_since = inf
    editor = False
    for holder in holders:
        if holder.heir or holder.kind in _HOSTS_NOTHING:
            continue
        sessions.update(mapped.id for mapped in holder.sessions)
        known = accounted.get(key_of(holder))
        if holder.kind is ProcessKind.GATEWAY:
            gateway_since = min(gateway_since, holder.started_at)
        elif holder.kind is ProcessKind.CLI and known is not None:
            sessions |= known
            chat_since = min(chat_since, holder.started_at)
        else:
            since = min(since, holder.started_at)
        editor = editor or holder.kind in _MAY_BE_AN_EDITOR
    return Memories(frozenset(sessions), since, gateway_since, chat_since, editor)
