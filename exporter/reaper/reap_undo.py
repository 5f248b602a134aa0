"""Giving back what a reap took: sessions that still are exactly as it left them are open again."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from exporter.runs.folder import RunError
from exporter.runs.journal import Runs, journal_of, running_on
from exporter.runs.models import (
    MOVE_END,
    REOPEN_SESSION,
    UNREADABLE,
    Action,
    ActionState,
    Intent,
    Kind,
    Outcome,
    Reversal,
    RunOutcome,
    Skipped,
)
from exporter.runs.recovery import not_known
from exporter.runs.take_actions import Change, read_ends, recover, take_all, written_end
from exporter.writing.connection import Writer
from exporter.writing.session_end import End, end_of, reopen_session
from exporter.writing.target import Target


def undo(run: str, target: Target) -> Outcome:
    """Open again what a reap ended; in a process of the home's owner, without a connection.

    Raise RunError if there is no such reap, RunBusyError if another run is under way, and
    DatabaseError if the database must not be written.
    """
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is None:
            raise RunError(f"there is no run {run} in {target.home}")
        _refuse_unless_reap(run, journal.find(run).kind)
    target.refuse_unwritable()
    undoing = ""
    try:
        with running_on(target, f"undo of {run}") as runs:
            recover(target, runs)
            undoing, intents, failed = _begin(run, target, runs)
            if not undoing:
                return Outcome(run, RunOutcome.DONE, skipped=failed)
            outcome = take_all(target, runs, undoing, intents, _Reopening())
    except RunError as error:
        if not undoing:
            raise
        # The journal failed after the undo had begun: sessions may be open, and not be noted.
        return Outcome(run, RunOutcome.UNKNOWN, why=not_known(run, error))
    return structs.replace(outcome, run=run, skipped=(*outcome.skipped, *failed))


def _begin(run: str, target: Target, runs: Runs) -> tuple[str, list[Intent], tuple[Skipped, ...]]:
    """Note the undo, of what still is as the reap left it; what is not, and why."""
    moved = {
        (each.intent.reverses.run, each.intent.reverses.number): each
        for each in runs.named(MOVE_END)
        if each.intent.reverses is not None
    }
    actions = [_as_it_stands(each, moved) for each in runs.actions(run)]
    failed = [
        Skipped(each.intent.target, f"it was given back already, or corrected, {each.why}")
        for each in actions
        if each.state is ActionState.UNDONE
    ]
    failed += [
        Skipped(each.intent.target, f"not known whether it was ended: {each.why}")
        for each in actions
        if each.state is ActionState.INTENDED
    ]
    failed += [
        Skipped(each.intent.target, each.why)
        for each in actions
        if each.intent.action == UNREADABLE
    ]
    done = [each for each in actions if each.state is ActionState.DONE]
    ends = read_ends(target, (each.intent.target for each in done))
    as_written = [each for each in done if ends.get(each.intent.target) == written_end(each)]
    changed = [
        Skipped(each.intent.target, why_not_reopened(ends.get(each.intent.target)))
        for each in done
        if ends.get(each.intent.target) != written_end(each)
    ]
    left = (*changed, *failed)
    if not as_written:
        return "", [], left
    intents = [reopening(each, f"undo of {run}") for each in as_written]
    return runs.begin(Kind.UNDO, intents, by_hand=True), intents, left


def _as_it_stands(action: Action, moved: Mapping[tuple[str, int], Action]) -> Action:
    """The action that wrote the end which a session has now: healing may have moved it."""
    while action.state is ActionState.UNDONE and (action.run, action.number) in moved:
        action = moved[action.run, action.number]
    return action


def _refuse_unless_reap(run: str, kind: Kind) -> None:
    if kind is not Kind.REAP:
        raise RunError(f"run {run} is no reap but one of kind {kind.value}; nothing was done")


def reopening(action: Action, reason: str) -> Intent:
    """The intent to take back an action that ended a session."""
    return Intent(
        action=REOPEN_SESSION,
        target=action.intent.target,
        reason=reason,
        before={**action.intent.after, "source": action.intent.before.get("source")},
        reverses=Reversal(action.run, action.number),
    )


class _Reopening(Change):
    """Opens sessions again."""

    def check(self, writer: Writer) -> None:
        writer.new_openers()  # raises if a process has lost its locks; a new one may stay

    def take(self, writer: Writer, action: Action) -> str:
        session_id, end = action.intent.target, written_end(action)
        if reopen_session(writer.connection, session_id, end):
            return ""
        return why_not_reopened(end_of(writer.connection, session_id))


def why_not_reopened(found: End | None) -> str:
    if found is None:
        return "it is gone"
    if found.ended_at is None:
        return "Hermes has opened it again itself"
    return f"it has ended again since: {str(found.end_reason or 'without a reason')[:64]}"
