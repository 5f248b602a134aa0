"""Change the ends of sessions, many in one short transaction: for reap, its undo and healing.

The rows show which changes were made: no other program writes the same end time with the same
reason. So a killed run, or a commit that failed, can be settled later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import structs

from exporter.errors import DatabaseError, HomeError
from exporter.hermes import database
from exporter.hermes.schema import Schema, probe_schema, schema_cookie
from exporter.runs.models import (
    ENDS,
    REOPEN_SESSION,
    ActionState,
    Outcome,
    RecordedAction,
    RunOutcome,
    Settled,
)
from exporter.runs.recovery import KILLED, FindOut, not_known
from exporter.runs.take_actions import RunRecord, Work, take_all
from exporter.writing.batch_size import BatchSize
from exporter.writing.connection import Transaction, Writer
from exporter.writing.file_watch import ReplacedError
from exporter.writing.session_end import End, ends_of
from exporter.writing.target import Target, read_with_retry
from exporter.writing.write_checks import WriteError, WriteTrouble

CHILDREN_MAX: Final = 256
"""Children of a session that the journal notes at its end."""
_SHARE: Final = 0.25
"""Of the budget. On a busy machine we lose the processor while holding the lock: that is the rest.
"""
_PART: Final = 50
"""Sessions that are changed before the clock is read again."""
_SETTLED_AT_ONCE: Final = 5_000
_TOO_LONG_IN_A_ROW: Final = 6
"""A run is given up after this many transactions in a row that took too long."""


class ChangeEnds(Work):
    """Makes one kind of change to many rows."""

    patient_rounds = 3

    def __init__(self, target: Target) -> None:
        self.longest_hold_seconds = 0.0
        self.target = target
        self._too_long_in_a_row = 0
        self._size = BatchSize(  # in sessions
            target.lock_budget_seconds,
            first_seconds=0.0004,
            share=_SHARE,
            least=1,
            growth=16,
            remembered=1,
        )

    def prepare(self, writer: Writer, schema: Schema, batch: Sequence[RecordedAction]) -> None:
        """Read what takes long, before the write lock is held."""
        del writer, schema, batch

    def check(self, writer: Writer, transaction: Transaction) -> None:
        """Under the write lock, once: raise AbortedError if nothing may be done."""
        del writer, transaction

    def change(self, writer: Writer, actions: Sequence[RecordedAction]) -> list[str]:
        """Under the write lock: return for each action why it was not taken; empty if it was."""
        raise NotImplementedError

    def take_back(self, writer: Writer, taken: Sequence[RecordedAction]) -> str:
        """After the commit: take all of these back if they should not stand, and say why."""
        del writer, taken
        return ""

    def take_some(self, waiting: Sequence[RecordedAction], settled: list[Settled]) -> None:
        """Opening the database and noting what was done take longer than a transaction.

        So neither is done for each. What was not noted before a kill is found out afterwards.
        """
        target = self.target
        with target.writing() as writer:
            schema = probe_schema(writer.connection)
            while len(settled) < min(_SETTLED_AT_ONCE, len(waiting)) and not target.stopping():
                if schema_cookie(writer.connection) != schema.cookie:
                    schema = probe_schema(writer.connection)
                batch = waiting[len(settled) : len(settled) + self._size.size]
                settled += self._take_batch(writer, schema, batch)
                if target.openers.pids and len(settled) < len(waiting):
                    target.sleep(target.pause_seconds)  # few batches: each leaves a whole pause

    def _take_batch(
        self, writer: Writer, schema: Schema, batch: Sequence[RecordedAction]
    ) -> list[Settled]:
        """Take the first actions of a batch, as time allows; return their results."""
        reasons: list[str] = []
        most_seconds = self.target.lock_budget_seconds * _SHARE
        self.prepare(writer, schema, batch)
        with writer.transaction(check_under_lock=True) as transaction:
            self.check(writer, transaction)
            transaction.checked()
            while len(reasons) < len(batch):
                if reasons and transaction.work_seconds > most_seconds:
                    break
                reasons += self.change(writer, batch[len(reasons) : len(reasons) + _PART])
        self._too_long_in_a_row = 0
        self.longest_hold_seconds = max(self.longest_hold_seconds, writer.held_seconds)
        # With the commit, which grows with the rows.
        self._size.record(len(reasons), writer.held_seconds - transaction.checked_seconds)
        done = list(zip(batch, reasons, strict=False))
        back = self.take_back(writer, [action for action, why in done if not why])
        return [Settled.of(action, why or back) for action, why in done]

    def find_out(self, actions: Sequence[RecordedAction], why: str) -> list[Settled]:
        return _what_happened(self.target, actions, why)

    def can_go_on(self, error: HomeError) -> bool:
        """A transaction that lasted too long was rolled back; the machine may be slow just now."""
        too_long = isinstance(error, WriteError) and error.why is WriteTrouble.TOO_LONG
        self._too_long_in_a_row += 1
        if not too_long or self._too_long_in_a_row >= _TOO_LONG_IN_A_ROW:
            return False
        self._size.use_least()
        self.target.sleep(self.target.pause_seconds)  # other processes have their turn first
        return True


def change_ends(record: RunRecord, work: ChangeEnds) -> Outcome:
    """Do what a run that has begun is for, and finish it."""
    try:
        take_all(work.target, record, record.actions, work)
        work.target.refuse_replaced()
    except DatabaseError as error:
        # It can neither be written nor read: it is not known if the last batch was done.
        if isinstance(error, ReplacedError):
            record.reopen(record.actions)
            record.why = str(error)
        record.why = not_known(record.run, record.why)
        outcome = structs.replace(record.outcome(), outcome=RunOutcome.UNKNOWN)
    else:
        outcome = record.finish()
    return structs.replace(outcome, longest_hold_seconds=work.longest_hold_seconds)


def _what_happened(
    target: Target, actions: Sequence[RecordedAction], otherwise: str
) -> list[Settled]:
    """Return which of these actions were taken, by the rows of the database."""
    ends = read_ends(target, [each.action.target for each in actions])
    return [
        Settled(each.number, ActionState.DONE)
        if _was_taken(each, ends.get(each.action.target))
        else Settled(each.number, ActionState.SKIPPED, otherwise)
        for each in actions
    ]


def _was_taken(action: RecordedAction, found: End | None) -> bool:
    """No other program ends a session at that moment for that reason, and it was open before.

    So a session without the end that was to be taken back was opened, also if it ended again since.
    """
    if action.action.kind == REOPEN_SESSION:
        return found is not None and found != written_end(action)
    return found == written_end(action)


def written_end(action: RecordedAction) -> End:
    """The end that an action writes, or takes back."""
    values = action.after or action.action.expected
    return End(values["ended_at"], values["end_reason"])


def read_ends(target: Target, session_ids: Iterable[str]) -> dict[str, End]:
    """Return how these sessions ended, without sessions that are gone."""
    wanted = list(session_ids)
    if not wanted or database.file_state(target.database) is None:
        return {}
    return read_with_retry(target, lambda connection: ends_of(connection, wanted))


def _killed(target: Target, _: Any, __: Any, actions: Sequence[RecordedAction]) -> list[Settled]:
    """Return which actions of killed reaps, and of their undos, were done."""
    return _what_happened(target, actions, KILLED)


BY_ACTION: Final[dict[str, FindOut]] = dict.fromkeys((*ENDS, REOPEN_SESSION), _killed)
"""How actions on ends are settled after a kill; see `exporter.runs.recovery`."""
