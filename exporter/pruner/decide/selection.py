"""How much a run takes: enough to lower each threshold to its low watermark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf

from exporter.config.mode import When
from exporter.config.prune import EXPIRED_TRASH, Prune, ThresholdName
from exporter.pruner.decide.caps import CappedChoice
from exporter.pruner.decide.findings import Finding
from exporter.pruner.decide.inventory import Inventory
from exporter.pruner.decide.items import Item, ItemGroup, trash_item, when_freed
from exporter.pruner.decide.policies import lowering
from exporter.pruner.decide.thresholds import Level, Pressure, relief
from exporter.pruner.models import Act
from exporter.runs.models import Frees, Unreachable


def select(
    findings: Mapping[str, Finding],
    inventory: Inventory,
    settings: Prune,
    pressure: Pressure,
    *,
    by_age: bool = False,
) -> list[ItemGroup]:
    """Return what the thresholds demand, the safest to lose first, and all expired trash.

    With `by_age`, everything that is past its policy.
    """
    chosen = _Choice(findings)
    if by_age:
        chosen.take_all()
    expired = chosen.of(EXPIRED_TRASH)
    for each in expired:
        chosen.take(each)
    early: list[ItemGroup] = []
    for level in pressure.levels:
        if level.reading is None:
            continue
        if level.name is ThresholdName.DISK_USED:
            early = _free_disk(level, chosen, inventory, settings, pressure)
        if level.due and When.PRESSURE in settings.when:
            chosen.lower(level, in_bytes(level, level.wanted))
    return [*early, *chosen.all()]


def _free_disk(
    level: Level, chosen: _Choice, inventory: Inventory, settings: Prune, pressure: Pressure
) -> list[ItemGroup]:
    """Choose what comes free at once; return the trash that goes before its time.

    It needs no cool-down and waits for no verdict on the last run: emptying trash always helps.
    """
    asked = in_bytes(level, level.asked)
    expired = chosen.of(EXPIRED_TRASH)
    if pressure.emergency:
        chosen.lower(level, asked - sum(each.bytes for each in expired), garbage=True)
    if EXPIRED_TRASH not in chosen.policies:
        return []
    before = -inf
    if level.pressing and When.PRESSURE in settings.when:
        before = inventory.taken_at - settings.trash.min_keep_seconds
    return _purge_early(
        inventory, chosen, asked, before=before, emergency_since=pressure.emergency_since
    )


def in_bytes(level: Level, amount: float) -> float:
    """Convert an amount in the unit of a threshold to bytes; a count stays a count."""
    unit = level.reading.unit_bytes if level.reading is not None else 0.0
    return amount * (unit or 1.0)


def _purge_early(
    inventory: Inventory,
    chosen: _Choice,
    asked: float,
    *,
    before: float,
    emergency_since: float | None,
) -> list[ItemGroup]:
    """Return trash that is not expired, the oldest first, as far as it is needed.

    That is trash from before a moment. In an emergency it is also what was there when that began,
    and then no process is waited for.
    """
    gone = {each.leading[0].target for each in chosen.of(EXPIRED_TRASH)}
    left = asked - sum(item.bytes for item in chosen.garbage())
    early: list[ItemGroup] = []
    for run in sorted(inventory.trash, key=lambda each: (each.taken_at, each.run)):
        if left <= 0:
            break
        crisis = emergency_since is not None and run.taken_at < emergency_since
        item = trash_item(run, whole=crisis)
        if run.run not in gone and (crisis or run.taken_at <= before) and item.bytes:
            why = "the filesystem is too full to keep it"
            early.append(ItemGroup(EXPIRED_TRASH, run.taken_at, why, (item,)))
            left -= item.bytes
    return early


class _Choice:
    """The groups that were chosen so far."""

    def __init__(self, findings: Mapping[str, Finding]) -> None:
        self._findings = findings
        self._taken: set[int] = set()

    @property
    def policies(self) -> Collection[str]:
        return self._findings.keys()

    def of(self, policy: str) -> list[ItemGroup]:
        finding = self._findings.get(policy)
        return list(finding.groups) if finding is not None else []

    def take_all(self) -> None:
        self._taken |= {id(each) for found in self._findings.values() for each in found.groups}

    def take(self, group: ItemGroup) -> None:
        self._taken.add(id(group))

    def lower(self, level: Level, amount: float, *, garbage: bool = False) -> None:
        """Choose until a threshold is lowered by this much; what was chosen before counts."""
        groups = [each for policy in lowering(level.name) for each in self.of(policy)]
        left = amount - sum(each.relief(level.name) for each in groups if id(each) in self._taken)
        for each in groups:
            if left <= 0:
                return
            relief = each.relief(level.name)
            if relief <= 0 or id(each) in self._taken or (garbage and not _is_garbage(each)):
                continue
            self.take(each)
            left -= relief

    def garbage(self) -> list[Item]:
        """Return the chosen items that free their bytes at once."""
        return [item for each in self.all() for item in each.items if item.is_garbage]

    def all(self) -> list[ItemGroup]:
        return [
            each
            for finding in self._findings.values()
            for each in finding.groups
            if id(each) in self._taken
        ]


def unreachable(
    findings: Mapping[str, Finding],
    choice: CappedChoice,
    inventory: Inventory,
    pressure: Pressure | None,
    *,
    no_room: Sequence[ItemGroup] = (),
) -> tuple[Unreachable, ...]:
    """Return the bytes above the low watermark that stay, by threshold and reason.

    `no_room` are the groups for whose copies in the trash there is no room.
    """
    if pressure is None:
        return ()
    found: list[Unreachable] = []
    for level in pressure.levels:
        if not level.pressing or level.reading is None or not level.reading.unit_bytes:
            continue
        left = in_bytes(level, level.excess) - _freed_now(level, choice.chosen, pressure)
        lacking = sum(each.relief(level.name) for each in no_room)
        reasons = _reasons(level, findings, choice, inventory, pressure)
        for reason, amount in (*reasons, ("no_space", lacking)):
            part = min(left, amount)
            if part >= 1:
                found.append(Unreachable(level.name.value, reason, round(part)))
                left -= part
        if left >= 1:
            found.append(Unreachable(level.name.value, "no_policy", round(left)))
    return tuple(found)


def _freed_now(level: Level, chosen: Sequence[ItemGroup], pressure: Pressure) -> float:
    """Return by how much this plan lowers the threshold as soon as it is executed."""
    items = [item for each in chosen for item in each.items]
    if level.name is ThresholdName.DISK_USED:
        return sum(
            item.bytes
            for item in items
            if when_freed(item, emergency=pressure.emergency) is Frees.NOW
        )
    # The payload of a session goes with its rows. Objects of a project stay until `git gc`.
    at_once = level.name is ThresholdName.STATE_DB_PAYLOAD
    return sum(
        relief(item, level.name)
        for item in items
        if at_once or item.frees is not Frees.AFTER_UPKEEP
    )


def _reasons(
    level: Level,
    findings: Mapping[str, Finding],
    choice: CappedChoice,
    inventory: Inventory,
    pressure: Pressure,
) -> Iterator[tuple[str, float]]:
    """Yield each reason that keeps bytes, and how many; the simplest reason first."""
    chosen = choice.chosen
    freed: Counter[Frees] = Counter()
    for item in (item for each in chosen for item in each.items):
        freed[when_freed(item, emergency=pressure.emergency)] += relief(item, level.name)
    if level.name is ThresholdName.DISK_USED:
        purged = {each.leading[0].target for each in chosen if _is_trash(each)}
        kept = [run for run in inventory.trash if run.run not in purged]
        yield "trash", sum(run.purgeable_bytes for run in kept) + freed[Frees.AT_PURGE]
        yield "trash_in_use", sum(run.waiting_bytes for run in inventory.trash)
        in_store = sum(each.bytes for each in _store_projects(findings))
        yield "upkeep", inventory.awaiting_gc_bytes + in_store
    if level.name is ThresholdName.CHECKPOINTS:
        yield "upkeep", inventory.awaiting_gc_bytes + freed[Frees.AFTER_UPKEEP]
    yield "caps", sum(each.relief(level.name) for each in choice.waiting)
    if level.name is ThresholdName.DISK_USED:
        yield "other_homes", in_bytes(level, level.excess - level.asked)
    if level.held:
        yield level.held, sum(_planned(level, findings, chosen))
    yield "protected", sum(finding.protected.get(level.name, 0) for finding in _of(level, findings))
    yield "age", sum(finding.young.get(level.name, 0) for finding in _of(level, findings))


def _store_projects(findings: Mapping[str, Finding]) -> Iterator[Item]:
    """Yield the projects that policies may take; one that several may take, once."""
    found = {
        item.target: item
        for finding in findings.values()
        for group in finding.groups
        for item in group.items
        if item.kind is Act.DELETE_PROJECT
    }
    yield from found.values()


def _is_garbage(group: ItemGroup) -> bool:
    return all(item.is_garbage for item in group.items)


def _is_trash(group: ItemGroup) -> bool:
    return group.items[0].kind is Act.PURGE_TRASH


def _of(level: Level, findings: Mapping[str, Finding]) -> Iterator[Finding]:
    for policy in lowering(level.name):
        if policy in findings:
            yield findings[policy]


def _planned(
    level: Level, findings: Mapping[str, Finding], chosen: Sequence[ItemGroup]
) -> Iterator[int]:
    """Yield what could go but is not chosen, because no run is due."""
    taken = {id(each) for each in chosen}
    for finding in _of(level, findings):
        yield from (each.relief(level.name) for each in finding.groups if id(each) not in taken)
