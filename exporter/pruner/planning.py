"""A worker's part in a prune: to take stock of a home it has just read and plan, and to execute."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, structs

from exporter.hermes.home_facts import has_plugin_folders, read_config
from exporter.pruner.beside import Beside
from exporter.pruner.decide.plan import Filters, plan_prune
from exporter.pruner.decide.protection import protect
from exporter.pruner.decide.report import report
from exporter.pruner.decide.thresholds import Pressure, assess, read_levels
from exporter.pruner.gather.inventory_reader import Asked, Learnt, Stock, Stocktaker
from exporter.pruner.gather.unchanged import Resting
from exporter.pruner.models import HomePrunePlan, PruneMemory, PruneReport
from exporter.pruner.orders import PlanOrder, PruneOrder
from exporter.reaper.models import HomeFacts, ReaperRules
from exporter.runs.models import Outcome
from exporter.scan.disk.scanner import DiskScanner
from exporter.scan.fork_pool import Crew, die_with_parent, is_alone
from exporter.snapshot import DiskReport

if TYPE_CHECKING:
    from exporter.pruner.apply.execute import Progress


class Seen(Struct, frozen=True):
    """What the last reading of a home leaves to plan from."""

    facts: HomeFacts
    disk: DiskScanner
    walked: DiskReport
    before_open: Callable[[], None]
    rules: ReaperRules


class Reader(Protocol):
    """Who has read the home."""

    def seen(self) -> Seen: ...

    def stocktaker(self) -> Stocktaker: ...


class Planned(Struct, frozen=True):
    """A plan, the figures it comes with, and what to remember for the next one."""

    plan: HomePrunePlan
    report: PruneReport
    memory: PruneMemory
    pressure: Pressure


class _Worked(Struct, frozen=True):
    planned: Planned
    learnt: Learnt


def plan(order: PlanOrder, reader: Reader, *, aside: bool | None = None) -> Planned:
    """Take stock and plan; raise HomeError if the home was not read just now.

    For the agent this is done aside, in a process of its own where that can be: every session of a
    home is in memory for a moment, and a worker lives for long.
    """
    seen = reader.seen()
    taker, settings = reader.stocktaker(), order.settings
    mark = taker.rest.mark(seen.facts, settings, seen.walked)
    if not order.by_hand:
        resting = taker.rest.recall(mark, settings, order.memory, taker.now())
        if resting is not None:
            return _nothing(order, resting, taker.now())
    planned: Planned | None = None
    if not order.by_hand and (is_alone() if aside is None else aside):
        planned = _plan_aside(order, taker, seen)
    planned = planned or _plan(order, taker, seen)
    taker.rest.note(mark, settings, planned.pressure, planned.report)
    return planned


def _plan_aside(order: PlanOrder, taker: Stocktaker, seen: Seen) -> Planned | None:
    """Plan in a child; None if it came to nothing."""

    def work(_: int) -> _Worked:
        die_with_parent()
        return _Worked(_plan(order, taker, seen), taker.learnt())

    worked = Crew(1, _Worked).aside(work)
    if worked is None:
        return None
    taker.learn(worked.learnt)
    return worked.planned


def _plan(order: PlanOrder, taker: Stocktaker, seen: Seen) -> Planned:
    settings = order.settings
    stock = _take_stock(order, taker, seen)
    inventory = stock.inventory
    pressure, memory = assess(read_levels(inventory), settings, stock.memory, inventory.taken_at)
    figures, automatic = report(inventory, settings, pressure)
    if order.by_hand:
        narrowed = order.narrowed
        made = plan_prune(
            order.home,
            inventory,
            protect(inventory, settings, by_hand=True),
            settings,
            pressure=pressure if order.by_pressure else None,
            by_hand=True,
            filters=Filters(
                frozenset(narrowed.policies),
                narrowed.older_than_seconds,
                frozenset(narrowed.sources),
                narrowed.unproven,
            ),
        )
    else:
        made = structs.replace(automatic, home=order.home)
    return Planned(made, figures, memory, pressure)


def _nothing(order: PlanOrder, resting: Resting, now: float) -> Planned:
    """A home at rest, of which all was said at the last look."""
    figures = resting.report
    empty = HomePrunePlan(
        home=order.home,
        created_at=now,
        blocked=next(iter(figures.blocked), "")[:64],
        why=figures.why,
    )
    return Planned(empty, figures, resting.memory, resting.pressure)


def _take_stock(order: PlanOrder, stocktaker: Stocktaker, seen: Seen) -> Stock:
    asked = Asked(
        owner=order.owner,
        facts=seen.facts,
        rules=seen.rules,
        memory=order.memory,
        end_reason=order.end_reason,
        undone_seconds=order.settings.keep.undone_seconds,
        trash_keep_seconds=order.settings.trash.keep_seconds,
        thorough=order.by_hand,
    )
    return stocktaker.take(
        asked,
        seen.disk,
        seen.walked,
        before_open=seen.before_open,
    )


def prune(order: PruneOrder, progress: Progress | None = None) -> Outcome:
    """Execute a plan; raise RunBusyError or RunError as `exporter.pruner.apply.execute` does."""
    from exporter.pruner.apply.execute import execute  # who only plans needs nothing of it
    from exporter.writing.target import Target

    site = Target(
        order.plan.home,
        order.owner,
        order.openers,
        lock_budget_seconds=order.lock_budget_seconds,
    )
    return execute(
        order.plan,
        site,
        keep_seconds=order.keep_seconds,
        by_hand=order.by_hand,
        only=None if order.only is None else frozenset(order.only),
        run=order.run,
        progress=progress,
        beside=_with_plugins(order.beside, order.plan.home),
        emergency=order.emergency,
    )


def _with_plugins(beside: Beside | None, home: str) -> Beside | None:
    """Plugins run agents in any process: with them a server may have what a chat may have."""
    if beside is None or not (read_config(home).enables_plugins or has_plugin_folders(home)):
        return beside
    return structs.replace(beside, chats=(*beside.chats, *beside.servers), servers=())
