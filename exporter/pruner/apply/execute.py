"""Execute a plan: take what it lists, except what has changed since it was planned.

- One run at a time in a home.
- The journal has every action before anything is changed. If the run is killed or fails, the state
  of the home shows which actions were done.
- Sessions are deleted before the files that belong to them. A group is taken completely or not at
  all.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import apsw
import msgspec
from msgspec import structs

from exporter.config.prune import EXPIRED_TRASH
from exporter.errors import DatabaseError
from exporter.hermes.schema import probe_schema
from exporter.pruner.apply.delete_sessions import SessionDeleter, units_of
from exporter.pruner.apply.emptied import finish_rows
from exporter.pruner.apply.full_disk import remove_garbage_first
from exporter.pruner.apply.purge import PurgeRemover
from exporter.pruner.apply.recovery import (
    BY_ACTION,
    is_session,
    note_purged,
    taken_sessions,
    trash_for,
)
from exporter.pruner.apply.registry import removers_for, take
from exporter.pruner.apply.remover import Remover
from exporter.pruner.apply.space_taken import bytes_of_runs
from exporter.pruner.beside import ProcessesAtPrune
from exporter.pruner.decide.trash_wait import BESIDE, why_not_purged
from exporter.pruner.models import Act, PruneAction, PrunePlan
from exporter.runs.folder import RunError, RunFolder
from exporter.runs.journal import RunJournal, running_on
from exporter.runs.models import (
    Action,
    ActionFailure,
    ActionState,
    Frees,
    Outcome,
    RecordedAction,
    RunKind,
    RunOutcome,
    Settled,
    skip,
)
from exporter.runs.recovery import abandon, not_known, recover
from exporter.runs.take_actions import Progress, RunRecord, take_all
from exporter.runs.trash import RunTrash, trash_folder, trash_of
from exporter.writing.idle_wal import empty_wal
from exporter.writing.index_upkeep import merge_index
from exporter.writing.pacing import Pacer
from exporter.writing.space import deletion_bytes, why_no_room
from exporter.writing.target import Target, read_with_retry
from exporter.writing.vacuum import free_bytes_in

_SETTLED_AT_ONCE: Final = 64
_MERGE_SHARE: Final = 0.15
"""A merge of the text index may take this share of the time that deleting took."""
_LEAST_MERGE_SECONDS: Final = 0.5


def execute(
    plan: PrunePlan,
    target: Target,
    *,
    keep_seconds: float,
    by_hand: bool = False,
    only: Collection[str] | None = None,
    run: str = "",
    progress: Progress | None = None,
    processes_at_prune: ProcessesAtPrune | None = None,
    emergency: bool = False,
) -> Outcome:
    """Execute a plan, in a process of the home's owner that has no connection to its database.

    With `only`, take only these targets. Raise RunBusyError if another run is in progress, RunError
    if the journal cannot be used; the next run settles what this one leaves open.
    """
    actions = chosen(plan.actions, only)
    if plan.blocked or not actions:
        return Outcome(None, RunOutcome.DONE, why=plan.why)
    recorded = [to_record(each) for each in actions]
    before = bytes_of_runs(target)
    gone = remove_garbage_first(
        target.home, target.owner, recorded, lambda: running_on(target, "prune")
    )
    record: RunRecord | None = None
    try:
        with running_on(target, "prune") as runs:
            recover(target, runs, BY_ACTION)
            record = RunRecord(runs, progress)
            pruning = _PruneRun(
                target, runs, record, processes_at_prune=processes_at_prune, purging=emergency
            )
            outcome = pruning.execute(
                recorded,
                gone=gone,
                run=run,
                plan=plan.hash,
                by_hand=by_hand,
                undoable_seconds=keep_seconds,
            )
    except RunError as error:
        if record is None or not record.run:
            raise
        return unknown(record, error)
    return _with_space_taken(outcome, target, before)


def _with_space_taken(outcome: Outcome, target: Target, before: int) -> Outcome:
    """Take what the run itself takes on disk from what came free, when the journal is closed."""
    gone = outcome.freed.get(Frees.NOW, 0)
    net = gone + before - bytes_of_runs(target, outcome.run or "")
    freed = {**outcome.freed, Frees.NOW: max(0, net)}
    return structs.replace(outcome, freed=freed, grown_bytes=max(0, -net))


def chosen(actions: Sequence[PruneAction], only: Collection[str] | None) -> list[PruneAction]:
    """Return the actions on these targets, without groups of which a target is missing."""
    if only is None:
        return list(actions)
    split = {each.group for each in actions if each.group and each.target not in only}
    return [each for each in actions if each.target in only and each.group not in split]


def to_record(action: PruneAction) -> RecordedAction:
    """Return a planned action as the journal has it, with what recovery and undo need."""
    return RecordedAction(action, {"frees": action.frees.value, "group": action.group})


class _PruneRun:
    """One run."""

    def __init__(
        self,
        target: Target,
        runs: RunJournal,
        record: RunRecord,
        *,
        processes_at_prune: ProcessesAtPrune | None = None,
        purging: bool = False,
    ) -> None:
        """`processes_at_prune` may have a session in memory; the journal notes them.

        With `purging`, the trash is emptied even if a session may need it: a person asked for it,
        or it is an emergency.
        """
        self._target = target
        self._runs = runs
        self._record = record
        self._beside = processes_at_prune
        self._purger = (
            PurgeRemover(runs.folder)
            if purging
            else PurgeRemover(runs.folder, lambda run: why_not_purged(target, runs, run))
        )
        self._removers: dict[Act, Remover] = {
            **removers_for(target, runs.folder),
            Act.PURGE_TRASH: self._purger,
        }
        self._pacer = Pacer(target)
        self._keeps_rows = False
        """Sessions are emptied, and their rows stay for the processes that may need them."""

    def execute(
        self, actions: Sequence[RecordedAction], *, gone: Sequence[int] = (), **run: Any
    ) -> Outcome:
        """Take these; those with the numbers `gone` were deleted before the run could be noted."""
        self._note_beside(actions)
        taken = self._begin(actions, gone, run)
        record = self._record
        record.actions = noted = self._runs.actions(record.run)
        record.settle([Settled(number, ActionState.DONE) for number in taken])
        began = self._target.monotonic()
        deleter: SessionDeleter | None = None
        try:
            needs_trash = any(each.action.frees is not Frees.NOW for each in actions)
            with trash_of(self._runs.folder, record.run, create=needs_trash) as trash:
                if trash is not None:
                    deleter = SessionDeleter(self._pacer, trash, keeps_rows=self._keeps_rows)
                for sessions, others in _parts(noted):
                    self._take_sessions(sessions, deleter)
                    if sessions and others:
                        empty_wal(self._target)  # files take long: someone may import meanwhile
                    self._take_others(others, trash)
                self._target.refuse_replaced()
        except DatabaseError as error:
            # Neither writable nor readable, or another one by now: it is not known which of the
            # last ones were deleted.
            return unknown(record, error)
        except OSError as error:
            record.why = f"cannot write the trash: {error.strerror}"
            record.settle(skip(record.open(noted), record.why))
        if remove_if_empty(self._runs.folder, record.run):
            self._runs.set_not_undoable(record.run)
        note_purged(self._runs, record.run)
        outcome = record.finish()
        deleted = sum(is_session(each) and record.is_done(each) for each in noted)
        if deleted and not self._target.stopping():
            self._merge(self._target.monotonic() - began)
        return structs.replace(
            outcome,
            freed=self._freed(),
            kept_bytes=deleter.kept_bytes if deleter is not None else 0,
            rows_kept=deleted if self._keeps_rows else 0,
            longest_hold_seconds=self._pacer.longest_hold_seconds,
        )

    def _note_beside(self, actions: Sequence[RecordedAction]) -> None:
        """The trash of sessions waits for these processes, and so do the rows of sessions."""
        sessions = [each for each in actions if is_session(each)]
        if not sessions or self._beside is None:
            return
        sessions[0].after[BESIDE] = msgspec.to_builtins(self._beside)
        self._keeps_rows = _can_hide_rows(self._target)
        for each in sessions if self._keeps_rows else ():
            each.after["row"] = "kept"

    def _begin(
        self, actions: Sequence[RecordedAction], gone: Sequence[int], run: dict[str, Any]
    ) -> list[int]:
        """Note the run; return the numbers of the garbage that had to be deleted to make room."""
        taken = list(gone)
        garbage = [
            number
            for number, each in enumerate(actions)
            if _is_garbage(each.action) and number not in gone
        ]
        while True:
            try:
                self._record.begin(RunKind.PRUNE, actions, **run)
                return taken
            except apsw.FullError:
                if not garbage:
                    raise
            number = garbage.pop(0)
            each = actions[number]
            if not take(self._removers[Act(each.action.kind)], each, None):
                taken.append(number)

    def _take_sessions(
        self, actions: Sequence[RecordedAction], deleter: SessionDeleter | None
    ) -> None:
        record = self._record
        if not actions:
            return
        if deleter is None:
            record.settle(skip(actions, "no session is deleted without the trash"))
            return
        if self._beside is not None and self._beside.chats and not self._keeps_rows:
            why = f"process {self._beside.chats[0][0]} may need its row, which cannot be hidden"
            record.settle(skip(actions, why))
            return
        self._target.refuse_replaced()
        try:
            self._target.refuse_unwritable()
        except DatabaseError as error:
            record.why = str(error)
            record.settle(skip(actions, record.why))
            return
        if why := _why_no_room(self._target, actions):
            record.settle(skip(actions, ActionFailure(why)))
            return
        take_all(self._target, record, actions, deleter)

    def _take_others(self, actions: Sequence[RecordedAction], trash: RunTrash | None) -> None:
        self._target.refuse_replaced()
        taken = {each.action.target for each in taken_sessions(self._runs, self._record.run)}
        waiting: list[Settled] = []
        for each in self._record.open(actions):
            session = each.action.expected.get("session")
            if session not in taken and self._target.stopping():
                continue  # the files of deleted sessions go with them, so that none is left alone
            if session is not None and session not in taken:
                why = "the session it belongs to was not deleted"
            else:
                why = take(self._removers[Act(each.action.kind)], each, trash_for(each, trash))
            waiting.append(Settled.of(each, why))
            if len(waiting) == _SETTLED_AT_ONCE:
                self._record.settle(waiting)
                waiting = []
        self._record.settle(waiting)
        if self._target.stopping():
            self._record.interrupt(actions)

    def _merge(self, took_seconds: float) -> None:
        """Merge the text index, in which deletions leave tombstones; a failure does no harm."""
        with suppress(DatabaseError):
            merge_index(self._pacer, max(_MERGE_SHARE * took_seconds, _LEAST_MERGE_SECONDS))

    def _freed(self) -> dict[Frees, int]:
        """Bytes of what was done by when they come free."""
        freed = dict.fromkeys(Frees, 0)
        freed[Frees.NOW] += self._purger.freed_bytes
        for each in self._record.actions:
            # Of a purge the rows may stay that a process may need: what it freed was measured.
            if self._record.is_done(each) and each.action.kind != Act.PURGE_TRASH:
                freed[each.action.frees] += each.action.bytes
        return freed


def _why_no_room(target: Target, sessions: Sequence[RecordedAction]) -> str:
    """Return why sessions cannot be deleted now; what frees space needs none and goes on."""
    payload = sum(each.action.bytes for each in sessions)
    needed = deletion_bytes(len(sessions), payload)
    return why_no_room(needed, free_bytes_in(target.home), "its rows in the trash and the WAL")


def _can_hide_rows(target: Target) -> bool:
    """True if the schema has `archived`: Hermes from 0.16 on."""
    try:
        return read_with_retry(target, lambda each: probe_schema(each).has("sessions", "archived"))
    except DatabaseError:
        return True  # then nothing can be deleted either


def unknown(record: RunRecord, error: Exception) -> Outcome:
    """Return the outcome of a run whose result could not be noted, or not be read."""
    record.why = not_known(record.run, error)
    return structs.replace(record.outcome(), outcome=RunOutcome.UNKNOWN)


def remove_if_empty(folder: RunFolder, run: str) -> bool:
    """Remove the trash of a run if it is empty; True if the run has none now."""
    with trash_folder(folder) as above:
        if above is None:
            return True
        try:
            os.rmdir(run, dir_fd=above)
        except FileNotFoundError:
            return True
        except OSError:
            return False
    return True


def _parts(
    actions: Sequence[RecordedAction],
) -> Iterator[tuple[list[RecordedAction], list[RecordedAction]]]:
    """Yield the plan in its order: sessions, as many as possible, and the actions after them."""
    sessions: list[RecordedAction] = []
    others: list[RecordedAction] = []
    for unit in units_of(actions):
        deleted = [each for each in unit if is_session(each)]
        # Only files of sessions may wait until after later sessions.
        if deleted and any("session" not in each.action.expected for each in others):
            yield sessions, others
            sessions, others = [], []
        sessions += deleted
        others += [each for each in unit if not is_session(each)]
    yield sessions, others


def _is_garbage(action: PruneAction) -> bool:
    """True if it may be deleted before it is noted, because it is never restored."""
    return action.frees is Frees.NOW and "session" not in action.expected


def purge(run: str | None, target: Target) -> Outcome:
    """Delete the trash of one run, or all of it, because a person asked for it.

    Raise RunBusyError if another run is in progress, RunError if there is no such trash.
    """
    before = bytes_of_runs(target)
    with running_on(target, "purge") as runs:
        unsettled = recover(target, runs, BY_ACTION).left
        found = PurgeRemover(runs.folder).runs_with_trash()
        if run is not None and run not in found:
            raise RunError(f"run {run} has no trash in {target.home}; nothing was done")
        actions: list[PruneAction] = [
            Action(
                kind=Act.PURGE_TRASH,
                policy=EXPIRED_TRASH,
                target=name,
                reason="it was asked for",
                expected={},
                bytes=size,
                frees=Frees.NOW,
            )
            for name, size in found.items()
            if run in (None, name)
        ]
        if not actions:
            return Outcome(None, RunOutcome.DONE)
        # And what is left of its sessions, whatever process may need it.
        finish_rows(target, runs, purged={each.target for each in actions})
        pruning = _PruneRun(target, runs, RunRecord(runs), purging=True)
        outcome = pruning.execute([to_record(each) for each in actions], by_hand=True)
        for name in unsettled.keys() & set(outcome.done):
            abandon(runs, name, "its trash was purged before it was known what it had done")
    return _with_space_taken(outcome, target, before)
