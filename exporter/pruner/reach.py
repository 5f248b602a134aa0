"""What a plan cannot reach: bytes above a low mark that no policy may free now, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from exporter.pruner.decide.candidates import Candidate, Finding
from exporter.pruner.decide.inventory import Inventory
from exporter.pruner.decide.policies import LOWERS
from exporter.pruner.decide.selection import in_bytes
from exporter.pruner.decide.thresholds import Level, Mark, Pressure
from exporter.pruner.models import Policy, Unreachable


def unreachable(
    findings: Mapping[Policy, Finding],
    chosen: Sequence[Candidate],
    inventory: Inventory,
    pressure: Pressure | None,
) -> tuple[Unreachable, ...]:
    """For each threshold that presses, the bytes that stay above its low mark, by reason."""
    if pressure is None:
        return ()
    found: list[Unreachable] = []
    for level in pressure.levels:
        if not level.pressing or level.reading is None or not level.reading.unit_bytes:
            continue
        left = in_bytes(level, level.excess) - _freed_now(level, chosen, pressure)
        for reason, amount in _reasons(level, findings, chosen, inventory, pressure):
            part = min(left, amount)
            if part >= 1:
                found.append(Unreachable(level.mark.value, reason, round(part)))
                left -= part
        if left >= 1:
            found.append(Unreachable(level.mark.value, "no_policy", round(left)))
    return tuple(found)


def _freed_now(level: Level, chosen: Sequence[Candidate], pressure: Pressure) -> float:
    """What this plan lowers the threshold by as soon as it is done."""
    if level.mark is not Mark.DISK_USED:
        return sum(each.relief(level.mark) for each in chosen if not _waits_for_gc(each))
    return sum(
        each.disk_bytes
        for each in chosen
        if each.run is not None or (pressure.emergency and each.is_garbage)
    )


def _waits_for_gc(candidate: Candidate) -> bool:
    """A project of the store goes, but its objects stay until git collects them."""
    part = candidate.checkpoint
    return part is not None and "/" not in part.target


def _reasons(
    level: Level,
    findings: Mapping[Policy, Finding],
    chosen: Sequence[Candidate],
    inventory: Inventory,
    pressure: Pressure,
) -> Iterator[tuple[str, float]]:
    """What stands in the way of how many bytes, the plainest reason first."""
    if level.mark is Mark.DISK_USED:
        purged = {each.run.run for each in chosen if each.run is not None}
        kept = sum(run.allocated_bytes for run in inventory.trash if run.run not in purged)
        moved = sum(
            each.relief(level.mark)
            for each in chosen
            if each.run is None
            and not _waits_for_gc(each)
            and not (pressure.emergency and each.is_garbage)
        )
        yield "trash", kept + moved
    if level.mark in (Mark.DISK_USED, Mark.CHECKPOINTS):
        waiting = sum(each.relief(level.mark) for each in chosen if _waits_for_gc(each))
        yield "upkeep", inventory.awaiting_gc_bytes + waiting
    if level.held:
        yield level.held, sum(_planned(level, findings, chosen))
    yield "protected", sum(finding.protected.get(level.mark, 0) for finding in _of(level, findings))
    yield "age", sum(finding.young.get(level.mark, 0) for finding in _of(level, findings))


def _of(level: Level, findings: Mapping[Policy, Finding]) -> Iterator[Finding]:
    for policy in LOWERS[level.mark]:
        if policy in findings and policy is not Policy.EXPIRED_TRASH:
            yield findings[policy]


def _planned(
    level: Level, findings: Mapping[Policy, Finding], chosen: Sequence[Candidate]
) -> Iterator[int]:
    """What could go and is not taken because no run is due."""
    taken = {id(each) for each in chosen}
    for finding in _of(level, findings):
        yield from (e.relief(level.mark) for e in finding.candidates if id(e) not in taken)
