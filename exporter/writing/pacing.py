"""Short write transactions with pauses in between, so that Hermes hardly notices a long run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from exporter.writing.batch_size import BatchSize
from exporter.writing.connection import LOCK_LIMIT_SECONDS, Transaction, Writer
from exporter.writing.target import Target

ATTEMPTS: Final = 6
"""Attempts at a transaction that lasts too long: the machine may just be busy."""
ALONE_AFTER: Final = 3
"""After this many attempts a session gets its own transaction, to see if it alone is too long."""
_PAUSE_RATIO: Final = 1.0
"""Seconds left to other writers for each second that the write lock was held."""
_LEAST_PAUSE_SECONDS: Final = 0.005


class Pacer:
    """Paces the transactions of one run."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.size = BatchSize(target.lock_budget_seconds)
        """How many messages, by their weights, fit into one transaction."""
        self.longest_hold_seconds = 0.0
        self._next_at = float("-inf")
        """When the next transaction may begin."""

    @contextmanager
    def transaction(
        self, writer: Writer, planned: int, size: BatchSize | None = None
    ) -> Iterator[Transaction]:
        """Run one transaction after other writers had their turn; its time sets the next size.

        `planned` is how much it is about to do, in the units of `size`. With 0 a transaction that
        lasted too long does not change the size. Raise apsw.InterruptError if it lasted too long
        and was rolled back.
        """
        size = size or self.size
        self.wait_turn()
        try:
            with writer.transaction() as transaction:
                yield transaction
                writer.flush_index()
                seconds = transaction.work_seconds
        except apsw.InterruptError:
            if planned:
                size.record_too_long(planned, LOCK_LIMIT_SECONDS)
            raise
        finally:
            self.longest_hold_seconds = max(self.longest_hold_seconds, writer.held_seconds)
        size.record(transaction.done, seconds)
        self.give_turn(writer)

    def give_turn(self, writer: Writer) -> None:
        """After a transaction: other writers get as long as it held the lock, from its release on.

        They get `Target.pause_seconds` at most. Time in which the next one is prepared (read,
        compressed, checked) counts as pause.
        """
        pause = max(_PAUSE_RATIO * writer.held_seconds, _LEAST_PAUSE_SECONDS)
        self._next_at = writer.released_at + min(pause, self.target.pause_seconds)

    def wait_turn(self) -> None:
        """Wait for the rest of the pause; there is none if no process has the database open."""
        left = self._next_at - self.target.monotonic()
        if self.target.openers.pids and left > 0:
            self.target.sleep(left)
