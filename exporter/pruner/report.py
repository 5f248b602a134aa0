"""What the pruner knows of a home, as small as metrics and pages need it.

Made in the worker, sent to the agent: a plan may hold thousands of items, this holds their sums.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from exporter.config.prune import Prune
from exporter.pruner.candidates import Finding
from exporter.pruner.inventory import Inventory
from exporter.pruner.lineage import Lineages
from exporter.pruner.plan import find_all, plan_prune
from exporter.pruner.pressure import Pressure
from exporter.pruner.protection import Protection, protect
from exporter.pruner.words import HomePrunePlan, Policy, ProtectedCount, Unreachable
from exporter.snapshot import Bytes, Count, Text, Timestamp, Word

_RULES_MAX = 32
_UNREACHABLE_MAX = 40
_REASONS_MAX = 16


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
    unreachable: Annotated[list[Unreachable], Meta(max_length=_UNREACHABLE_MAX)] = []
    blocked: Annotated[list[Word], Meta(max_length=_REASONS_MAX)] = []
    """Everything that keeps the pruner, or one of its policies, from acting."""
    why: Text = ""
    would_items: Count = 0
    """Of the plan that a run by itself would execute now."""
    would_bytes: Bytes = 0
    by_hand_items: Count = 0
    """Of all that policies allow."""
    by_hand_bytes: Bytes = 0
    protected: Annotated[list[ProtectedCount], Meta(max_length=_RULES_MAX)] = []
    emergency: bool = False


def report(
    inventory: Inventory, settings: Prune, pressure: Pressure
) -> tuple[PruneReport, HomePrunePlan]:
    """The figures of a home, and the automatic plan that they tell of (its home is not named)."""
    lineages = Lineages(inventory.sessions)
    protection = protect(inventory, settings, by_hand=False, lineages=lineages)
    findings = _findings(inventory, protection, settings, lineages)
    plan = plan_prune("", inventory, protection, settings, pressure=pressure, findings=findings)
    policies = [
        PolicyReport(
            policy=policy,
            reclaimable_bytes=sum(each.bytes for each in finding.candidates),
            eligible=sum(len(each.sessions) or 1 for each in finding.candidates),
            oldest=finding.oldest,
        )
        for policy, finding in findings.items()
    ]
    reasons = [plan.blocked, *(finding.blocked for finding in findings.values())]
    made = PruneReport(
        made_at=inventory.taken_at,
        policies=policies,
        thresholds=_thresholds(pressure),
        unreachable=list(plan.unreachable[:_UNREACHABLE_MAX]),
        blocked=list(dict.fromkeys(reason for reason in reasons if reason))[:_REASONS_MAX],
        why=plan.why,
        would_items=len(plan.actions),
        would_bytes=sum(action.bytes for action in plan.actions),
        by_hand_items=sum(each.eligible for each in policies),
        by_hand_bytes=sum(each.reclaimable_bytes for each in policies),
        protected=list(plan.protected[:_RULES_MAX]),
        emergency=pressure.emergency,
    )
    return made, plan


def _findings(
    inventory: Inventory, protection: Protection, settings: Prune, lineages: Lineages
) -> dict[Policy, Finding]:
    if protection.blocked:
        return {policy: Finding(()) for policy in Policy}
    return find_all(inventory, protection, settings, by_hand=False, lineages=lineages)


def _thresholds(pressure: Pressure) -> list[ThresholdReport]:
    return [
        ThresholdReport(
            name=level.mark.value,
            value=level.reading.value if level.reading is not None else None,
            high=level.high,
            low=level.low,
            pressure=level.pressing,
        )
        for level in pressure.levels
    ]
