"""Giving back what a reap took: sessions that still are exactly as it left them are open again."""

from __future__ import annotations

from collections.abc import Mapping

from exporter.hermes.ending import End, end_of, reopen_session
from exporter.hermes.writing import Writer, look_at_bystanders, refuse_unwritable
from exporter.reaper.batches import Change, read_ends, recover, take_all, written_end
from exporter.reaper.orders import Skipped, Undone
from exporter.reaper.plan import MOVE, REOPEN
from exporter.reaper.site import Site
from exporter.runs import Action, ActionState, Intent, Kind, Reversal, RunError, journal_of


def undo(run: str, site: Site) -> Undone:
    """Open again what a reap ended; in a process of the home's owner, without a connection.

    Raise RunError if there is no such reap, RunBusyError if another run is under way, and
    DatabaseError if the database must not be written.
    """
    with journal_of(site.home, site.owner, site.clock) as journal:
        if journal is None:
            raise RunError(f"there is no run {run} in {site.home}")
        _refuse_unless_reap(run, journal.find(run).kind)
    refuse_unwritable(site.database, site.owner)
    look_at_bystanders(site.database, site.bystanders, site.proc)
    with site.running(f"undo of {run}") as runs:
        recover(site, runs)
        moved = {each.intent.target: each for each in runs.standing(MOVE)}
        actions = [_as_it_stands(each, moved) for each in runs.actions(run)]
        taken_back = [
            Skipped(each.intent.target, f"it was given back already, {each.why}")
            for each in actions
            if each.state is ActionState.UNDONE
        ]
        done = [each for each in actions if each.state is ActionState.DONE]
        ends = read_ends(site, (each.intent.target for each in done))
        as_written = [each for each in done if ends.get(each.intent.target) == written_end(each)]
        changed = [
            Skipped(each.intent.target, why_not_reopened(ends.get(each.intent.target)))
            for each in done
            if ends.get(each.intent.target) != written_end(each)
        ]
        failed = (*changed, *taken_back)
        if not as_written:
            return Undone(run, (), failed)
        intents = [reopening(each, f"undo of {run}") for each in as_written]
        undoing = runs.begin(Kind.UNDO, intents, by_hand=True)
        result = take_all(site, runs, undoing, intents, _Reopening())
    return Undone(run, result.done, (*result.skipped, *failed), result.why)


def _as_it_stands(action: Action, moved: Mapping[str, Action]) -> Action:
    """The action that wrote the end which a session has now: healing may have moved it."""
    if action.state is not ActionState.UNDONE:
        return action
    return moved.get(action.intent.target, action)


def _refuse_unless_reap(run: str, kind: Kind) -> None:
    if kind is not Kind.REAP:
        raise RunError(f"run {run} is no reap but one of kind {kind.value}; nothing was done")


def reopening(action: Action, reason: str) -> Intent:
    """The intent to take back an action that ended a session."""
    return Intent(
        action=REOPEN,
        target=action.intent.target,
        reason=reason,
        before={**action.intent.after, "source": action.intent.before.get("source")},
        reverses=Reversal(action.run, action.number),
    )


class _Reopening(Change):
    """Opens sessions again."""

    def check(self, writer: Writer) -> None:
        writer.newcomers()  # raises if a process has lost its locks; a new one may stay

    def take(self, writer: Writer, action: Action) -> str:
        target, end = action.intent.target, written_end(action)
        if reopen_session(writer.connection, target, end):
            return ""
        return why_not_reopened(end_of(writer.connection, target))


def why_not_reopened(found: End | None) -> str:
    if found is None:
        return "it is gone"
    if found.ended_at is None:
        return "Hermes has opened it again itself"
    return f"it has ended again since: {str(found.end_reason or 'without a reason')[:64]}"
