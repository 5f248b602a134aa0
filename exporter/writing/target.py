"""One home to act on: where it is, whose, who else is there, and how gently to go about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Final

import apsw

from exporter.evidence.openers import Bystanders
from exporter.hermes import database
from exporter.writing.connection import (
    LOCK_BUDGET_SECONDS,
    PATIENCE_SECONDS,
    Writer,
    look_at_bystanders,
    writing,
)

_READ_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """All that a run needs to know of its home, and of the world."""

    home: str
    owner: int
    bystanders: Bystanders = field(default_factory=Bystanders)
    """Every process that has the database open, by the survey that the verdicts are based on."""
    lock_budget_seconds: float = LOCK_BUDGET_SECONDS
    patience_seconds: float = PATIENCE_SECONDS
    pause_seconds: float = 0.1
    """Between two transactions: Hermes gets its turn."""
    proc: str = "/proc"
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @property
    def database(self) -> str:
        return database.database_path(self.home)

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """A read transaction; raise DatabaseError also if Hermes wrote where we have no locks."""
        look_at_bystanders(self.database, self.bystanders, self.proc)
        opening = database.plan_opening(self.database)
        with database.reading(opening, deadline_seconds=_READ_SECONDS) as connection:
            yield connection

    def writing(self) -> AbstractContextManager[Writer]:
        return writing(
            self.database,
            owner=self.owner,
            bystanders=self.bystanders,
            patience_seconds=self.patience_seconds,
            lock_budget_seconds=self.lock_budget_seconds,
            proc=self.proc,
            monotonic=self.monotonic,
            sleep=self.sleep,
        )
