"""Restoring what a prune took, exactly as it was; what is newer stays, and is merged with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

import apsw
from msgspec import structs

from exporter.errors import DatabaseError
from exporter.hermes.database import file_state
from exporter.pruner.apply.recovery import (
    BY_ACTION,
    RESTORE_ACTION,
    is_session,
    restore,
    session_of,
    sessions_in_trash,
)
from exporter.pruner.apply.registry import removers_for
from exporter.pruner.apply.restore_sessions import SessionRestorer, what_was_restored
from exporter.pruner.models import Act
from exporter.runs.folder import RunError
from exporter.runs.journal import RunJournal, refuse_other_kind, running_on
from exporter.runs.models import (
    UNREADABLE,
    Action,
    ActionState,
    Outcome,
    RecordedAction,
    Reversal,
    RunKind,
    RunOutcome,
    Settled,
    Skipped,
    skip,
)
from exporter.runs.recovery import not_known, recover
from exporter.runs.take_actions import Progress, RunRecord, take_all
from exporter.runs.trash import RunTrash, trash_of
from exporter.writing.file_watch import ReplacedError
from exporter.writing.idle_wal import empty_wal
from exporter.writing.index_upkeep import merge_index
from exporter.writing.pacing import Pacer
from exporter.writing.space import wal_bytes, why_no_room
from exporter.writing.target import Target, read_with_retry
from exporter.writing.vacuum import free_bytes_in

_ROWS_AND_INDEX: Final = 2
MERGE_SECONDS: Final = 5.0
"""At most for so long, in small steps; most of it was done at the end of the prune."""


def undo(run: str, target: Target, *, progress: Progress | None = None) -> Outcome:
    """Restore what a prune took; in a process of the home's owner, without a connection.

    Raise RunError if there is no such prune or its trash is gone, RunBusyError if another run is
    under way, and DatabaseError if what killed runs had done cannot be found out.
    """
    refuse_other_kind(target, run, RunKind.PRUNE)
    restorer: RunRestorer | None = None
    try:
        with running_on(target, f"undo of {run}") as runs:
            recover(target, runs, BY_ACTION)
            with trash_of(runs.folder, run) as trash:
                if trash is None:
                    raise RunError(f"the trash of run {run} is gone; nothing can be given back")
                restorer = RunRestorer(run, target, runs, progress=progress)
                return restorer.restore(trash)
    except RunError as error:
        if restorer is None or not restorer.has_begun:
            raise
        return Outcome(run, RunOutcome.UNKNOWN, why=not_known(run, error))


class RunRestorer:
    """Restores what one run took: all of it, or only what `wanted` says."""

    def __init__(
        self,
        run: str,
        target: Target,
        runs: RunJournal,
        *,
        kind: RunKind = RunKind.UNDO,
        reason: str = "",
        wanted: Callable[[RecordedAction], bool] = lambda _: True,
        relatives: Collection[str] = (),
        progress: Progress | None = None,
    ) -> None:
        """`relatives` are sessions that come back only because others do."""
        self._run = run
        self._kind = kind
        self._relatives = relatives
        self._reason = reason or f"undo of {run}"
        self._wanted = wanted
        self._target = target
        self._runs = runs
        self._removers = removers_for(target, runs.folder)
        self._pacer = Pacer(target)
        self._record = RunRecord(runs, progress)

    @property
    def has_begun(self) -> bool:
        """True if the journal lists this undo: from then on something may be restored."""
        return self._record.run != ""

    def restore(self, trash: RunTrash) -> Outcome:
        actions = [each for each in self._runs.actions(self._run) if self._wanted(each)]
        earlier = _not_known(actions)
        done = [each for each in actions if each.state is ActionState.DONE][::-1]
        if not done:
            skipped = (*_restored_before(actions), *earlier)
            return Outcome(self._run, RunOutcome.DONE, skipped=skipped)
        if why := self._why_no_room([each for each in done if is_session(each)]):
            raise RunError(f"{why}; nothing was done")
        record = self._record
        restoring = [self._restoring(each) for each in done]
        record.begin(self._kind, restoring, by_hand=self._kind is RunKind.UNDO)
        pairs = list(zip(record.actions, done, strict=True))
        sessions = [each for each, taken in pairs if is_session(taken)]
        try:
            # Rows, then their files: killed in between, no transcript is without its session.
            self._restore_sessions(sessions, trash)
            empty_wal(self._target)  # files take long: someone may import meanwhile
            left = file_state(self._target.database)
            self._restore_others([pair for pair in pairs if not is_session(pair[1])], trash)
            self._target.refuse_replaced()
            if not self._target.openers.pids and file_state(self._target.database) != left:
                self._look_again(sessions, trash)
        except DatabaseError as error:
            if isinstance(error, ReplacedError):
                record.reopen(sessions)
            record.why = not_known(self._run, error)
            outcome = structs.replace(record.outcome(), outcome=RunOutcome.UNKNOWN)
        else:
            outcome = record.finish()
        return structs.replace(
            outcome,
            run=self._run,
            skipped=(*outcome.skipped, *earlier),
            longest_hold_seconds=self._pacer.longest_hold_seconds,
        )

    def _why_no_room(self, sessions: Sequence[RecordedAction]) -> str:
        """Return why the rows of these sessions cannot come back now; '' if there is room."""
        if not sessions or self._kind is not RunKind.UNDO:
            return ""  # healing does not wait: a process uses the session without its messages
        payload = sum(each.action.bytes for each in sessions)
        try:
            # Rows and search index; what the prune left unused in the file is used first.
            grows = max(0, _ROWS_AND_INDEX * payload - _unused_bytes(self._target))
        except DatabaseError:
            return ""  # it cannot be read now; restoring tells why
        needed = grows + wal_bytes(payload)
        return why_no_room(needed, free_bytes_in(self._target.home), f"undo of {self._run}")

    def _restoring(self, taken: RecordedAction) -> RecordedAction:
        """Return the action that takes back an action of a prune."""
        is_relative = taken.action.target in self._relatives
        return RecordedAction(
            Action(
                kind=RESTORE_ACTION,
                target=taken.action.target,
                reason=self._reason,
                expected={"relative": True} if is_relative else {},
                policy=taken.action.policy,
                bytes=taken.action.bytes,
            ),
            reverses=Reversal(taken.run, taken.number),
        )

    def _restore_sessions(self, actions: Sequence[RecordedAction], trash: RunTrash) -> None:
        if not actions:
            return
        try:
            self._target.refuse_unwritable()
        except DatabaseError as error:
            self._record.why = str(error)
            self._record.settle(skip(actions, self._record.why))
            return
        self._merge_index()
        take_all(self._target, self._record, actions, SessionRestorer(self._pacer, trash))

    def _look_again(self, sessions: Sequence[RecordedAction], trash: RunTrash) -> None:
        """After state.db was written while the files came back: by Hermes, or by an import."""
        done = [each for each in sessions if self._record.is_done(each)]
        self._record.reopen(done)
        why = "another state.db was put in its place before the undo was over"
        self._record.settle(what_was_restored(self._target, done, trash, why))

    def _merge_index(self) -> None:
        """Merge what deletions left in the text index: the messages then fit where they were.

        Otherwise `state.db` grows by as much as the prune had no time to merge. Healing does not
        wait for it, and a failure does no harm.
        """
        if self._kind is RunKind.UNDO:
            with suppress(DatabaseError):
                merge_index(self._pacer, MERGE_SECONDS)

    def _restore_others(
        self, pairs: Sequence[tuple[RecordedAction, RecordedAction]], trash: RunTrash
    ) -> None:
        away = sessions_in_trash(self._runs, self._run, trash)
        for each, original in pairs:
            session = session_of(original)
            if self._target.stopping() and (session is None or session in away):
                continue  # a file follows its session; the others are left to the next undo
            if session in away:
                why = "its session was not given back"
            else:
                why = restore(self._removers[Act(original.action.kind)], original, trash)
            self._record.settle([Settled.of(each, why)])
        if self._target.stopping():
            self._record.interrupt([each for each, _ in pairs])


def _restored_before(actions: Sequence[RecordedAction]) -> tuple[Skipped, ...]:
    """Said only if there is nothing else to restore: an undo that was stopped just goes on."""
    return tuple(
        Skipped(each.action.target, f"it was given back already, {each.why}")
        for each in actions
        if each.state is ActionState.UNDONE
    )


def _unused_bytes(target: Target) -> int:
    """Return how many bytes of the database file no row uses."""

    def unused(connection: apsw.Connection) -> int:
        names = ("freelist_count", "page_size")
        free, size = (int(connection.pragma(name)) for name in names)
        return free * size

    return read_with_retry(target, unused)


def _not_known(actions: Sequence[RecordedAction]) -> tuple[Skipped, ...]:
    """Return what this run may have taken and an undo cannot restore."""
    unknown = [
        Skipped(each.action.target, f"not known whether it was taken: {each.why}")
        for each in actions
        if each.state is ActionState.INTENDED
    ]
    unreadable = [
        Skipped(each.action.target, each.why) for each in actions if each.action.kind == UNREADABLE
    ]
    return (*unknown, *unreadable)
