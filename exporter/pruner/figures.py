"""What the pruner knows of a home, as small as metrics and pages need it.

Made in the worker, sent to the agent: a plan may hold thousands of items, this holds their sums.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from exporter.pruner.models import Policy, ProtectedCount, Unreachable
from exporter.runs.models import RunOutcome
from exporter.snapshot import Bytes, Count, Text, Timestamp, Word

RULES_MAX = 32
UNREACHABLE_MAX = 40
REASONS_MAX = 16


class PolicyReport(Struct, frozen=True):
    """What one policy could do now."""

    policy: Policy
    reclaimable_bytes: Bytes = 0
    eligible: Count = 0
    """Things that are past it and that no rule keeps."""
    oldest: Timestamp | None = None
    """The clock of the oldest thing it is for, past it or not."""


class ThresholdReport(Struct, frozen=True):
    name: Word
    value: float | None
    """In bytes, as a ratio or as a count; None while it cannot be told."""
    high: float
    low: float
    pressure: bool


class PruneReport(Struct, frozen=True):
    """All of it, of one home."""

    made_at: Timestamp = 0.0
    policies: Annotated[list[PolicyReport], Meta(max_length=16)] = []
    thresholds: Annotated[list[ThresholdReport], Meta(max_length=16)] = []
    unreachable: Annotated[list[Unreachable], Meta(max_length=UNREACHABLE_MAX)] = []
    blocked: Annotated[list[Word], Meta(max_length=REASONS_MAX)] = []
    """Everything that keeps the pruner, or one of its policies, from acting."""
    why: Text = ""
    would_items: Count = 0
    """Of the plan that a run by itself would execute now."""
    would_bytes: Bytes = 0
    by_hand_items: Count = 0
    """Of all that policies allow."""
    by_hand_bytes: Bytes = 0
    protected: Annotated[list[ProtectedCount], Meta(max_length=RULES_MAX)] = []
    emergency: bool = False


class PruneOutcome(Struct, frozen=True):
    """What became of an order; its targets are told apart from it."""

    run: Word | None
    outcome: RunOutcome
    why: Text = ""
    freed_now_bytes: Bytes = 0
    freed_at_purge_bytes: Bytes = 0
    freed_after_upkeep_bytes: Bytes = 0
    longest_hold_seconds: float = 0.0
