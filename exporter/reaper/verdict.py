"""The verdict on an open session: five rules, each stated once, and the reasons for people.

The first rule that does not hold gives the verdict. A session is dead if all hold:

    no_sign_of_life   else live
    not_held          else held
    source            else exempt
    all_visible       else unknown: a process, or the session's own clock, cannot be seen
    idle_long_enough  else unknown: a process that has the database open may have the session

These are pure functions of what one scan saw. `verdict_history` requires that several scans agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from exporter.evidence.blind_spots import blind_in_words
from exporter.evidence.models import Holder, Liveness, ProcessFacts, ProcessKey
from exporter.hermes.heartbeats import BACKEND_SOURCES
from exporter.reaper.models import (
    Conclusion,
    Judgement,
    ReaperRules,
    Rule,
    UnknownReason,
    Verdict,
    may_be_reaped,
)
from exporter.reaper.possible_hosts import (
    UNSEEN,
    FirstSeen,
    HostClass,
    class_of,
    hosts_of,
    required_idle_seconds,
)
from exporter.runs.models import Evidence, Proof, SpeaksFor
from exporter.snapshot import Hold, LockAnswer, OpenSession
from exporter.text import format_age, format_time

_PROCESSES_SHOWN: Final = 8
_HOLDS: Final = {
    Hold.ROUTED: "a chat of the gateway leads to it",
    Hold.TOPIC_BOUND: "a topic is bound to it",
    Hold.HANDOFF: "a handoff is pending",
    Hold.COMPRESSION_LOCK: "it is being compressed",
    Hold.DELEGATION: "it waits for a delegated task",
    Hold.PINNED: "it is pinned",
    Hold.GOAL: "it has an open goal",
    Hold.RESTORED: "an undo gave it back",
}
_MAY: Final = {
    HostClass.CLEARED: "cannot be running it",
    HostClass.SERVER: "may be in a turn on it",
    HostClass.CHAT: "may have it on screen or in memory",
    HostClass.UNKNOWN_PROGRAM: "may have it in memory",
}


_MAY_BE_REAPED: Final = "sessions of this source may be reaped"
_IS_SUBAGENT: Final = "it is a subagent, although it has the source of its parent's process"


class Context:
    """Everything that the sessions of a home are judged by, at one moment."""

    def __init__(
        self,
        facts: ProcessFacts,
        rules: ReaperRules,
        now: float,
        *,
        named: frozenset[str] = frozenset(),
        silent_since: Mapping[ProcessKey, int] | None = None,
    ) -> None:
        """`named` are sessions that a living process names, with all their descendants; for
        `silent_since` see `possible_hosts.hosts_of`.
        """
        self.facts, self.rules, self.now, self.named = facts, rules, now, named
        self.silent_since = silent_since
        self.hosts = hosts_of(facts.holders, plugins=facts.plugins, silent_since=silent_since)


class WatchedSession(NamedTuple):
    """A session, and what was watched of it."""

    session: OpenSession
    idle_seconds: float = 0.0
    """Watched idle time: the shortest of the session and its open descendants."""
    active_at: float | None = None
    """Newest activity of its open descendants, by Hermes's timestamps."""
    presence: FirstSeen = UNSEEN
    parent_is_live: bool = False
    kept_until: float | None = None
    """How long it is kept open after an undo, where that is to be told."""


LIVE: Final = Conclusion(Verdict.LIVE)
HELD: Final = Conclusion(Verdict.HELD)
EXEMPT: Final = Conclusion(Verdict.EXEMPT)
PROVEN: Final = Conclusion(Verdict.DEAD, Proof.PROVEN)
PRESUMED: Final = Conclusion(Verdict.DEAD, Proof.PRESUMED)
_UNKNOWN: Final[dict[str, Conclusion]] = {
    reason.value: Conclusion(Verdict.UNKNOWN, reason=reason) for reason in UnknownReason
}
"""By the reason; a line of the table of processes has the name of its reason."""


def decide(subject: WatchedSession, context: Context) -> Conclusion:
    """Return only the verdict, as if this were the only scan."""
    if any(_signs_of_life(subject, context)):
        return LIVE
    if subject.session.holds or subject.parent_is_live:
        return HELD
    if not may_be_reaped(subject.session, context.rules.sources):
        return EXEMPT
    if any(_blind_spots(subject, context)):
        routing_alone = context.facts.blind == ("routing",)
        return _UNKNOWN[UnknownReason.ROUTING if routing_alone else UnknownReason.BLIND]
    return _by_table(subject, context)


def judge(subject: WatchedSession, context: Context) -> Judgement:
    """Return the verdict with every piece of evidence and every rule."""
    signs, holds = list(_signs_of_life(subject, context)), list(_holds(subject))
    exempt, unseen = list(_exempt(subject, context)), list(_blind_spots(subject, context))
    processes, kernel = list(_processes(subject, context)), _kernel(subject, context)
    shown = processes[:_PROCESSES_SHOWN]
    evidence = (*holds, *signs, *exempt, *shown, *unseen, *kernel)
    idle = format_age(context.now - _active_at(subject))
    is_named = subject.session.source in context.rules.sources
    is_dead = _by_table(subject, context).verdict is Verdict.DEAD
    rules = (
        _rule("no_sign_of_life", signs, f"idle for {idle}, no process names it, no heartbeat"),
        _rule("not_held", holds, "nothing points at it"),
        _rule("source", exempt, _MAY_BE_REAPED if is_named else _IS_SUBAGENT),
        _rule("all_visible", unseen, "every process of this host can be seen"),
        Rule("idle_long_enough", is_dead, _table_reason(subject, context, processes)[:300]),
    )
    return Judgement(decide(subject, context).verdict, evidence[:32], rules)


# The rules


def _rule(name: str, against: Sequence[Evidence], otherwise: str) -> Rule:
    """A rule holds unless there is evidence against it."""
    return Rule(name, not against, (against[0].detail if against else otherwise)[:300])


def _by_table(subject: WatchedSession, context: Context) -> Conclusion:
    """Return dead, or unknown if a process is stopped or the session was not idle long enough."""
    line = context.hosts.class_for(subject.presence)
    if line is HostClass.CLEARED:
        return PROVEN  # idle for min_idle: otherwise it would be live
    if context.hosts.stopped:
        return _UNKNOWN[UnknownReason.STOPPED]
    needed = _needed_idle_seconds(line, subject, context)
    if needed is None or idle_seconds(subject, context) < needed:
        return _UNKNOWN[line]
    return PRESUMED


def _needed_idle_seconds(
    line: HostClass, subject: WatchedSession, context: Context
) -> float | None:
    """Return how long it must be idle; None: it is not dead while that process is there."""
    if line is not HostClass.CLEARED and _hermes_may_delete(subject, context):
        return None
    return required_idle_seconds(line, context.rules)


def _hermes_may_delete(subject: WatchedSession, context: Context) -> bool:
    """True if Hermes's own pruning might soon delete the session if we ended it.

    It deletes ended sessions by their start, however recently they were used. Then a presumption
    that was wrong could not be healed. Half of the time is left for a chat that stays silent.
    """
    days = context.facts.hermes_prunes_after_days
    return days is not None and context.now - subject.session.started_at > days * 86_400 / 2


def seconds_left(subject: WatchedSession, context: Context) -> float | None:
    """Return after how long the table calls this session dead; None: not by time alone."""
    if any(_blind_spots(subject, context)):
        return None
    line = context.hosts.class_for(subject.presence)
    needed = _needed_idle_seconds(line, subject, context)
    if needed is None or (context.hosts.stopped and line is not HostClass.CLEARED):
        return None
    return max(0.0, needed - idle_seconds(subject, context))


def is_overdue(subject: WatchedSession, context: Context) -> bool:
    """True if it was idle, by Hermes's timestamps, for longer than the table asks.

    Where the table says never, `min_idle` counts. With `presume_after: off` nothing is overdue.
    """
    idle = context.now - _active_at(subject)
    line = context.hosts.class_for(subject.presence)
    if any(_blind_spots(subject, context)) or context.hosts.stopped:
        line = HostClass.CLEARED
    needed = _needed_idle_seconds(line, subject, context)
    return needed is not None and idle > needed


def waited_for(reason: UnknownReason, context: Context) -> list[Holder]:
    """Return the processes that sessions of this reason wait for, the oldest first."""
    found: list[Holder] = []
    for each in context.facts.holders:
        line = class_of(each, plugins=context.facts.plugins)
        is_meant = each.stopped if reason is UnknownReason.STOPPED else line.value == reason.value
        if is_meant and line is not HostClass.CLEARED:
            found.append(each)
    return sorted(found, key=lambda each: each.start_ticks)


def idle_seconds(subject: WatchedSession, context: Context) -> float:
    """Return the idle time that counts for a presumption."""
    if context.rules.presume_by_clock:
        return context.now - _active_at(subject)
    return subject.idle_seconds


def _active_at(subject: WatchedSession) -> float:
    own, children = subject.session.last_activity_at, subject.active_at
    return own if children is None else max(own, children)


# The evidence


def _holds(subject: WatchedSession) -> Iterator[Evidence]:
    for hold in subject.session.holds:
        said = _HOLDS[hold]
        if hold is Hold.RESTORED and subject.kept_until is not None:
            said += f"; it is kept open until {format_time(subject.kept_until)}"
        yield Evidence(hold.value, SpeaksFor.HELD, said)
    if subject.parent_is_live:
        yield Evidence("parent", SpeaksFor.HELD, "its parent session is live")


def _signs_of_life(subject: WatchedSession, context: Context) -> Iterator[Evidence]:
    session, facts, rules = subject.session, context.facts, context.rules
    if session.id in context.named:
        yield from _names(session, facts)
    beat = session.last_heartbeat_at
    if beat is not None and context.now - beat <= rules.heartbeat_timeout_seconds:
        age = max(0.0, context.now - beat)
        yield _says_live("heartbeat", f"its heartbeat is {age:.0f} s old")
    yield from _turn_signs(session, context)
    idle = context.now - _active_at(subject)
    if session.clocks_sane and idle < rules.min_idle_seconds:
        yield _says_live("activity", f"it was active {max(0.0, idle):.0f} s ago")


def _turn_signs(session: OpenSession, context: Context) -> Iterator[Evidence]:
    """Yield what newer releases record of a session's backend and of its turn."""
    facts, beat = context.facts, context.facts.backend_beat_at
    if beat is not None and session.source in BACKEND_SOURCES:
        age = context.now - beat
        if age <= context.rules.heartbeat_timeout_seconds:
            said = f"a backend that may run it gave a heartbeat {max(0.0, age):.0f} s ago"
            yield _says_live("backend", said)
    if session.id in facts.turns:
        yield _says_live("turn_lease", "it is in the middle of a turn")
    elif facts.turns_elsewhere and session.parent_id is not None:
        yield _says_live("turn_lease", "a conversation it may belong to is in the middle of a turn")


def _names(session: OpenSession, facts: ProcessFacts) -> Iterator[Evidence]:
    """Yield evidence of processes that name the session; a name clears no other session."""
    direct = False
    for lease in facts.leases:
        if lease.session_id == session.id and lease.liveness is Liveness.ALIVE:
            direct = True
            yield _says_live("lease", f"process {lease.pid} ({lease.surface}) leases it")
    for holder in facts.holders:
        for mapped in holder.sessions:
            if mapped.id == session.id:
                direct = True
                said = f"process {holder.pid} ({holder.kind.value}) names it"
                yield _says_live(mapped.how.value, said)
    if not direct:
        yield _says_live("ancestor", "a process names a session that it descends from")


def _says_live(kind: str, detail: str) -> Evidence:
    return Evidence(kind, SpeaksFor.LIVE, detail)


def _says_blind(kind: str, detail: str) -> Evidence:
    return Evidence(kind, SpeaksFor.BLIND, detail)


def _exempt(subject: WatchedSession, context: Context) -> Iterator[Evidence]:
    if not may_be_reaped(subject.session, context.rules.sources):
        said = f"only sessions of {', '.join(context.rules.sources)} are ever reaped"
        yield Evidence("source", SpeaksFor.EXEMPT, said)


def _processes(subject: WatchedSession, context: Context) -> Iterator[Evidence]:
    """Yield the processes that may run the session; the kind is the line of each."""
    plugins, silent_since = context.facts.plugins, context.silent_since
    for holder in context.facts.holders:
        alone = hosts_of((holder,), plugins=plugins, silent_since=silent_since)
        line = alone.class_for(subject.presence)
        if line is not HostClass.CLEARED:
            yield _says_blind(line.value, _process_detail(holder, line, subject, context))


def _process_detail(
    holder: Holder, line: HostClass, subject: WatchedSession, context: Context
) -> str:
    said = f"process {holder.pid} ({holder.kind.value}) {_MAY[line]}"
    if holder.stopped:
        return f"{said}; it is stopped, and nothing counts as idle beside it"
    needed = _needed_idle_seconds(line, subject, context)
    if needed is None:
        why = "presume_after is off"
        if _hermes_may_delete(subject, context):
            why = "Hermes deletes sessions of this age once they are ended (sessions.auto_prune)"
        return f"{said}: dead only when that process ends, as {why}"
    left = needed - idle_seconds(subject, context)
    if left <= 0:
        return f"{said}, and stood still for {format_age(needed)}"
    return f"{said}: dead after {format_age(left)} more of watched idleness, or when it ends"


def _blind_spots(subject: WatchedSession, context: Context) -> Iterator[Evidence]:
    facts = context.facts
    for why in facts.blind:
        yield _says_blind("blindness", f"cannot be seen: {blind_in_words([why])}")
    if not subject.session.clocks_sane:
        yield _says_blind("clock", "its own clocks make no sense, which protects it")
    if facts.lock_probe is LockAnswer.HELD_UNSEEN:
        yield _says_blind("lock", "a process that cannot be seen holds a lock on the database")
    for lease in facts.leases:
        if lease.session_id == subject.session.id and lease.liveness is Liveness.UNKNOWN:
            said = f"it is not known whether process {lease.pid}, which leases it, is alive"
            yield _says_blind("lease", said)


def _kernel(subject: WatchedSession, context: Context) -> Iterator[Evidence]:
    """Yield what the kernel says about the database."""
    facts = context.facts
    if facts.lock_probe is LockAnswer.FREE:
        yield Evidence("lock", SpeaksFor.DEAD, "the kernel knows of no lock on the database")
    if any(_blind_spots(subject, context)):
        return
    if not facts.holders:
        yield Evidence("nobody", SpeaksFor.DEAD, "no process on this host has the database open")
    elif context.hosts.class_for(subject.presence) is HostClass.CLEARED:
        pids = ", ".join(f"{each.pid} ({each.kind.value})" for each in facts.holders[:8])
        yield Evidence("cleared", SpeaksFor.DEAD, f"none of {pids} can be running it")
    elif _by_table(subject, context) is PRESUMED:
        idle = format_age(idle_seconds(subject, context))
        yield Evidence("watched", SpeaksFor.DEAD, f"it was watched standing still for {idle}")


def _table_reason(subject: WatchedSession, context: Context, processes: Sequence[Evidence]) -> str:
    line = context.hosts.class_for(subject.presence)
    if line is HostClass.CLEARED and not context.facts.holders:
        return "no process has the database open"
    if line is HostClass.CLEARED:
        return "no process that has the database open can be running it"
    return next((each.detail for each in processes if each.kind == line.value), "")
