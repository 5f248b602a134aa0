"""Verdicts on all open sessions of a home over time: one scan alone never makes a session dead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Final

from msgspec import structs

from exporter.evidence.liveness import BootTime, read_boot_time
from exporter.evidence.models import Liveness, ProcessFacts
from exporter.reaper.models import (
    Conclusion,
    JudgedSession,
    Judgement,
    LeakCount,
    ReaperRules,
    Rule,
    UnknownCount,
    UnknownReason,
    Verdict,
    VerdictCount,
)
from exporter.reaper.verdict import (
    Context,
    WatchedSession,
    decide,
    is_overdue,
    judge,
    seconds_left,
    waited_for,
)
from exporter.reaper.watched_idleness import SessionHistory, WatchedIdleness
from exporter.snapshot import OTHER, OpenSession

_EVIDENCE_SHOWN: Final = 4
_SOURCES_MAX: Final = 60
_NOT_JUDGED: Final = Conclusion(Verdict.UNKNOWN, reason=UnknownReason.BLIND)


class VerdictHistory:
    """Remembers what earlier scans concluded.

    Only conclusions are kept, because there may be tens of thousands; reasons are computed again
    when they are requested.
    """

    def __init__(self, moment: Callable[[], BootTime] = read_boot_time) -> None:
        self.watched = WatchedIdleness(moment)
        self.revision = 0
        """Changes when any verdict changes."""
        self._descendants: dict[str, tuple[float, float]] = {}
        """See `_of_descendants`."""
        self._children_of_live: set[str] = set()
        self._context = Context(ProcessFacts(), ReaperRules(), 0.0)

    def update(
        self,
        sessions: Mapping[str, OpenSession],
        facts: ProcessFacts,
        rules: ReaperRules,
        now: float,
        *,
        parents: Mapping[str, str | None] | None = None,
        reopened: Container[str] = (),
        grown: Iterable[str] = (),
        begun_anew: bool = False,
    ) -> None:
        """Judge every session again.

        `parents` has those of ended sessions; see `WatchedIdleness.observe` for what follows it.
        """
        changed = not self.watched.sessions.keys() <= sessions.keys()
        self.watched.observe(
            sessions,
            facts.holders,
            now=now,
            reopened=reopened,
            grown=grown,
            begun_anew=begun_anew,
        )
        self._descendants = _of_descendants(sessions, self.watched.idle_seconds)
        context = self._context = Context(
            facts,
            rules,
            now,
            named=_with_descendants(_named(facts), sessions, parents or {}),
            silent_since=self.watched.silent_since(),
        )
        self._children_of_live = set()
        found = {key: decide(self._subject(each), context) for key, each in sessions.items()}
        live = {key for key, each in found.items() if each.verdict is Verdict.LIVE}
        self._children_of_live = {key for key, each in sessions.items() if each.parent_id in live}
        for key in self._children_of_live:
            found[key] = decide(self._subject(sessions[key]), context)
        for key, conclusion in found.items():
            changed |= _conclude(self.watched.sessions[key], conclusion, rules.confirmations)
        self.revision += changed

    def _subject(self, session: OpenSession) -> WatchedSession:
        idle, active_at = self.watched.idle_seconds(session.id), None
        if session.id in self._descendants:
            shortest, active_at = self._descendants[session.id]
            idle = min(idle, shortest)
        return WatchedSession(
            session,
            idle,
            active_at,
            self.watched.presence(session.id),
            session.id in self._children_of_live,
        )

    def judgement(self, session: OpenSession, kept_until: float | None = None) -> Judgement:
        """Return the last verdict on a session with everything that led to it."""
        subject = self._subject(session)._replace(kept_until=kept_until)
        found = judge(subject, self._context)
        last, wanted = self.watched.record(session.id), self._context.rules.confirmations
        agreed = last.dead_in_a_row
        said = f"{min(agreed, wanted)} of {wanted} scans in a row agree"
        rule = Rule("confirmed", agreed >= wanted, said)
        verdict = self.verdict(session.id)
        return structs.replace(found, verdict=verdict, rules=(*found.rules, rule))

    def judged(self, session: OpenSession) -> JudgedSession:
        """Return a session with its verdict and the strongest evidence."""
        evidence = judge(self._subject(session), self._context).evidence[:_EVIDENCE_SHOWN]
        last = self.conclusion(session.id)
        return JudgedSession(session, last.verdict, evidence, last.proof)

    def counts(self, sessions: Mapping[str, OpenSession]) -> list[VerdictCount]:
        shown = _shown_sources(sessions.values())
        found = Counter((shown(each.source), self.verdict(key)) for key, each in sessions.items())
        return [VerdictCount(source, verdict, n) for (source, verdict), n in found.items()]

    def unknown(self, sessions: Mapping[str, OpenSession]) -> list[UnknownCount]:
        """Count the sessions with the verdict unknown, by reason, with what they wait for."""
        found: dict[UnknownReason, list[WatchedSession]] = {}
        for key, session in sessions.items():
            last = self.watched.record(key).conclusion
            if last is not None and last.verdict is Verdict.UNKNOWN:
                subject = self._subject(session)
                found.setdefault(last.reason or UnknownReason.BLIND, []).append(subject)
        return [self._unknown(reason, subjects) for reason, subjects in found.items()]

    def _unknown(self, reason: UnknownReason, subjects: Sequence[WatchedSession]) -> UnknownCount:
        context = self._context
        left = [seconds_left(each, context) for each in subjects]
        known = [each for each in left if each is not None]
        processes = waited_for(reason, context)
        return UnknownCount(
            reason,
            len(subjects),
            overdue=sum(is_overdue(each, context) for each in subjects),
            process=processes[0].pid if processes else None,
            processes=len(processes),
            process_began_at=processes[0].started_at if processes else None,
            dead_at=context.now + max(known) if len(known) == len(left) else None,
        )

    def leaks(self, sessions: Mapping[str, OpenSession]) -> list[LeakCount]:
        shown = _shown_sources(sessions.values())
        dead = (each for key, each in sessions.items() if self.verdict(key) is Verdict.DEAD)
        found = Counter((shown(each.source), each.turn) for each in dead)
        return [LeakCount(source, cause, n) for (source, cause), n in found.items()]

    def conclusion(self, session_id: str) -> Conclusion:
        return self.watched.record(session_id).conclusion or _NOT_JUDGED

    def verdict(self, session_id: str) -> Verdict:
        return self.conclusion(session_id).verdict


def _conclude(record: SessionHistory, found: Conclusion, confirmations: int) -> bool:
    """Note what a scan found: dead only if enough in a row agree; True if that is something new."""
    before, is_dead = record.conclusion, found.verdict is Verdict.DEAD
    record.dead_in_a_row = record.dead_in_a_row + 1 if is_dead else 0
    if is_dead and record.dead_in_a_row < confirmations:
        found = (before or _NOT_JUDGED)._replace(verdict=Verdict.UNKNOWN, proof=None)
    record.conclusion = found
    return found != before


def _with_descendants(
    session_ids: Collection[str],
    sessions: Mapping[str, OpenSession],
    parents: Mapping[str, str | None],
) -> frozenset[str]:
    if not session_ids:
        return frozenset()
    children: dict[str | None, list[str]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    for session in sessions.values():
        children.setdefault(session.parent_id, []).append(session.id)
    found: set[str] = set()
    waiting = list(session_ids)
    while waiting:
        session_id = waiting.pop()
        if session_id not in found:
            found.add(session_id)
            waiting.extend(children.get(session_id, ()))
    return frozenset(found)


def _of_descendants(
    sessions: Mapping[str, OpenSession], idle: Callable[[str], float]
) -> dict[str, tuple[float, float]]:
    """Return for each ancestor the shortest idle time and newest activity of its descendants.

    A session that is its own descendant, because of a broken row, is left out.
    """
    children_left = Counter(session.parent_id for session in sessions.values())
    order = [key for key in sessions if key not in children_left]
    found: dict[str, tuple[float, float]] = {}
    for key in order:  # the list grows meanwhile: a parent comes after all its children
        session = sessions[key]
        parent = session.parent_id
        if parent is not None and parent in sessions:
            own = (idle(key), session.last_activity_at)
            for each in (own, found.get(key, own)):
                before = found.get(parent, each)
                found[parent] = (min(before[0], each[0]), max(before[1], each[1]))
            children_left[parent] -= 1
            if not children_left[parent]:
                order.append(parent)
    return found


def _named(facts: ProcessFacts) -> set[str]:
    """Return the sessions that a living process names or leases."""
    named = {mapped.id for holder in facts.holders for mapped in holder.sessions}
    named.update(lease.session_id for lease in facts.leases if lease.liveness is Liveness.ALIVE)
    return named


def _shown_sources(sessions: Iterable[OpenSession]) -> Callable[[str], str]:
    """Return the names of sources: all but those with the most sessions count as `other`."""
    found = Counter(session.source for session in sessions)
    most = {source for source, _ in found.most_common(_SOURCES_MAX)}
    return lambda source: source if source in most else OTHER
