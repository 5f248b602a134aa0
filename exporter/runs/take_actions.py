"""The one loop that takes the actions of a run on sessions, and settles them in the journal.

Reap, its undo, healing, prune and undo of a prune all go through it. The journal holds every intent
before the first transaction. The work takes some of the actions in short transactions: it reads
before the lock, checks the openers and compares under the lock, and then lets Hermes have its turn.
If it is killed or fails in between, the database itself says what has happened: each action is
taken by comparison, whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from exporter.errors import HomeError
from exporter.runs.journal import RunJournal
from exporter.runs.models import (
    STOPPED,
    ActionState,
    Outcome,
    RecordedAction,
    RunKind,
    RunOutcome,
    Settled,
    Skipped,
    numbered,
    outcome_of,
    skip,
)
from exporter.writing.connection import Transaction
from exporter.writing.file_watch import ReplacedError
from exporter.writing.target import Target

Progress = Callable[[int, int], None]
"""Told how many of how many actions are settled."""


class AbortedError(Exception):
    """Something has changed that concerns every action: none of them may be taken now."""


def refuse_new_openers(transaction: Transaction) -> None:
    """Raise AbortedError if a process has opened the database since the survey."""
    if transaction.new_openers:
        raise AbortedError(f"process {transaction.new_openers[0]} has opened the database since")


class RunRecord:
    """One run under way: its actions, and what the journal knows of each."""

    def __init__(self, journal: RunJournal, progress: Progress | None = None) -> None:
        self.run = ""
        """Its id; empty until the journal has it. From then on something may have been done."""
        self.actions: Sequence[RecordedAction] = ()
        self.settled: dict[int, Settled] = {}
        self.why = ""
        """What stopped it, if anything did."""
        self.called_off = False
        """True if what was left of it was left alone together; `settled` says why."""
        self._interrupted = False
        self._must_be_complete = False
        self._by_hand = False
        self._journal = journal
        self._progress = progress

    def begin(self, kind: RunKind, actions: Sequence[RecordedAction], **noted: Any) -> None:
        """Note the run and all that it is about to do."""
        self.run = self._journal.begin(kind, actions, **noted)
        # A prune takes its plan less what no longer holds; an undo has to give back everything.
        self._must_be_complete = kind is RunKind.UNDO
        self._by_hand = noted.get("by_hand", False)
        self.actions = numbered(self.run, actions)

    def settle(self, settled: Sequence[Settled]) -> None:
        """Record the results of some actions."""
        if settled:
            self._journal.settle(self.run, settled)
            self.settled |= {each.number: each for each in settled}
            if self._progress is not None:
                self._progress(len(self.settled), len(self.actions))

    def reopen(self, actions: Sequence[RecordedAction]) -> None:
        """After another database took the place of the one in which these were done.

        The next recovery finds out what is so in the new one.
        """
        numbers = [each.number for each in actions if self.is_done(each)]
        self._journal.reopen(self.run, numbers)
        for each in numbers:
            del self.settled[each]

    def open(self, actions: Sequence[RecordedAction]) -> list[RecordedAction]:
        """Return the actions that are not settled yet."""
        return [each for each in actions if each.number not in self.settled]

    def interrupt(self, actions: Sequence[RecordedAction]) -> None:
        """Leave the rest of these alone: a person has asked the run to stop."""
        left = self.open(actions)
        self._interrupted = self._interrupted or bool(left)
        self.settle(skip(left, STOPPED))

    def is_done(self, action: RecordedAction) -> bool:
        settled = self.settled.get(action.number)
        return settled is not None and settled.state is ActionState.DONE

    def finish(self) -> Outcome:
        """Note that the run is over; nothing may be left open."""
        outcome = self.outcome()
        self._journal.finish(self.run, outcome.outcome, self.why)
        return outcome

    def outcome(self) -> Outcome:
        """Return the outcome of the run, from the recorded results."""
        done = [each for each in self.actions if self.is_done(each)]
        incomplete = self._must_be_complete and len(done) < len(self.actions)
        failed = any(each.failed for each in self.settled.values())
        # A person is told that it was called off. The agent just tries again, and no alert fires.
        called_off = self.called_off and self._by_hand
        went_wrong = bool(self.why) or incomplete or failed or called_off
        return Outcome(
            run=self.run,
            outcome=RunOutcome.INTERRUPTED
            if self._interrupted and not self.why
            else outcome_of(went_wrong=went_wrong, anything_done=bool(done)),
            done=tuple(each.action.target for each in done),
            skipped=tuple(
                Skipped(each.action.target, self._noted(each) or self.why)
                for each in self.actions
                if not self.is_done(each)
            ),
            why=self.why,
            notes=tuple(
                Skipped(each.action.target, self._noted(each)) for each in done if self._noted(each)
            ),
        )

    def _noted(self, action: RecordedAction) -> str:
        settled = self.settled.get(action.number)
        return settled.why if settled is not None else ""


class Work(Protocol):
    """Takes actions of one kind."""

    patient_rounds: int = 1
    """After this many aborted attempts in a row the work is given up."""

    def take_some(self, waiting: Sequence[RecordedAction], settled: list[Settled]) -> None:
        """Take some of these: enough for one entry in the journal, fewer if the target is stopping.

        Add each result to `settled` at once: it counts even if an error follows. Raise AbortedError
        if none may be taken now, HomeError if the work cannot continue.
        """

    def find_out(self, actions: Sequence[RecordedAction], why: str) -> list[Settled]:
        """Find out after an error which of these actions were done; `why` is for the others.

        Raise DatabaseError if that cannot be found out: then they stay open.
        """

    def can_go_on(self, error: HomeError) -> bool:
        """True if the work has been changed so that it may not meet this error again."""
        del error
        return False


def take_all(
    target: Target, record: RunRecord, actions: Sequence[RecordedAction], work: Work
) -> None:
    """Take these actions of a run, and settle each; `record.why` says what stopped it.

    Raise DatabaseError if it cannot be found out whether the last ones were done: they stay open.
    It is a ReplacedError if another database has taken the place of the one that was written.
    """
    # By number: a run of 50,000 actions in 500 parts must not look at all of them each time.
    open_actions, called_off = {each.number: each for each in actions}, 0
    while open_actions:
        waiting = list(open_actions.values())
        if target.stopping():
            record.interrupt(waiting)
            return
        settled: list[Settled] = []
        stopped: HomeError | None = None
        pause = False
        try:
            work.take_some(waiting, settled)
            called_off = 0
        except AbortedError as reason:
            called_off = 1 if settled else called_off + 1
            pause = called_off < work.patient_rounds
            if not pause:
                known = {each.number for each in settled}
                left = [each for each in waiting if each.number not in known]
                settled += skip(left, str(reason))
                record.called_off = True
        except HomeError as error:
            stopped = error
        record.settle(settled)
        for each in settled:
            open_actions.pop(each.number, None)
        if pause:
            target.sleep(target.pause_seconds)
        if stopped is not None and not work.can_go_on(stopped):
            record.why = str(stopped)
            if isinstance(stopped, ReplacedError):
                raise stopped
            record.settle(work.find_out(list(open_actions.values()), record.why))
            return
