"""Planning a prune of a home that has just been read: gather the inventory, then decide."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, structs

from exporter.pruner.decide.plan import plan_prune
from exporter.pruner.decide.protection import protect
from exporter.pruner.decide.report import report
from exporter.pruner.decide.thresholds import Pressure, assess, read_levels
from exporter.pruner.gather.inventory_reader import Asked, Learnt, Stock, Stocktaker
from exporter.pruner.gather.unchanged import Resting
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


class _Worked(Struct, frozen=True):
    planned: Planned
    learnt: Learnt


def plan(
    wish: PruneWish, inventory_reader: Stocktaker, seen: Seen, *, aside: bool | None = None
) -> Planned:
    """Take stock and plan.

    For the agent this is done aside, in a process of its own where that can be: every session of a
    home is in memory for a moment, and a worker lives for long.
    """
    settings = wish.settings
    mark = inventory_reader.rest.mark(seen.facts, settings, seen.walked)
    if not wish.by_hand:
        resting = inventory_reader.rest.recall(mark, settings, wish.memory, inventory_reader.now())
        if resting is not None:
            return _nothing(seen.home, resting, inventory_reader.now())
    planned: Planned | None = None
    if not wish.by_hand and (is_single_threaded() if aside is None else aside):
        planned = _plan_aside(wish, inventory_reader, seen)
    planned = planned or _plan(wish, inventory_reader, seen)
    inventory_reader.rest.note(mark, settings, planned.pressure, planned.report)
    return planned


def _plan_aside(wish: PruneWish, inventory_reader: Stocktaker, seen: Seen) -> Planned | None:
    """Plan in a child; None if it came to nothing."""

    def work(_: int) -> _Worked:
        die_with_parent()
        return _Worked(_plan(wish, inventory_reader, seen), inventory_reader.learnt())

    worked = ForkPool(1, _Worked).aside(work)
    if worked is None:
        return None
    inventory_reader.learn(worked.learnt)
    return worked.planned


def _plan(wish: PruneWish, inventory_reader: Stocktaker, seen: Seen) -> Planned:
    settings = wish.settings
    stock = _take_stock(wish, inventory_reader, seen)
    inventory = stock.inventory
    pressure, memory = assess(read_levels(inventory), settings, stock.memory, inventory.taken_at)
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


def _nothing(home: str, resting: Resting, now: float) -> Planned:
    """A home at rest, of which all was said at the last look."""
    figures = resting.report
    empty = HomePrunePlan(
        home=home,
        created_at=now,
        blocked=next(iter(figures.blocked), "")[:64],
        why=figures.why,
    )
    return Planned(empty, figures, resting.memory, resting.pressure)


def _take_stock(wish: PruneWish, inventory_reader: Stocktaker, seen: Seen) -> Stock:
    asked = Asked(
        owner=seen.owner,
        facts=seen.facts,
        rules=seen.rules,
        memory=wish.memory,
        end_reason=wish.end_reason,
        undone_seconds=wish.settings.keep.undone_seconds,
        trash_keep_seconds=wish.settings.trash.keep_seconds,
        thorough=wish.by_hand,
    )
    return inventory_reader.take(
        asked,
        seen.disk,
        seen.walked,
        before_open=seen.before_open,
    )
