"""Healing: taking back a reap that turns out to have been wrong, within one scan.

While a session still carries exactly the end that we wrote:

1. A new child that continues it gives it the end `compression`, one that branched off `branched`,
   as Hermes would have done; `ended_at` becomes the child's start.
2. Otherwise newer activity opens it again if a process that may run it has the database open. If
   none has, a client came back for a turn and has left: `ended_at` moves to that activity.

It was our mistake only if a process that had the database open at the reap is still there. If not,
the session was resumed later, which any client may do with an ended session.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any, Final

import apsw
from msgspec import Struct

from exporter.hermes import database
from exporter.hermes.continuations import Relation, children_of, relation_of
from exporter.hermes.schema import Schema, probe_schema
from exporter.reaper.execute import CHILDREN_MAX
from exporter.reaper.models import Proof
from exporter.reaper.possible_hosts import ProcessKey
from exporter.reaper.reap_undo import reopening, why_not_reopened
from exporter.runs.journal import Runs, journal_of, running_on
from exporter.runs.models import (
    CORRECT_END,
    ENDS,
    MOVE_END,
    REOPEN_SESSION,
    Action,
    Intent,
    Kind,
    Reversal,
)
from exporter.runs.take_actions import Change, recover, take_all, written_end
from exporter.text import counted
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

_AT_ONCE: Final = 200
"""Sessions looked at in one read transaction: a long one would keep the WAL from restarting."""


class Healed(Struct, frozen=True):
    """What was put right."""

    mistakes: tuple[str, ...] = ()
    """Sessions that a process was on when we ended them."""
    resumed: tuple[str, ...] = ()
    """Sessions that were taken up later."""
    complete: bool = True
    """False if something is left to be put right: the database could not be written."""


def heal(
    target: Target, processes: Collection[ProcessKey], only: Collection[str] | None = None
) -> Healed:
    """Put right what was ended wrongly; `processes` have the database open and are not cleared.

    `only` these sessions are looked at; None: all that carry an end of ours. In a process of the
    home's owner without a connection. Raise DatabaseError or RunError if the home cannot be read or
    written; what was wrong then still is, and is found the next time.
    """
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is None:
            return Healed()
        ends = standing_ends(journal, only)
        if not journal.unfinished_runs() and not _find(target, ends, processes):
            return Healed()
    with running_on(target, "heal") as runs:
        recover(target, runs)
        intents = _find(target, standing_ends(runs, only), processes)
        if not intents:
            return Healed()
        run = runs.begin(Kind.HEAL, intents)
        _stop_if_proven(runs, intents)
        result = take_all(target, runs, run, intents, _Healing())
    done = set(result.done)
    found = [each for each in intents if each.target in done]
    return Healed(
        tuple(each.target for each in found if each.before["mistake"]),
        tuple(each.target for each in found if not each.before["mistake"]),
        complete=not result.why,
    )


def standing_ends(journal: Runs, only: Collection[str] | None) -> list[Action]:
    """For each session the last end that we wrote and did not take back."""
    newest: dict[str, Action] = {}
    for each in journal.standing(*ENDS):  # the newest first
        if only is None or each.intent.target in only:
            newest.setdefault(each.intent.target, each)
    return list(newest.values())


def _stop_if_proven(runs: Runs, healed: Sequence[Intent]) -> None:
    """A proof that was wrong means that we do not see what we think: a person has to look."""
    wrong = [
        each
        for each in healed
        if each.before["mistake"] and each.before.get("proof", Proof.PROVEN) == Proof.PROVEN
    ]
    if wrong:
        runs.trip(f"{counted(len(wrong), 'session')} proven dead, and active after the reap")


def _find(
    target: Target, ends: Sequence[Action], processes: Collection[ProcessKey]
) -> list[Intent]:
    """What is to be done about the sessions whose ends these are."""
    if not ends or database.file_state(target.database) is None:
        return []
    found: list[Intent | None] = []
    for start in range(0, len(ends), _AT_ONCE):
        with target.reading() as connection:
            schema = probe_schema(connection)
            part = ends[start : start + _AT_ONCE]
            found += [_remedy_or_none(connection, schema, each, processes) for each in part]
    return [each for each in found if each is not None]


def _remedy_or_none(
    connection: apsw.Connection, schema: Schema, ended: Action, processes: Collection[ProcessKey]
) -> Intent | None:
    """A row with text that is not UTF-8 costs no other session its healing."""
    try:
        return _remedy(connection, schema, ended, processes)
    except UnicodeDecodeError:
        return None


def _remedy(
    connection: apsw.Connection, schema: Schema, ended: Action, processes: Collection[ProcessKey]
) -> Intent | None:
    """What puts one session right; None if nothing is wrong, or the end is not ours any more."""
    session_id, end = ended.intent.target, written_end(ended)
    children = (
        children_of(connection, session_id) if schema.has("sessions", "parent_session_id") else []
    )
    rows = int(ended.intent.before.get("rows", 0))
    is_active = active_since(connection, schema, session_id, end, rows)
    known = ended.intent.after.get("children")
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
            moment = began_at if _is_time(began_at) else end.ended_at
            corrected = End(max(moment, newest or moment), relation.value)
            if corrected == end and count == rows:
                return None  # said already
            reason = f"{child[:64]} goes on from it"
            return _new_end(CORRECT_END, ended, corrected, reason, count, [*clear, child], mistake)
        if relation is not Relation.NOT_YET:
            clear.append(child)
    if not is_active:
        return None
    if processes:
        return _reopening(ended, mistake)
    moved = End(max(end.ended_at, newest or 0.0), end.end_reason)
    if moved == end and count == rows:
        return None
    return _new_end(MOVE_END, ended, moved, "it was active and was left again", count, clear, False)


def _is_time(value: Any) -> bool:
    return isinstance(value, float | int) and isfinite(value)


def _was_there(ended: Action, processes: Collection[ProcessKey]) -> bool:
    """Whether a process that had the database open at the reap has it open now."""
    then = ended.intent.after.get("holders")
    if then is None:  # an older journal does not say
        return bool(processes)
    return any(tuple(each) in processes for each in then)


def _reopening(ended: Action, mistake: bool) -> Intent:
    intent = reopening(ended, "it was active after it had been ended")
    intent.before["mistake"] = mistake
    return intent


def _new_end(
    action: str,
    ended: Action,
    end: End,
    reason: str,
    rows: int,
    children: Sequence[str],
    mistake: bool,
) -> Intent:
    old = ended.intent.after
    before: dict[str, Any] = {
        "source": ended.intent.before.get("source"),
        "rows": rows,
        "ended_at": old["ended_at"],
        "end_reason": old["end_reason"],
        "mistake": mistake,
        "proof": old.get("proof", Proof.PROVEN.value),
    }
    after = {**old, **end._asdict(), "children": list(children[:CHILDREN_MAX])}
    return Intent(
        action=action,
        target=ended.intent.target,
        reason=reason,
        before=before,
        after=after,
        reverses=Reversal(ended.run, ended.number),
    )


class _Healing(Change):
    """Changes ends that are still ours."""

    def check(self, writer: Writer) -> None:
        writer.new_openers()  # raises if a process has lost its locks

    def take(self, writer: Writer, action: Action) -> str:
        connection, intent = writer.connection, action.intent
        old = End(intent.before["ended_at"], intent.before["end_reason"])
        if intent.action == REOPEN_SESSION:
            taken = reopen_session(connection, intent.target, old)
        else:
            taken = replace_end(connection, intent.target, old, written_end(action))
        return "" if taken else why_not_reopened(end_of(connection, intent.target))
