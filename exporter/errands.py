"""What a worker is asked to do to a home besides reading it, and how it answers.

Loaded only when the first such request comes: most homes are never acted on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from msgspec import structs

from exporter import wire
from exporter.errors import HomeError
from exporter.reaper import duty
from exporter.reaper.orders import Report, Skipped
from exporter.reaper.plan import HomePlan
from exporter.reaper.site import Site
from exporter.reaper.undo import undo
from exporter.runs import RunBusyError, journal_of
from exporter.scan.reader import HomeReader

_Item = TypeVar("_Item")


def answer(request: wire.Errand, reader: HomeReader) -> Iterator[wire.Reply]:
    """The replies to a request, the one that ends them last."""
    try:
        match request:
            case wire.PlanReapRequest(order):
                yield from _plan(duty.plan(order, reader))
            case wire.ReapRequest(order):
                yield from _reap(duty.reap(order, reader))
            case wire.UndoRequest():
                yield from _undo(request)
            case wire.HistoryRequest(home, owner):
                yield from _history(home, owner)
    except RunBusyError as error:
        yield wire.Refusal(str(error)[:300], busy=True)
    except HomeError as error:
        yield wire.Refusal(str(error)[:300])


def _plan(plan: HomePlan) -> Iterator[wire.Reply]:
    for page in _pages(plan.actions):
        yield wire.ReapActionsPage(list(page))
    yield wire.PlanReapReply(structs.replace(plan, actions=()))


def _reap(report: Report) -> Iterator[wire.Reply]:
    yield from _outcome(report.outcome.done, report.outcome.skipped)
    told = structs.replace(report.outcome, done=(), skipped=())
    yield wire.ReapReply(structs.replace(report, outcome=told))


def _undo(request: wire.UndoRequest) -> Iterator[wire.Reply]:
    site = Site(
        request.home,
        request.owner,
        request.bystanders,
        lock_budget_seconds=request.lock_budget_seconds,
    )
    undone = undo(request.run, site)
    yield from _outcome(undone.restored, undone.failed)
    yield wire.UndoReply(undone.why[:300])


def _history(home: str, owner: int) -> Iterator[wire.Reply]:
    with journal_of(home, owner) as journal:
        runs = journal.list_runs() if journal is not None else []
    for page in _pages(runs):
        yield wire.HistoryPage(list(page))
    yield wire.HistoryReply()


def _outcome(done: Sequence[str], skipped: Sequence[Skipped]) -> Iterator[wire.Reply]:
    for targets in _pages(done):
        yield wire.OutcomePage(done=list(targets))
    for left in _pages(skipped):
        yield wire.OutcomePage(skipped=list(left))


def _pages(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), wire.PAGE_ITEMS):
        yield items[start : start + wire.PAGE_ITEMS]
