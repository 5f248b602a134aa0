"""The table of processes: how long a session must be idle beside which kind of process.

Hermes does not record which process runs which session, and a process can resume a row without a
trace. So nothing is guessed. A process that may run a session is a possible host of it; elsewhere a
host is a machine. Each process that has the database open has a line in the table, and the largest
line decides:

    no process, or only cleared ones     min_idle               proven
    a server (gateway, cron)             presume_after.server   presumed
    a chat, or a program of unknown kind presume_after.chat     presumed

A process is cleared of a session by structure alone, never by a guess about what it did:

- it runs no agent (a maintenance command), or it is a process of this agent;
- it is a one-shot without a resume, and the agent saw the session before the process started;
- it is an interactive chat that has written nothing, not even to its terminal, since a scan at
  which the session did not exist.

Times are seconds since boot and numbers of scans. A time that Hermes wrote clears no process: with
a wrong clock a chat would be cleared of its own session. Plugins run agents in threads of any
Hermes process. So in a home with plugins only the first rule clears, and a server counts as a chat.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

from msgspec import Struct

from exporter.evidence.models import Holder, ProcessKey
from exporter.hermes.process_kinds import ProcessKind
from exporter.reaper.models import ReaperRules

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
NEVER_SEEN: Final = inf
NEVER_ABSENT: Final = -1


class HostClass(StrEnum):
    """A line of the table, in the order of the idle time that it requires."""

    CLEARED = "cleared"
    SERVER = "server"
    CHAT = "chat"
    UNKNOWN_PROGRAM = "unknown_program"


_LINE_ORDER: Final = {line: place for place, line in enumerate(HostClass)}
_KINDS: Final = {
    ProcessKind.MAINTENANCE: HostClass.CLEARED,
    ProcessKind.GATEWAY: HostClass.SERVER,
    ProcessKind.CRON: HostClass.SERVER,
    ProcessKind.CLI: HostClass.CHAT,
    ProcessKind.ONESHOT: HostClass.CHAT,
    ProcessKind.TUI: HostClass.CHAT,
    ProcessKind.DASHBOARD: HostClass.CHAT,
    ProcessKind.ACP: HostClass.CHAT,
    ProcessKind.SLASH_WORKER: HostClass.CHAT,
}


class FirstSeen(NamedTuple):
    """When the agent saw a session for the first time."""

    seen_at: float = NEVER_SEEN
    """Seconds since boot when it was first seen; 0 if that was in an earlier boot."""
    absent_scan: int = NEVER_ABSENT
    """The last scan at which it did not exist."""


UNSEEN: Final = FirstSeen()
"""For a session that the agent does not track: no process is cleared by times."""


class PossibleHosts(Struct, frozen=True):
    """What several processes together could be running.

    It is used for every session of a home, so its cost does not depend on the number of processes.
    """

    line: HostClass = HostClass.CLEARED
    """The largest line of the processes that no time clears of any session."""
    one_shot_began_at: float = inf
    """Seconds since boot: start of the first one-shot; sessions seen earlier are not its own."""
    chats_silent_scan: int = NEVER_ABSENT
    """The first scan since which none of the silent chats has written anything."""
    stopped: tuple[int, ...] = ()
    """PIDs of processes that are stopped or frozen, and not cleared of everything."""

    def class_for(self, presence: FirstSeen) -> HostClass:
        """Return the line that decides about a session."""
        if _LINE_ORDER[self.line] >= _LINE_ORDER[HostClass.CHAT]:
            return self.line
        one_shot = self.one_shot_began_at != inf and presence.seen_at >= self.one_shot_began_at
        if one_shot or presence.absent_scan < self.chats_silent_scan:
            return HostClass.CHAT
        return self.line


def hosts_of(
    holders: Iterable[Holder],
    *,
    plugins: bool = False,
    silent_since: Mapping[ProcessKey, int] | None = None,
) -> PossibleHosts:
    """Return what these processes could be running.

    `silent_since` holds, for each process, the first scan since which it has written nothing.
    """
    line, one_shot, silent = HostClass.CLEARED, inf, NEVER_ABSENT
    stopped: list[int] = []
    for holder in holders:
        base = class_of(holder, plugins=plugins)
        if base is HostClass.CLEARED:
            continue
        if holder.stopped:
            stopped.append(holder.pid)
        since = (silent_since or {}).get(holder.key)
        if not plugins and holder.kind is ProcessKind.ONESHOT and not holder.may_resume:
            one_shot = min(one_shot, holder.start_ticks / _TICKS_PER_SECOND)
        elif not plugins and holder.kind is ProcessKind.CLI and since is not None:
            silent = max(silent, since)
        else:
            line = max(line, base, key=_LINE_ORDER.__getitem__)
    return PossibleHosts(line, one_shot, silent, tuple(stopped))


def required_idle_seconds(line: HostClass, rules: ReaperRules) -> float | None:
    """Return how long a session must be idle beside this line; None: it is never dead."""
    match line:
        case HostClass.CLEARED:
            return rules.min_idle_seconds
        case HostClass.SERVER:
            return rules.presume_server_seconds
    return rules.presume_chat_seconds


def class_of(holder: Holder, *, plugins: bool = False) -> HostClass:
    """Return the line of a process, before any time clears it of a session."""
    if holder.ours or holder.outsider:  # an outsider can only read: no agent runs in it
        return HostClass.CLEARED
    line = _KINDS.get(holder.kind, HostClass.UNKNOWN_PROGRAM)
    return HostClass.CHAT if plugins and line is HostClass.SERVER else line
