"""Ending dead sessions: exactly those of a plan, and of those only what still is as it was judged.

Between the verdict and the write a session may be resumed, written to, routed to, or ended by
Hermes. So everything the verdict rests on is looked at again while nobody else can write: the row
with all its clocks, every pointer to it, and whether a process has come that was not there. Only
`ended_at` and `end_reason` of a row are ever written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw
from msgspec import to_builtins

from exporter.errors import DatabaseError
from exporter.hermes import database
from exporter.hermes.ending import OPEN, End, end_of, end_session, has_turn_lease
from exporter.hermes.routing import Routing, read_routing, routing_file
from exporter.hermes.schema import Schema
from exporter.hermes.sessions import SessionQueries
from exporter.hermes.writing import Writer, look_at_bystanders, refuse_unwritable
from exporter.reaper.batches import (
    CalledOffError,
    read_ends,
    recover,
    take_all,
    written_end,
)
from exporter.reaper.orders import UNDOABLE_SECONDS, Outcome, Skipped
from exporter.reaper.plan import ACTION, Expected, HomePlan, ReapAction
from exporter.reaper.site import Site
from exporter.runs import Action, Intent, Kind, RunOutcome, journal_of
from exporter.scan.session_table import SessionTable
from exporter.snapshot import OpenSession

_STALE_SECONDS: Final = 0.1
"""After so long it is looked again who has the database open."""


def execute(
    plan: HomePlan,
    site: Site,
    *,
    end_reason: str,
    run_id: str = "",
    plan_hash: str = "",
    by_hand: bool = False,
    undoable_seconds: float = UNDOABLE_SECONDS,
) -> Outcome:
    """End the sessions of a plan; in a process of the home's owner that has no connection to it.

    Raise RunBusyError if another run is under way, RunError if the journal cannot be used. What a
    failing journal leaves unsettled the next run settles.
    """
    if by_hand:
        close_breaker(site)
    if not plan.actions:
        return Outcome(None, RunOutcome.DONE)
    try:
        refuse_unwritable(site.database, site.owner)
        look_at_bystanders(site.database, site.bystanders, site.proc)
        with site.running("reap") as runs:
            recover(site, runs)
            actions, over = _still_open(site, plan.actions)
            if not actions:
                return Outcome(None, RunOutcome.DONE, skipped=over)
            run = runs.begin(
                Kind.REAP,
                [_intent(action, end_reason) for action in actions],
                run=run_id,
                plan=plan_hash,
                by_hand=by_hand,
                undoable_seconds=undoable_seconds,
            )
            result = take_all(site, runs, run, _Ending(site, actions, plan.alibis))
    except DatabaseError as error:
        return Outcome(None, RunOutcome.FAILED, why=str(error))
    return Outcome(
        run=run,
        outcome=result.outcome,
        done=result.done,
        skipped=(*over, *result.skipped),
        why=result.why,
        longest_hold_seconds=result.longest_hold_seconds,
    )


def close_breaker(site: Site) -> None:
    """A person has looked: automatic reaping may go on."""
    with journal_of(site.home, site.owner, site.clock) as journal:
        if journal is not None and journal.tripped() is not None:
            journal.close_breaker()


def _still_open(
    site: Site, actions: Sequence[ReapAction]
) -> tuple[list[ReapAction], tuple[Skipped, ...]]:
    """The sessions that are open now, and the others with what has become of them."""
    ends = read_ends(site, (each.target for each in actions))
    still_open = [each for each in actions if ends.get(each.target) == OPEN]
    over = [each.target for each in actions if ends.get(each.target) != OPEN]
    return still_open, tuple(Skipped(each, _how_it_ended(ends.get(each))) for each in over)


def _intent(action: ReapAction, end_reason: str) -> Intent:
    return Intent(
        action=ACTION,
        target=action.target,
        reason=action.reason,
        before=to_builtins(action.expected),
        after={"ended_at": action.expected.last_activity_at, "end_reason": end_reason},
        evidence=to_builtins(action.evidence),
    )


class _Ending:
    """Ends sessions; see `exporter.reaper.batches.Change`."""

    def __init__(self, site: Site, actions: Sequence[ReapAction], alibis: Sequence[str]) -> None:
        self._site = site
        self._expected = {action.target: action.expected for action in actions}
        self._alibis = alibis
        self._schema: Schema
        self._queries: SessionQueries
        self._routing: Routing
        self._mark: tuple[int, database.FileState | None]
        self._looked_at = float("-inf")

    def prepare(self, writer: Writer, schema: Schema, batch: Sequence[Action]) -> None:
        """Read all pointers to sessions now: a chat's file may be long, and is rarely written."""
        del batch
        self._schema = schema
        self._queries = SessionQueries(schema)
        connection = writer.connection
        connection.execute("BEGIN")
        self._mark = self._look(connection)
        self._read_routing(connection)
        connection.execute("COMMIT")
        self._look_around(writer)

    def _look_around(self, writer: Writer) -> None:
        """Whether somebody has come; before the write lock is taken, for it may take a while."""
        newcomers = writer.newcomers()
        if newcomers:
            raise CalledOffError(f"process {newcomers[0]} has opened the database since")
        self._looked_at = self._site.monotonic()

    def check(self, writer: Writer) -> None:
        connection = writer.connection
        if self._site.monotonic() - self._looked_at > _STALE_SECONDS:
            self._look_around(writer)  # others had the lock for long
        if self._look(connection) != self._mark:
            self._read_routing(connection)
        if not self._routing.readable:
            raise CalledOffError("it cannot be read any more which chats lead to which session")
        for session_id in self._alibis:
            found = end_of(connection, session_id)
            if found is None or found.ended_at is not None:
                raise CalledOffError("a living process has left the session it was on")

    def _look(self, connection: apsw.Connection) -> tuple[int, database.FileState | None]:
        """What moves when anybody writes the database or the file of chats."""
        file = database.file_state(routing_file(self._site.home))
        return int(connection.pragma("data_version")), file

    def _read_routing(self, connection: apsw.Connection) -> None:
        now = self._site.clock()
        self._routing = read_routing(self._site.home, connection, self._schema, now)

    def take(self, writer: Writer, action: Action) -> str:
        target = action.intent.target
        why = self._why_not(writer.connection, target, self._expected[target])
        if why:
            return why
        ended = end_session(writer.connection, target, written_end(action))
        return "" if ended else "it could not be ended"

    def _why_not(self, connection: apsw.Connection, target: str, expected: Expected) -> str:
        now = self._site.clock()
        session = self._open_session(connection, target, now)
        if session is None:
            return _how_it_ended(end_of(connection, target))
        if session.last_activity_at > now:
            return "its clocks are ahead of ours"
        if Expected.of(session) != expected:
            return "it has been active since it was judged"
        holds = [*session.holds, *self._routing.holds.get(target, ())]
        if holds:
            return f"it is held: {holds[0].value}"
        if has_turn_lease(connection, self._schema, target, now):
            return "somebody is in the middle of a turn"
        return ""

    def _open_session(
        self, connection: apsw.Connection, target: str, now: float
    ) -> OpenSession | None:
        """The session exactly as a scan would see it now; None unless it is open."""
        record = self._queries.record(connection, target, 0)
        if record is None or not record.row.is_open:
            return None
        table = SessionTable()
        table.put([record], {}, now)
        return table.open.get(target)


def _how_it_ended(end: End | None) -> str:
    if end is None:
        return "it is gone"
    if end.ended_at is None:
        return "its row is open, and yet says why it ended"
    return f"it has ended meanwhile: {str(end.end_reason or 'without a reason')[:64]}"
