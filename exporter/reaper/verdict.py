"""The verdict on an open session: one pure function, with the full chain of its reasons.

held     something still means to come back to it
live     some evidence says that it is being run, or was a moment ago
dead     none of that, idle, everything could be seen, and no process could be running it
unknown  anything else; nothing is ever done to such a session
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct

from exporter import human
from exporter.evidence.findings import Liveness
from exporter.hermes.heartbeats import BACKEND_SOURCES
from exporter.reaper.findings import (
    Evidence,
    HomeFacts,
    Judgement,
    LeaseFact,
    ReaperRules,
    Rule,
    Says,
    Verdict,
)
from exporter.reaper.hosts import Hosts, ProcessKey, could_host, hosts_of
from exporter.snapshot import Hold, LockAnswer, OpenSession

_HOSTS_SHOWN: Final = 8
_HOLDS = {
    Hold.ROUTED: "a chat of the gateway leads to it",
    Hold.TOPIC_BOUND: "a topic is bound to it",
    Hold.HANDOFF: "a handoff is pending",
    Hold.COMPRESSION_LOCK: "it is being compressed",
    Hold.DELEGATION: "it waits for a delegated task",
    Hold.PINNED: "it is pinned",
    Hold.GOAL: "it has an open goal",
    Hold.RESTORED: "an undo opened it again",
}


class Scene(Struct, frozen=True):
    """All that the sessions of a home are judged by, at one moment."""

    facts: HomeFacts
    rules: ReaperRules
    now: float
    accounted: Mapping[ProcessKey, frozenset[str]]
    named: frozenset[str]
    """Sessions that some process names or leases."""
    hosts: Hosts

    @classmethod
    def of(
        cls,
        facts: HomeFacts,
        rules: ReaperRules,
        now: float,
        accounted: Mapping[ProcessKey, frozenset[str]] | None = None,
    ) -> Scene:
        named = {mapped.id for holder in facts.holders for mapped in holder.sessions}
        named.update(lease.session_id for lease in facts.leases)
        hosts = hosts_of(facts.holders, accounted or {})
        return cls(facts, rules, now, accounted or {}, frozenset(named), hosts)


def conclude(session: OpenSession, scene: Scene, *, parent_is_live: bool = False) -> Verdict:
    """The verdict alone, as if this were the only look at it (confirmations come on top)."""
    facts, rules = scene.facts, scene.rules
    idle = scene.now - session.last_activity_at
    idle_enough = session.clocks_sane and idle >= rules.min_idle_seconds
    may_live = not idle_enough or session.last_heartbeat_at is not None
    if (may_live or session.id in scene.named or _has_signs(facts)) and _live(session, scene):
        return Verdict.LIVE
    if session.holds or parent_is_live:
        return Verdict.HELD
    if not idle_enough or session.source not in rules.sources:
        return Verdict.UNKNOWN
    if facts.blind or facts.lock_probe is LockAnswer.HELD_UNSEEN:
        return Verdict.UNKNOWN
    if scene.hosts.may_run(session):
        return Verdict.UNKNOWN
    if session.id in scene.named and _doubtful_leases(session, facts):
        return Verdict.UNKNOWN
    return Verdict.DEAD


def judge(session: OpenSession, scene: Scene, *, parent_is_live: bool = False) -> Judgement:
    """The verdict with every piece of evidence and every rule."""
    facts, rules = scene.facts, scene.rules
    held = _held(session, parent_is_live)
    live = _live(session, scene)
    hosts = _hosts(session, scene)
    blind = [Evidence("blindness", Says.BLIND, f"cannot be seen: {why}") for why in facts.blind]
    unseen = facts.lock_probe is LockAnswer.HELD_UNSEEN
    idle = scene.now - session.last_activity_at
    idle_enough = session.clocks_sane and idle >= rules.min_idle_seconds
    chain = (
        Rule("source", session.source in rules.sources, _source_reason(session, rules)),
        Rule("not_held", not held, held[0].detail if held else "nothing points at it"),
        Rule("idle", idle_enough, _idle_reason(session, idle, rules)),
        Rule("no_sign_of_life", not live, live[0].detail if live else "no lease, no heartbeat"),
        Rule("all_visible", not blind and not unseen, _sight_reason(facts)),
        Rule("no_possible_host", not hosts, _host_reason(hosts, facts)),
    )
    proof = [] if hosts or blind or unseen else [_proof(facts)]
    return Judgement(
        verdict=conclude(session, scene, parent_is_live=parent_is_live),
        evidence=tuple(
            [*held, *live, *_foreign(session, rules), *hosts, *blind, *_lock(facts), *proof][:32]
        ),
        rules=chain,
    )


def _held(session: OpenSession, parent_is_live: bool) -> list[Evidence]:
    found = [Evidence(hold.value, Says.HELD, _HOLDS[hold]) for hold in session.holds]
    if parent_is_live:
        found.append(Evidence("parent", Says.HELD, "its parent session is live"))
    return found


def _has_signs(facts: HomeFacts) -> bool:
    return facts.backend_beat_at is not None or bool(facts.turns)


def _signs(session: OpenSession, scene: Scene) -> Iterator[Evidence]:
    """What newer releases note of a session's backend and of its turn."""
    facts = scene.facts
    beat = facts.backend_beat_at
    if beat is not None and session.source in BACKEND_SOURCES:
        age = scene.now - beat
        if age <= scene.rules.heartbeat_timeout_seconds:
            said = f"a backend that may run it gave a heartbeat {max(0.0, age):.0f} s ago"
            yield _says_live("backend", said)
    if session.id in facts.turns:
        yield _says_live("turn_lease", "it is in the middle of a turn")
    elif facts.turns_elsewhere and session.parent_id is not None:
        yield _says_live("turn_lease", "a conversation it may belong to is in the middle of a turn")


def _live(session: OpenSession, scene: Scene) -> list[Evidence]:
    found = _named(session, scene.facts) if session.id in scene.named else []
    beat = session.last_heartbeat_at
    if beat is not None and scene.now - beat <= scene.rules.heartbeat_timeout_seconds:
        age = max(0.0, scene.now - beat)
        found.append(_says_live("heartbeat", f"its heartbeat is {age:.0f} s old"))
    if _has_signs(scene.facts):
        found.extend(_signs(session, scene))
    idle = scene.now - session.last_activity_at
    if session.clocks_sane and idle < scene.rules.min_idle_seconds:
        found.append(_says_live("activity", f"it was active {max(0.0, idle):.0f} s ago"))
    return found


def _named(session: OpenSession, facts: HomeFacts) -> list[Evidence]:
    leased = [
        _says_live("lease", f"process {lease.pid} ({lease.surface}) leases it")
        for lease in facts.leases
        if lease.session_id == session.id and lease.liveness is Liveness.ALIVE
    ]
    mapped = [
        _says_live(mapped.how.value, f"process {holder.pid} ({holder.kind.value}) names it")
        for holder in facts.holders
        for mapped in holder.sessions
        if mapped.id == session.id
    ]
    return [*leased, *mapped]


def _says_live(kind: str, detail: str) -> Evidence:
    return Evidence(kind, Says.LIVE, detail)


def _hosts(session: OpenSession, scene: Scene) -> list[Evidence]:
    """Processes that may be running it, and leases of which nobody can tell."""
    holders = scene.facts.holders if scene.hosts.may_run(session) else ()
    possible = (each for each in holders if could_host(each, session, scene.accounted))
    hosts = [
        Evidence(
            "possible_host",
            Says.BLIND,
            f"process {holder.pid} ({holder.kind.value}) has the database open and may be on it",
        )
        for holder in islice(possible, _HOSTS_SHOWN)
    ]
    hosts.extend(
        Evidence("lease", Says.BLIND, f"process {lease.pid} leases it and cannot be judged")
        for lease in _doubtful_leases(session, scene.facts)
    )
    return hosts


def _doubtful_leases(session: OpenSession, facts: HomeFacts) -> list[LeaseFact]:
    return [
        lease
        for lease in facts.leases
        if lease.session_id == session.id and lease.liveness is Liveness.UNKNOWN
    ]


def _proof(facts: HomeFacts) -> Evidence:
    if not facts.holders:
        return Evidence("nobody", Says.DEAD, "no process on this host has the database open")
    pids = ", ".join(f"{holder.pid} ({holder.kind.value})" for holder in facts.holders[:8])
    return Evidence("no_possible_host", Says.DEAD, f"none of {pids} could be running it")


def _lock(facts: HomeFacts) -> list[Evidence]:
    match facts.lock_probe:
        case LockAnswer.FREE:
            return [Evidence("lock", Says.DEAD, "the kernel knows of no lock on the database")]
        case LockAnswer.HELD_UNSEEN:
            return [Evidence("lock", Says.BLIND, "a process that cannot be seen holds a lock")]
    return []


def _foreign(session: OpenSession, rules: ReaperRules) -> list[Evidence]:
    """A source of which nothing can be proven."""
    if session.source in rules.sources:
        return []
    return [Evidence("source", Says.BLIND, _source_reason(session, rules))]


def _source_reason(session: OpenSession, rules: ReaperRules) -> str:
    if session.source in rules.sources:
        return "sessions of this source may be reaped"
    return f"only sessions of {', '.join(rules.sources)} are ever reaped"


def _idle_reason(session: OpenSession, idle: float, rules: ReaperRules) -> str:
    if not session.clocks_sane:
        return "its clocks make no sense, which protects it"
    return f"idle for {human.age(idle)}; {human.age(rules.min_idle_seconds)} are asked for"


def _sight_reason(facts: HomeFacts) -> str:
    if facts.lock_probe is LockAnswer.HELD_UNSEEN:
        return "a process that cannot be seen holds a lock on the database"
    if facts.blind:
        return f"cannot be seen: {', '.join(facts.blind)}"
    return "every process of this host can be seen"


def _host_reason(hosts: list[Evidence], facts: HomeFacts) -> str:
    return hosts[0].detail if hosts else _proof(facts).detail
