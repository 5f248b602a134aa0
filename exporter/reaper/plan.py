"""What a reap would do: a pure function of verdicts, so a dry run prints the same plan.

A plan contains only sessions that were found dead. An automatic plan has a limit per minute and one
per hour (`slow_start`). It is empty while automatic reaping has stopped: then a person must check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from exporter.evidence.models import ProcessKey
from exporter.evidence.openers import KnownOpeners
from exporter.reaper.models import JudgedSession, Verdict, may_be_reaped
from exporter.reaper.slow_start import FIRST_HOUR
from exporter.runs.models import END_SESSION, EVIDENCE_MAX, Action, Plan, Proof, SpeaksFor
from exporter.snapshot import Count, OpenSession, Timestamp, Word
from exporter.text import format_age

if TYPE_CHECKING:  # a worker plans too, and does not need the configuration
    from exporter.config.settings import Reaper

UNDOABLE_SECONDS: Final = 72 * 3600.0
_HASH_DIGITS: Final = 16


class OpenSessionState(Struct, frozen=True, omit_defaults=True):
    """What the verdict was made from. The session is ended only while all of it still holds.

    Defaults are left out, so that digests are the same as before a field was added.
    """

    source: Word
    started_at: Timestamp
    last_activity_at: Timestamp
    last_heartbeat_at: Timestamp | None
    rows: Count
    messages: Count
    is_subagent: bool = False

    @classmethod
    def of(cls, session: OpenSession) -> OpenSessionState:
        return cls(
            source=session.source,
            started_at=session.started_at,
            last_activity_at=session.last_activity_at,
            last_heartbeat_at=session.last_heartbeat_at,
            rows=session.rows,
            messages=session.messages,
            is_subagent=session.is_subagent,
        )


ReapAction = Action[OpenSessionState]
ReapPlan = Plan[OpenSessionState]


class Blocked(StrEnum):
    """Why a plan does nothing although there are dead sessions."""

    TRIPPED = "breaker_tripped"
    """The breaker opened in an earlier reap; a reap by hand closes it again."""


class ReapLimits(Struct, frozen=True):
    """The settings that a plan depends on."""

    sources: tuple[str, ...] = ("cli", "tui", "cron", "subagent", "curator")
    max_per_minute: int = 60

    @classmethod
    def of(cls, settings: Reaper) -> ReapLimits:
        return cls(settings.sources, settings.max_per_minute)


class ReapPlanRequest(Struct, frozen=True):
    """What a plan is requested for."""

    limits: ReapLimits = ReapLimits()
    sources: tuple[str, ...] = ()
    """Only these sources; empty: all that the limits allow."""
    by_hand: bool = False


class ReapRequest(Struct, frozen=True):
    """A reap, for the home's worker, which has just read and judged the home."""

    home: str
    owner: int
    plan: ReapPlan
    """Made by the last scan of this home, without the actions that are not wanted."""
    by_hand: bool = False
    openers: KnownOpeners = KnownOpeners()
    run: str = ""
    end_reason: str = "reaped"
    lock_budget_seconds: float = 0.05
    undoable_seconds: float = UNDOABLE_SECONDS
    processes: tuple[ProcessKey, ...] = ()
    """The processes that have the database open and may run a session."""
    silent: tuple[tuple[int, int], ...] = ()
    """PID of each chat, and what it had written when the sessions were judged."""
    heal_only: bool = False
    """Correct what earlier reaps did wrong, and end nothing."""
    enforcing: bool = False
    """The agent ends sessions here, or a person does: ends with our reason are ours."""


class JudgedHome(Struct, frozen=True):
    """One home to plan for."""

    home: str
    judged: Sequence[JudgedSession]
    """Its open sessions, or at least the dead ones."""
    limits: ReapLimits = ReapLimits()
    reaped_in_last_minute: int = 0
    left_in_this_hour: int = FIRST_HOUR
    """What slow start still allows."""
    tripped: str = ""
    """Why automatic reaping had already stopped; empty if it had not."""


def plan_reap(
    home: JudgedHome, now: float, *, sources: Collection[str] = (), by_hand: bool = False
) -> ReapPlan:
    """Plan to end the dead sessions of a home; only of these sources, if any are named.

    A plan by hand has no breaker and no limits: the person who confirms replaces them.
    """
    dead = sorted(
        (each for each in home.judged if _may_be_ended(each, home.limits, now)),
        key=lambda each: (each.session.last_activity_at, each.session.id),
    )
    wanted = [each for each in dead if not sources or each.session.source in sources]
    if by_hand:
        allowed = wanted
    else:
        if home.tripped:
            why = f"{home.tripped}; reap by hand to go on"
            return Plan(home.home, created_at=now, blocked=Blocked.TRIPPED, why=why)
        in_this_minute = home.limits.max_per_minute - home.reaped_in_last_minute
        allowed = wanted[: max(0, min(in_this_minute, home.left_in_this_hour))]
    return Plan(
        home=home.home,
        created_at=now,
        actions=tuple(_action(each, now) for each in allowed),
        deferred=len(wanted) - len(allowed),
    )


def _may_be_ended(judged: JudgedSession, limits: ReapLimits, now: float) -> bool:
    """True if the verdict is dead. The other conditions follow from that, and are checked again."""
    session = judged.session
    return (
        judged.verdict is Verdict.DEAD
        and may_be_reaped(session, limits.sources)
        and session.clocks_sane
        and not session.holds
        and session.started_at <= session.last_activity_at <= now
    )


def _action(judged: JudgedSession, now: float) -> ReapAction:
    session = judged.session
    proof = [each for each in judged.evidence if each.says is SpeaksFor.DEAD][:EVIDENCE_MAX]
    said = "; ".join(each.detail for each in proof)
    idle = f"idle for {format_age(now - session.last_activity_at)}"
    return Action(
        kind=END_SESSION,
        target=session.id,
        reason=f"{idle}; {said}"[:300] if said else idle,
        expected=OpenSessionState.of(session),
        evidence=tuple(proof),
        proof=judged.proof or Proof.PRESUMED,
    )


def digest(action: ReapAction) -> str:
    """Return a digest of one session's state: a later plan with the same digest wants the same."""
    return sha256(msgspec.json.encode(action.expected)).hexdigest()[:_HASH_DIGITS]


def hash_of(plans: Iterable[ReapPlan]) -> str:
    """Return a hash that differs between different plans."""
    content = [
        (plan.home, [(action.target, action.expected) for action in plan.actions])
        for plan in plans
        if plan.actions
    ]
    return sha256(msgspec.json.encode(content)).hexdigest()[:_HASH_DIGITS]
