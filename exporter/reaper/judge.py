"""Verdicts on all open sessions of a home, scan after scan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import structs

from exporter.labels import OTHER
from exporter.reaper.findings import (
    HomeFacts,
    JudgedSession,
    Judgement,
    LeakCount,
    ReaperRules,
    Rule,
    Verdict,
    VerdictCount,
)
from exporter.reaper.hosts import ProcessKey, mapped_account
from exporter.reaper.verdict import Scene, conclude, judge
from exporter.reaper.witness import Witness
from exporter.snapshot import OpenSession

_STRONGEST: Final = 4
_SOURCES_MAX: Final = 60


class Bench:
    """Remembers what earlier scans concluded: one look never makes a session dead.

    Only verdicts are kept, for there may be tens of thousands; the reasons are made again for
    whoever asks.
    """

    def __init__(self) -> None:
        self._witness = Witness()
        self._agreed: dict[str, int] = {}
        self._verdicts: dict[str, Verdict] = {}
        self.revision = 0
        """Moves when any verdict does."""
        self.alibis: tuple[str, ...] = ()
        """Open sessions that living processes are known to be on, and so on no other."""
        self.accounted: Mapping[ProcessKey, frozenset[str]] = {}
        """Those processes, and their sessions with all that descends from them."""
        self._children_of_live: set[str] = set()
        self._scene = Scene.of(HomeFacts(), ReaperRules(), 0.0)

    def sit(
        self,
        sessions: Mapping[str, OpenSession],
        facts: HomeFacts,
        rules: ReaperRules,
        now: float,
    ) -> None:
        """Judge every session anew."""
        self._witness.observe(sessions, facts.holders, complete=not facts.blind, now=now)
        families = _children(sessions.values())
        known = self._accounted(sessions, facts)
        accounted = {process: _family(first, families) for process, first in known.items()}
        self.accounted = accounted
        self.alibis = tuple(sorted(set(known.values())))
        scene = self._scene = Scene.of(facts, rules, now, accounted)
        alone = {key: conclude(session, scene) for key, session in sessions.items()}
        self._children_of_live = {
            key
            for key, session in sessions.items()
            if alone.get(session.parent_id or "") is Verdict.LIVE
        }
        verdicts: dict[str, Verdict] = {}
        for key, session in sessions.items():
            verdict = alone[key]
            if key in self._children_of_live:
                verdict = conclude(session, scene, parent_is_live=True)
            verdicts[key] = self._confirm(key, verdict, rules)
        if verdicts != self._verdicts:
            self._verdicts = verdicts
            self.revision += 1
        self._agreed = {key: n for key, n in self._agreed.items() if key in sessions}

    def _accounted(
        self, sessions: Mapping[str, OpenSession], facts: HomeFacts
    ) -> dict[ProcessKey, str]:
        """What is known of interactive CLIs; where two ways of knowing differ, nothing is."""
        named = {
            process: session_id
            for process, session_id in mapped_account(facts.holders, sessions).items()
            if not self._witness.has_left(process, session_id)
        }
        seen = self._witness.account()
        return {
            process: session_id
            for process, session_id in {**seen, **named}.items()
            if seen.get(process, session_id) == named.get(process, session_id)
        }

    def _confirm(self, key: str, verdict: Verdict, rules: ReaperRules) -> Verdict:
        """Dead is said only when that many scans in a row have come to it."""
        if verdict is not Verdict.DEAD:
            self._agreed.pop(key, None)
            return verdict
        self._agreed[key] = self._agreed.get(key, 0) + 1
        return Verdict.DEAD if self._agreed[key] >= rules.confirmations else Verdict.UNKNOWN

    def judgement(self, session: OpenSession) -> Judgement:
        """The last verdict on a session with all that led to it."""
        found = self._judge(session)
        agreed, wanted = self._agreed.get(session.id, 0), self._scene.rules.confirmations
        rule = Rule(
            "confirmed", agreed >= wanted, f"{min(agreed, wanted)} of {wanted} scans in a row agree"
        )
        return structs.replace(found, verdict=self.verdict(session.id), rules=(*found.rules, rule))

    def _judge(self, session: OpenSession) -> Judgement:
        return judge(session, self._scene, parent_is_live=session.id in self._children_of_live)

    def judged(self, session: OpenSession) -> JudgedSession:
        """A session with its verdict and the strongest evidence."""
        evidence = self._judge(session).evidence[:_STRONGEST]
        return JudgedSession(session, self.verdict(session.id), evidence)

    def counts(self, sessions: Mapping[str, OpenSession]) -> list[VerdictCount]:
        shown = _shown_sources(sessions.values())
        found = Counter(
            (shown.get(session.source, OTHER), self.verdict(session_id))
            for session_id, session in sessions.items()
        )
        return [VerdictCount(source, verdict, n) for (source, verdict), n in found.items()]

    def leaks(self, sessions: Mapping[str, OpenSession]) -> list[LeakCount]:
        shown = _shown_sources(sessions.values())
        found = Counter(
            (shown.get(session.source, OTHER), session.turn)
            for session_id, session in sessions.items()
            if self.verdict(session_id) is Verdict.DEAD
        )
        return [LeakCount(source, cause, n) for (source, cause), n in found.items()]

    def verdict(self, session_id: str) -> Verdict:
        return self._verdicts.get(session_id, Verdict.UNKNOWN)


def _shown_sources(sessions: Iterable[OpenSession]) -> dict[str, str]:
    """The sources with the most sessions; any beyond their number count as `other`."""
    found = Counter(session.source for session in sessions)
    return {source: source for source, _ in found.most_common(_SOURCES_MAX)}


def _children(sessions: Iterable[OpenSession]) -> dict[str, list[str]]:
    families: dict[str, list[str]] = {}
    for session in sessions:
        if session.parent_id is not None:
            families.setdefault(session.parent_id, []).append(session.id)
    return families


def _family(first: str, children: Mapping[str, list[str]]) -> frozenset[str]:
    """A session and all that descends from it: whoever runs it runs those too."""
    family: set[str] = set()
    todo = [first]
    while todo:
        session_id = todo.pop()
        if session_id not in family:
            family.add(session_id)
            todo.extend(children.get(session_id, ()))
    return frozenset(family)
