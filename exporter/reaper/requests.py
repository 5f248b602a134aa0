"""The request that makes a worker reap the sessions of a home."""

from __future__ import annotations

from msgspec import Struct

from exporter.evidence.openers import KnownOpeners
from exporter.reaper.plan import ReapPlan

UNDOABLE_SECONDS = 72 * 3600.0


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
    processes: tuple[tuple[int, int], ...] = ()
    """PID and start ticks of the processes that have the database open and may run a session."""
    silent: tuple[tuple[int, int], ...] = ()
    """PID of each chat, and what it had written when the sessions were judged."""
    heal_only: bool = False
    """Correct what earlier reaps did wrong, and end nothing."""
    enforcing: bool = False
    """The agent ends sessions here, or a person does: ends with our reason are ours."""
