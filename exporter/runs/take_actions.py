"""Taking the actions of a run in short transactions, each settled in the journal.

The journal knows every intent before the first transaction. A transaction is as long as the budget
of its home allows, and then Hermes gets its turn. Whatever is killed or goes wrong in between, the
database itself says what has happened: each action is taken by comparison, whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from msgspec import structs

from exporter.errors import DatabaseError
from exporter.hermes import database
from exporter.hermes.schema import Schema, probe_schema, schema_cookie
from exporter.runs import recovery
from exporter.runs.journal import Runs
from exporter.runs.models import (
    ENDS,
    REOPEN_SESSION,
    Action,
    ActionState,
    Intent,
    Outcome,
    Run,
    RunOutcome,
    Settlement,
    Skipped,
    intended,
    outcome_of,
)
from exporter.runs.recovery import Recovered
from exporter.snapshot import Trouble
from exporter.writing.connection import WriteError, Writer, WriteTrouble
from exporter.writing.session_end import End, ends_of
from exporter.writing.target import Target

_FIRST_BATCH: Final = 32
_LARGEST_BATCH: Final = 1_000
_GROWTH: Final = 8
_SHARE: Final = 0.25
"""Of the budget: a busy machine lets others go on while we hold the lock, and that takes the rest.
"""
_SETTLED_AT_ONCE: Final = 5_000
_READ_ATTEMPTS: Final = 5
_PASSING: Final = (Trouble.BUSY, Trouble.IO_ERROR, Trouble.MOVED_WHILE_READING)
_SKIPPED: Final = ActionState.SKIPPED


class CalledOffError(Exception):
    """Something has changed that concerns every action: none of this batch may be taken."""


class Change(Protocol):
    """What is done to the rows."""

    def prepare(self, writer: Writer, schema: Schema, batch: Sequence[Action]) -> None:
        """Read what takes long, before the write lock is held."""
        del writer, schema, batch

    def check(self, writer: Writer) -> None:
        """Under the write lock, once: raise CalledOffError if nothing may be done."""

    def take(self, writer: Writer, action: Action) -> str:
        """Under the write lock: take one action, or return why it was not taken."""

    def confirm(self, writer: Writer, taken: Sequence[Action]) -> dict[int, str]:
        """After the commit: take actions back that should not stand, and say why, by number."""
        del writer, taken
        return {}


def take_all(
    target: Target,
    runs: Runs,
    run: str,
    intents: Sequence[Intent],
    change: Change,
    *,
    patient_rounds: int = 3,
) -> Outcome:
    """Do what a run that has begun with these intents is for, and finish it.

    A batch that is called off is tried again that many times before the rest is given up.
    """
    waiting = intended(run, intents)
    batches, called_off, why = _Batches(), 0, ""
    while waiting:
        settled: list[Settlement] = []
        try:
            _take_several(target, change, waiting, batches, settled)
            called_off = 0
        except CalledOffError as reason:
            waiting = _settle(runs, run, waiting, settled)
            called_off = 1 if settled else called_off + 1
            if called_off < patient_rounds:
                target.sleep(target.pause_seconds)
                continue
            runs.settle(run, [Settlement(each.number, _SKIPPED, str(reason)) for each in waiting])
            break
        except DatabaseError as error:
            waiting = _settle(runs, run, waiting, settled)
            if _was_too_long(error) and batches.size > 1:
                batches.size = 1  # it was taken back whole; the machine may be slow just now
                continue
            why = str(error)
            try:
                runs.settle(run, what_happened(target, waiting, why))
            except DatabaseError:
                return _left_open(runs, run, why, batches.longest_hold_seconds)
            break
        waiting = _settle(runs, run, waiting, settled)
    return _finish(runs, run, why, batches.longest_hold_seconds)


class _Batches:
    """How large they are, by what the last ones took."""

    def __init__(self) -> None:
        self.size = _FIRST_BATCH
        self.longest_hold_seconds = 0.0


def _settle(
    runs: Runs, run: str, waiting: Sequence[Action], settled: Sequence[Settlement]
) -> list[Action]:
    """Note what became of the first of these; return the others."""
    if settled:
        runs.settle(run, settled)
    return list(waiting[len(settled) :])


def _take_several(
    target: Target,
    change: Change,
    waiting: Sequence[Action],
    batches: _Batches,
    settled: list[Settlement],
) -> None:
    """Take some of these, one short transaction after the other, and say what became of them.

    Opening the database and noting what was done take longer than a transaction does, so neither
    is done for each. What was not noted before a kill is found out afterwards.
    """
    with target.writing() as writer:
        schema = probe_schema(writer.connection)
        while len(settled) < min(_SETTLED_AT_ONCE, len(waiting)):
            if schema_cookie(writer.connection) != schema.cookie:
                schema = probe_schema(writer.connection)
            batch = waiting[len(settled) : len(settled) + batches.size]
            taken, checked = _take_batch(target, change, writer, schema, batch)
            settled += taken
            held = writer.held_seconds
            batches.longest_hold_seconds = max(batches.longest_hold_seconds, held)
            size, budget = batches.size, target.lock_budget_seconds
            batches.size = _next_size(size, len(taken), held - checked, budget)
            if target.openers.pids and len(settled) < len(waiting):
                target.sleep(target.pause_seconds)


def _take_batch(
    target: Target, change: Change, writer: Writer, schema: Schema, batch: Sequence[Action]
) -> tuple[list[Settlement], float]:
    """What became of the first of a batch, and how long the lock was held before the first.

    Looking around takes as long for few as for many, and longer on a busy machine: were it counted
    with the work, batches would get smaller and smaller there.
    """
    settled: list[Settlement] = []
    change.prepare(writer, schema, batch)
    with writer.transaction() as transaction:
        change.check(writer)
        checked = transaction.seconds
        for action in batch:
            if settled and transaction.seconds - checked > target.lock_budget_seconds * _SHARE:
                break
            why = change.take(writer, action)
            state = _SKIPPED if why else ActionState.DONE
            settled.append(Settlement(action.number, state, why))
    done = {each.number for each in settled if each.state is ActionState.DONE}
    back = change.confirm(writer, [action for action in batch if action.number in done])
    return [
        Settlement(each.number, _SKIPPED, back[each.number]) if each.number in back else each
        for each in settled
    ], checked


def _was_too_long(error: DatabaseError) -> bool:
    return isinstance(error, WriteError) and error.why is WriteTrouble.TOO_LONG


def _next_size(size: int, taken: int, took_seconds: float, budget_seconds: float) -> int:
    """As many as should fit, by what the last ones took with their commit."""
    fitting = int(budget_seconds * _SHARE * taken / max(took_seconds, 1e-6))
    return max(1, min(fitting, _GROWTH * size, _LARGEST_BATCH))


def _finish(runs: Runs, run: str, why: str, longest: float) -> Outcome:
    outcome = _outcome(runs, run, why, longest)
    runs.finish(run, outcome.outcome, why)
    return outcome


def _left_open(runs: Runs, run: str, why: str, longest: float) -> Outcome:
    """The database can neither be written nor read: what became of the last batch is not known."""
    outcome = _outcome(runs, run, recovery.not_known(run, why), longest)
    return structs.replace(outcome, outcome=RunOutcome.UNKNOWN)


def _outcome(runs: Runs, run: str, why: str, longest: float) -> Outcome:
    fates = runs.fates(run)
    done = tuple(each.target for each in fates if each.state is ActionState.DONE)
    return Outcome(
        run=run,
        outcome=outcome_of(went_wrong=bool(why), anything_done=bool(done)),
        done=done,
        skipped=tuple(
            Skipped(each.target, each.why or why)
            for each in fates
            if each.state is not ActionState.DONE
        ),
        why=why,
        longest_hold_seconds=longest,
    )


# Runs that were killed, and transactions of which nobody knows whether they were committed


def recover(target: Target, runs: Runs) -> Recovered:
    """Settle what killed reaps left open, and what took them back, by what the database says."""
    return recovery.recover(runs, settlers(target))


def settlers(target: Target) -> dict[str, recovery.Settle]:
    """What became of the actions of reaps, and of what takes them back; changes nothing."""

    def settle(_: Run, actions: Sequence[Action]) -> list[Settlement]:
        return what_happened(target, actions, recovery.KILLED)

    return dict.fromkeys((*ENDS, REOPEN_SESSION), settle)


def what_happened(target: Target, actions: Sequence[Action], otherwise: str) -> list[Settlement]:
    """Which of these actions have been taken, by looking at the rows."""
    if not actions:
        return []
    ends = read_ends(target, [each.intent.target for each in actions])
    return [
        Settlement(each.number, ActionState.DONE)
        if _was_taken(each, ends.get(each.intent.target))
        else Settlement(each.number, _SKIPPED, otherwise[:300])
        for each in actions
    ]


def _was_taken(action: Action, found: End | None) -> bool:
    """No other program ends a session at that moment for that reason, and it was open before."""
    if action.intent.action == REOPEN_SESSION:
        return found is not None and found.ended_at is None
    return found == written_end(action)


def written_end(action: Action) -> End:
    """The end that an action writes, or takes back."""
    values = action.intent.after or action.intent.before
    return End(values["ended_at"], values["end_reason"])


def read_ends(target: Target, targets: Iterable[str]) -> dict[str, End]:
    """How these sessions stand now; those that are gone are not in it.

    A run must intend only what is still to be done: what it finds done already would count as its
    own, should it be killed.
    """
    if database.file_state(target.database) is None:
        return {}
    wanted, ends = list(targets), {}
    for attempt in range(_READ_ATTEMPTS):
        try:
            with target.reading() as connection:
                ends = ends_of(connection, wanted)
            break
        except DatabaseError as error:
            if error.trouble not in _PASSING or attempt == _READ_ATTEMPTS - 1:
                raise
        target.sleep(target.pause_seconds)
    return ends
