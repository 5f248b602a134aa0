"""Planning a prune of a home that has just been read: gather the inventory, then decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import apsw
from msgspec import Struct, structs

from exporter.errors import HomeError
from exporter.evidence.models import ProcessFacts
from exporter.pruner.decide.plan import plan_prune
from exporter.pruner.decide.protection import protect
from exporter.pruner.decide.report import report
from exporter.pruner.decide.thresholds import assess, read_levels
from exporter.pruner.gather.inventory_reader import (
    InventoryReader,
    InventoryRequest,
    InventoryResult,
    Measurements,
)
from exporter.pruner.gather.unchanged import CachedResult
from exporter.pruner.models import PrunePlan
from exporter.pruner.requests import PrunePlanRequest, PrunePlanResult
from exporter.reaper.models import ReaperRules
from exporter.runs.models import Plan
from exporter.scan.disk.scanner import DiskScanner
from exporter.scan.fork_pool import ForkPool, die_with_parent, is_single_threaded
from exporter.snapshot import DiskReport

_OUT_OF_MEMORY: Final = (
    "planning a prune took more memory than a worker may have: lower limits.sessions_per_home, or "
    "raise LimitDATA= and MemoryMax= of the service"
)


class Seen(Struct, frozen=True):
    """What the last reading of a home leaves to plan from."""

    home: str
    owner: int
    facts: ProcessFacts
    disk: DiskScanner
    walked: DiskReport
    before_open: Callable[[], None]
    rules: ReaperRules


class _ChildResult(Struct, frozen=True):
    """What a child has planned; empty if it ran out of memory."""

    planned: PrunePlanResult | None = None
    measurements: Measurements | None = None


_CHILD: Final = ForkPool(1, _ChildResult)
"""Made once, before workers are forked: they share its decoder."""


def plan(
    request: PrunePlanRequest,
    inventory_reader: InventoryReader,
    seen: Seen,
    *,
    in_child: bool | None = None,
) -> PrunePlanResult:
    """Read the inventory and plan.

    For the agent a forked child does this where possible: planning needs every session of a home in
    memory, and a worker that lives long would keep that memory. The worker of a command does not
    live long.
    """
    settings = request.settings
    stamp = inventory_reader.unchanged.stamp(seen.facts, settings, seen.walked)
    if request.by_pressure and not request.by_hand:
        cached = inventory_reader.unchanged.lookup(
            stamp, settings, request.memory, inventory_reader.now()
        )
        if cached is not None:
            return _unchanged_plan(seen.home, cached, inventory_reader.now())
    planned: PrunePlanResult | None = None
    lives_on = not request.by_hand and not request.figures_only
    if lives_on and (is_single_threaded() if in_child is None else in_child):
        planned = _plan_in_child(request, inventory_reader, seen)
    planned = planned or _plan(request, inventory_reader, seen)
    inventory_reader.unchanged.store(stamp, settings, planned.pressure, planned.report)
    return planned


def _plan_in_child(
    request: PrunePlanRequest, inventory_reader: InventoryReader, seen: Seen
) -> PrunePlanResult | None:
    """Plan in a child; None if the child could not be started or was lost."""

    def work(_: int) -> _ChildResult:
        die_with_parent()
        try:
            planned = _plan(request, inventory_reader, seen)
            return _ChildResult(planned, inventory_reader.measurements())
        except (MemoryError, apsw.NoMemError):
            return _ChildResult()

    worked = _CHILD.in_child(work)
    if worked is None:
        return None
    if worked.planned is None or worked.measurements is None:
        raise HomeError(_OUT_OF_MEMORY)  # this process would run out of memory too
    inventory_reader.set_measurements(worked.measurements)
    return worked.planned


def _plan(
    request: PrunePlanRequest, inventory_reader: InventoryReader, seen: Seen
) -> PrunePlanResult:
    settings = request.settings
    read = _read_inventory(request, inventory_reader, seen)
    inventory = read.inventory
    levels = read_levels(inventory, settings)
    pressure, memory = assess(levels, settings, read.memory, inventory.taken_at)
    figures, automatic = report(
        inventory,
        settings,
        pressure,
        by_age=not request.by_pressure,
        figures_by_hand=request.figures_by_hand,
        figures_only=request.by_hand or request.figures_only,
    )
    if request.by_hand:
        made = plan_prune(
            seen.home,
            inventory,
            protect(inventory, settings, include_undone=request.filter_by.include_undone),
            settings,
            pressure=pressure if request.by_pressure else None,
            by_hand=True,
            filter_by=request.filter_by,
        )
    else:
        made = structs.replace(automatic, home=seen.home)
    return PrunePlanResult(made, figures, memory, pressure)


def _unchanged_plan(home: str, cached: CachedResult, now: float) -> PrunePlanResult:
    """Return the empty plan of a home that has not changed since the last plan."""
    figures = cached.report
    empty: PrunePlan = Plan(
        home=home,
        created_at=now,
        blocked=next(iter(figures.blocked), "")[:64],
        why=figures.why,
    )
    return PrunePlanResult(empty, figures, cached.memory, cached.pressure)


def _read_inventory(
    request: PrunePlanRequest, inventory_reader: InventoryReader, seen: Seen
) -> InventoryResult:
    wanted = InventoryRequest(
        owner=seen.owner,
        facts=seen.facts,
        rules=seen.rules,
        memory=request.memory,
        end_reason=request.end_reason,
        undone_seconds=request.settings.keep.undone_seconds,
        trash_keep_seconds=request.settings.trash.keep_seconds,
        disk_share=request.disk_share,
        thorough=request.by_hand or request.figures_by_hand,
        sessions_max=request.sessions_max,
        figures_only=request.figures_only,
    )
    return inventory_reader.read(
        wanted,
        seen.disk,
        seen.walked,
        before_open=seen.before_open,
    )
