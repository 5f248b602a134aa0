"""How many series a home may have, and which values its labels can take.

A fleet is planned by this number, so it is reckoned from what the collectors declare, at its worst:
every label with every value that it can take. A new metric, or a new value, that does not fit fails
a test; then something else has to give way, here or in `exporter.collectors.labels.LIMITS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from math import prod
from typing import Final

from exporter.collectors.labels import LIMITS, Family
from exporter.collectors.registry import Description, Kind
from exporter.config.prune import Thresholds
from exporter.evidence.models import Blindness
from exporter.pruner.models import Policy
from exporter.reaper.models import Proof, UnknownReason, Verdict
from exporter.runs.models import NOTED_OUTCOMES
from exporter.snapshot import OTHER, DiskKind, Turn

SERIES_PER_HOME: Final = 600

BLIND_REASONS: Final = (
    *(reason.value for reason in Blindness),
    *("processes", "network_fs", "unknown_fs", "leases", "routing", "run_journal", "database"),
    "clock",
)
_THRESHOLDS: Final = tuple(field.name for field in dataclasses.fields(Thresholds))

VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "verdict": tuple(verdict.value for verdict in Verdict),
    "cause": tuple(turn.value for turn in Turn),
    "proof": tuple(proof.value for proof in Proof),
    "level": ("near", "over"),
    "limit": ("descriptors_per_user", "seconds_per_home"),
    "status": ("estimated", "actual"),
    "layout": ("legacy", "store"),
    "state": ("active", "orphan", "stale"),
    "policy": tuple(policy.value for policy in Policy),
    "threshold": _THRESHOLDS,
    "outcome": tuple(outcome.value for outcome in NOTED_OUTCOMES),
    "version": ("the version of Hermes",),
}
"""What a label can be, whatever the metric."""

VALUES_OF: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("hermes_tokens_total", "kind"): (
        *("input", "output", "cache_read", "cache_write", "reasoning"),
    ),
    ("hermes_disk_bytes", "kind"): tuple(kind.value for kind in DiskKind),
    ("hermes_disk_files", "kind"): tuple(kind.value for kind in DiskKind),
    ("hermes_processes", "kind"): ("gateway", "cli", "tui", "cron", OTHER),
    ("hermes_exporter_blind", "reason"): BLIND_REASONS,
    ("hermes_sessions_unknown", "reason"): tuple(reason.value for reason in UnknownReason),
    ("hermes_prune_unreachable_bytes", "reason"): (
        *("trash", "upkeep", "cooldown", "no_help", "protected", "age", "no_policy", OTHER),
    ),
    ("hermes_prune_blocked", "reason"): (
        *("caps", "too_many_orphans", "too_many_processes", OTHER),
        *BLIND_REASONS,
    ),
}
"""What it can be in one metric."""

AT_ONCE: Final[Mapping[str, int]] = {
    "hermes_exporter_blind": 15,  # the filesystem is a network's or unknown, not both
    "hermes_prune_unreachable_bytes": 10,
    "hermes_prune_blocked": 6,
}
"""Where less is exported at once than the labels could take; the collectors see to it."""

_PLACES: Final[tuple[tuple[frozenset[str], Family], ...]] = (
    (frozenset({"source", "model"}), Family.SOURCE_MODEL),
    (frozenset({"source", "end_reason"}), Family.SOURCE_END_REASON),
    (frozenset({"source"}), Family.SOURCE),
    (frozenset({"end_reason"}), Family.END_REASON),
)


def series_of(metric: Description) -> int:
    """How many series of this metric one home can have."""
    if metric.name in AT_ONCE:
        return AT_ONCE[metric.name]
    labels = set(metric.labels) - {"home"}
    places = 1
    for family_labels, family in _PLACES:
        if family_labels <= labels:
            histogram = metric.kind is Kind.GAUGE_HISTOGRAM
            shown = Family.HISTOGRAM_SOURCE if histogram else family
            places = LIMITS[shown] + 1
            labels -= family_labels
            break
    lines = len(metric.bounds) + 3 if metric.kind is Kind.GAUGE_HISTOGRAM else 1
    return places * lines * prod(len(values_of(metric.name, label)) for label in labels)


def values_of(metric: str, label: str) -> tuple[str, ...]:
    """What this label can be; raise KeyError if nobody has said."""
    found = VALUES_OF.get((metric, label))
    return found if found is not None else VALUES[label]


def shown(metric: str, label: str, value: str) -> str:
    """The value, or `other`: what a worker tells is not trusted to be one of ours."""
    return value if value in values_of(metric, label) else OTHER


def worst_case(metrics: Iterable[Description]) -> int:
    """The series of a home that has everything at once."""
    return sum(series_of(metric) for metric in metrics if "home" in metric.labels)
