"""Deletes the rows of emptied sessions when no process can need them any more.

If a process may have a session in memory, a prune takes the session's messages and files but leaves
its row, hidden from Hermes's lists. If the process continues the session, it writes to that row,
and `exporter.pruner.apply.reborn` gives the messages back. Otherwise the row is deleted as soon as
its trash does not wait for a process any more. The trash also has the row, so an undo can restore
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final

import apsw
import msgspec

from exporter.errors import HomeError
from exporter.hermes import database
from exporter.hermes.schema import probe_schema
from exporter.pruner.decide.trash_wait import waits_for_process, writes_turns_late
from exporter.pruner.models import Act
from exporter.runs.journal import RunJournal
from exporter.runs.journal_reader import JournalReader
from exporter.runs.models import (
    FINISH_ROW,
    Action,
    ActionState,
    Frees,
    KeptRows,
    RecordedAction,
    Run,
    RunKind,
    Settled,
    skip,
)
from exporter.runs.recovery import KILLED
from exporter.runs.take_actions import RunRecord, Work, take_all
from exporter.writing.emptied_rows import RowState, row_states, show_row
from exporter.writing.pacing import ATTEMPTS, Pacer
from exporter.writing.stored_session import (
    SessionTables,
    blocking_table,
    delete_rows,
    probe_session_tables,
)
from exporter.writing.target import Target, read_with_retry

_DELETION: Final = Act.DELETE_SESSION.value
_ROWS_AT_ONCE: Final = 100
"""A row has a system prompt of many pages, and rows of other tables."""


def rows_that_may_go(
    rows: Sequence[KeptRows], writes_turns_late: Callable[[], bool], proc: str = "/proc"
) -> Iterator[KeptRows]:
    """Yield the rows that no process can need any more. If that cannot be found out, they stay."""
    for each in rows:
        try:
            if waits_for_process(proc, each.beside, writes_turns_late) is None:
                yield each
        except (HomeError, OSError, msgspec.ValidationError):
            continue


def has_rows_to_finish(target: Target, runs: JournalReader) -> bool:
    """True if there are emptied rows that no process can need any more."""
    rows = runs.kept_rows(_DELETION)
    return any(rows_that_may_go(rows, partial(writes_turns_late, target), target.proc))


def finish_rows(
    target: Target, runs: RunJournal, *, besides: str = "", purged: Collection[str] = ()
) -> int:
    """Delete emptied rows that no process can need any more; return how many. Under the run lock.

    - Rows of the runs `purged` are deleted in any case: a person empties their trash.
    - Rows of the run `besides` stay: it is about to be undone.
    - A row that Hermes has continued is left to healing. If its old messages are gone for good, it
      is shown in Hermes's lists again.

    Raise DatabaseError if the database cannot be read or written now.
    """
    rows = [each for each in runs.kept_rows(_DELETION) if each.run != besides]
    chosen = [each for each in rows if each.run in purged]
    others = [each for each in rows if each.run not in purged]
    chosen += rows_that_may_go(others, partial(writes_turns_late, target), target.proc)
    if not chosen or database.file_state(target.database) is None:
        return 0
    in_trash = runs.targets_in_trash(_DELETION)
    states = read_states(target, {name for each in chosen for name in each.sessions})
    actions = [
        _ending(each.run, number, session)
        for each in chosen
        for session, number in each.sessions.items()
        if not (states[session] is RowState.USED and session in in_trash)
    ]
    if not actions:
        return 0
    record = RunRecord(runs)
    record.begin(RunKind.HEAL, actions)
    take_all(target, record, record.actions, _RowFinisher(Pacer(target), in_trash))
    record.finish()
    return sum(record.is_done(each) for each in record.actions)


def _ending(run: str, number: int, session: str) -> RecordedAction:
    action = Action(
        kind=FINISH_ROW,
        target=session,
        reason=f"run {run} emptied it, and no process needs its row any more",
        expected={"run": run, "number": number},
        frees=Frees.AFTER_UPKEEP,
    )
    return RecordedAction(action, {"frees": Frees.AFTER_UPKEEP.value})


def read_states(target: Target, session_ids: Collection[str]) -> dict[str, RowState]:
    """Return the present state of rows that we emptied."""
    return read_with_retry(
        target, lambda connection: row_states(connection, probe_schema(connection), session_ids)
    )


class _RowFinisher(Work):
    """Deletes the rows of emptied sessions; `take_all` calls it."""

    def __init__(self, pacer: Pacer, in_trash: Collection[str]) -> None:
        self._pacer = pacer
        self._target = pacer.target
        self._in_trash = in_trash
        self._most = _ROWS_AT_ONCE
        self._attempts = 0

    def take_some(self, waiting: Sequence[RecordedAction], settled: list[Settled]) -> None:
        batch = waiting[: self._most]
        done: list[Settled] = []
        with self._target.writing() as writer:
            layout = probe_session_tables(writer.connection)
            try:
                with self._pacer.transaction(writer, len(batch)) as transaction:
                    ids = [each.action.target for each in batch]
                    states = row_states(writer.connection, layout.schema, ids)
                    for each in batch:
                        if done and transaction.is_due:
                            break
                        state = states[each.action.target]
                        done.append(self._finish(writer.connection, layout, each, state))
                        transaction.done += 1
            except apsw.InterruptError:  # it took too long, and was rolled back
                self._most, self._attempts = max(self._most // 2, 1), self._attempts + 1
                self._target.sleep(self._target.pause_seconds)
                if self._attempts < ATTEMPTS:
                    return
                done = skip(batch[:1], "its row cannot be deleted in a short transaction")
        settled += done

    def _finish(
        self,
        connection: apsw.Connection,
        layout: SessionTables,
        action: RecordedAction,
        state: RowState,
    ) -> Settled:
        session_id = action.action.target
        match state:
            case RowState.GONE:
                return Settled(action.number, ActionState.DONE, "it was gone already")
            case RowState.SHOWN:
                return Settled(action.number, ActionState.DONE, "a person has taken it over")
            case RowState.USED if session_id in self._in_trash:
                return Settled.of(action, "Hermes has gone on with it, and it waits for its past")
            case RowState.USED:
                show_row(connection, session_id)
                return Settled(
                    action.number, ActionState.DONE, "Hermes has gone on with it: it is shown again"
                )
        table = blocking_table(connection, layout, session_id)
        if table:
            return Settled.of(action, f"the table {table} refers to it")
        delete_rows(connection, layout, session_id)
        return Settled(action.number, ActionState.DONE)

    def find_out(self, actions: Sequence[RecordedAction], why: str) -> list[Settled]:
        return what_was_finished(self._target, actions, why)


def what_was_finished(
    target: Target, actions: Sequence[RecordedAction], otherwise: str
) -> list[Settled]:
    """Return which of these rows are gone; raise DatabaseError if the database cannot be read."""
    states = read_states(target, {each.action.target for each in actions})
    settled: list[Settled] = []
    for each in actions:
        if states[each.action.target] in (RowState.GONE, RowState.SHOWN):
            settled.append(Settled(each.number, ActionState.DONE))
        else:
            settled += skip([each], otherwise)
    return settled


def _finished(
    target: Target, runs: RunJournal, run: Run, actions: Sequence[RecordedAction]
) -> list[Settled]:
    """Return which rows a killed run had deleted."""
    del runs, run
    return what_was_finished(target, actions, KILLED)


BY_ACTION: Final = {FINISH_ROW: _finished}
"""See `exporter.runs.recovery`."""
