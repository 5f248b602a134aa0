"""A worker's handlers for the calls that act on a home, and for those about its journal.

Loaded at the first such call: most homes are scanned and never acted on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import wraps
from typing import Any

from msgspec import structs

from exporter.errors import DatabaseError
from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.execute import purge as purge_trash
from exporter.pruner.apply.lost_runs import note_lost_runs
from exporter.pruner.apply.reborn import heal_reborn
from exporter.pruner.apply.recovery import BY_ACTION
from exporter.pruner.apply.undo import undo as undo_prune
from exporter.pruner.apply.upkeep import run_upkeep
from exporter.pruner.beside import with_plugins
from exporter.pruner.requests import PruneRequest, UpkeepDone, UpkeepRequest
from exporter.reaper.plan import ReapRequest
from exporter.reaper.reap import reap as reap_home
from exporter.reaper.reopen import undo as undo_reap
from exporter.runs.folder import RunError, RunFolder, run_began_at, run_folder
from exporter.runs.journal import FILE, RunJournal, journal_of, mend_journal, running
from exporter.runs.models import Outcome, Run, RunKind, RunOutcome, Skipped
from exporter.runs.no_space import telling_what_to_free
from exporter.runs.recovery import recover_home
from exporter.runs.reserve import make_reserve
from exporter.runs.trash import runs_in_trash, trash_folder
from exporter.workers.home import WorkerHome
from exporter.workers.privilege import release_memory
from exporter.workers.protocol import (
    PAGE_ITEMS,
    ActionRow,
    HealReply,
    HealRequest,
    PurgeRequest,
    RecoverReply,
    RecoverRequest,
    Reporter,
    RunActionsRequest,
    RunsRequest,
    UndoRequest,
)
from exporter.writing.space import journal_bytes, reap_bytes
from exporter.writing.target import Target

Act = Callable[[WorkerHome, Any, Reporter], Outcome]


def _says_what_to_free(needed_bytes: Callable[[Any], int]) -> Callable[[Act], Act]:
    """On a full disk a handler fails with one line that says what to free first: as much as
    `needed_bytes` returns for the request.
    """

    def decorate(handler: Act) -> Act:
        @wraps(handler)
        def act(home: WorkerHome, request: Any, reporter: Reporter) -> Outcome:
            with telling_what_to_free(request.home, needed_bytes(request)):
                return handler(home, request, reporter)

        return act

    return decorate


def _for_reap(request: ReapRequest) -> int:
    sessions = len(request.plan.actions)
    return journal_bytes(sessions) + reap_bytes(sessions)


def _for_prune(request: PruneRequest) -> int:
    return max(request.plan.needed_bytes, journal_bytes(len(request.plan.actions)))


def _for_journal(_: object) -> int:
    """What frees space needs no more; an undo that needs more says so by itself."""
    return journal_bytes(0)


@_says_what_to_free(_for_reap)
def reap(home: WorkerHome, request: ReapRequest, reporter: Reporter) -> Outcome:
    """End the sessions that the plan names."""
    target = _target(request, reporter)
    if not home.used_again.knows_runs:
        mend_journal(request.home, request.owner)
    _heal_first(target)
    return reap_home(request, target, home.used_again, home.last_rows)


@_says_what_to_free(_for_prune)
def prune(home: WorkerHome, request: PruneRequest, reporter: Reporter) -> Outcome:
    """Execute a plan, possibly in another worker than the one that made it."""
    del home
    target = _target(request, reporter)
    _heal_first(target)
    outcome = execute(
        request.plan,
        target,
        keep_seconds=request.keep_seconds,
        by_hand=request.by_hand,
        only=None if request.only is None else frozenset(request.only),
        run=request.run,
        progress=reporter.progress,
        processes_at_prune=with_plugins(request.processes_at_prune, request.home),
        emergency=request.emergency,
    )
    release_memory()
    return outcome


@_says_what_to_free(_for_journal)
def purge(home: WorkerHome, request: PurgeRequest, reporter: Reporter) -> Outcome:
    """Empty the trash of one run, or all of it."""
    del home
    with run_folder(request.home, request.owner) as folder:
        if folder is None or not _had_runs(folder):  # do not make a journal to find it empty
            return Outcome(None, RunOutcome.DONE)
    target = Target(request.home, request.owner, request.openers, stopping=reporter.cancelled)
    _heal_first(target)
    return purge_trash(request.run, target)


@_says_what_to_free(_for_journal)
def undo(home: WorkerHome, request: UndoRequest, reporter: Reporter) -> Outcome:
    """Restore what a run took from one home."""
    del home
    target = _target(request, reporter)
    _heal_first(target, besides=request.run)  # the undo itself restores everything of this run
    with journal_of(request.home, request.owner) as journal:
        if journal is None:
            raise RunError(f"there is no run {request.run} in {request.home}")
        kind = journal.find(request.run).kind
    if kind is not RunKind.PRUNE:
        return undo_reap(request.run, target)
    outcome = undo_prune(request.run, target, progress=reporter.progress)
    notes = tuple(Skipped(each.target, f"given back, but {each.why}") for each in outcome.notes)
    return structs.replace(outcome, skipped=(*outcome.skipped, *notes), notes=())


def heal(home: WorkerHome, request: HealRequest, reporter: Reporter) -> HealReply:
    """Restore the messages that a prune took from sessions that Hermes has continued."""
    healed = heal_reborn(_target(request, reporter))
    if not healed.left:
        home.used_again.healed_prunes()
    why = healed.left[0].why if healed.left else ""
    return HealReply(len(healed.sessions), len(healed.left), why[:300], healed.finished)


def settle(home: WorkerHome, request: RecoverRequest, reporter: Reporter) -> RecoverReply:
    """Find out what killed runs had done; keep some space for the first run if that is asked."""
    del home, reporter
    if request.reserve:
        with running(request.home, request.owner, "reserve") as journal:
            make_reserve(journal.folder)
    target = Target(request.home, request.owner, request.openers)
    note_lost_runs(target)
    recovered = recover_home(target, BY_ACTION)
    left = [Skipped(run, why) for run, why in recovered.left.items()]
    return RecoverReply(list(recovered.settled[:PAGE_ITEMS]), left[:PAGE_ITEMS])


def upkeep(home: WorkerHome, request: UpkeepRequest, reporter: Reporter) -> list[UpkeepDone]:
    """Run VACUUM and `git gc` in a home that no process uses, as the evidence shows."""
    del home, reporter
    return run_upkeep(request)


def list_runs(home: WorkerHome, request: RunsRequest, reporter: Reporter) -> list[Run]:
    """Return the runs in one home, newest first."""
    del home, reporter
    with run_folder(request.home, request.owner) as folder:
        trashed = runs_in_trash(folder) if folder is not None else []
    with journal_of(request.home, request.owner) as journal:
        listed = _runs_now(journal) if journal is not None else []
    return [*map(_lost_run, sorted(set(trashed) - {run.id for run in listed})), *listed]


def _lost_run(run: str) -> Run:
    """Return a run that has only trash, as it is listed until it is settled."""
    why = "it is not in the run journal any more"
    try:
        began = datetime.strptime(run[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        began = 0.0
    return Run(run, RunKind.PRUNE, "", False, began, None, None, why, None, 0, 0)


def _runs_now(journal: RunJournal) -> list[Run]:
    """Return all runs. Of the unfinished ones, mark the one in progress; the others were killed."""
    unfinished = {each.id for each in journal.unfinished_runs()}
    began = run_began_at(journal.folder) if unfinished else None
    # Listed only now: a run that has finished, or begun, since the first look was not killed.
    return [
        structs.replace(each, under_way=each.finished_at is None and _goes_on(each, began))
        if each.id in unfinished
        else structs.replace(each, under_way=each.finished_at is None)
        for each in journal.list_runs()
    ]


def _goes_on(run: Run, lock_taken_at: float | None) -> bool:
    return lock_taken_at is not None and run.started_at >= lock_taken_at


def show_run(home: WorkerHome, request: RunActionsRequest, reporter: Reporter) -> list[ActionRow]:
    """Return what one run did to one home, in order."""
    del home, reporter
    with journal_of(request.home, request.owner) as journal:
        actions = journal.actions(request.run) if journal is not None else []
    return [
        ActionRow(
            action=each.action.kind[:128],
            policy=each.action.policy[:128],
            target=each.action.target[:4096],
            reason=each.action.reason[:300],
            bytes=max(0, each.action.bytes),
            state=each.state,
            why=each.why[:300],
        )
        for each in actions
    ]


def _target(
    request: ReapRequest | PruneRequest | UndoRequest | HealRequest, reporter: Reporter
) -> Target:
    return Target(
        request.home,
        request.owner,
        request.openers,
        lock_budget_seconds=request.lock_budget_seconds,
        stopping=reporter.cancelled,
    )


def _had_runs(folder: RunFolder) -> bool:
    """False if there is neither trash nor a journal; a full disk may have left an empty one."""
    journal = folder.file(FILE)
    with trash_folder(folder) as trash:
        return trash is not None or (journal is not None and os.path.getsize(journal) > 0)


def _heal_first(target: Target, besides: str = "") -> None:
    """Heal prunes before anything else is done to a home; a failure does not stop the caller.

    What was not healed stays in the trash, and the next scan or command tries again.
    """
    with suppress(DatabaseError, RunError):
        heal_reborn(target.unstoppable(), besides=besides)
