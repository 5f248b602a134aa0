"""The figures of a home: what could be pruned, what would be, and what prevents it."""

from __future__ import annotations

from msgspec import structs

from exporter.config.prune import POLICY_NAMES, Prune
from exporter.pruner.decide.findings import Finding
from exporter.pruner.decide.inventory import Inventory
from exporter.pruner.decide.lineage import Lineages
from exporter.pruner.decide.plan import figures_of, find_all, plan_prune, take_within
from exporter.pruner.decide.protection import Protection, protect
from exporter.pruner.decide.thresholds import Pressure, for_manual_run
from exporter.pruner.models import (
    REASONS_MAX,
    UNREACHABLE_MAX,
    PolicyReport,
    PrunePlan,
    PruneReport,
    ThresholdReport,
)


def report(
    inventory: Inventory,
    settings: Prune,
    pressure: Pressure,
    *,
    by_age: bool = False,
    figures_by_hand: bool = False,
    figures_only: bool = False,
) -> tuple[PruneReport, PrunePlan]:
    """Return the figures of a home and its automatic plan, in which `home` is still empty.

    `figures_by_hand`: thresholds, and what they demand, are those of `prune --pressure`, a first
    look without grace time. `figures_only`: the plan has no actions.
    """
    lineages = Lineages(inventory.sessions)
    protection = protect(inventory, settings, lineages=lineages)
    findings = _findings(inventory, protection, settings, lineages)
    automatic = take_within(findings, inventory, settings, pressure=pressure, by_age=by_age)
    if figures_only and not protection.blocked:
        plan = figures_of(inventory, findings, automatic)
    else:
        plan = plan_prune("", inventory, protection, settings, findings=findings, choice=automatic)
    policies = [
        PolicyReport(
            policy=policy,
            reclaimable_bytes=sum(each.bytes for each in finding.groups),
            eligible=sum(len(each.leading) for each in finding.groups),
            items=sum(len(each.items) for each in finding.groups),
            oldest=finding.oldest,
        )
        for policy, finding in findings.items()
    ]
    reasons = [plan.blocked, *(finding.blocked for finding in findings.values())]
    made = PruneReport(
        made_at=inventory.taken_at,
        policies=policies,
        thresholds=threshold_reports(pressure),
        unreachable=list(plan.unreachable[:UNREACHABLE_MAX]),
        blocked=list(dict.fromkeys(reason for reason in reasons if reason))[:REASONS_MAX],
        why=plan.why,
        would_items=automatic.items,
        would_bytes=automatic.bytes,
        emergency=pressure.emergency,
        capped=plan.capped,
    )
    by_hand = _findings_by_hand(inventory, protection, settings, lineages, findings)
    allowed = take_within(by_hand, inventory, settings, by_hand=True)
    made = structs.replace(made, could_items=allowed.items, could_bytes=allowed.bytes)
    if figures_by_hand:
        demanded = take_within(by_hand, inventory, settings, pressure=pressure, by_hand=True)
        made = structs.replace(
            made,
            thresholds=threshold_reports(for_manual_run(pressure)),
            would_items=demanded.items,
            would_bytes=demanded.bytes,
        )
    return made, plan


def _findings_by_hand(
    inventory: Inventory,
    protection: Protection,
    settings: Prune,
    lineages: Lineages,
    automatic: dict[str, Finding],
) -> dict[str, Finding]:
    """Return what each policy may take by hand: the same, unless Hermes prunes by itself."""
    own, now = inventory.self_pruning, inventory.taken_at
    if protection.blocked or not (own.has_sessions(now) or own.has_checkpoints(now)):
        return automatic
    return find_all(inventory, protection, settings, by_hand=True, lineages=lineages)


def _findings(
    inventory: Inventory, protection: Protection, settings: Prune, lineages: Lineages
) -> dict[str, Finding]:
    if protection.blocked:
        return {policy: Finding(()) for policy in POLICY_NAMES}
    return find_all(inventory, protection, settings, by_hand=False, lineages=lineages)


def threshold_reports(pressure: Pressure) -> list[ThresholdReport]:
    """Return the thresholds as they are shown."""
    return [
        ThresholdReport(
            name=level.name.value,
            value=level.reading.value if level.reading is not None else None,
            high=level.high,
            low=level.low,
            pressure=level.pressing,
            over_since=level.over_since,
            acts_at=level.acts_at,
        )
        for level in pressure.levels
    ]
