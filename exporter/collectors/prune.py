"""What the pruner could free, where its thresholds stand, and what its runs did.

hermes_disk_reclaimable_bytes{home="default",policy="request_dumps"} 5242880
hermes_prune_threshold_value{home="default",threshold="checkpoints"} 1.2884901888e+10
hermes_prune_runs_total{home="default",outcome="done"} 3
"""

from __future__ import annotations

import dataclasses
from collections import Counter

from exporter.collectors.agent import BLIND_REASONS
from exporter.collectors.prune_reasons import RUN_FAILED
from exporter.collectors.registry import Label, Samples, collector, counter, gauge
from exporter.collectors.view import HomeView, HostView
from exporter.config.prune import POLICY_NAMES, Thresholds
from exporter.pruner.decide.plan import NO_SPACE
from exporter.pruner.decide.policies import POLICIES
from exporter.pruner.models import PruneReport
from exporter.runs.models import NOTED_OUTCOMES
from exporter.snapshot import OTHER

POLICY = Label("policy", POLICY_NAMES)
THRESHOLD = Label("threshold", tuple(field.name for field in dataclasses.fields(Thresholds)))
OUTCOME = Label("outcome", tuple(outcome.value for outcome in NOTED_OUTCOMES))
OBSTACLE = Label(
    "reason",
    (
        *("trash", "trash_in_use", "upkeep", "cooldown", "no_help", "caps", "other_homes"),
        "no_space",
        *("protected", "age", "no_policy", OTHER),
    ),
)
BLOCKED_BY = Label(
    "reason",
    (
        NO_SPACE,
        RUN_FAILED,
        *(reason for policy in POLICIES.values() for reason in policy.in_the_way),
        *("too_many_processes", "too_many_sessions", OTHER),
        *BLIND_REASONS,
    ),
)
UNREACHABLE_MAX = 10
BLOCKED_MAX = 6

RECLAIMABLE = gauge(
    "hermes_disk_reclaimable_bytes",
    "Bytes that each policy may take now: allocated bytes of files, estimated payload of sessions. "
    "What two policies may take counts for the safer one.",
    "home",
    POLICY,
)
OLDEST = gauge(
    "hermes_retention_oldest_timestamp_seconds",
    "Last activity of the oldest item the policy covers, old enough or not.",
    "home",
    POLICY,
)
ELIGIBLE = gauge(
    "hermes_retention_eligible",
    "Items that are old enough for the policy and that nothing protects.",
    "home",
    POLICY,
)
VALUE = gauge(
    "hermes_prune_threshold_value",
    "What the threshold measures now, in the unit of high and low: bytes, a ratio, or a count.",
    "home",
    THRESHOLD,
)
HIGH = gauge("hermes_prune_threshold_high", "A run starts above this.", "home", THRESHOLD)
LOW = gauge(
    "hermes_prune_threshold_low",
    "A run stops when the value is down to this.",
    "home",
    THRESHOLD,
)
PRESSURE = gauge(
    "hermes_prune_pressure",
    "1 from the moment when high is crossed until low is reached.",
    "home",
    THRESHOLD,
)
UNREACHABLE = gauge(
    "hermes_prune_unreachable_bytes",
    "Bytes above the low watermark of a threshold that no policy may free now, by reason.",
    "home",
    THRESHOLD,
    OBSTACLE,
    at_most=UNREACHABLE_MAX,
)
BLOCKED = gauge(
    "hermes_prune_blocked",
    "1 for each reason why the pruner, or one of its policies, does nothing.",
    "home",
    BLOCKED_BY,
    at_most=BLOCKED_MAX,
)
CAPPED = gauge(
    "hermes_prune_capped_items",
    "Items that wait because automatic runs have taken what prune.caps allows in 24 hours.",
    "home",
)
BY_AGE = gauge(
    "hermes_prune_by_age",
    "1 if automatic runs also take, once a day, what is past its policy: enforce mode, and "
    "prune.when has age.",
    "home",
)
LAST_RUN = gauge(
    "hermes_prune_last_run_timestamp_seconds",
    "When the last prune with this outcome ended.",
    "home",
    OUTCOME,
)
RUNS = counter("hermes_prune_runs_total", "Prunes, by the agent or by hand.", "home", OUTCOME)
DELETED = counter(
    "hermes_prune_deleted_total",
    "Items removed, by policy; an undo does not lower it.",
    "home",
    POLICY,
)
FREED = counter(
    "hermes_prune_freed_bytes_total",
    "Bytes that came free at once; what went to the trash counts as expired_trash when that is "
    "emptied.",
    "home",
    POLICY,
)
REBORN = counter(
    "hermes_prune_reborn_total",
    "Pruned sessions that Hermes continued, and whose earlier messages were restored from the "
    "trash.",
    "home",
)


@collector(
    "prune",
    "what the pruner could free, its thresholds, and its runs",
    *(RECLAIMABLE, OLDEST, ELIGIBLE, VALUE, HIGH, LOW, PRESSURE, UNREACHABLE, BLOCKED),
    *(CAPPED, BY_AGE, LAST_RUN, RUNS, DELETED, FREED, REBORN),
)
def collect(view: HostView, samples: Samples) -> None:
    for home in view.homes:
        if home.snapshot is None:
            continue
        _runs(home, samples)
        cleans = home.prune_enforcing and home.next_clean_up_at is not None
        samples.add(BY_AGE, cleans, home.label)
        if home.prune is not None:
            _policies(home.label, home.prune, samples)
            _thresholds(home.label, home.prune, samples)


def _policies(home: str, found: PruneReport, samples: Samples) -> None:
    for each in {each.policy: each for each in found.policies}.values():
        samples.add(RECLAIMABLE, each.reclaimable_bytes, home, each.policy)
        samples.add(ELIGIBLE, each.eligible, home, each.policy)
        if each.oldest is not None:
            samples.add(OLDEST, each.oldest, home, each.policy)
    reasons = dict.fromkeys(BLOCKED.shown("reason", reason) for reason in found.blocked)
    for reason in list(reasons)[:BLOCKED_MAX]:
        samples.add(BLOCKED, 1, home, reason)
    samples.add(CAPPED, found.capped.items if found.capped else 0, home)


def _thresholds(home: str, found: PruneReport, samples: Samples) -> None:
    """Only thresholds and reasons that exist: the agent trusts no text from a worker."""
    known = {each.name: each for each in found.thresholds if each.name in THRESHOLD.values}
    for each in known.values():
        if each.value is not None:
            samples.add(VALUE, each.value, home, each.name)
        samples.add(HIGH, each.high, home, each.name)
        samples.add(LOW, each.low, home, each.name)
        samples.add(PRESSURE, each.pressure, home, each.name)
    lacking: Counter[tuple[str, str]] = Counter()
    for part in found.unreachable:
        if part.threshold in THRESHOLD.values:
            reason = UNREACHABLE.shown("reason", part.reason)
            lacking[part.threshold, reason] += part.bytes
    for (threshold, reason), size in lacking.most_common(UNREACHABLE_MAX):
        samples.add(UNREACHABLE, size, home, threshold, reason)


def _runs(home: HomeView, samples: Samples) -> None:
    """Counters begin at zero: an alert on the first failure needs the value before it.

    Where the journal cannot be read they are absent. A zero would count as a counter reset, and
    the next real value as an increase.
    """
    if not home.runs.readable:
        return
    samples.add(REBORN, home.runs.reborn, home.label)
    runs = {each.outcome: each for each in home.runs.pruned}
    for outcome in NOTED_OUTCOMES:
        found = runs.get(outcome)
        samples.add(RUNS, found.runs if found else 0, home.label, outcome.value)
        if found is not None:
            samples.add(LAST_RUN, found.last_at, home.label, outcome.value)
    deleted = {each.policy: each for each in home.runs.deleted}
    for policy in POLICY_NAMES:
        done = deleted.get(policy)
        samples.add(DELETED, done.items if done else 0, home.label, policy)
        samples.add(FREED, done.freed_bytes if done else 0, home.label, policy)
