"""End dead sessions: those of a plan that are still as they were when they were judged.

Between the verdict and the write a session may be resumed, written to, routed to, or ended by
Hermes. So everything the verdict rests on is read again under the write lock, when no other process
can write: the row with all its clocks, every pointer to it, and whether a new process has opened
the database. Only `ended_at` and `end_reason` of a row are ever written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import apsw
from msgspec import structs

from exporter.errors import DatabaseError
from exporter.evidence.liveness import LivingOwners
from exporter.evidence.process import PinnedProcess
from exporter.evidence.procfs import GONE
from exporter.hermes import database
from exporter.hermes.continuations import children_of
from exporter.hermes.routing import Routing, read_routing, routing_file
from exporter.hermes.schema import Schema, probe_schema
from exporter.hermes.session_queries import SessionQueries
from exporter.hermes.turns import NO_CONVERSATION
from exporter.reaper.change_ends import BY_ACTION, Change, change_ends, read_ends, written_end
from exporter.reaper.plan import OpenSessionState, ReapAction, ReapPlan
from exporter.reaper.possible_hosts import ProcessKey
from exporter.reaper.requests import UNDOABLE_SECONDS
from exporter.runs.folder import RunError
from exporter.runs.journal import running_on
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
from exporter.runs.take_actions import AbortedError, RunRecord
from exporter.scan.session_table import open_session
from exporter.snapshot import OpenSession
from exporter.text import cut
from exporter.writing.connection import Writer
from exporter.writing.session_end import (
    OPEN,
    End,
    end_of,
    end_session,
    has_turn_lease,
    reopen_session,
)
from exporter.writing.target import Target

CHILDREN_MAX: Final = 256
_HOLDERS_MAX: Final = 64


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
) -> Outcome:
    """End the sessions of a plan; in a process of the home's owner that has no connection to it.

    `processes` have the database open and may run a session. The journal notes them, because what
    they do to a session later shows whether ending it was a mistake. `silent` are chats, by PID,
    with what each had written when the sessions were judged.

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
            actions, over = _still_open(target, plan.actions)
            if not actions:
                return Outcome(None, RunOutcome.DONE, skipped=over)
            children = _children(target, actions)
            recorded = [
                _to_record(action, end_reason, processes, children.get(action.target))
                for action in actions
            ]
            record = RunRecord(runs)
            record.begin(
                RunKind.REAP,
                recorded,
                run=run_id,
                plan=plan.hash,
                by_hand=by_hand,
                undoable_seconds=undoable_seconds,
            )
            ending = _EndSessions(target, actions, silent if _has_proof(actions) else ())
            outcome = change_ends(target, record, ending)
    except DatabaseError as error:
        return Outcome(None, RunOutcome.FAILED, why=str(error))
    except RunError as error:
        if record is None or not record.run:
            raise
        # The journal failed after the run had begun: sessions may have ended, and not be noted.
        return Outcome(record.run, RunOutcome.UNKNOWN, why=not_known(record.run, error))
    return structs.replace(outcome, skipped=(*over, *outcome.skipped))


def _still_open(
    target: Target, actions: Sequence[ReapAction]
) -> tuple[list[ReapAction], tuple[Skipped, ...]]:
    """Return the sessions that are open now, and how each of the others ended."""
    ends = read_ends(target, (each.target for each in actions))
    still_open = [each for each in actions if ends.get(each.target) == OPEN]
    over = [each.target for each in actions if ends.get(each.target) != OPEN]
    return still_open, tuple(Skipped(each, _how_it_ended(ends.get(each))) for each in over)


def _has_proof(actions: Sequence[ReapAction]) -> bool:
    return any(each.proof is Proof.PROVEN for each in actions)


def _has_written(proc: str, pid: int, before: int) -> bool:
    """True if a process has written more since, or if its count cannot be read."""
    try:
        with PinnedProcess(proc, pid) as process:
            return process.written() != before
    except GONE:
        return False
    except OSError:
        return True


def _children(target: Target, actions: Sequence[ReapAction]) -> dict[str, list[str]]:
    """The children that these sessions have now: later ones tell how a session went on.

    A session with more children than fit into the journal is left out: healing then goes by its
    activity alone.
    """
    with target.reading() as connection:
        if not probe_schema(connection).has("sessions", "parent_session_id"):
            return {}
        found = {each.target: _children_of(connection, each.target) for each in actions}
    return {session_id: known for session_id, known in found.items() if known is not None}


def _children_of(connection: apsw.Connection, session_id: str) -> list[str] | None:
    try:
        children = children_of(connection, session_id)
    except UnicodeDecodeError:
        return None
    return children if len(children) <= CHILDREN_MAX else None


def _to_record(
    action: ReapAction,
    end_reason: str,
    processes: Sequence[ProcessKey],
    children: Sequence[str] | None,
) -> RecordedAction:
    """A planned end as the journal has it, with what healing and undo need."""
    planned: Action[Any] = action
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


class _EndSessions(Change):
    """Ends sessions.

    All that can be read before the write lock is read before it. Under the lock it still counts if
    no other process has written since; otherwise all of it is read again there.
    """

    def __init__(
        self, target: Target, actions: Sequence[ReapAction], silent: Sequence[tuple[int, int]]
    ) -> None:
        self._target = target
        self._silent = silent
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
        self._queries = SessionQueries(schema)
        connection = writer.connection
        connection.execute("BEGIN")
        self._forget_if_changed(writer)
        targets = (action.action.target for action in batch)
        unknown = [session_id for session_id in targets if session_id not in self._answers]
        self._answers.update(self._examine(connection, unknown))
        connection.execute("COMMIT")

    def _forget_if_changed(self, writer: Writer) -> None:
        """Forget all answers if another process has written the database or the file of chats."""
        file = database.file_state(routing_file(self._target.home))
        seen = (writer, int(writer.connection.pragma("data_version")), file)
        if seen != self._seen:
            self._seen, self._answers = seen, {}
            now = self._target.clock()
            self._routing = read_routing(
                self._target.home,
                writer.connection,
                self._schema,
                now,
                LivingOwners(self._target.proc),
            )

    def _check_openers(self, writer: Writer) -> None:
        """Raise if a new process opened the database. Reading the locks takes some milliseconds."""
        new_openers = writer.new_openers()
        if new_openers:
            raise AbortedError(f"process {new_openers[0]} has opened the database since")
        # A chat that was silent is cleared; the resume of an open session shows only in what it
        # writes to its terminal.
        for pid, written in self._silent:
            if _has_written(self._target.proc, pid, written):
                raise AbortedError(f"process {pid} has written something since")

    def check(self, writer: Writer) -> None:
        # A resume of an open session writes into its row what is there already, and SQLite then
        # writes nothing: a new process with the database open is all there is to see.
        self._check_openers(writer)
        self._forget_if_changed(writer)
        if not self._routing.readable:
            raise AbortedError("it cannot be read any more which chats lead to which session")

    def take(self, writer: Writer, action: RecordedAction) -> str:
        connection, session_id = writer.connection, action.action.target
        why = self._answers.get(session_id)
        if why is None:
            why = self._examine(connection, [session_id])[session_id]
        if why:
            return why
        if self._expected[session_id].last_activity_at > self._target.clock():
            return "its clocks are ahead of ours"
        ended = end_session(connection, session_id, written_end(action))
        return "" if ended else "it could not be ended"

    def confirm(self, writer: Writer, taken: Sequence[RecordedAction]) -> dict[int, str]:
        """Open again what was ended while another process opened the database."""
        new = writer.new_openers() if taken else ()
        if not new:
            return {}
        with writer.transaction():
            for action in taken:
                reopen_session(writer.connection, action.action.target, written_end(action))
        why = f"process {new[0]} opened the database meanwhile, so it was opened again"
        return {action.number: why for action in taken}

    def _examine(self, connection: apsw.Connection, targets: Sequence[str]) -> dict[str, str]:
        """Why each of these may not be ended; empty if it may."""
        now = self._target.clock()
        rows = self._queries.records(connection, targets, 0)
        found = {
            each.row.id: open_session(each, NO_CONVERSATION, now)
            for each in rows
            if each.row.is_open
        }
        return {
            session_id: self._why_not(connection, session_id, found.get(session_id), now)
            for session_id in targets
        }

    def _why_not(
        self, connection: apsw.Connection, session_id: str, session: OpenSession | None, now: float
    ) -> str:
        """`session` is exactly what a scan would see now; None unless it is open."""
        if session is None:
            return _how_it_ended(end_of(connection, session_id))
        if OpenSessionState.of(session) != self._expected[session_id]:
            return "it has been active since it was judged"
        holds = [*session.holds, *self._routing.holds.get(session_id, ())]
        if holds:
            return f"it is held: {holds[0].value}"
        if has_turn_lease(connection, self._schema, session_id, now):
            return "a process is in the middle of a turn"
        return ""


def _how_it_ended(end: End | None) -> str:
    if end is None:
        return "it is gone"
    if end.ended_at is None:
        return "its row is open, and yet says why it ended"
    return f"it has ended meanwhile: {cut(str(end.end_reason or 'without a reason'), 64)}"
