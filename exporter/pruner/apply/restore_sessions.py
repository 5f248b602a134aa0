"""Restores sessions: their rows with the same ids, and their entries in the text index.

- A session is restored in one transaction, so that Hermes sees all of it or nothing.
- The text index takes nearly all the time. So messages are added to it first, in slices; no search
  shows them without their rows. The rows follow, of many sessions at a time.
- An emptied session, whose row is still there, is restored in the same way.
- Nothing that Hermes has written since is overwritten. If Hermes has continued a session, or used
  the ids of its messages again, the history is merged (`exporter.pruner.apply.merge_sessions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final

import apsw

from exporter.hermes.schema import probe_schema
from exporter.pruner.apply.delete_sessions import CACHE_KIBIBYTES
from exporter.pruner.apply.merge_sessions import SessionMerger
from exporter.pruner.apply.session_trash import read_sessions, why_missing
from exporter.runs.models import ActionState, RecordedAction, Settled, skip
from exporter.runs.take_actions import Work
from exporter.runs.trash import RunTrash
from exporter.writing.batch_size import BatchSize
from exporter.writing.connection import Writer, without_triggers
from exporter.writing.index_upkeep import change_index, reindex
from exporter.writing.pacing import ALONE_AFTER, ATTEMPTS, Pacer
from exporter.writing.search_index import (
    SearchIndex,
    add_to_index,
    find_orphan_entries,
    ids_are_reserved,
    not_in_index,
    probe_search_index,
    remove_orphan_entries,
    reserve_ids,
    weights,
)
from exporter.writing.session_merge import is_restored, needs_merge, refill_session
from exporter.writing.stored_session import (
    RestoreError,
    SessionTables,
    StoredSession,
    exists,
    probe_session_tables,
    restore_session,
)
from exporter.writing.target import Target, read_with_retry

_SESSIONS_MAX: Final = 200
"""The most sessions that are restored in one transaction."""


class SessionRestorer(Work):
    """Restores the sessions of one run from its trash; `take_all` calls it.

    Its transactions are not those of `reaper.change_ends`: their size is measured in text, not in
    rows, and the text index is filled before the rows come.
    """

    def __init__(self, pacer: Pacer, trash: RunTrash) -> None:
        self._pacer = pacer
        self._target = pacer.target
        self._trash = trash
        self._files = read_sessions(trash)
        self._rows_size = BatchSize(pacer.target.lock_budget_seconds)
        """How much fits into a transaction of rows alone, without the text index."""
        self._merging = SessionMerger(pacer)
        self._attempts: Counter[int] = Counter()
        self._weights: dict[str, int] = {}
        self._indexed: set[str] = set()
        """Sessions whose messages are in the text index already."""
        self._waiting: dict[int, RecordedAction] | None = None
        """What no file of the trash had so far, by the number of the action that took it."""
        self._coming: set[str] = set()
        """Sessions that are not dealt with yet: a child may name one of them as its parent."""
        self._begun: set[str] = set()
        """Sessions with messages that were added to the text index before their rows."""

    def take_some(self, waiting: Sequence[RecordedAction], settled: list[Settled]) -> None:
        """Restore the sessions of the next file in the trash; after the last, skip the rest."""
        file = next(self._files, None)
        if file is None:
            settled += skip(waiting, why_missing(self._trash))
            return
        if self._waiting is None:
            # Once for all files: of 50,000 sessions each look at all would be quadratic.
            self._waiting = {_number_taken(each): each for each in waiting}
            self._coming = {each.action.target for each in waiting}
        # In reverse: what was deleted last comes back first, parents before children.
        found = [
            (self._waiting.pop(kept.number), kept.stored)
            for kept in reversed(file)
            if kept.number in self._waiting
        ]
        if found:
            self._restore_file(found, settled)

    def find_out(self, actions: Sequence[RecordedAction], why: str) -> list[Settled]:
        return what_was_restored(self._target, actions, self._trash, why)

    def _restore_file(
        self,
        found: Sequence[tuple[RecordedAction, StoredSession]],
        settled: list[Settled],
    ) -> None:
        with self._target.writing() as writer:
            writer.connection.pragma("cache_size", -CACHE_KIBIBYTES)
            layout = probe_session_tables(writer.connection)
            waiting = list(found)
            while waiting and not self._target.stopping():
                some = self._restore_some(writer, layout, waiting)
                settled += some
                self._coming.difference_update(
                    action.action.target for action, _ in waiting[: len(some)]
                )
                waiting = waiting[len(some) :]
            ahead = [stored for _, stored in waiting if stored.id in self._begun]
            self._remove_orphans_of(writer, layout.index, ahead)

    def _restore_some(
        self,
        writer: Writer,
        layout: SessionTables,
        waiting: Sequence[tuple[RecordedAction, StoredSession]],
    ) -> list[Settled]:
        """Restore the first of these in one transaction; return their results."""
        coming = self._coming
        if needs_merge(writer.connection, layout, waiting[0][1]):
            if waiting[0][1].id in self._indexed:  # Hermes has written to it since
                self._remove_orphans_of(writer, layout.index, [waiting[0][1]])
            return [self._merge(writer, layout, *waiting[0], coming)]
        size = self._rows_size if layout.index.known else self._pacer.size
        work = [self._weight(stored) for _, stored in waiting[:_SESSIONS_MAX]]
        action, stored = waiting[0]
        alone = self._attempts[action.number] >= ALONE_AFTER
        batch = waiting[: 1 if alone else size.fitting(work)]
        fresh = [not needs_merge(writer.connection, layout, stored) for _, stored in batch]
        batch = batch[: fresh.index(False) if False in fresh else None]
        try:
            if layout.index.known:
                return self._restore_indexed(writer, layout, batch, coming)
            return self._restore(writer, layout, batch, coming, size)
        except apsw.InterruptError:
            # Perhaps Hermes rebuilt the index, and `_restored` had to add all messages.
            self._indexed -= {each.id for _, each in batch}
            self._attempts[action.number] += 1
            self._target.sleep(self._attempts[action.number] * self._target.pause_seconds)
            if len(batch) > 1 or self._attempts[action.number] < ATTEMPTS:
                return []
            count = len(stored.messages.rows)
            why = f"its {count} messages cannot be put back in one short transaction"
            self._remove_orphans_of(writer, layout.index, [stored])
            return skip([action], why)

    def _merge(
        self,
        writer: Writer,
        layout: SessionTables,
        action: RecordedAction,
        stored: StoredSession,
        coming: set[str],
    ) -> Settled:
        try:
            note = self._merging.merge(writer, layout, stored, coming)
        except RestoreError as reason:
            return Settled(action.number, ActionState.SKIPPED, str(reason))
        return Settled(action.number, ActionState.DONE, note)

    def _weight(self, stored: StoredSession) -> int:
        """Return how much work the text index is; computed once."""
        if stored.id not in self._weights:
            self._weights[stored.id] = sum(weights(stored.messages).values())
        return self._weights[stored.id]

    def _restore_indexed(
        self,
        writer: Writer,
        layout: SessionTables,
        batch: Sequence[tuple[RecordedAction, StoredSession]],
        coming: set[str],
    ) -> list[Settled]:
        new = [
            stored
            for _, stored in batch
            if stored.id not in self._indexed and not needs_merge(writer.connection, layout, stored)
        ]
        self._begun |= {stored.id for stored in new}
        self._reserve_ids(writer, [number for stored in new for number in stored.message_ids()])
        reindex(self._pacer, writer, layout.index, new)
        self._indexed |= {stored.id for stored in new}
        # The text index already has the messages, so the triggers must not add them again.
        with without_triggers(writer):
            settled = self._restore(writer, layout, batch, coming, self._rows_size)
        done = {each.number for each in settled if each.state is ActionState.DONE}
        dealt = batch[: len(settled) or 1]
        left = [stored for action, stored in dealt if action.number not in done]
        self._remove_orphans_of(writer, layout.index, left)
        return settled

    def _reserve_ids(self, writer: Writer, message_ids: Sequence[int]) -> None:
        highest = max(message_ids, default=0)
        if highest and not ids_are_reserved(writer.connection, highest):
            with self._pacer.transaction(writer, 0):
                reserve_ids(writer.connection, highest)

    def _restore(
        self,
        writer: Writer,
        layout: SessionTables,
        batch: Sequence[tuple[RecordedAction, StoredSession]],
        coming: set[str],
        size: BatchSize,
    ) -> list[Settled]:
        settled: list[Settled] = []
        planned = sum(1 + self._weight(stored) for _, stored in batch)
        with self._pacer.transaction(writer, planned, size) as transaction:
            for action, stored in batch:
                if settled and transaction.is_due:
                    break
                if needs_merge(writer.connection, layout, stored):
                    break  # Hermes has gone on with it since
                settled.append(_restored(writer, layout, action, stored, coming))
                transaction.done += 1 + self._weight(stored)
        return settled

    def _remove_orphans_of(
        self, writer: Writer, index: SearchIndex, sessions: Sequence[StoredSession]
    ) -> None:
        """Remove what the text index has of these messages, possibly only a part."""
        for stored in sessions:
            self._indexed.discard(stored.id)
            remove_orphans(self._pacer, writer, index, stored, stored.message_ids())


def _restored(
    writer: Writer,
    layout: SessionTables,
    action: RecordedAction,
    stored: StoredSession,
    coming: set[str],
) -> Settled:
    try:
        # The row of an emptied session is still there.
        again = refill_session if exists(writer.connection, stored.id) else restore_session
        note = again(writer.connection, layout, stored, coming)
    except RestoreError as reason:
        return Settled(action.number, ActionState.SKIPPED, str(reason))
    if layout.index.known:
        # Hermes may have rebuilt the index since they were added.
        lost = not_in_index(writer.connection, layout.index, stored.id)
        add_to_index(
            writer.connection, layout.index, stored.messages, lost, stored.indexed_up_to_nul
        )
    return Settled(action.number, ActionState.DONE, note)


def _number_taken(action: RecordedAction) -> int:
    """Return the number of the action that this one reverses."""
    reversal = action.reverses
    if reversal is None:
        raise ValueError("an action that restores names the one that it takes back")
    return reversal.number


def remove_orphans(
    pacer: Pacer,
    writer: Writer,
    index: SearchIndex,
    stored: StoredSession,
    message_ids: Sequence[int],
) -> None:
    """Remove messages from the text index that have no rows."""

    def take(message_id: int) -> None:
        remove_orphan_entries(writer.connection, index, [message_id], stored.indexed_up_to_nul)

    change_index(
        pacer, writer, index, weights(stored.messages), message_ids, lambda: nullcontext(take)
    )


# Undos that were killed, and transactions that may or may not have been committed


def what_was_restored(
    target: Target, actions: Sequence[RecordedAction], trash: RunTrash | None, otherwise: str
) -> list[Settled]:
    """Return which of these sessions are restored; remove index entries that have no row.

    One that is there only in part, or that Hermes has begun anew, is not: it is merged the next
    time. Raise DatabaseError if the database cannot be read or written now.
    """
    if not actions:
        return []
    targets = {each.action.target for each in actions}
    suspects = _in_trash(trash, targets)

    def look(connection: apsw.Connection) -> set[str]:
        layout = probe_session_tables(connection)
        return {
            session_id
            for session_id in targets
            if (
                is_restored(connection, layout, suspects[session_id])
                if session_id in suspects
                else exists(connection, session_id)
            )
        }

    there = read_with_retry(target, look)
    # Also for those that exist: Hermes may have started one again.
    _clear_index(target, list(suspects.values()))
    return [
        Settled(each.number, ActionState.DONE)
        if each.action.target in there
        else Settled(each.number, ActionState.SKIPPED, otherwise)
        for each in actions
    ]


def _in_trash(trash: RunTrash | None, targets: set[str]) -> dict[str, StoredSession]:
    """Return those that the trash has; of several copies the newest."""
    if trash is None:
        return {}
    found: dict[str, StoredSession] = {}
    for file in read_sessions(trash):
        for kept in file:
            if kept.stored.id in targets:
                found.setdefault(kept.stored.id, kept.stored)
    return found


def _clear_index(target: Target, suspects: Sequence[StoredSession]) -> None:
    if not suspects:
        return

    def strays(connection: apsw.Connection) -> list[list[int]]:
        index = probe_search_index(connection, probe_schema(connection))
        return [find_orphan_entries(connection, index, stored.message_ids()) for stored in suspects]

    found = read_with_retry(target, strays)
    if any(found):
        with target.writing() as writer:
            index, pacer = probe_session_tables(writer.connection).index, Pacer(target)
            for stored, message_ids in zip(suspects, found, strict=True):
                remove_orphans(pacer, writer, index, stored, message_ids)
