"""The home that a run writes to: path, owner, known openers, budgets and clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import apsw

from exporter.errors import DatabaseError
from exporter.evidence.openers import KnownOpeners
from exporter.hermes import database
from exporter.snapshot import Trouble
from exporter.writing.connection import (
    LOCK_BUDGET_SECONDS,
    LOCK_WAIT_SECONDS,
    WalGrowth,
    Writer,
    writing,
)
from exporter.writing.file_watch import During, FileWatch, ReplacedError, reader_of
from exporter.writing.write_checks import check_openers, refuse_unwritable

Answer = TypeVar("Answer")
_READ_SECONDS: Final = 10.0
_READ_ATTEMPTS: Final = 5
_PASSING: Final = (Trouble.BUSY, Trouble.IO_ERROR, Trouble.MOVED_WHILE_READING)
"""Troubles that may be over a moment later."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a run needs to know of its home, and its clocks."""

    home: str
    owner: int
    openers: KnownOpeners = field(default_factory=KnownOpeners)
    """Every process that had the database open in the survey that the plan is based on."""
    lock_budget_seconds: float = LOCK_BUDGET_SECONDS
    lock_wait_seconds: float = LOCK_WAIT_SECONDS
    pause_seconds: float = 0.1
    """Between two transactions, so that Hermes can write."""
    proc: str = "/proc"
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    wal_growth: WalGrowth = field(default_factory=WalGrowth, compare=False, repr=False)
    """What the run that this target is for has added to the WAL."""
    watch: FileWatch = field(default_factory=FileWatch, compare=False, repr=False)
    """Whether another database has taken the place of the one that the run has opened."""
    stopping: Callable[[], bool] = lambda: False
    """True once a person has asked the run to stop: it ends at its next safe point."""

    def unstoppable(self) -> Target:
        """The same for work that must come to its end, such as the healing of earlier runs."""
        return replace(self, stopping=lambda: False)

    @property
    def database(self) -> str:
        return database.database_path(self.home)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A read transaction.

        Raise DatabaseError if it cannot be read, also at the end: Hermes may have written meanwhile
        where our locks do not count.
        """
        # Reading destroys no database, and whether this one is in WAL mode is not known yet.
        check_openers(self.database, self.openers, self.proc, wal_mode=None)
        self.refuse_replaced()
        opening = database.plan_open(self.database)
        with database.reading(opening, deadline_seconds=_READ_SECONDS) as connection:
            yield connection

    def refuse_unwritable(self) -> None:
        """Raise DatabaseError if the database must not or cannot be written; opens nothing."""
        refuse_unwritable(self.database, self.owner)
        check_openers(self.database, self.openers, self.proc)

    def refuse_replaced(self) -> None:
        """Raise ReplacedError if it is not the database any more that the run has written."""
        path = self.database
        if self.watch.has_noted:
            self.watch.refuse_replaced(path, reader_of(path), lambda: None, During.NO_CONNECTION)

    def writing(self) -> AbstractContextManager[Writer]:
        """A connection that may write; raise DatabaseError if it must not or cannot."""
        return writing(
            self.database,
            owner=self.owner,
            openers=self.openers,
            lock_wait_seconds=self.lock_wait_seconds,
            lock_budget_seconds=self.lock_budget_seconds,
            proc=self.proc,
            monotonic=self.monotonic,
            sleep=self.sleep,
            growth=self.wal_growth,
            watch=self.watch,
        )


def read_with_retry(target: Target, ask: Callable[[apsw.Connection], Answer]) -> Answer:
    """Read something, again after a pause if that may help; raise DatabaseError if it never did."""
    for _ in range(_READ_ATTEMPTS - 1):
        try:
            return _read(target, ask)
        except DatabaseError as error:
            if error.trouble not in _PASSING or isinstance(error, ReplacedError):
                raise
        target.sleep(target.pause_seconds)
    return _read(target, ask)


def _read(target: Target, ask: Callable[[apsw.Connection], Answer]) -> Answer:
    with target.reading() as connection:
        answer = ask(connection)
    return answer  # noqa: RET504 - the end of the reading may raise: then the answer is not valid
