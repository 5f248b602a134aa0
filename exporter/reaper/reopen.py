"""Reopens reaped sessions: by an undo, or because the reap was wrong.

Healing corrects a wrong reap within one scan, while the session still has exactly the end that we
wrote:

1. A new child that continues it gives it the end `compression`, one that branched off `branched`,
   as Hermes would have done; `ended_at` becomes the child's start.
2. Otherwise newer activity opens it again if a process that may run it has the database open. If
   none has, a client came back for a turn and has left: `ended_at` moves to that activity.

It was our mistake only if a process that had the database open at the reap is still there. If not,
the session was resumed later, which any client may do with an ended session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import Any, Final, TypeVar

import apsw
from msgspec import Struct, structs

from exporter.hermes import database
from exporter.hermes.continuations import Relation, children_begun_by, children_of, relation_of
from exporter.hermes.schema import Schema, probe_schema
from exporter.reaper.change_ends import BY_ACTION, Change, change_ends, read_ends, written_end
from exporter.reaper.execute import CHILDREN_MAX
from exporter.reaper.possible_hosts import ProcessKey
from exporter.runs.folder import RunError
from exporter.runs.journal import RunJournal, journal_of, journal_was_lost, running_on
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
    ends_of,
    reopen_session,
    replace_end,
)
from exporter.writing.target import Target

Item = TypeVar("Item")
_Found = Iterator[RecordedAction]
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
        ends = [] if journal is None else current_ends(journal, only)
        return _find(target, [*ends, *_unrecorded(target, ends, only or (), end_reason)], processes)

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
        record = RunRecord(runs)
        record.begin(RunKind.HEAL, remedies)
        _stop_if_proven(runs, remedies)
        outcome = change_ends(target, record, _Replacing())
    done = set(outcome.done)
    found = [each.action for each in remedies if each.action.target in done]
    return HealedReaps(
        tuple(each.target for each in found if each.expected["mistake"]),
        tuple(each.target for each in found if not each.expected["mistake"]),
        complete=not outcome.why,
    )


def current_ends(journal: RunJournal, only: Collection[str] | None) -> list[RecordedAction]:
    """The ends that we wrote and did not take back; only one of a session can be its present one.

    Hermes may have reopened a session that we ended again later. Which of both is the later one the
    times do not tell, since the clock may have been set back: the row itself tells.
    """
    ends: dict[tuple[str, End], RecordedAction] = {}
    for each in journal.done_actions(*ENDS):  # the newest first
        if only is None or each.action.target in only:
            ends.setdefault((each.action.target, written_end(each)), each)
    return list(ends.values())


def _unrecorded(
    target: Target, ends: Sequence[RecordedAction], only: Collection[str], end_reason: str
) -> list[RecordedAction]:
    """Return the ends of sessions that ended for our reason, and that no journal lists.

    A restored database may have an end that the journal says we replaced since. What was there when
    they ended is not known, so only what is newer than the end tells: such a session was resumed.
    """
    recorded = {(each.action.target, written_end(each)) for each in ends}

    def read(connection: apsw.Connection, schema: Schema, some: Sequence[str]) -> _Found:
        for session_id, end in ends_of(connection, some).items():
            is_ours = end.end_reason == end_reason and _is_time(end.ended_at)
            if is_ours and (session_id, end) not in recorded:
                yield _unrecorded_end(connection, schema, session_id, end)

    return _read_in_parts(target, sorted(only) if end_reason else [], read)


def _unrecorded_end(
    connection: apsw.Connection, schema: Schema, session_id: str, end: End
) -> RecordedAction:
    rows, _ = count_and_newest(connection, session_id)
    source, children = None, None
    if schema.has("sessions", "parent_session_id", "source"):
        (source,) = connection.execute(
            "SELECT CAST(source AS TEXT) FROM sessions WHERE id = ?", (session_id,)
        ).fetchone() or (None,)
        children = children_begun_by(connection, session_id, end.ended_at)
    return RecordedAction(
        Action(END_SESSION, session_id, "", {"rows": rows, "source": source}),
        after={
            **end._asdict(),
            "proof": Proof.PRESUMED.value,
            "holders": [],
            "children": children,
        },
    )


def _stop_if_proven(runs: RunJournal, healed: Sequence[RecordedAction]) -> None:
    """Stop automatic reaping after a wrong proof: we do not see all processes."""
    wrong = [
        each
        for each in (remedy.action.expected for remedy in healed)
        if each["mistake"] and each.get("proof", Proof.PROVEN) == Proof.PROVEN
    ]
    if wrong:
        runs.trip(f"{counted(len(wrong), 'session')} proven dead, and active after the reap")


def _find(
    target: Target, ends: Sequence[RecordedAction], processes: Collection[ProcessKey]
) -> list[RecordedAction]:
    """Return the actions that correct the sessions with these ends."""

    def read(connection: apsw.Connection, schema: Schema, some: Sequence[RecordedAction]) -> _Found:
        for each in some:
            with suppress(UnicodeDecodeError):  # of this session's rows: the others are healed
                remedy = _remedy(connection, schema, each, processes)
                if remedy is not None:
                    yield remedy

    return _read_in_parts(target, ends, read)


def _read_in_parts(
    target: Target,
    items: Sequence[Item],
    read: Callable[[apsw.Connection, Schema, Sequence[Item]], _Found],
) -> list[RecordedAction]:
    """Return what is read of all items; nothing if there is no database."""
    found: list[RecordedAction] = []
    if items and database.file_state(target.database) is not None:
        for start in range(0, len(items), _AT_ONCE):
            with target.reading() as connection:
                part = items[start : start + _AT_ONCE]
                found += read(connection, probe_schema(connection), part)
    return found


def _remedy(
    connection: apsw.Connection,
    schema: Schema,
    ended: RecordedAction,
    processes: Collection[ProcessKey],
) -> RecordedAction | None:
    """Return what corrects one session; None if nothing is wrong, or the end is not ours now."""
    session_id, end = ended.action.target, written_end(ended)
    children = (
        children_of(connection, session_id) if schema.has("sessions", "parent_session_id") else []
    )
    rows = int(ended.action.expected.get("rows", 0))
    # A continuation's start is the end of its parent, which may have been written to since.
    since = max(end.ended_at, float(ended.after.get("active_at") or 0.0))
    is_active = active_since(connection, schema, session_id, since, rows)
    known = ended.after.get("children")
    new = [each for each in children if known is not None and each not in known]
    if not (is_active or new) or end_of(connection, session_id) != end:
        return None
    mistake = _was_there(ended, processes)
    # From now on only what comes beyond these rows is activity: Hermes may write to a session
    # right before it goes on in a child.
    count, newest = count_and_newest(connection, session_id)
    clear = [each for each in children if each not in new]
    for child in new:
        relation, began_at = relation_of(connection, schema, session_id, child)
        if relation in (Relation.CONTINUATION, Relation.BRANCH):
            # Not later, whatever was written since: Hermes takes a child that began before the end
            # of its parent for no continuation.
            moment = began_at if _is_time(began_at) else end.ended_at
            corrected = End(moment, relation.value)
            if corrected == end and count == rows and (newest or 0.0) <= since:
                return None  # the end says so already
            reason = f"{cut(child, 64)} goes on from it"
            remedy = _new_end(
                CORRECT_END, ended, corrected, reason, count, [*clear, child], mistake
            )
            remedy.after["active_at"] = newest
            return remedy
        if relation is not Relation.NOT_YET:
            clear.append(child)
    if not is_active:
        return None
    if processes:
        reopening = _reopening(ended, "it was active after it had been ended")
        reopening.action.expected["mistake"] = mistake
        return reopening
    moved = End(max(end.ended_at, newest or 0.0), end.end_reason)
    if moved == end and count == rows:
        return None
    return _new_end(MOVE_END, ended, moved, "it was active and was left again", count, clear, False)


def _reversal(ended: RecordedAction) -> Reversal | None:
    """Return which action is taken back; None if no journal has it."""
    return Reversal(ended.run, ended.number) if ended.run else None


def _is_time(value: Any) -> bool:
    return isinstance(value, float | int) and isfinite(value)


def _was_there(ended: RecordedAction, processes: Collection[ProcessKey]) -> bool:
    """True if a process that had the database open at the reap has it open now."""
    then = ended.after.get("holders")
    if then is None:  # an older journal does not say
        return bool(processes)
    return any(tuple(each) in processes for each in then)


def _new_end(
    kind: str,
    ended: RecordedAction,
    end: End,
    reason: str,
    rows: int,
    children: Sequence[str],
    mistake: bool,
) -> RecordedAction:
    old = ended.after
    expected: dict[str, Any] = {
        "source": ended.action.expected.get("source"),
        "rows": rows,
        "ended_at": old["ended_at"],
        "end_reason": old["end_reason"],
        "mistake": mistake,
        "proof": old.get("proof", Proof.PROVEN.value),
    }
    after = {**old, **end._asdict(), "children": list(children[:CHILDREN_MAX]), "active_at": None}
    return RecordedAction(
        Action(kind=kind, target=ended.action.target, reason=reason, expected=expected),
        after=after,
        reverses=_reversal(ended),
    )


# Undo


def undo(run: str, target: Target) -> Outcome:
    """Open again what a reap ended; in a process of the home's owner, without a connection.

    Raise RunError if there is no such reap, RunBusyError if another run is under way, and
    DatabaseError if the database must not be written.
    """
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is None:
            raise RunError(f"there is no run {run} in {target.home}")
        kind = journal.find(run).kind
        if kind is not RunKind.REAP:
            raise RunError(f"run {run} is no reap but one of kind {kind.value}; nothing was done")
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
            outcome = change_ends(target, record, _Replacing())
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
    moved = {
        (each.reverses.run, each.reverses.number): each
        for each in runs.named(MOVE_END)
        if each.reverses is not None
    }
    actions = [_as_it_stands(each, moved) for each in runs.actions(run)]
    done = [each for each in actions if each.state is ActionState.DONE]
    ends = read_ends(target, (each.action.target for each in done))
    as_written = [each for each in done if ends.get(each.action.target) == written_end(each)]
    changed = [
        Skipped(each.action.target, _why_not_reopened(ends.get(each.action.target)))
        for each in done
        if ends.get(each.action.target) != written_end(each)
    ]
    reasons = ((each.action.target, _why_not_ended(each)) for each in actions)
    failed = [Skipped(session_id, why) for session_id, why in reasons if why]
    return [_reopening(each, f"undo of {run}") for each in as_written], (*changed, *failed)


def _why_not_ended(action: RecordedAction) -> str:
    """Return why a reap's action has no end to take back; empty if it has one, or was skipped."""
    if action.action.kind == UNREADABLE:
        return action.why
    if action.state is ActionState.UNDONE:
        return f"it was given back already, or corrected, {action.why}"
    if action.state is ActionState.INTENDED:
        return f"not known whether it was ended: {action.why}"
    return ""


def _as_it_stands(
    action: RecordedAction, moved: Mapping[tuple[str, int], RecordedAction]
) -> RecordedAction:
    """Return the action that wrote the present end of a session: healing may have moved it."""
    while action.state is ActionState.UNDONE and (action.run, action.number) in moved:
        action = moved[action.run, action.number]
    return action


# What both share


def _reopening(ended: RecordedAction, reason: str) -> RecordedAction:
    """Return the action that reverses the end of a session."""
    return RecordedAction(
        Action(
            kind=REOPEN_SESSION,
            target=ended.action.target,
            reason=reason,
            expected={**ended.after, "source": ended.action.expected.get("source")},
        ),
        reverses=_reversal(ended),
    )


class _Replacing(Change):
    """Changes or removes ends that are still ours."""

    def check(self, writer: Writer) -> None:
        writer.new_openers()  # raises if a process has lost its locks; a new opener does no harm

    def take(self, writer: Writer, action: RecordedAction) -> str:
        connection, session_id = writer.connection, action.action.target
        old = End(action.action.expected["ended_at"], action.action.expected["end_reason"])
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
