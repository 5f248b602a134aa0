"""What a reap would do: a pure function of verdicts, so that a dry run is the plan printed.

A plan only ever holds sessions that were found dead. An automatic one is limited to so many a
minute, and is empty when more would be ended at once than can be right: then a person has to look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from exporter.reaper.models import Evidence, JudgedSession, Proof, SpeaksFor, Verdict
from exporter.snapshot import Count, OpenSession, SessionId, Text, Timestamp, Word
from exporter.text import format_age

if TYPE_CHECKING:  # a worker plans too, and has no use for the configuration
    from exporter.config.settings import Reaper

FEW: Final = 5
"""So few dead sessions never trip the breaker by their share: of three, one is a third."""
_EVIDENCE_MAX: Final = 4
_HASH_DIGITS: Final = 16


class OpenSessionState(Struct, frozen=True):
    """What the verdict was made from. The session is ended only while all of it still holds."""

    source: Word
    started_at: Timestamp
    last_activity_at: Timestamp
    last_heartbeat_at: Timestamp | None
    rows: Count
    messages: Count

    @classmethod
    def of(cls, session: OpenSession) -> OpenSessionState:
        return cls(
            source=session.source,
            started_at=session.started_at,
            last_activity_at=session.last_activity_at,
            last_heartbeat_at=session.last_heartbeat_at,
            rows=session.rows,
            messages=session.messages,
        )


class ReapAction(Struct, frozen=True):
    """One session to end, and why."""

    target: SessionId
    reason: Text
    expected: OpenSessionState
    evidence: Annotated[tuple[Evidence, ...], Meta(max_length=_EVIDENCE_MAX)] = ()
    proof: Proof = Proof.PROVEN


class Blocked(StrEnum):
    """Why a plan does nothing although there are dead sessions."""

    NO = "no"
    RATIO = "breaker_ratio"
    COUNT = "breaker_count"
    TRIPPED = "breaker_tripped"
    """By an earlier pass; a reap by hand closes it again."""


class ReapLimits(Struct, frozen=True):
    """The settings that a plan depends on."""

    sources: tuple[str, ...] = ("cli", "tui", "cron", "subagent", "curator")
    max_per_minute: int = 60
    ratio: float = 0.2
    count: int = 50

    @classmethod
    def of(cls, settings: Reaper) -> ReapLimits:
        return cls(
            sources=settings.sources,
            max_per_minute=settings.max_per_minute,
            ratio=settings.breaker.ratio,
            count=settings.breaker.count,
        )


class ReapPlanRequest(Struct, frozen=True):
    """What a plan is asked for."""

    limits: ReapLimits = ReapLimits()
    sources: tuple[str, ...] = ()
    """Only these; empty: all that the limits allow."""
    by_hand: bool = False


class JudgedHome(Struct, frozen=True):
    """One home to plan for."""

    home: str
    judged: Sequence[JudgedSession]
    """Its open sessions, or at least those that are dead."""
    open_sessions: int
    limits: ReapLimits = ReapLimits()
    reaped_in_last_minute: int = 0
    tripped: str = ""
    """Why automatic reaping had stopped already, if it had."""


class HomePlan(Struct, frozen=True):
    """What would be done to one home."""

    home: str
    actions: tuple[ReapAction, ...] = ()
    blocked: Blocked = Blocked.NO
    why: Text = ""
    dead: Count = 0
    """How many sessions were found dead, whatever is done about them now."""
    deferred: Count = 0
    """How many of them the rate limit leaves for later."""


class ReapPlan(Struct, frozen=True):
    """What would be done to all homes."""

    hash: str
    """Of what would be done to which session in which state; not of the time it was planned."""
    created_at: Timestamp
    homes: tuple[HomePlan, ...]

    def of(self, home: str) -> HomePlan:
        """The part that concerns one home."""
        return next((each for each in self.homes if each.home == home), HomePlan(home))


def plan_reap(
    homes: Iterable[JudgedHome],
    now: float,
    *,
    sources: Collection[str] = (),
    only_homes: Collection[str] = (),
    by_hand: bool = False,
) -> ReapPlan:
    """Plan to end the dead sessions, of these sources and homes only if any are named.

    By hand neither the breaker nor the rate limit holds: the person who says yes is both.
    """
    plans = tuple(
        _plan_home(home, now, sources=sources, by_hand=by_hand)
        for home in homes
        if not only_homes or home.home in only_homes
    )
    return ReapPlan(hash=hash_of(plans), created_at=now, homes=plans)


def _plan_home(
    home: JudgedHome, now: float, *, sources: Collection[str], by_hand: bool
) -> HomePlan:
    dead = sorted(
        (each for each in home.judged if _may_be_ended(each, home.limits, now)),
        key=lambda each: (each.session.last_activity_at, each.session.id),
    )
    wanted = [each for each in dead if not sources or each.session.source in sources]
    if by_hand:
        allowed = wanted
    else:
        blocked, why = _breaker(home, len(wanted))
        if blocked is not Blocked.NO:
            return HomePlan(home.home, blocked=blocked, why=why, dead=len(dead))
        allowed = wanted[: max(0, home.limits.max_per_minute - home.reaped_in_last_minute)]
    return HomePlan(
        home=home.home,
        actions=tuple(_action(each, now) for each in allowed),
        dead=len(dead),
        deferred=len(wanted) - len(allowed),
    )


def _may_be_ended(judged: JudgedSession, limits: ReapLimits, now: float) -> bool:
    """Dead by its verdict. The rest follows from that; here it costs nothing to insist."""
    session = judged.session
    return (
        judged.verdict is Verdict.DEAD
        and session.source in limits.sources
        and session.clocks_sane
        and not session.holds
        and session.started_at <= session.last_activity_at <= now
    )


def _breaker(home: JudgedHome, wanted: int) -> tuple[Blocked, str]:
    limits = home.limits
    if home.tripped:
        return Blocked.TRIPPED, f"{home.tripped}; reap by hand to go on"
    if wanted > limits.count:
        why = f"{wanted} sessions would be ended in one pass, more than {limits.count}"
        return Blocked.COUNT, why
    if wanted > FEW and wanted > limits.ratio * home.open_sessions:
        why = (
            f"{wanted} of {home.open_sessions} open sessions would be ended in one pass, "
            f"more than {limits.ratio:.0%}"
        )
        return Blocked.RATIO, why
    return Blocked.NO, ""


def _action(judged: JudgedSession, now: float) -> ReapAction:
    session = judged.session
    proof = [each for each in judged.evidence if each.says is SpeaksFor.DEAD][:_EVIDENCE_MAX]
    said = "; ".join(each.detail for each in proof)
    idle = f"idle for {format_age(now - session.last_activity_at)}"
    return ReapAction(
        target=session.id,
        reason=f"{idle}; {said}"[:300] if said else idle,
        expected=OpenSessionState.of(session),
        evidence=tuple(proof),
        proof=judged.proof or Proof.PRESUMED,
    )


def digest(action: ReapAction) -> str:
    """Of one session in one state: whether a later plan still wants the same."""
    return sha256(msgspec.json.encode(action.expected)).hexdigest()[:_HASH_DIGITS]


def hash_of(plans: Iterable[HomePlan]) -> str:
    """What tells one plan from another."""
    content = [
        (plan.home, [(action.target, action.expected) for action in plan.actions])
        for plan in plans
        if plan.actions
    ]
    return sha256(msgspec.json.encode(content)).hexdigest()[:_HASH_DIGITS]
