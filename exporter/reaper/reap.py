"""One reap of one home: heal, check the breaker, then end the sessions of the plan.

The breaker stops automatic reaping of a home until a person reaps by hand.

Between the verdict and the write a session may be resumed, written to, routed to, or ended by
Hermes. So everything the verdict rests on is read again under the write lock, when no other process
can write: the row with all its clocks, what its descendants did, every pointer to it, and whether a
new process has opened the database. Only `ended_at` and `end_reason` of a row are ever written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import apsw
from msgspec import structs

from exporter.errors import DatabaseError
from exporter.evidence.liveness import LivingOwners
from exporter.evidence.models import ProcessKey
from exporter.evidence.process import PinnedProcess
from exporter.evidence.procfs import GONE
from exporter.hermes import database
from exporter.hermes.continuations import LastRows, ancestors_of_active, children_of_each
from exporter.hermes.routing import Routing, read_routing, routing_file
from exporter.hermes.schema import Schema, probe_schema
from exporter.hermes.session_queries import SessionQueries
from exporter.hermes.turns import NO_CONVERSATION
from exporter.reaper.change_ends import (
    BY_ACTION,
    CHILDREN_MAX,
    ChangeEnds,
    change_ends,
    written_end,
)
from exporter.reaper.plan import (
    UNDOABLE_SECONDS,
    Blocked,
    OpenSessionState,
    ReapAction,
    ReapPlan,
    ReapRequest,
)
from exporter.reaper.reopen import HealedReaps, reopen_active
from exporter.runs.breaker import close_breaker, stop_if_journal_lost
from exporter.runs.folder import RunError
from exporter.runs.journal import journal_of, running_on
from exporter.runs.models import (
    Action,
    Outcome,
    Proof,
    RecordedAction,
    RunKind,
    RunOutcome,
    Skipped,
)
from exporter.runs.recovery import not_known, recover
from exporter.runs.take_actions import AbortedError, RunRecord, refuse_new_openers
from exporter.scan.session_table import open_session
from exporter.text import cut
from exporter.writing.connection import Transaction, Writer
from exporter.writing.session_end import (
    OPEN,
    End,
    end_sessions,
    ends_of,
    has_turn_lease,
    reopen_session,
)
from exporter.writing.target import Target, read_with_retry

_HOLDERS_MAX: Final = 64
_READ_AT_ONCE: Final = 500
"""Sessions read in one transaction: their rows are long, and it keeps the WAL from restarting."""


class PossiblyResumed(Protocol):
    """Knows from the last scan which reaped sessions may have been used since."""

    @property
    def suspects(self) -> frozenset[str] | None:
        """Reaped sessions that may have been used since; None: any of them."""

    def healed(self) -> None:
        """Called when sessions that were used after a reap have been corrected."""


def reap(
    order: ReapRequest, target: Target, seen: PossiblyResumed, last_rows: LastRows | None = None
) -> Outcome:
    """Correct wrong reaps, then end dead sessions; raise HomeError, RunError, DatabaseError.

    The plan was made from the scan just before. Each session is compared again when it is ended.
    """
    healed = HealedReaps()
    if seen.suspects != frozenset():
        healed = reopen_active(
            target.unstoppable(),
            order.processes,
            seen.suspects,
            end_reason=order.end_reason,
            enforcing=order.enforcing,
        )
    if healed.complete:
        seen.healed()
    outcome = Outcome(None, RunOutcome.DONE)
    if not order.heal_only:
        why = _why_blocked(order, target)
        if why:
            outcome = Outcome(None, RunOutcome.DONE, blocked=Blocked.TRIPPED, why=why)
        else:
            # Mistakes that were found just now were not yet seen by a person.
            if order.by_hand and not healed.mistakes:
                close_breaker(target, order.end_reason)
            outcome = execute(
                order.plan,
                target,
                end_reason=order.end_reason,
                run_id=order.run,
                by_hand=order.by_hand,
                undoable_seconds=order.undoable_seconds,
                processes=order.processes,
                silent=order.silent,
                last_rows=last_rows,
            )
            outcome = structs.replace(outcome, deferred=order.plan.deferred)
    return structs.replace(outcome, reopened=healed.mistakes, resumed=healed.resumed)


def _why_blocked(order: ReapRequest, target: Target) -> str:
    """Return why nothing may be ended; empty if it may."""
    if not order.by_hand:
        # The breaker may have opened since the plan was made, also by the healing just now.
        with journal_of(target.home, target.owner) as runs:
            why = runs.tripped() if runs is not None else None
        if why:
            return why
    if order.plan.blocked:
        return order.plan.why or order.plan.blocked
    if order.by_hand or not order.plan.actions:
        return ""
    return stop_if_journal_lost(target, order.end_reason)


def execute(
    plan: ReapPlan,
    target: Target,
    *,
    end_reason: str,
    run_id: str = "",
    by_hand: bool = False,
    undoable_seconds: float = UNDOABLE_SECONDS,
    processes: Sequence[ProcessKey] = (),
    silent: Sequence[tuple[int, int]] = (),
    last_rows: LastRows | None = None,
) -> Outcome:
    """End the sessions of a plan; in a process of the home's owner that has no connection to it.

    `processes` have the database open and may run a session. The journal notes them, because what
    they do to a session later shows whether ending it was a mistake. `silent` are chats, by PID,
    with what each had written when the sessions were judged. `last_rows` were the newest rows then:
    newer ones of its descendants keep a session open.

    Raise RunBusyError if another run is under way, RunError if the journal cannot be used. The next
    run settles what a failing journal leaves unsettled.
    """
    if not plan.actions:
        return Outcome(None, RunOutcome.DONE)
    record: RunRecord | None = None
    try:
        target.refuse_unwritable()
        with running_on(target, "reap") as runs:
            recover(target, runs, BY_ACTION)
            ends, children = read_with_retry(target, partial(_read_now, plan.actions))
            # Only what is still to be done is intended: what a run finds done already would count
            # as its own, should it be killed.
            actions = [each for each in plan.actions if ends.get(each.target) == OPEN]
            over = tuple(
                Skipped(each.target, _how_it_ended(ends.get(each.target)))
                for each in plan.actions
                if ends.get(each.target) != OPEN
            )
            if not actions:
                return Outcome(None, RunOutcome.DONE, skipped=over)
            record = RunRecord(runs)
            record.begin(
                RunKind.REAP,
                [
                    _to_record(each, end_reason, processes, children[each.target])
                    for each in actions
                ],
                run=run_id,
                plan=plan.hash,
                by_hand=by_hand,
                undoable_seconds=undoable_seconds,
            )
            proven = any(each.proof is Proof.PROVEN for each in actions)
            silent = silent if proven else ()
            outcome = change_ends(record, _EndSessions(target, actions, silent, last_rows))
    except DatabaseError as error:
        return Outcome(None, RunOutcome.FAILED, why=str(error))
    except RunError as error:
        if record is None or not record.run:
            raise
        # The journal failed after the run had begun: sessions may have ended, and not be noted.
        return Outcome(record.run, RunOutcome.UNKNOWN, why=not_known(record.run, error))
    return structs.replace(outcome, skipped=(*over, *outcome.skipped))


def _read_now(
    actions: Sequence[ReapAction], connection: apsw.Connection
) -> tuple[dict[str, End], Mapping[str, list[str] | None]]:
    """How these sessions ended, and the children that each has: later ones tell how it went on."""
    names = [each.target for each in actions]
    children = children_of_each(connection, probe_schema(connection), names)
    return ends_of(connection, names), children


def _to_record(
    action: ReapAction,
    end_reason: str,
    processes: Sequence[ProcessKey],
    children: Sequence[str] | None,
) -> RecordedAction:
    """A planned end as the journal has it, with what healing and undo need.

    Without its children if they are unknown, or too many: healing then goes by activity alone.
    """
    planned: Action[Any] = action
    if children is not None and len(children) > CHILDREN_MAX:
        children = None
    return RecordedAction(
        structs.replace(planned, expected=structs.asdict(action.expected)),
        after={
            "ended_at": action.expected.last_activity_at,
            "end_reason": end_reason,
            "proof": action.proof.value,
            "holders": list(processes[:_HOLDERS_MAX]),
            "children": children,
        },
    )


class _EndSessions(ChangeEnds):
    """Ends sessions.

    All that can be read before the write lock is read before it. Under the lock it still counts if
    no other process has written since; otherwise all of it is read again there.
    """

    def __init__(
        self,
        target: Target,
        actions: Sequence[ReapAction],
        silent: Sequence[tuple[int, int]],
        last_rows: LastRows | None,
    ) -> None:
        super().__init__(target)
        self._silent = silent
        self._last_rows = last_rows
        self._in_use_below: frozenset[str] = frozenset()
        self._expected = {action.target: action.expected for action in actions}
        self._schema: Schema
        self._queries: SessionQueries
        self._routing: Routing
        self._seen: tuple[Writer, int, database.FileState | None] | None = None
        self._answers: dict[str, str] = {}
        """Why a session may not be ended, empty if it may: by all that was seen."""

    def prepare(self, writer: Writer, schema: Schema, batch: Sequence[RecordedAction]) -> None:
        """Read these sessions and all that points to them; the file of chats may be long."""
        self._schema = schema
        self._queries = SessionQueries(schema, with_usage=False)
        for start in range(0, len(batch), _READ_AT_ONCE):
            writer.connection.execute("BEGIN")
            self._forget_if_changed(writer)
            self._examine(writer.connection, batch[start : start + _READ_AT_ONCE])
            writer.connection.execute("COMMIT")

    def _forget_if_changed(self, writer: Writer) -> None:
        """Forget all answers if another process has written the database or the file of chats."""
        file = database.file_state(routing_file(self.target.home))
        seen = (writer, int(writer.connection.pragma("data_version")), file)
        if seen != self._seen:
            self._seen, self._answers = seen, {}
            self._routing = read_routing(
                self.target.home,
                writer.connection,
                self._schema,
                self.target.clock(),
                LivingOwners(self.target.proc),
            )
            if self._last_rows is not None:
                self._in_use_below = ancestors_of_active(
                    writer.connection, self._schema, self._last_rows
                )

    def check(self, writer: Writer, transaction: Transaction) -> None:
        # A resume of an open session writes into its row what is there already, and SQLite then
        # writes nothing: a new process with the database open is all there is to see.
        refuse_new_openers(transaction)
        # A chat that was silent is cleared; the resume of an open session shows only in what it
        # writes to its terminal.
        for pid, written in self._silent:
            if _has_written(self.target.proc, pid, written):
                raise AbortedError(f"process {pid} has written something since")
        self._forget_if_changed(writer)
        if not self._routing.readable:
            raise AbortedError("it cannot be read any more which chats lead to which session")

    def change(self, writer: Writer, actions: Sequence[RecordedAction]) -> list[str]:
        self._examine(writer.connection, actions)
        now, may_end = self.target.clock(), dict[str, End]()
        for each in actions:
            end = written_end(each)
            if not self._answers[each.action.target] and end.ended_at <= now:
                may_end[each.action.target] = end
        ended = end_sessions(writer.connection, may_end)

        def why_not(session_id: str) -> str:
            if session_id in may_end:
                return "" if session_id in ended else "it could not be ended"
            return self._answers[session_id] or "its clocks are ahead of ours"

        return [why_not(each.action.target) for each in actions]

    def take_back(self, writer: Writer, taken: Sequence[RecordedAction]) -> str:
        """Open again what was ended while another process opened the database."""
        new = writer.new_openers() if taken else ()
        if not new:
            return ""
        with writer.transaction():
            for action in taken:
                reopen_session(writer.connection, action.action.target, written_end(action))
        return f"process {new[0]} opened the database meanwhile, so it was opened again"

    def _examine(self, connection: apsw.Connection, actions: Sequence[RecordedAction]) -> None:
        """Find out why each of these may not be ended, where that is not known yet."""
        targets = [each.action.target for each in actions]
        targets = [session_id for session_id in targets if session_id not in self._answers]
        if not targets:
            return
        now = self.target.clock()
        rows = self._queries.records(connection, targets, 0)
        # Exactly what a scan would see now.
        found = {
            each.row.id: open_session(each, NO_CONVERSATION, now)
            for each in rows
            if each.row.is_open
        }
        ended = ends_of(connection, [each for each in targets if each not in found])
        for session_id in targets:
            session = found.get(session_id)
            if session is None:
                why = _how_it_ended(ended.get(session_id))
            elif OpenSessionState.of(session) != self._expected[session_id]:
                why = "it has been active since it was judged"
            elif session_id in self._in_use_below:
                why = "a session that it began has been active since it was judged"
            elif holds := [*session.holds, *self._routing.holds.get(session_id, ())]:
                why = f"it is held: {holds[0].value}"
            elif has_turn_lease(connection, self._schema, session_id, now):
                why = "a process is in the middle of a turn"
            else:
                why = ""
            self._answers[session_id] = why


def _has_written(proc: str, pid: int, before: int) -> bool:
    """True if a process has written more since, or if its count cannot be read."""
    try:
        with PinnedProcess(proc, pid) as process:
            return process.written() != before
    except GONE:
        return False
    except OSError:
        return True


def _how_it_ended(end: End | None) -> str:
    if end is None:
        return "it is gone"
    if end.ended_at is None:
        return "its row is open, and yet says why it ended"
    return f"it has ended meanwhile: {cut(str(end.end_reason or 'without a reason'), 64)}"
