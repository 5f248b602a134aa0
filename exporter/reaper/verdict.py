"""The verdict on an open session: five rules, each stated once, and the reasons for people.

The first rule that does not hold gives the verdict; a session is dead if all hold:

    no_sign_of_life   else live
    not_held          else held
    source            else exempt
    all_visible       else unknown: a process, or the session's own clock, cannot be seen
    idle_long_enough  else unknown: a process that has the database open may have the session

Pure functions of what one scan saw. That several scans must agree is `verdict_history`'s part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from msgspec import Struct

from exporter.evidence.models import Holder, Liveness
from exporter.hermes.heartbeats import BACKEND_SOURCES
from exporter.reaper.models import (
    Evidence,
    HomeFacts,
    Judgement,
    LeaseFact,
    Proof,
    ReaperRules,
    Rule,
    Says,
    UnknownReason,
    Verdict,
)
from exporter.reaper.possible_hosts import (
    NO_HOSTS,
    UNSEEN,
    Hosts,
    Line,
    Presence,
    hosts_of,
    needed_seconds,
)
from exporter.snapshot import Hold, LockAnswer, OpenSession
from exporter.text import format_age

_PROCESSES_SHOWN: Final = 8
_HOLDS: Final = {
    Hold.ROUTED: "a chat of the gateway leads to it",
    Hold.TOPIC_BOUND: "a topic is bound to it",
    Hold.HANDOFF: "a handoff is pending",
    Hold.COMPRESSION_LOCK: "it is being compressed",
    Hold.DELEGATION: "it waits for a delegated task",
    Hold.PINNED: "it is pinned",
    Hold.GOAL: "it has an open goal",
    Hold.RESTORED: "an undo opened it again",
}
_WAITS_FOR: Final = {
    Line.SERVER: UnknownReason.SERVER,
    Line.CHAT: UnknownReason.CHAT,
    Line.UNKNOWN_PROGRAM: UnknownReason.UNKNOWN_PROGRAM,
}
_MAY: Final = {
    Line.CLEARED: "cannot be running it",
    Line.SERVER: "may be in a turn on it",
    Line.CHAT: "may have it on screen or in memory",
    Line.UNKNOWN_PROGRAM: "may have it in memory",
}


class Context(Struct, frozen=True):
    """All that the sessions of a home are judged by, at one moment."""

    facts: HomeFacts
    rules: ReaperRules
    now: float
    hosts: Hosts = NO_HOSTS
    named: frozenset[str] = frozenset()
    """Sessions that a living process names, with all their descendants."""
    silent_since: dict[tuple[int, int], int] = {}
    """See `possible_hosts.hosts_of`."""
    ticks_per_second: int = 100


class Subject(NamedTuple):
    """A session, and what was watched of it."""

    session: OpenSession
    idle_seconds: float = 0.0
    """Watched, of the session and of its open descendants: the shortest of these."""
    active_at: float | None = None
    """Newest activity of its open descendants, by Hermes's clocks."""
    presence: Presence = UNSEEN
    parent_is_live: bool = False


class Conclusion(NamedTuple):
    verdict: Verdict
    proof: Proof | None = None
    reason: UnknownReason | None = None


LIVE: Final = Conclusion(Verdict.LIVE)
HELD: Final = Conclusion(Verdict.HELD)
EXEMPT: Final = Conclusion(Verdict.EXEMPT)
PROVEN: Final = Conclusion(Verdict.DEAD, Proof.PROVEN)
PRESUMED: Final = Conclusion(Verdict.DEAD, Proof.PRESUMED)
_UNKNOWN: Final = {reason: Conclusion(Verdict.UNKNOWN, reason=reason) for reason in UnknownReason}


def conclude(subject: Subject, context: Context) -> Conclusion:
    """The verdict alone, as if this were the only scan."""
    for rule in _RULES:
        found = rule.fails(subject, context)
        if found is not None:
            return found
    line = context.hosts.line_for(subject.presence)
    return PROVEN if line is Line.CLEARED else PRESUMED


def judge(subject: Subject, context: Context) -> Judgement:
    """The verdict with every piece of evidence and every rule."""
    found = conclude(subject, context)
    evidence = [
        *_holds(subject),
        *_signs_of_life(subject, context),
        *_exempt(subject, context),
        *_processes(subject, context),
        *_blind_spots(subject, context),
        *_kernel(subject, context),
    ]
    rules = tuple(
        Rule(rule.name, rule.fails(subject, context) is None, rule.why(subject, context)[:300])
        for rule in _RULES
    )
    return Judgement(found.verdict, tuple(evidence[:32]), rules, found.proof)


# The rules


class _Rule(NamedTuple):
    name: str
    fails: Callable[[Subject, Context], Conclusion | None]
    """The verdict if the rule does not hold; None if it does."""
    why: Callable[[Subject, Context], str]


def _is_live(subject: Subject, context: Context) -> Conclusion | None:
    session, rules = subject.session, context.rules
    # Most sessions have been idle for long and show no sign: they are done with here.
    if (
        session.clocks_sane
        and context.now - _active_at(subject) >= rules.min_idle_seconds
        and session.last_heartbeat_at is None
        and session.id not in context.named
        and context.facts.backend_beat_at is None
        and not context.facts.turns
    ):
        return None
    return LIVE if any(_signs_of_life(subject, context)) else None


def _is_held(subject: Subject, _: Context) -> Conclusion | None:
    return HELD if subject.session.holds or subject.parent_is_live else None


def _is_exempt(subject: Subject, context: Context) -> Conclusion | None:
    return None if subject.session.source in context.rules.sources else EXEMPT


def _is_unseen(subject: Subject, context: Context) -> Conclusion | None:
    facts = context.facts
    if facts.blind == ("routing",):
        return _UNKNOWN[UnknownReason.ROUTING]
    unseen = facts.blind or facts.lock_probe is LockAnswer.HELD_UNSEEN
    if unseen or not subject.session.clocks_sane or _doubtful_leases(subject.session, facts):
        return _UNKNOWN[UnknownReason.BLIND]
    return None


def _may_be_run(subject: Subject, context: Context) -> Conclusion | None:
    """Whether the session has not been idle for as long as the table asks."""
    line = context.hosts.line_for(subject.presence)
    if line is Line.CLEARED:
        return None  # idle for min_idle: it would be live otherwise
    if context.hosts.stopped:
        return _UNKNOWN[UnknownReason.STOPPED]
    needed = needed_seconds(line, context.rules)
    if needed is None or idle_seconds(subject, context) < needed:
        return _UNKNOWN[_WAITS_FOR[line]]
    return None


def idle_seconds(subject: Subject, context: Context) -> float:
    """What counts for a presumption."""
    if context.rules.presume_by_clock:
        return context.now - _active_at(subject)
    return subject.idle_seconds


def _active_at(subject: Subject) -> float:
    own, children = subject.session.last_activity_at, subject.active_at
    return own if children is None else max(own, children)


# The evidence


def _holds(subject: Subject) -> Iterator[Evidence]:
    for hold in subject.session.holds:
        yield Evidence(hold.value, Says.HELD, _HOLDS[hold])
    if subject.parent_is_live:
        yield Evidence("parent", Says.HELD, "its parent session is live")


def _signs_of_life(subject: Subject, context: Context) -> Iterator[Evidence]:
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
    """What newer releases note of a session's backend and of its turn."""
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


def _names(session: OpenSession, facts: HomeFacts) -> Iterator[Evidence]:
    """Names only accuse: they clear their process of no other session."""
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
    return Evidence(kind, Says.LIVE, detail)


def _exempt(subject: Subject, context: Context) -> Iterator[Evidence]:
    if subject.session.source not in context.rules.sources:
        yield Evidence("source", Says.EXEMPT, _source_reason(subject, context))


def _processes(subject: Subject, context: Context) -> Iterator[Evidence]:
    """The processes that have the database open, those that may have the session first."""
    lines = ((each, _line(each, subject, context)) for each in context.facts.holders)
    waits = ((each, line) for each, line in lines if line is not Line.CLEARED)
    for holder, line in islice(waits, _PROCESSES_SHOWN):
        yield Evidence(line.value, Says.BLIND, _process_detail(holder, line, subject, context))
    for lease in _doubtful_leases(subject.session, context.facts):
        said = f"process {lease.pid} leases it, and it cannot be told whether it lives"
        yield Evidence("lease", Says.BLIND, said)


def _line(holder: Holder, subject: Subject, context: Context) -> Line:
    """The line of one process for this session."""
    alone = hosts_of(
        (holder,),
        plugins=context.facts.plugins,
        silent_since=context.silent_since,
        ticks_per_second=context.ticks_per_second,
    )
    return alone.line_for(subject.presence)


def _process_detail(holder: Holder, line: Line, subject: Subject, context: Context) -> str:
    said = f"process {holder.pid} ({holder.kind.value}) {_MAY[line]}"
    if holder.stopped:
        return f"{said}; it is stopped, and nothing counts as idle beside it"
    needed = needed_seconds(line, context.rules)
    if needed is None:
        return f"{said}: dead only when that process ends, as presume_after is off"
    left = needed - idle_seconds(subject, context)
    if left <= 0:
        return f"{said}, and stood still for {format_age(needed)}"
    return f"{said}: dead after {format_age(left)} more of watched idleness, or when it ends"


def _doubtful_leases(session: OpenSession, facts: HomeFacts) -> list[LeaseFact]:
    return [
        lease
        for lease in facts.leases
        if lease.session_id == session.id and lease.liveness is Liveness.UNKNOWN
    ]


def _blind_spots(subject: Subject, context: Context) -> Iterator[Evidence]:
    for why in context.facts.blind:
        yield Evidence("blindness", Says.BLIND, f"cannot be seen: {why}")
    if not subject.session.clocks_sane:
        yield Evidence("clock", Says.BLIND, "its own clocks make no sense, which protects it")


def _kernel(subject: Subject, context: Context) -> Iterator[Evidence]:
    """What the kernel says of the database."""
    facts = context.facts
    if facts.lock_probe is LockAnswer.FREE:
        yield Evidence("lock", Says.DEAD, "the kernel knows of no lock on the database")
    elif facts.lock_probe is LockAnswer.HELD_UNSEEN:
        yield Evidence("lock", Says.BLIND, "a process that cannot be seen holds a lock")
    if _is_unseen(subject, context) is not None:
        return
    if not facts.holders:
        yield Evidence("nobody", Says.DEAD, "no process on this host has the database open")
    elif context.hosts.line_for(subject.presence) is Line.CLEARED:
        pids = ", ".join(f"{each.pid} ({each.kind.value})" for each in facts.holders[:8])
        yield Evidence("cleared", Says.DEAD, f"none of {pids} can be running it")
    elif _may_be_run(subject, context) is None:
        idle = format_age(idle_seconds(subject, context))
        yield Evidence("watched", Says.DEAD, f"it was watched standing still for {idle}")


# What is said of the rules


def _sign_reason(subject: Subject, context: Context) -> str:
    first = next(_signs_of_life(subject, context), None)
    if first is not None:
        return first.detail
    idle = format_age(context.now - _active_at(subject))
    return f"idle for {idle}, no process names it, no heartbeat"


def _held_reason(subject: Subject, _: Context) -> str:
    first = next(_holds(subject), None)
    return first.detail if first is not None else "nothing points at it"


def _source_reason(subject: Subject, context: Context) -> str:
    if subject.session.source in context.rules.sources:
        return "sessions of this source may be reaped"
    return f"only sessions of {', '.join(context.rules.sources)} are ever reaped"


def _sight_reason(subject: Subject, context: Context) -> str:
    first = next(_blind_spots(subject, context), None)
    if first is not None:
        return first.detail
    if context.facts.lock_probe is LockAnswer.HELD_UNSEEN:
        return "a process that cannot be seen holds a lock on the database"
    doubtful = _doubtful_leases(subject.session, context.facts)
    if doubtful:
        return f"it cannot be told whether process {doubtful[0].pid}, which leases it, lives"
    return "every process of this host can be seen"


def _table_reason(subject: Subject, context: Context) -> str:
    line = context.hosts.line_for(subject.presence)
    if line is Line.CLEARED:
        if not context.facts.holders:
            return "no process has the database open"
        return "no process that has the database open can be running it"
    found = next(
        (each for each in context.facts.holders if _line(each, subject, context) is line), None
    )
    return "" if found is None else _process_detail(found, line, subject, context)


_RULES: Final = (
    _Rule("no_sign_of_life", _is_live, _sign_reason),
    _Rule("not_held", _is_held, _held_reason),
    _Rule("source", _is_exempt, _source_reason),
    _Rule("all_visible", _is_unseen, _sight_reason),
    _Rule("idle_long_enough", _may_be_run, _table_reason),
)


def context_of(
    facts: HomeFacts,
    rules: ReaperRules,
    now: float,
    *,
    named: frozenset[str] = frozenset(),
    silent_since: dict[tuple[int, int], int] | None = None,
    ticks_per_second: int = 100,
) -> Context:
    """What sessions are judged by, worked out once for all of them."""
    hosts = hosts_of(
        facts.holders,
        plugins=facts.plugins,
        silent_since=silent_since,
        ticks_per_second=ticks_per_second,
    )
    return Context(facts, rules, now, hosts, named, silent_since or {}, ticks_per_second)
