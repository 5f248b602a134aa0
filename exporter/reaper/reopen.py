"""Reopens reaped sessions: by an undo, or because the reap was wrong.

Healing corrects a wrong reap within one scan, while the session still has exactly the end that we
wrote:

1. A new child that continues it gives it the end `compression`, one that branched off `branched`,
   as Hermes would have done; `ended_at` becomes the child's start.
2. Otherwise newer activity opens it again if a process that may run it has the database open. If
   none has, a client came back for a turn and has left: `ended_at` moves to that activity.

It was our mistake only if a process that had the database open at the reap is still there. If not,
the session was resumed later, which any client may do with an ended session. Of a session that was
proven dead, all those processes were cleared: if a later one is there too, that one resumed it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import isfinite
from typing import Any, Final, TypeVar

import apsw
from msgspec import Struct, structs

from exporter.errors import DatabaseError
from exporter.evidence.models import ProcessKey
from exporter.hermes import database
from exporter.hermes.continuations import Relation, children_begun_by, children_of, relation_of
from exporter.hermes.schema import Schema, probe_schema
from exporter.reaper.change_ends import (
    BY_ACTION,
    CHILDREN_MAX,
    ChangeEnds,
    change_ends,
    read_ends,
    written_end,
)
from exporter.runs.folder import RunError
from exporter.runs.journal import (
    RunJournal,
    journal_of,
    journal_was_lost,
    refuse_other_kind,
    running_on,
)
from exporter.runs.models import (
    CORRECT_END,
    END_SESSION,
    ENDS,
    MOVE_END,
    REOPEN_SESSION,
    UNREADABLE,
    Action,
    ActionState,
    Outcome,
    Proof,
    RecordedAction,
    Reversal,
    RunKind,
    RunOutcome,
    Skipped,
)
from exporter.runs.recovery import not_known, recover
from exporter.runs.take_actions import RunRecord
from exporter.text import counted, cut
from exporter.writing.connection import Writer
from exporter.writing.session_end import (
    End,
    active_since,
    count_and_newest,
    end_of,
    reopen_session,
    replace_end,
)
from exporter.writing.target import Target

Item = TypeVar("Item")
_AT_ONCE: Final = 200
"""Sessions read in one transaction: a long transaction would keep the WAL from restarting."""


# Healing


class HealedReaps(Struct, frozen=True):
    """What was corrected."""

    mistakes: tuple[str, ...] = ()
    """Sessions that a process was running when we ended them."""
    resumed: tuple[str, ...] = ()
    """Sessions that a client resumed later."""
    complete: bool = True
    """False if something is left to correct: the database could not be written."""


def reopen_active(
    target: Target,
    processes: Collection[ProcessKey],
    only: Collection[str] | None = None,
    *,
    end_reason: str = "",
    enforcing: bool = False,
) -> HealedReaps:
    """Correct wrong reaps, in a process of the home's owner without a connection.

    - `processes` have the database open and are not cleared.
    - `only`: check only these sessions; None means all that the journal says we ended.
    - A session of `only` that has the end reason `end_reason` but is in no journal is corrected
      too, if the journal was lost or replaced, or if the agent acts in this home (`enforcing`).

    Raise DatabaseError or RunError if the home cannot be read or written: then the next scan finds
    it again.
    """

    def find(journal: RunJournal | None) -> list[RecordedAction]:
        ends = [] if journal is None else _current_ends(journal, only)
        ends += _unrecorded_ends(target, ends, only or (), end_reason)
        return _read_each(target, ends, partial(_remedy, processes))

    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is None and not enforcing and not journal_was_lost(target.home, target.owner):
            return HealedReaps()
        is_settled = journal is None or not journal.unfinished_runs()
        if is_settled and not find(journal):
            return HealedReaps()
    with running_on(target, "heal") as runs:
        recover(target, runs, BY_ACTION)
        remedies = find(runs)
        if not remedies:
            return HealedReaps()
        try:
            target.refuse_unwritable()
        except DatabaseError:
            # Not noted: this is found again by every scan, and each would add a run to the journal.
            return HealedReaps(complete=False)
        record = RunRecord(runs)
        record.begin(RunKind.HEAL, remedies)
        expected = {each.action.target: each.action.expected for each in remedies}
        mistakes = {session_id for session_id, each in expected.items() if each["mistake"]}
        proofs = [expected[each].get("proof", Proof.PROVEN) for each in mistakes]
        wrong = proofs.count(Proof.PROVEN)
        if wrong:  # automatic reaping stops: we do not see all processes
            runs.trip(f"{counted(wrong, 'session')} proven dead, and active after the reap")
        outcome = change_ends(record, _ReplaceEnds(target))
    return HealedReaps(
        tuple(each for each in outcome.done if each in mistakes),
        tuple(each for each in outcome.done if each not in mistakes),
        complete=not outcome.why,
    )


def _current_ends(journal: RunJournal, only: Collection[str] | None) -> list[RecordedAction]:
    """The ends that we ever wrote; only one of a session can be its present one.

    Hermes may have reopened a session that we ended again later, and a restored database may have
    an end that we took back. Which of them is the present one the times do not tell, since the
    clock may have been set back: the row itself tells.
    """
    ends: dict[tuple[str, End], RecordedAction] = {}
    for each in journal.ever_done(*ENDS):
        if only is None or each.action.target in only:
            ends.setdefault((each.action.target, written_end(each)), each)
    return list(ends.values())


def _unrecorded_ends(
    target: Target, ends: Sequence[RecordedAction], only: Collection[str], end_reason: str
) -> list[RecordedAction]:
    """Return the ends of sessions that ended for our reason, and that no journal lists.

    A restored database may have an end that the journal says we replaced since. What was there when
    they ended is not known, so only what is newer than the end tells: such a session was resumed.
    """
    recorded = {(each.action.target, written_end(each)) for each in ends}

    def read(connection: apsw.Connection, schema: Schema, session_id: str) -> RecordedAction | None:
        end = end_of(connection, session_id)
        is_ours = end is not None and end.end_reason == end_reason and _is_time(end.ended_at)
        if end is None or not is_ours or (session_id, end) in recorded:
            return None
        rows, _ = count_and_newest(connection, session_id)
        source, children = None, None
        if schema.has("sessions", "parent_session_id", "source"):
            source = connection.execute(
                "SELECT CAST(source AS TEXT) FROM sessions WHERE id = ?", (session_id,)
            ).get
            children = children_begun_by(connection, session_id, end.ended_at)
        was = {"proof": Proof.PRESUMED.value, "holders": [], "children": children}
        return RecordedAction(
            Action(END_SESSION, session_id, "", {"rows": rows, "source": source}),
            after={**end._asdict(), **was},
        )

    return _read_each(target, sorted(only) if end_reason else [], read)


def _read_each(
    target: Target,
    items: Sequence[Item],
    read: Callable[[apsw.Connection, Schema, Item], RecordedAction | None],
) -> list[RecordedAction]:
    """Return what is read of each item; nothing if there is no database."""
    found: list[RecordedAction | None] = []
    if items and database.file_state(target.database) is not None:
        for start in range(0, len(items), _AT_ONCE):
            with target.reading() as connection:
                schema = probe_schema(connection)
                for each in items[start : start + _AT_ONCE]:
                    with suppress(UnicodeDecodeError):  # of its rows: the others are healed
                        found.append(read(connection, schema, each))
    return [each for each in found if each is not None]


def _remedy(
    processes: Collection[ProcessKey],
    connection: apsw.Connection,
    schema: Schema,
    ended: RecordedAction,
) -> RecordedAction | None:
    """Return what corrects one session; None if nothing is wrong, or the end is not ours now."""
    session_id, end = ended.action.target, written_end(ended)
    has_parents = schema.has("sessions", "parent_session_id")
    children = children_of(connection, session_id) if has_parents else []
    rows = int(ended.action.expected.get("rows", 0))
    # A continuation's start is the end of its parent, which may have been written to since.
    since = max(end.ended_at, float(ended.after.get("active_at") or 0.0))
    is_active = active_since(connection, schema, session_id, since, rows)
    known = ended.after.get("children")
    new = [each for each in children if known is not None and each not in known]
    if not (is_active or new) or end_of(connection, session_id) != end:
        return None
    # An end that we took back came with a restored database: it is not ours a second time.
    mistake = ended.state is not ActionState.UNDONE and _was_there(ended, processes)
    # From now on only what comes beyond these rows is activity: Hermes may write to a session
    # right before it goes on in a child.
    count, newest = count_and_newest(connection, session_id)
    clear = [each for each in children if each not in new]

    def new_end(kind: str, to: End, reason: str, active_at: float | None) -> RecordedAction:
        proof = ended.after.get("proof", Proof.PROVEN.value)
        was = {**end._asdict(), "rows": count, "mistake": mistake, "proof": proof}
        later = {"children": clear[:CHILDREN_MAX], "active_at": active_at}
        return _correction(kind, ended, reason, was, {**ended.after, **to._asdict(), **later})

    for child in new:
        relation, began_at = Relation.NOT_YET, None
        with suppress(UnicodeDecodeError):  # of the child's rows: activity may still open it again
            relation, began_at = relation_of(connection, schema, session_id, child)
        if relation is not Relation.NOT_YET:
            clear.append(child)
        if relation in (Relation.CONTINUATION, Relation.BRANCH):
            # Not later, whatever was written since: Hermes takes a child that began before the end
            # of its parent for no continuation.
            corrected = End(began_at if _is_time(began_at) else end.ended_at, relation.value)
            if corrected == end and count == rows and (newest or 0.0) <= since:
                return None  # the end says so already
            return new_end(CORRECT_END, corrected, f"{cut(child, 64)} goes on from it", newest)
    if not is_active:
        return None
    if processes:
        was = {**ended.after, "mistake": mistake}
        return _correction(REOPEN_SESSION, ended, "it was active after it had been ended", was)
    moved = End(max(end.ended_at, newest or 0.0), end.end_reason)
    if moved == end and count == rows:
        return None
    return new_end(MOVE_END, moved, "it was active and was left again", None)


def _is_time(value: Any) -> bool:
    return isinstance(value, float | int) and isfinite(value)


def _was_there(ended: RecordedAction, processes: Collection[ProcessKey]) -> bool:
    """True if a process that had the database open at the reap must be the one that uses it now."""
    holders = ended.after.get("holders")
    if holders is None:  # an older journal does not say
        return bool(processes)
    then = {tuple(each) for each in holders}
    if ended.after.get("proof") == Proof.PROVEN and not then.issuperset(processes):
        return False
    return not then.isdisjoint(processes)


# Undo


def undo(run: str, target: Target) -> Outcome:
    """Open again what a reap ended; in a process of the home's owner, without a connection.

    Raise RunError if there is no such reap, RunBusyError if another run is under way, and
    DatabaseError if the database must not be written.
    """
    refuse_other_kind(target, run, RunKind.REAP)
    target.refuse_unwritable()
    record: RunRecord | None = None
    try:
        with running_on(target, f"undo of {run}") as runs:
            recover(target, runs, BY_ACTION)
            reopenings, failed = _still_as_reaped(run, target, runs)
            if not reopenings:
                return Outcome(run, RunOutcome.DONE, skipped=failed)
            # An undo that was stopped just goes on: what is back already is no failure.
            back = {each.target for each in failed} & runs.restored().keys()
            failed = tuple(each for each in failed if each.target not in back)
            record = RunRecord(runs)
            record.begin(RunKind.UNDO, reopenings, by_hand=True)
            outcome = change_ends(record, _ReplaceEnds(target))
    except RunError as error:
        if record is None or not record.run:
            raise
        # The journal failed after the undo had begun: sessions may be open, and not be noted.
        return Outcome(run, RunOutcome.UNKNOWN, why=not_known(run, error))
    return structs.replace(outcome, run=run, skipped=(*outcome.skipped, *failed))


def _still_as_reaped(
    run: str, target: Target, runs: RunJournal
) -> tuple[list[RecordedAction], tuple[Skipped, ...]]:
    """Return what reopens the sessions that are as the reap left them, and the others with why."""
    moved = {each.reverses: each for each in runs.named(MOVE_END)}
    actions: list[RecordedAction] = []
    for each in runs.actions(run):
        # Healing may have moved the end: then its action wrote the present one.
        while each.state is ActionState.UNDONE and Reversal(each.run, each.number) in moved:
            each = moved[Reversal(each.run, each.number)]
        actions.append(each)
    ends = read_ends(target, (each.action.target for each in actions))
    reopenings, failed = [], []
    for each in actions:
        session_id, why = each.action.target, _why_not_ended(each)
        if each.state is ActionState.DONE and not why:
            if ends.get(session_id) == written_end(each):
                reopenings.append(_correction(REOPEN_SESSION, each, f"undo of {run}", each.after))
            else:
                why = _why_not_reopened(ends.get(session_id))
        if why:
            failed.append(Skipped(session_id, why))
    return reopenings, tuple(failed)


def _why_not_ended(action: RecordedAction) -> str:
    """Return why a reap's action has no end to take back; empty if it has one, or was skipped."""
    if action.action.kind == UNREADABLE:
        return action.why
    if action.state is ActionState.UNDONE:
        return f"it was given back already, or corrected, {action.why}"
    if action.state is ActionState.INTENDED:
        return f"not known whether it was ended: {action.why}"
    return ""


# What both share


def _correction(
    kind: str,
    ended: RecordedAction,
    reason: str,
    was: Mapping[str, Any],
    after: Mapping[str, Any] | None = None,
) -> RecordedAction:
    """Return the action that takes back an end that we wrote, or gives another one."""
    expected = {**was, "source": ended.action.expected.get("source")}
    reverses = None  # no journal lists the end, or says that it was taken back already
    if ended.run and ended.state is not ActionState.UNDONE:
        reverses = Reversal(ended.run, ended.number)
    return RecordedAction(
        Action(kind=kind, target=ended.action.target, reason=reason, expected=expected),
        after=dict(after or {}),
        reverses=reverses,
    )


class _ReplaceEnds(ChangeEnds):
    """Changes or removes ends that are still ours."""

    def change(self, writer: Writer, actions: Sequence[RecordedAction]) -> list[str]:
        return [self._replace(writer.connection, each) for each in actions]

    def _replace(self, connection: apsw.Connection, action: RecordedAction) -> str:
        session_id, expected = action.action.target, action.action.expected
        old = End(expected["ended_at"], expected["end_reason"])
        if action.action.kind == REOPEN_SESSION:
            taken = reopen_session(connection, session_id, old)
        else:
            taken = replace_end(connection, session_id, old, written_end(action))
        return "" if taken else _why_not_reopened(end_of(connection, session_id))


def _why_not_reopened(found: End | None) -> str:
    if found is None:
        return "it is gone"
    if found.ended_at is None:
        return "Hermes has opened it again itself"
    return f"it has ended again since: {cut(str(found.end_reason or 'without a reason'), 64)}"
