"""Changing and merging the text index of messages in short transactions."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

import apsw

from exporter.writing.batch_size import BatchSize
from exporter.writing.connection import LOCK_LIMIT_SECONDS, Transaction, Writer
from exporter.writing.pacing import ATTEMPTS, Pacer
from exporter.writing.search_index import SearchIndex, adding_to_index, merge_pages, weights
from exporter.writing.stored_session import StoredSession, probe_session_tables

_MESSAGES_MAX: Final = 5_000
"""So many messages at most are changed in one transaction."""
_MERGE_AHEAD_SECONDS: Final = 5.0


def reindex(
    pacer: Pacer,
    writer: Writer,
    index: SearchIndex,
    sessions: Sequence[StoredSession],
    message_ids: Container[int] | None = None,
) -> None:
    """Put messages of sessions, all or these, into the text index.

    In the order of their ids: FTS5 begins a new segment each time an id is lower than the last, and
    merging those takes longer than all the rest.
    """
    whose = {number: stored for stored in sessions for number in stored.message_ids()}
    work = {k: v for stored in sessions for k, v in weights(stored.messages).items()}
    todo = sorted(each for each in whose if message_ids is None or each in message_ids)

    @contextmanager
    def adding() -> Iterator[Callable[[int], None]]:
        with adding_to_index(writer.connection, index) as adder:

            def add(message_id: int) -> None:
                stored = whose[message_id]
                adder.add(stored.messages, message_id, stored.indexed_up_to_nul)

            yield add

    change_index(pacer, writer, index, work, todo, adding)


def change_index(
    pacer: Pacer,
    writer: Writer,
    index: SearchIndex,
    work: Mapping[int, int],
    message_ids: Sequence[int],
    changing: Callable[[], AbstractContextManager[Callable[[int], None]]],
) -> None:
    """Make a change to each of these messages in the text index; `work` says how much each is.

    `changing` is entered in each transaction, and gives what changes one message.
    """

    def step(part: Sequence[int]) -> int:
        with pacer.transaction(writer, sum(work[number] for number in part)) as transaction:
            with changing() as change:
                done = until_due(transaction, part, change)
            transaction.done = sum(work[number] for number in part[:done])
        return done

    in_slices(pacer, writer, index, work, message_ids, step)


def in_slices(
    pacer: Pacer,
    writer: Writer,
    index: SearchIndex,
    work: Mapping[int, int],
    message_ids: Sequence[int],
    step: Callable[[Sequence[int]], int],
    *,
    in_a_row: bool = True,
) -> None:
    """Give `step` as many messages at a time as fit into one transaction.

    `step` returns how many of them it has processed. Raise apsw.InterruptError if `ATTEMPTS`
    transactions last too long, in a row or in all, although they get smaller.
    """
    todo, attempts = list(message_ids), 0
    while todo:
        part = todo[: pacer.size.fitting([work[number] for number in todo[:_MESSAGES_MAX]])]
        try:
            todo = todo[step(part) :]
            attempts = 0 if in_a_row else attempts
        except apsw.InterruptError:
            attempts += 1
            if attempts == ATTEMPTS:
                raise
            back_off(pacer, writer, index, attempts)


def back_off(pacer: Pacer, writer: Writer, index: SearchIndex, attempts: int) -> None:
    """After a transaction that lasted too long: pause, and make the next one shorter.

    FTS5 merges a megabyte at a time as part of whatever is written next. If that made the
    transaction too long, it would do so again. So the merge is made here, in small steps.
    """
    pacer.target.sleep(attempts * pacer.target.pause_seconds)
    _merge(pacer, writer, index.tables, _MERGE_AHEAD_SECONDS)


def until_due(
    transaction: Transaction, message_ids: Sequence[int], change: Callable[[int], None]
) -> int:
    """Change one after the other while there is time, at least the first; return how many."""
    for done, message_id in enumerate(message_ids):
        if done and transaction.is_due:
            return done
        change(message_id)
    return len(message_ids)


def merge_index(pacer: Pacer, seconds: float) -> None:
    """Merge the text index in small steps, for at most `seconds`.

    Deleting leaves tombstones, and only merging frees their pages. The next run merges the rest.
    """
    with pacer.target.writing() as writer:
        _merge(
            pacer, writer, probe_session_tables(writer.connection).index.tables, seconds, whole=True
        )


def _merge(
    pacer: Pacer, writer: Writer, tables: Sequence[str], seconds: float, *, whole: bool = False
) -> None:
    """`whole`: begin to merge everything into one segment; else only what FTS5 would merge next."""
    target = pacer.target
    size = BatchSize(  # in pages
        target.lock_budget_seconds,
        first_seconds=0.0015,
        share=0.5,
        least=1,
        most=1_000,
        remembered=1,
    )
    give_up_at = target.monotonic() + seconds
    for table in tables:
        sign = -1 if whole else 1  # FTS5: a negative number begins the merge of everything
        while target.monotonic() < give_up_at:
            pages = size.size
            pacer.wait_turn()
            try:
                with writer.transaction():
                    went_on = merge_pages(writer.connection, table, sign * pages)
            except apsw.InterruptError:
                if size.is_least:
                    break
                size.record_too_long(pages, LOCK_LIMIT_SECONDS)
                went_on = True
            else:
                size.record(pages, writer.held_seconds)
                pacer.longest_hold_seconds = max(pacer.longest_hold_seconds, writer.held_seconds)
                pacer.give_turn(writer)
            sign = 1
            if not went_on:
                break
