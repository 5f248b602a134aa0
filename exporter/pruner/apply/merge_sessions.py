"""Restoring the past of a session that Hermes has gone on with, in short transactions.

The newest of the old messages come first: at any moment a reader sees the last part of the
conversation without a gap. Hermes may write in between. Then what is missing is planned anew; what
was put in already is recognised, also by another process after this one was killed.
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
"""Each time that Hermes writes to the session the rest is planned anew."""


class _ChangedError(Exception):
    """Hermes has written to the session since it was planned."""


class SessionMerger:
    """Merges the sessions of one run."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer

    def merge(
        self, writer: Writer, layout: SessionTables, parts: StoredSession, coming: Container[str]
    ) -> str:
        """Give a session all that it lacks; return what is different from how it was, or ''.

        Raise Misfit if that cannot be done now; what was done by then stays, and is no harm.
        """
        for _ in range(_PLANS_MAX):
            try:
                return _Merge(self, writer, layout, parts, coming).run()
            except _ChangedError:
                self._pacer.target.sleep(self._pacer.target.pause_seconds)
        raise RestoreError("Hermes writes to it all the time; try again later")

    @contextmanager
    def transaction(self, writer: Writer, layout: SessionTables, weight: int) -> Iterator[None]:
        """One short transaction of so much work; the text index is kept without its triggers."""
        writer.new_openers()  # raises if a process has lost its locks; a new opener does no harm
        quiet = without_triggers(writer) if layout.index.known else nullcontext()
        try:
            with quiet, self._pacer.transaction(writer, weight) as transaction:
                yield
                transaction.done = weight
        except apsw.InterruptError:
            back_off(self._pacer, writer, layout.index, 1)
            raise

    def newest(self, messages: TableRows) -> TableRows:
        """As many of the newest as fit into one transaction, in the order of their ids."""
        work = list(weights(messages).values())
        count = self._pacer.size.fitting(work[::-1])
        return TableRows(messages.columns, messages.rows[len(work) - count :])


class _Merge:
    """The merge of one session, until it is done or Hermes has written to it."""

    def __init__(
        self,
        owner: SessionMerger,
        writer: Writer,
        layout: SessionTables,
        parts: StoredSession,
        coming: Container[str],
    ) -> None:
        self._owner = owner
        self._writer = writer
        self._layout = layout
        self._parts = parts
        self._coming = coming
        self._shape: MessagesStamp = ()
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
            self._shape = messages_stamp(connection, self._layout, self._parts.id)
            return plan_for(connection, self._layout, self._parts, reserved)
        finally:
            connection.execute("COMMIT")

    def _put(self, plan: MergePlan, batch: TableRows, *, with_row: bool) -> None:
        connection, layout, parts = self._writer.connection, self._layout, self._parts
        cut = _renumbered_cut(parts, plan)
        note, shape = "", self._shape
        with self._owner.transaction(self._writer, layout, 1 + sum(weights(batch).values())):
            self._refuse_if_changed()
            if with_row:
                note = merge_row(connection, layout, parts, plan, self._coming)
            put_messages(connection, layout, batch, cut)
            shape = messages_stamp(connection, layout, parts.id)
        self._shape, self._note = shape, note or self._note

    def _refuse_if_changed(self) -> None:
        if messages_stamp(self._writer.connection, self._layout, self._parts.id) != self._shape:
            raise _ChangedError

    def _make_room(self, count: int) -> int:
        """Reserve so many ids and move the present messages to the last of them; the first."""
        connection, layout = self._writer.connection, self._layout
        with self._owner.transaction(self._writer, layout, 1):
            self._refuse_if_changed()
            first = reserve_numbers(connection, count)
        left = read_messages(connection, layout, self._parts.id)
        cut = find_indexed_up_to_nul(connection, layout.index, left)
        last, attempts = first + count, 0
        while left.rows:
            batch = self._owner.newest(left)
            try:
                self._move(batch, last, cut)
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

    def _move(self, batch: TableRows, last: int, cut: IndexedUpToNul) -> None:
        connection, layout = self._writer.connection, self._layout
        shape = self._shape
        with self._owner.transaction(self._writer, layout, 2 * sum(weights(batch).values())):
            self._refuse_if_changed()
            for place, row in enumerate(batch.rows):
                number = last - len(batch.rows) + place
                move_message(connection, layout.index, TableRows(batch.columns, [row]), number, cut)
            shape = messages_stamp(connection, layout, self._parts.id)
        self._shape = shape


def _renumbered_cut(parts: StoredSession, plan: MergePlan) -> IndexedUpToNul:
    """Which of the missing messages the text index held only in part, by the ids they get."""
    new = dict(zip(plan.old_ids, plan.missing.column("id"), strict=True))
    return {table: [new[n] for n in numbers if n in new] for table, numbers in parts.cut.items()}
