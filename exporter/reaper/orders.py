"""What the agent orders a worker to do to a home's sessions, and what it hears of it."""

from __future__ import annotations

from msgspec import Struct

from exporter.evidence.openers import KnownOpeners
from exporter.reaper.plan import Blocked, ReapLimits
from exporter.runs.models import Outcome, Skipped
from exporter.snapshot import Count, SessionId

UNDOABLE_SECONDS = 72 * 3600.0


class Undone(Struct, frozen=True):
    """What became of an undo."""

    run: str
    """The run that was undone."""
    restored: tuple[str, ...]
    failed: tuple[Skipped, ...]
    why: str = ""
    """What stopped it, if anything did."""
    is_known: bool = True
    """False if what was given back could not be noted or seen."""


class ReapOrder(Struct, frozen=True):
    """What the agent wants of a home's worker."""

    home: str
    owner: int
    limits: ReapLimits = ReapLimits()
    sources: tuple[str, ...] = ()
    """Only these; empty: all that the limits allow."""
    by_hand: bool = False
    openers: KnownOpeners = KnownOpeners()
    only: tuple[str, ...] | None = None
    """Of the plan only these sessions; None: all of it."""
    run: str = ""
    plan: str = ""
    end_reason: str = "reaped"
    lock_budget_seconds: float = 0.05
    undoable_seconds: float = UNDOABLE_SECONDS
    processes: tuple[tuple[int, int], ...] = ()
    """PID and start ticks of those that have the database open and may run a session."""
    silent: tuple[tuple[int, int], ...] = ()
    """PID of each chat, and what it had written when the sessions were judged."""
    heal_only: bool = False
    """Put right what earlier reaps did wrong, and end nothing."""


class Report(Struct, frozen=True):
    """What became of an order."""

    outcome: Outcome
    blocked: Blocked = Blocked.NO
    deferred: Count = 0
    reopened: tuple[SessionId, ...] = ()
    """Sessions of earlier reaps that a process was on after all."""
    resumed: tuple[SessionId, ...] = ()
    """Sessions of earlier reaps that were taken up later."""
