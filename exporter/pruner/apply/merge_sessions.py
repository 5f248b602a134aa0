"""Restore the old messages of a session that Hermes has continued, in short transactions.

The newest messages are restored first, so a reader always sees the end of the conversation without
a gap. If Hermes writes to the session meanwhile, a new plan is made for the rest. A plan leaves out
messages that are back already, so a merge that was killed can be repeated.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

import apsw

from exporter.hermes.merge_plan import MergePlan
from exporter.hermes.table_rows import TableRows
from exporter.writing.connection import Writer, without_triggers
from exporter.writing.index_upkeep import back_off
from exporter.writing.pacing import ATTEMPTS, Pacer
from exporter.writing.search_index import IndexedUpToNul, find_indexed_up_to_nul, weights
from exporter.writing.session_merge import (
    MessagesStamp,
    merge_row,
    messages_stamp,
    move_message,
    plan_for,
    put_messages,
    read_messages,
    reserve_numbers,
)
from exporter.writing.stored_session import RestoreError, SessionTables, StoredSession

_PLANS_MAX: Final = 200
"""Limit on plans for one session. A new one is needed each time Hermes writes to the session."""


class _ChangedError(Exception):
    """Hermes has written to the session since it was planned."""


class SessionMerger:
    """Merges the sessions of one run."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer

    def merge(
        self, writer: Writer, layout: SessionTables, stored: StoredSession, coming: Container[str]
    ) -> str:
        """Restore the missing messages; return a note on what differs from before, or ''.

        `coming` are other sessions that are restored too. Raise RestoreError if it cannot be done
        now; messages that are back by then stay, which does no harm.
        """
        for _ in range(_PLANS_MAX):
            try:
                return _Merge(self, writer, layout, stored, coming).run()
            except _ChangedError:
                self._pacer.target.sleep(self._pacer.target.pause_seconds)
        raise RestoreError("Hermes writes to it all the time; try again later")

    @contextmanager
    def transaction(self, writer: Writer, layout: SessionTables, weight: int) -> Iterator[None]:
        """Run one short transaction without triggers: the caller updates the text index itself."""
        quiet = without_triggers(writer) if layout.index.known else nullcontext()
        try:
            with quiet, self._pacer.transaction(writer, weight) as transaction:
                yield
                transaction.done = weight
        except apsw.InterruptError:
            back_off(self._pacer, writer, layout.index, 1)
            raise

    def newest(self, messages: TableRows) -> TableRows:
        """Return as many of the newest messages as fit into one transaction, ordered by id."""
        work = list(weights(messages).values())
        count = self._pacer.size.fitting(work[::-1])
        return TableRows(messages.columns, messages.rows[len(work) - count :])


class _Merge:
    """One attempt to merge a session; it ends if Hermes writes to the session."""

    def __init__(
        self,
        owner: SessionMerger,
        writer: Writer,
        layout: SessionTables,
        stored: StoredSession,
        coming: Container[str],
    ) -> None:
        self._owner = owner
        self._writer = writer
        self._layout = layout
        self._parts = stored
        self._coming = coming
        self._stamp: MessagesStamp = ()
        self._note = ""

    def run(self) -> str:
        plan = self._plan()
        if plan.needs_numbers:
            plan = self._plan(self._make_room(plan.needs_numbers))
            if plan.needs_numbers:
                raise _ChangedError
        left, attempts, is_first = plan.missing, 0, True
        while left.rows or is_first:
            batch = self._owner.newest(left)
            try:
                self._put(plan, batch, with_row=is_first)
            except apsw.InterruptError as error:
                attempts += 1
                if attempts == ATTEMPTS:
                    raise RestoreError(
                        "its messages cannot be put back in short transactions"
                    ) from error
                continue
            left = TableRows(left.columns, left.rows[: len(left.rows) - len(batch.rows)])
            is_first, attempts = False, 0
        if plan.unplaced:
            count = f"{plan.unplaced} messages that Hermes has compacted stay in the trash: "
            self._note = f"{count}this release has no place for them"
        return self._note

    def _plan(self, reserved: int = 0) -> MergePlan:
        connection = self._writer.connection
        connection.execute("BEGIN")
        try:
            self._stamp = messages_stamp(connection, self._layout, self._parts.id)
            return plan_for(connection, self._layout, self._parts, reserved)
        finally:
            connection.execute("COMMIT")

    def _put(self, plan: MergePlan, batch: TableRows, *, with_row: bool) -> None:
        connection, layout, stored = self._writer.connection, self._layout, self._parts
        up_to_nul = _renumbered(stored, plan)
        note, stamp = "", self._stamp
        with self._owner.transaction(self._writer, layout, 1 + sum(weights(batch).values())):
            self._refuse_if_changed()
            if with_row:
                note = merge_row(connection, layout, stored, plan, self._coming)
            put_messages(connection, layout, batch, up_to_nul)
            stamp = messages_stamp(connection, layout, stored.id)
        self._stamp, self._note = stamp, note or self._note

    def _refuse_if_changed(self) -> None:
        if messages_stamp(self._writer.connection, self._layout, self._parts.id) != self._stamp:
            raise _ChangedError

    def _make_room(self, count: int) -> int:
        """Reserve `count` ids; move the present messages to the last of them; return the first."""
        connection, layout = self._writer.connection, self._layout
        with self._owner.transaction(self._writer, layout, 1):
            self._refuse_if_changed()
            first = reserve_numbers(connection, count)
        left = read_messages(connection, layout, self._parts.id)
        up_to_nul = find_indexed_up_to_nul(connection, layout.index, left)
        last, attempts = first + count, 0
        while left.rows:
            batch = self._owner.newest(left)
            try:
                self._move(batch, last, up_to_nul)
            except apsw.InterruptError as error:
                attempts += 1
                if attempts == ATTEMPTS:
                    raise RestoreError(
                        "its messages cannot be moved in short transactions"
                    ) from error
                continue
            last -= len(batch.rows)
            left = TableRows(left.columns, left.rows[: len(left.rows) - len(batch.rows)])
            attempts = 0
        return first

    def _move(self, batch: TableRows, last: int, up_to_nul: IndexedUpToNul) -> None:
        connection, layout = self._writer.connection, self._layout
        stamp = self._stamp
        with self._owner.transaction(self._writer, layout, 2 * sum(weights(batch).values())):
            self._refuse_if_changed()
            for place, row in enumerate(batch.rows):
                number = last - len(batch.rows) + place
                move_message(
                    connection, layout.index, TableRows(batch.columns, [row]), number, up_to_nul
                )
            stamp = messages_stamp(connection, layout, self._parts.id)
        self._stamp = stamp


def _renumbered(stored: StoredSession, plan: MergePlan) -> IndexedUpToNul:
    """Return which of the missing messages the text index held only in part, by their new ids."""
    new = dict(zip(plan.old_ids, plan.missing.column("id"), strict=True))
    return {
        table: [new[n] for n in numbers if n in new]
        for table, numbers in stored.indexed_up_to_nul.items()
    }
