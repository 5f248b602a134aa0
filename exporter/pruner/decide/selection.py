"""How much of what may go shall go: as much as brings the thresholds down to their low marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

from exporter.config.prune import Prune
from exporter.pruner.decide.candidates import Candidate, Finding
from exporter.pruner.decide.inventory import Inventory
from exporter.pruner.decide.policies import LOWERS, expired_trash
from exporter.pruner.decide.thresholds import Level, Mark, Pressure
from exporter.pruner.models import Policy, Unreachable


def select(
    findings: Mapping[Policy, Finding], inventory: Inventory, settings: Prune, pressure: Pressure
) -> list[Candidate]:
    """The candidates that thresholds demand, in order of harm; expired trash always."""
    chosen = _Choice(findings)
    for each in chosen.of(Policy.EXPIRED_TRASH):
        chosen.take(each)
    early: list[Candidate] = []
    for level in pressure.levels:
        if level.reading is None:
            continue
        is_disk = level.mark is Mark.DISK_USED
        may_purge = is_disk and Policy.EXPIRED_TRASH in findings
        excess = in_bytes(level, level.excess)
        if is_disk and pressure.emergency:
            chosen.lower(level, excess, LOWERS[level.mark], garbage=True)
        if may_purge and pressure.emergency_since is not None:
            early = _purge_early(inventory, chosen, excess, before=pressure.emergency_since)
        if not level.due:
            continue
        if may_purge and settings.trash.early_purge and not pressure.emergency:
            early = _purge_early(inventory, chosen, excess)
        chosen.lower(level, in_bytes(level, level.wanted), LOWERS[level.mark])
    return [*early, *chosen.all()]


def in_bytes(level: Level, amount: float) -> float:
    """An amount in the unit of a threshold as bytes; a count stays a count."""
    unit = level.reading.unit_bytes if level.reading is not None else 0.0
    return amount * (unit or 1.0)


def _purge_early(
    inventory: Inventory, chosen: _Choice, excess: float, *, before: float = inf
) -> list[Candidate]:
    """The oldest trash from before a moment that is not expired yet, as far as it is needed now."""
    expired = chosen.of(Policy.EXPIRED_TRASH)
    gone = {each.run.run for each in expired if each.run is not None}
    left = excess - sum(each.disk_bytes for each in chosen.garbage())
    early: list[Candidate] = []
    for run in sorted(inventory.trash, key=lambda each: (each.taken_at, each.run)):
        if left <= 0:
            break
        if run.run not in gone and run.taken_at < before:
            early.append(expired_trash.candidate(run, "the filesystem is too full to keep it"))
            left -= run.allocated_bytes
    return early


class _Choice:
    """Candidates that were taken so far."""

    def __init__(self, findings: Mapping[Policy, Finding]) -> None:
        self._findings = findings
        self._taken: set[int] = set()

    def of(self, policy: Policy) -> list[Candidate]:
        finding = self._findings.get(policy)
        return list(finding.candidates) if finding is not None else []

    def take(self, candidate: Candidate) -> None:
        self._taken.add(id(candidate))

    def lower(
        self, level: Level, amount: float, policies: Iterable[Policy], *, garbage: bool = False
    ) -> None:
        """Take until a threshold is lowered by so much; what was taken before counts.

        Expired trash does not: as it will come free anyway it is not in the amount.
        """
        kinds = [policy for policy in policies if garbage or policy is not Policy.EXPIRED_TRASH]
        left = amount - sum(
            each.relief(level.mark)
            for policy in kinds
            for each in self.of(policy)
            if id(each) in self._taken
        )
        for policy in kinds:
            for each in self.of(policy):
                if left <= 0:
                    return
                relief = each.relief(level.mark)
                if relief <= 0 or id(each) in self._taken or (garbage and not each.is_garbage):
                    continue
                self.take(each)
                left -= relief

    def garbage(self) -> list[Candidate]:
        """What was taken so far and gives its bytes back at once."""
        return [each for each in self.all() if each.is_garbage]

    def all(self) -> list[Candidate]:
        return [
            each
            for finding in self._findings.values()
            for each in finding.candidates
            if id(each) in self._taken
        ]


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
