"""Planning a prune of a home that has just been read: gather the inventory, then decide."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, structs

from exporter.pruner.decide.plan import plan_prune
from exporter.pruner.decide.protection import protect
from exporter.pruner.decide.report import report
from exporter.pruner.decide.thresholds import Pressure, assess, read_levels
from exporter.pruner.gather.inventory_reader import (
    InventoryReader,
    InventoryRequest,
    InventoryResult,
    Measurements,
)
from exporter.pruner.gather.unchanged import CachedResult
from exporter.pruner.models import HomePrunePlan, PruneMemory, PruneReport
from exporter.pruner.requests import PruneWish
from exporter.reaper.models import ProcessFacts, ReaperRules
from exporter.scan.disk.scanner import DiskScanner
from exporter.scan.fork_pool import ForkPool, die_with_parent, is_single_threaded
from exporter.snapshot import DiskReport


class Seen(Struct, frozen=True):
    """What the last reading of a home leaves to plan from."""

    home: str
    owner: int
    facts: ProcessFacts
    disk: DiskScanner
    walked: DiskReport
    before_open: Callable[[], None]
    rules: ReaperRules


class Planned(Struct, frozen=True):
    """A plan, the figures it comes with, and what to remember for the next one."""

    plan: HomePrunePlan
    report: PruneReport
    memory: PruneMemory
    pressure: Pressure


class _ChildResult(Struct, frozen=True):
    planned: Planned
    measurements: Measurements


def plan(
    wish: PruneWish, inventory_reader: InventoryReader, seen: Seen, *, aside: bool | None = None
) -> Planned:
    """Take stock and plan.

    For the agent this is done aside, in a process of its own where that can be: every session of a
    home is in memory for a moment, and a worker lives for long.
    """
    settings = wish.settings
    stamp = inventory_reader.unchanged.stamp(seen.facts, settings, seen.walked)
    if not wish.by_hand:
        cached = inventory_reader.unchanged.lookup(
            stamp, settings, wish.memory, inventory_reader.now()
        )
        if cached is not None:
            return _unchanged_plan(seen.home, cached, inventory_reader.now())
    planned: Planned | None = None
    if not wish.by_hand and (is_single_threaded() if aside is None else aside):
        planned = _plan_in_child(wish, inventory_reader, seen)
    planned = planned or _plan(wish, inventory_reader, seen)
    inventory_reader.unchanged.store(stamp, settings, planned.pressure, planned.report)
    return planned


def _plan_in_child(
    wish: PruneWish, inventory_reader: InventoryReader, seen: Seen
) -> Planned | None:
    """Plan in a child; None if it came to nothing."""

    def work(_: int) -> _ChildResult:
        die_with_parent()
        return _ChildResult(_plan(wish, inventory_reader, seen), inventory_reader.measurements())

    worked = ForkPool(1, _ChildResult).aside(work)
    if worked is None:
        return None
    inventory_reader.set_measurements(worked.measurements)
    return worked.planned


def _plan(wish: PruneWish, inventory_reader: InventoryReader, seen: Seen) -> Planned:
    settings = wish.settings
    read = _read_inventory(wish, inventory_reader, seen)
    inventory = read.inventory
    pressure, memory = assess(read_levels(inventory), settings, read.memory, inventory.taken_at)
    figures, automatic = report(inventory, settings, pressure)
    if wish.by_hand:
        made = plan_prune(
            seen.home,
            inventory,
            protect(inventory, settings, by_hand=True),
            settings,
            pressure=pressure if wish.by_pressure else None,
            by_hand=True,
            filter_by=wish.filter_by,
        )
    else:
        made = structs.replace(automatic, home=seen.home)
    return Planned(made, figures, memory, pressure)


def _unchanged_plan(home: str, cached: CachedResult, now: float) -> Planned:
    """A home at rest, of which all was said at the last look."""
    figures = cached.report
    empty = HomePrunePlan(
        home=home,
        created_at=now,
        blocked=next(iter(figures.blocked), "")[:64],
        why=figures.why,
    )
    return Planned(empty, figures, cached.memory, cached.pressure)


def _read_inventory(
    wish: PruneWish, inventory_reader: InventoryReader, seen: Seen
) -> InventoryResult:
    request = InventoryRequest(
        owner=seen.owner,
        facts=seen.facts,
        rules=seen.rules,
        memory=wish.memory,
        end_reason=wish.end_reason,
        undone_seconds=wish.settings.keep.undone_seconds,
        trash_keep_seconds=wish.settings.trash.keep_seconds,
        disk_share=wish.disk_share,
        thorough=wish.by_hand,
    )
    return inventory_reader.read(
        request,
        seen.disk,
        seen.walked,
        before_open=seen.before_open,
    )
