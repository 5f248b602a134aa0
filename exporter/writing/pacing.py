"""Short write transactions, each followed by a pause, so that Hermes hardly notices a long run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from exporter.writing.batch_size import BatchSize
from exporter.writing.connection import LOCK_LIMIT_SECONDS, Transaction, Writer
from exporter.writing.target import Target

ATTEMPTS: Final = 6
"""A transaction that lasted too long may only have met with a busy machine."""
ALONE_AFTER: Final = 3
"""After so many, a session has a transaction of its own. Otherwise none would ever be given up."""
_PAUSE: Final = 1.0
"""Seconds left to other writers for each second that the write lock was held."""
_LEAST_PAUSE_SECONDS: Final = 0.005


class Pacer:
    """Paces the transactions of one run."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.size = BatchSize(target.lock_budget_seconds)
        """How many messages, by their weights, fit into one transaction."""
        self.longest_hold_seconds = 0.0

    @contextmanager
    def transaction(
        self, writer: Writer, planned: int, size: BatchSize | None = None
    ) -> Iterator[Transaction]:
        """One transaction; afterwards its size is learnt from, and other writers get a turn.

        `planned` is how much it is about to do; 0: nothing is learnt from it. Raise
        apsw.InterruptError if it lasted too long and was rolled back.
        """
        size = size or self.size
        try:
            with writer.transaction() as transaction:
                yield transaction
                seconds = transaction.work_seconds
        except apsw.InterruptError:
            if planned:
                size.record_too_long(planned, LOCK_LIMIT_SECONDS)
            raise
        finally:
            self.longest_hold_seconds = max(self.longest_hold_seconds, writer.held_seconds)
        size.record(transaction.done, seconds)
        pause_for_writers(self.target, writer.held_seconds)


def pause_for_writers(target: Target, held_seconds: float) -> None:
    """Let other writers have their turn; without any known opener there is no pause."""
    if target.openers.pids:
        target.sleep(min(max(_PAUSE * held_seconds, _LEAST_PAUSE_SECONDS), target.pause_seconds))
