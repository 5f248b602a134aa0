"""Deleting sessions: first written to the trash, then deleted in transactions within `lock_budget`.

Beside a process that may have a session in memory its row stays, hidden, and only its messages go:
`exporter.pruner.apply.emptied` deletes the row when the process has ended.

What the plan was made from is compared again under the write lock. A unit, which is a session or a
group of them, is deleted in one transaction, so that Hermes sees all of it or nothing. A unit that
would not fit into the budget is first taken out of the text index, slice by slice. If Hermes
resumes it meanwhile, it is put back there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import groupby
from typing import Final, TypeVar

import apsw

from exporter.hermes.schema import probe_schema
from exporter.pruner.apply.recheck import DeletedByThisRun, Recheck
from exporter.pruner.apply.session_trash import (
    Overview,
    TrashedSession,
    overview,
    read_sessions,
    write_sessions,
)
from exporter.runs.folder import RunError
from exporter.runs.models import ActionState, RecordedAction, Settled, skip
from exporter.runs.take_actions import AbortedError, Work
from exporter.runs.trash import RunTrash
from exporter.writing.connection import without_triggers
from exporter.writing.emptied_rows import empty_session
from exporter.writing.index_upkeep import back_off, in_slices, reindex, until_due
from exporter.writing.pacing import ALONE_AFTER, ATTEMPTS, Pacer
from exporter.writing.search_index import (
    IndexedUpToNul,
    is_too_long,
    not_in_index,
    probe_search_index,
    remove_from_index,
    weights,
)
from exporter.writing.stored_session import (
    StoredSession,
    delete_session,
    exists,
    is_same_and_whole,
    probe_session_tables,
    read_session,
)
from exporter.writing.target import Target, read_with_retry

ActionGroup = tuple[RecordedAction, ...]
"""Sessions that are deleted together, children first."""
Answer = TypeVar("Answer")

CACHE_KIBIBYTES: Final = 32 * 1024
_CHUNK_MESSAGES: Final = 2_000
_CHUNK_SESSIONS: Final = 200
_CHUNK_BYTES: Final = 16 << 20
_RETRY_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
"""Pauses between the attempts of a step that was aborted; after the last it is given up."""


class _UnitSkippedError(Exception):
    """A unit may not be deleted any more; the message says why."""


class _Prepared:
    """A unit that has been read, and is in the trash."""

    def __init__(self, unit: ActionGroup, stored: Sequence[StoredSession]) -> None:
        self.unit = unit
        self.stored = stored
        self.work = {k: v for each in stored for k, v in weights(each.messages).items()}
        self.message_ids = list(self.work)
        self.out_of_index: list[int] = []
        """Those of its messages that were already removed from the text index."""
        self.attempts = 0
        self.indexed_up_to_nul = _indexed_up_to_nul(stored)

    @property
    def weight(self) -> int:
        """The work of removing it from the text index."""
        return sum(self.work.values())


class SessionDeleter(Work):
    """Deletes the sessions of one run; `take_all` calls it.

    Its transactions are not those of `reaper.change_ends`: their size is measured in text, not in
    rows, and a unit that does not fit needs several. The trash is written before the first.
    """

    def __init__(self, pacer: Pacer, trash: RunTrash, *, keeps_rows: bool = False) -> None:
        """With `keeps_rows` sessions are emptied, and their rows stay."""
        self.kept_bytes = 0
        """Bytes of the sessions in the trash."""
        self._pacer = pacer
        self._target = pacer.target
        self._trash = trash
        self._keeps_rows = keeps_rows
        self._gone = DeletedByThisRun(rows_stay=keeps_rows)

    def take_some(self, waiting: Sequence[RecordedAction], settled: list[Settled]) -> None:
        """Delete a chunk: as many sessions as are written to the trash together."""
        try:
            self._take_chunk(_chunk(waiting), settled)
        except OSError as error:
            raise RunError(
                f"cannot write the trash: {error.strerror}; nothing more was deleted"
            ) from error

    def find_out(self, actions: Sequence[RecordedAction], why: str) -> list[Settled]:
        return what_was_deleted(self._target, actions, self._trash, why)

    def _take_chunk(self, chunk: Sequence[ActionGroup], settled: list[Settled]) -> None:
        with self._target.writing() as writer:
            writer.connection.pragma("cache_size", -CACHE_KIBIBYTES)
            recheck = Recheck(self._target, self._gone, writer)
            prepared = _read(recheck, chunk, settled)
            if prepared:
                sessions = [kept for each in prepared for kept in _kept(each)]
                self.kept_bytes += write_sessions(self._trash, sessions)
            while prepared and not self._target.stopping():
                prepared = prepared[self._delete_some(recheck, prepared, settled) :]
            for each in prepared[:1]:  # only the first can have left the text index already
                self._index_again(recheck, each)

    def _delete_some(
        self, recheck: Recheck, prepared: Sequence[_Prepared], settled: list[Settled]
    ) -> int:
        """Delete the first of these in one transaction; return how many were handled."""
        first, size = prepared[0], self._pacer.size
        alone = first.attempts >= ALONE_AFTER
        batch = prepared[: 1 if alone else size.fitting([each.weight for each in prepared])]
        if not size.fits(first.weight):
            why = self._take_out_of_index(recheck, first)
            if why:
                settled += skip(first.unit, why)
                return 1
        try:
            results = self._with_retry(recheck, partial(self._delete, recheck, batch))
        except apsw.InterruptError:
            return self._too_long(recheck, batch, settled)
        except BaseException:
            self._index_again(recheck, first)
            raise
        for each, why in zip(batch, results, strict=False):
            if why:
                self._index_again(recheck, each)
            else:
                for stored in each.stored:
                    self._gone.add(stored)
            settled += [Settled.of(action, why) for action in each.unit]
        return len(results)

    def _delete(self, recheck: Recheck, batch: Sequence[_Prepared]) -> list[str]:
        """Delete as many as fit; return for each one '' or why it was skipped."""
        writer = recheck.writer
        results: list[str] = []
        # If it was already removed from the text index, the triggers need not do it again.
        thin = len(batch[0].out_of_index) == len(batch[0].message_ids) > 0
        quiet = without_triggers(writer) if thin else nullcontext()
        planned = 0 if batch[0].out_of_index else sum(each.weight + 1 for each in batch)
        with quiet, self._pacer.transaction(writer, planned) as transaction:
            recheck.check_under_lock(transaction)
            transaction.checked()
            for each in batch[:1] if thin else batch:
                if results and transaction.is_due:
                    break
                why = recheck.why_not_exactly(each.unit, each.stored)
                if not why:
                    self._take(recheck, each)
                    transaction.done += 0 if thin else each.weight + 1
                results.append(why)
        return results

    def _take(self, recheck: Recheck, each: _Prepared) -> None:
        connection = recheck.writer.connection
        together = {stored.id for stored in each.stored}
        for stored in each.stored:
            if self._keeps_rows:
                empty_session(connection, stored, together)
            else:
                delete_session(connection, recheck.layout, stored)

    def _too_long(
        self, recheck: Recheck, batch: Sequence[_Prepared], settled: list[Settled]
    ) -> int:
        """Handle a transaction that took too long and was rolled back: retry, then give up."""
        first = batch[0]
        first.attempts += 1
        back_off(self._pacer, recheck.writer, recheck.layout.index, first.attempts)
        if len(batch) > 1 or first.attempts < ATTEMPTS:
            return 0
        self._index_again(recheck, first)
        why = f"its {len(first.message_ids)} messages cannot be deleted in one short transaction"
        settled += skip(first.unit, why)
        return 1

    def _take_out_of_index(self, recheck: Recheck, each: _Prepared) -> str:
        """Remove a large unit from the text index in slices; return why it was skipped, or ''."""
        index = recheck.layout.index
        if not index.known:
            return ""
        if any(map(is_too_long, each.work.values())):
            return "a message of it is too long to leave the text index in a short transaction"
        left = each.message_ids[len(each.out_of_index) :]
        try:
            in_slices(
                self._pacer,
                recheck.writer,
                index,
                each.work,
                left,
                lambda part: self._with_retry(recheck, partial(self._slice, recheck, each, part)),
                in_a_row=False,
            )
            return ""
        except _UnitSkippedError as reason:
            why = str(reason)
        except apsw.InterruptError:
            why = "its messages cannot be removed from the text index in time"
        except BaseException:
            self._index_again(recheck, each)
            raise
        self._index_again(recheck, each)
        return why

    def _slice(self, recheck: Recheck, each: _Prepared, part: Sequence[int]) -> int:
        """Remove the first of these messages from the text index; return how many."""
        writer = recheck.writer

        def take_one_out(message_id: int) -> None:
            remove_from_index(
                writer.connection, recheck.layout.index, [message_id], each.indexed_up_to_nul
            )

        planned = sum(each.work[number] for number in part)
        with self._pacer.transaction(writer, planned) as transaction:
            recheck.check_under_lock(transaction)
            why = recheck.why_not(each.unit)
            if why:
                raise _UnitSkippedError(why)
            transaction.checked()
            done = until_due(transaction, part, take_one_out)
            transaction.done = sum(each.work[number] for number in part[:done])
        each.out_of_index += part[:done]
        return done

    def _index_again(self, recheck: Recheck, each: _Prepared) -> None:
        """Add a session to the text index again, because it stays after all."""
        index = recheck.layout.index
        reindex(self._pacer, recheck.writer, index, each.stored, set(each.out_of_index))
        each.out_of_index = []

    def _with_retry(self, recheck: Recheck, step: Callable[[], Answer]) -> Answer:
        """Run a step, and again after a pause if it was aborted: the cause may be gone soon.

        `take_all` could also retry, but then the chunk would be written to the trash again, and the
        unit removed from the text index again.
        """
        for seconds in _RETRY_SECONDS:
            try:
                return step()
            except AbortedError:
                self._target.sleep(seconds)
                recheck.refresh()
        return step()


def units_of(actions: Sequence[RecordedAction]) -> Iterator[ActionGroup]:
    """Yield actions that are taken together or not at all, in the order of the plan."""

    def key(action: RecordedAction) -> tuple[int, int]:
        group = action.action.group
        return (group, 0) if group else (0, action.number)

    for _, unit in groupby(actions, key):
        yield tuple(unit)


def _chunk(actions: Sequence[RecordedAction]) -> list[ActionGroup]:
    """Return the first units, as many as are written to the trash together; at least one."""
    chunk: list[ActionGroup] = []
    sessions = messages = size = 0
    for unit in units_of(actions):
        sessions += len(unit)
        messages += sum(int(action.action.expected.get("rows") or 0) for action in unit)
        size += sum(action.action.bytes for action in unit)
        if chunk and (
            sessions > _CHUNK_SESSIONS or messages > _CHUNK_MESSAGES or size > _CHUNK_BYTES
        ):
            return chunk
        chunk.append(unit)
    return chunk


def _read(
    recheck: Recheck, chunk: Sequence[ActionGroup], settled: list[Settled]
) -> list[_Prepared]:
    """Return the units that are still as planned, with all their rows."""
    prepared: list[_Prepared] = []
    connection = recheck.writer.connection
    connection.execute("BEGIN")
    recheck.remember()
    for unit in chunk:
        why = recheck.why_not(unit)
        if why:
            settled += skip(unit, why)
            continue
        found = [read_session(connection, recheck.layout, each.action.target) for each in unit]
        prepared.append(_Prepared(unit, [stored for stored in found if stored is not None]))
    connection.execute("COMMIT")
    return prepared


def _kept(each: _Prepared) -> list[TrashedSession]:
    return [
        TrashedSession(action.number, stored)
        for action, stored in zip(each.unit, each.stored, strict=True)
    ]


def _indexed_up_to_nul(stored: Sequence[StoredSession]) -> IndexedUpToNul:
    """Return the messages of these sessions that the text index holds only in part."""
    up_to_nul: IndexedUpToNul = {}
    for each in stored:
        for table, message_ids in each.indexed_up_to_nul.items():
            up_to_nul.setdefault(table, []).extend(message_ids)
    return up_to_nul


# Runs that were killed, and transactions that may or may not have been committed


def what_was_deleted(
    target: Target, actions: Sequence[RecordedAction], trash: RunTrash | None, otherwise: str
) -> list[Settled]:
    """Return which of these sessions were deleted: they are in the trash, and nowhere else.

    Those that stay get back their place in the text index. Raise DatabaseError if the database
    cannot be read or written now.
    """
    if not actions:
        return []
    kept = overview(trash) if trash is not None else Overview()

    def stays(connection: apsw.Connection, action: RecordedAction) -> bool:
        session_id = action.action.target
        if action.number not in kept.sessions:
            return exists(connection, session_id)
        # One that Hermes has begun anew, or whose row is empty, was taken: its past is in the trash
        # alone.
        return is_same_and_whole(connection, session_id, *kept.sessions[action.number])

    there = read_with_retry(
        target,
        lambda connection: {each.action.target for each in actions if stays(connection, each)},
    )
    _repair_index(target, there, trash)
    settled: list[Settled] = []
    for each in actions:
        if each.action.target in there:
            settled += skip([each], otherwise)
        # What cannot be read may hold any of those that are gone: an undo names each.
        elif each.number in kept.sessions or kept.damage:
            settled.append(Settled(each.number, ActionState.DONE))
        else:
            settled += skip([each], "it is gone")
    return settled


def _repair_index(target: Target, there: set[str], trash: RunTrash | None) -> None:
    """Only sessions of the newest file can have been in the middle of leaving the index."""
    newest = next(read_sessions(trash, newest_only=True), []) if trash is not None else []
    suspects = [each.stored for each in newest if each.stored.id in there]
    if not suspects:
        return

    def lacking(connection: apsw.Connection) -> list[list[int]]:
        index = probe_search_index(connection, probe_schema(connection))
        return [not_in_index(connection, index, stored.id) for stored in suspects]

    found = read_with_retry(target, lacking)
    if any(found):
        with target.writing() as writer:
            index = probe_session_tables(writer.connection).index
            lost = {message_id for message_ids in found for message_id in message_ids}
            reindex(Pacer(target), writer, index, suspects, lost)
