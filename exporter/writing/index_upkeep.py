"""What runs do between their transactions, so that Hermes hardly notices them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import apsw

from exporter.errors import DatabaseError
from exporter.hermes import database
from exporter.snapshot import Trouble
from exporter.writing.batch_size import Pace
from exporter.writing.connection import LOCK_LIMIT_SECONDS, Transaction, Writer
from exporter.writing.search_index import SearchIndex, merge_a_little, put_in_again, weights
from exporter.writing.session_rows import SessionParts, probe_layout
from exporter.writing.target import Target

Answer = TypeVar("Answer")
ATTEMPTS: Final = 6
"""A transaction that lasted too long may only have met with a busy machine."""
ALONE_AFTER: Final = 3
"""From then on a session is dealt with alone, however small it is: else none would be given up."""
_READ_ATTEMPTS: Final = 5
_PASSING: Final = (Trouble.BUSY, Trouble.IO_ERROR, Trouble.MOVED_WHILE_READING)
_REST: Final = 1.0
"""For each second that the write lock was held, so many are left to others."""
_LEAST_REST_SECONDS: Final = 0.005
_LOOKED_AT: Final = 5_000
"""So many messages at most are changed in one transaction."""
_WAL_BYTES: Final = 16 << 20
_FIRST_PAGES: Final = 16
_MOST_PAGES: Final = 1_000
_MERGE_AHEAD_SECONDS: Final = 5.0


def rest(target: Target, held_seconds: float) -> None:
    """Give others their turn; where there is nobody there is nothing to wait for."""
    if target.openers.pids:
        target.sleep(min(max(_REST * held_seconds, _LEAST_REST_SECONDS), target.pause_seconds))


def checkpoint(target: Target, writer: Writer) -> None:
    """Keep the WAL from growing with what a long run writes; waits for nobody."""
    wal = database.file_state(target.database + "-wal")
    if wal is not None and wal.size_bytes > _WAL_BYTES:
        try:
            writer.new_openers()
            writer.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            pass  # Hermes is about it itself


def index_again(
    target: Target,
    writer: Writer,
    pace: Pace,
    index: SearchIndex,
    sessions: Sequence[SessionParts],
    message_ids: Container[int] | None = None,
) -> float:
    """Put messages of sessions, all or these, into the text index, in short transactions.

    In the order of their ids: FTS5 begins a new segment each time one is lower than the last, and
    merging those takes longer than all the rest. Return the longest hold.
    """
    whose = {number: parts for parts in sessions for number in parts.message_ids()}
    work = {k: v for parts in sessions for k, v in weights(parts.messages).items()}
    todo = sorted(each for each in whose if message_ids is None or each in message_ids)

    def put_in(connection: apsw.Connection, message_id: int) -> None:
        parts = whose[message_id]
        put_in_again(connection, index, parts.messages, [message_id], parts.cut)

    return in_slices(target, writer, pace, index, work, todo, put_in)


def in_slices(
    target: Target,
    writer: Writer,
    pace: Pace,
    index: SearchIndex,
    work: Mapping[int, int],
    message_ids: Sequence[int],
    change: Callable[[apsw.Connection, int], None],
) -> float:
    """Make a change to messages, as many at a time as the budget allows; return the longest hold.

    `work` says how much each is.
    """
    longest = 0.0
    todo, attempts = list(message_ids), 0
    while todo:
        part = todo[: pace.fitting([work[number] for number in todo[:_LOOKED_AT]])]
        writer.new_openers()
        try:
            with writer.transaction() as transaction:
                done = until_due(transaction, part, partial(change, writer.connection))
                seconds = transaction.seconds
        except apsw.InterruptError:
            attempts += 1
            if attempts == ATTEMPTS:
                raise
            target.sleep(attempts * target.pause_seconds)
            pace.was_too_long(sum(work[number] for number in part), LOCK_LIMIT_SECONDS)
            longest = max(longest, writer.held_seconds, merge_what_is_due(target, writer, index))
            continue
        attempts = 0
        longest = max(longest, writer.held_seconds)
        pace.took(sum(work[number] for number in todo[:done]), seconds)
        todo = todo[done:]
        rest(target, writer.held_seconds)
    return longest


def until_due(
    transaction: Transaction, message_ids: Sequence[int], change: Callable[[int], None]
) -> int:
    """Change one after the other while there is time, the first in any case; return how many."""
    for done, message_id in enumerate(message_ids):
        if done and transaction.is_due:
            return done
        change(message_id)
    return len(message_ids)


def merge_index(target: Target, seconds: float) -> float:
    """Merge the text index in small steps for at most so long; return the longest hold.

    Deleting leaves tombstones, and only merging gives their pages back. What is not merged now
    the next run goes on with.
    """
    with target.writing() as writer:
        tables = probe_layout(writer.connection).index.tables
        # Below zero: begin to merge everything into one.
        return _merge(target, writer, tables, -_FIRST_PAGES, seconds)


def merge_what_is_due(target: Target, writer: Writer, index: SearchIndex) -> float:
    """Merge in small steps what FTS5 would merge in the next transaction; the longest hold.

    It merges a megabyte at a time as part of whatever is being written. Where that has made a
    transaction last too long, it would be no shorter the next time.
    """
    return _merge(target, writer, index.tables, _FIRST_PAGES, _MERGE_AHEAD_SECONDS)


def _merge(
    target: Target, writer: Writer, tables: Sequence[str], first_pages: int, seconds: float
) -> float:
    longest = 0.0
    give_up_at = target.monotonic() + seconds
    for table in tables:
        pages = first_pages
        while target.monotonic() < give_up_at:
            writer.new_openers()
            try:
                with writer.transaction():
                    went_on = merge_a_little(writer.connection, table, pages)
            except apsw.InterruptError:
                if abs(pages) == 1:
                    break
                pages = max(1, abs(pages) // 4)
                continue
            longest = max(longest, writer.held_seconds)
            pages = _next_pages(abs(pages), writer.held_seconds, target.lock_budget_seconds)
            rest(target, writer.held_seconds)
            if not went_on:
                break
        checkpoint(target, writer)
    return longest


def _next_pages(pages: int, held_seconds: float, budget_seconds: float) -> int:
    fitting = int(budget_seconds / 2 * pages / max(held_seconds, 1e-6))
    return max(1, min(fitting, 2 * pages, _MOST_PAGES))


def read_patiently(target: Target, ask: Callable[[apsw.Connection], Answer]) -> Answer:
    """Read something, again if it was the wrong moment; raise DatabaseError if none is right."""
    for _ in range(_READ_ATTEMPTS - 1):
        try:
            return _read(target, ask)
        except DatabaseError as error:
            if error.trouble not in _PASSING:
                raise
        target.sleep(target.pause_seconds)
    return _read(target, ask)


def _read(target: Target, ask: Callable[[apsw.Connection], Answer]) -> Answer:
    with target.reading() as connection:
        answer = ask(connection)
    return answer  # noqa: RET504 - when the reading ends, it may turn out to be worth nothing
