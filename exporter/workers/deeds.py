"""What a worker does to a home on request, and how it tells of it.

Loaded when the first such request comes: most homes are planned for and never acted on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final, TypeVar

import msgspec
from msgspec import structs

from exporter.errors import DatabaseError
from exporter.pruner import planning as pruning
from exporter.pruner.apply.execute import purge
from exporter.pruner.apply.reborn import heal_reborn
from exporter.pruner.apply.settle import settle
from exporter.pruner.apply.undo import undo as undo_prune
from exporter.pruner.apply.upkeep import UpkeepOrder, keep_up
from exporter.pruner.models import Frees, PruneOutcome
from exporter.pruner.orders import PruneOrder
from exporter.reaper import duty
from exporter.reaper.orders import ReapOrder, Report
from exporter.reaper.plan import HomePlan
from exporter.reaper.reap_undo import undo as undo_reap
from exporter.runs.folder import JournalMendedError, RunError, run_folder
from exporter.runs.journal import journal_of
from exporter.runs.models import Kind, Outcome, RunOutcome, Skipped
from exporter.runs.recovery import Recovered
from exporter.workers import protocol
from exporter.workers.home import WorkerHome
from exporter.writing.target import Target

Tell = Callable[[protocol.Reply], None]
Done = TypeVar("Done")
_PROGRESS_SECONDS: Final = 0.2


def answer(request: protocol.Errand, reader: WorkerHome, tell: Tell) -> Iterator[protocol.Reply]:
    """The replies to a request, the one that ends them last; `tell` sends one at once."""
    match request:
        case protocol.PlanReapRequest(order):
            yield from _plan(duty.plan(order, reader))
        case protocol.ReapRequest(order):
            _heal_first(_site(order))
            yield from _reap(_mended(partial(duty.reap, order, reader)))
        case protocol.UndoRequest():
            yield from _undo(request, tell)
        case protocol.HistoryRequest(home, owner, ""):
            yield from _history(home, owner)
        case protocol.HistoryRequest(home, owner, run):
            yield from _actions_of(home, owner, run)
        case protocol.PruneRequest(_, order):
            wanted = msgspec.json.decode(order, type=PruneOrder)
            _heal_first(
                Target(
                    wanted.plan.home,
                    wanted.owner,
                    wanted.openers,
                    lock_budget_seconds=wanted.lock_budget_seconds,
                )
            )
            yield from _pruned(_mended(partial(pruning.prune, wanted, _throttled(tell))))
        case protocol.PurgeRequest():
            yield from _purge(request)
        case protocol.HealRequest():
            yield _heal(_site(request))
        case protocol.SettleRequest(home, owner, openers):
            yield _settle(_mended(partial(settle, Target(home, owner, openers))))
        case protocol.UpkeepRequest(_, order):
            yield _keep_up(msgspec.json.decode(order, type=UpkeepOrder))


def _mended(act: Callable[[], Done]) -> Done:
    """Act, once more if the journal turned out to be damaged: then it was mended by that."""
    try:
        return act()
    except JournalMendedError:
        return act()


def _site(request: protocol.UndoRequest | protocol.HealRequest | ReapOrder) -> Target:
    return Target(
        request.home,
        request.owner,
        request.openers,
        lock_budget_seconds=request.lock_budget_seconds,
    )


def _heal(site: Target) -> protocol.HealReply:
    healed = heal_reborn(site)
    why = healed.left[0].why if healed.left else ""
    return protocol.HealReply(len(healed.sessions), len(healed.left), why[:300])


def _heal_first(site: Target, besides: str = "") -> None:
    """Before anything else is done to a home. If it cannot be now, that is no reason not to act:

    what was not healed stays in the trash, and the next scan or command tries again.
    """
    with suppress(DatabaseError, RunError):
        heal_reborn(site, besides=besides)


def _plan(plan: HomePlan) -> Iterator[protocol.Reply]:
    for page in protocol.pages(plan.actions):
        yield protocol.ReapActionsPage(list(page))
    yield protocol.PlanReapReply(structs.replace(plan, actions=()))


def _reap(report: Report) -> Iterator[protocol.Reply]:
    yield from _outcome(report.outcome.done, report.outcome.skipped)
    told = structs.replace(report.outcome, done=(), skipped=())
    yield protocol.ReapReply(structs.replace(report, outcome=told))


def _undo(request: protocol.UndoRequest, tell: Tell) -> Iterator[protocol.Reply]:
    site = _site(request)
    _heal_first(site, besides=request.run)  # that one gives back everything itself
    with journal_of(request.home, request.owner) as journal:
        if journal is None:
            raise RunError(f"there is no run {request.run} in {request.home}")
        kind = journal.find(request.run).kind
    if kind is not Kind.PRUNE:
        undone = _mended(partial(undo_reap, request.run, site))
        yield from _outcome(undone.done, undone.skipped)
        yield protocol.UndoReply(undone.why, undone.is_known)
        return
    returned = _mended(partial(undo_prune, request.run, site, progress=_throttled(tell)))
    notes = (Skipped(each.target, f"given back, but {each.why}") for each in returned.notes)
    yield from _outcome(returned.done, (*returned.skipped, *notes))
    yield protocol.UndoReply(returned.why, returned.is_known)


def _throttled(tell: Tell) -> Callable[[int, int], None]:
    """Tell of progress a few times a second: so the agent knows that it goes on."""
    told_at = -inf

    def progress(settled: int, total: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= _PROGRESS_SECONDS:
            told_at = time.monotonic()
            tell(protocol.Progress(settled, total))

    return progress


def _purge(request: protocol.PurgeRequest) -> Iterator[protocol.Reply]:
    with run_folder(request.home, request.owner) as folder:
        if folder is None:  # and none is made to find nothing in it
            yield from _pruned(Outcome(None, RunOutcome.DONE))
            return
    site = Target(request.home, request.owner, request.openers)
    _heal_first(site)
    yield from _pruned(_mended(partial(purge, request.run, site)))


def _settle(recovered: Recovered) -> protocol.SettleReply:
    left = [Skipped(run, why) for run, why in recovered.left.items()]
    return protocol.SettleReply(
        list(recovered.settled[: protocol.PAGE_ITEMS]), left[: protocol.PAGE_ITEMS]
    )


def _keep_up(order: UpkeepOrder) -> protocol.UpkeepReply:
    return protocol.UpkeepReply(
        [
            protocol.UpkeepDone(each.work, each.why[:300], each.before_bytes, each.after_bytes)
            for each in keep_up(order)
        ]
    )


def _pruned(outcome: Outcome) -> Iterator[protocol.Reply]:
    yield from _outcome(outcome.done, outcome.skipped)
    yield protocol.PruneReply(
        PruneOutcome(
            run=outcome.run,
            outcome=outcome.outcome,
            why=outcome.why,
            freed_now_bytes=outcome.freed.get(Frees.NOW, 0),
            freed_at_purge_bytes=outcome.freed.get(Frees.AT_PURGE, 0),
            freed_after_upkeep_bytes=outcome.freed.get(Frees.AFTER_UPKEEP, 0),
            longest_hold_seconds=outcome.longest_hold_seconds,
        )
    )


def _history(home: str, owner: int) -> Iterator[protocol.Reply]:
    with journal_of(home, owner) as journal:
        runs = journal.list_runs() if journal is not None else []
    for page in protocol.pages(runs):
        yield protocol.HistoryPage(list(page))
    yield protocol.HistoryReply()


def _actions_of(home: str, owner: int, run: str) -> Iterator[protocol.Reply]:
    with journal_of(home, owner) as journal:
        actions = journal.actions(run) if journal is not None else []
    noted = [
        protocol.NotedAction(
            action=each.intent.action[:128],
            policy=each.intent.policy[:128],
            target=each.intent.target[:4096],
            reason=each.intent.reason[:300],
            bytes=max(0, each.intent.bytes),
            state=each.state,
            why=each.why[:300],
        )
        for each in actions
    ]
    for page in protocol.pages(noted):
        yield protocol.ActionsPage(list(page))
    yield protocol.HistoryReply()


def _outcome(done: Sequence[str], skipped: Sequence[Skipped]) -> Iterator[protocol.Reply]:
    for targets in protocol.pages(done):
        yield protocol.OutcomePage(done=list(targets))
    for left in protocol.pages(skipped):
        yield protocol.OutcomePage(skipped=list(left))
