"""What the agent orders a worker to do to a home's sessions, and what it hears of it."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from exporter.evidence.openers import Bystanders
from exporter.reaper.plan import Blocked, HomePlan
from exporter.runs.models import RunOutcome, Skipped
from exporter.snapshot import Count, SessionId, Text, Word

UNDOABLE_SECONDS = 72 * 3600.0


class Outcome(Struct, frozen=True):
    """What became of a plan."""

    run: Word | None
    """None if nothing was begun: the plan was empty, or the database must not be written."""
    outcome: RunOutcome
    done: tuple[SessionId, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    why: Text = ""
    longest_hold_seconds: float = 0.0


class Undone(Struct, frozen=True):
    """What became of an undo."""

    run: Word
    """The run that was undone."""
    restored: tuple[Annotated[str, Meta(max_length=4096)], ...]
    failed: tuple[Skipped, ...]
    why: Text = ""
    """What stopped it, if anything did."""
    is_known: bool = True
    """False if what was given back could not be noted or seen."""


class ReapOrder(Struct, frozen=True):
    """What the agent wants of a home's worker, which has just read and judged the home."""

    home: str
    owner: int
    plan: HomePlan
    """Made by the last scan of this home, less what is not wanted of it."""
    by_hand: bool = False
    bystanders: Bystanders = Bystanders()
    run: str = ""
    plan_hash: str = ""
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
