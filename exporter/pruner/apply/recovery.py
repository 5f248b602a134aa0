"""Find out, from the state of the home, what killed prunes and undos had done.

- A session is in the database, or it is gone and in the trash.
- For everything else its remover checks.
- Files follow their session: if its rows are gone, its files go to the trash too, as the run
  intended; if its rows were restored, its files are restored. So no transcript is left without its
  session.

Afterwards the run can be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from exporter.errors import HomeError
from exporter.pruner.apply import emptied
from exporter.pruner.apply.delete_sessions import what_was_deleted
from exporter.pruner.apply.registry import removers_for
from exporter.pruner.apply.remover import Remover
from exporter.pruner.apply.restore_sessions import what_was_restored
from exporter.pruner.apply.session_trash import overview
from exporter.pruner.models import Act
from exporter.reaper import change_ends
from exporter.runs.journal import RunJournal
from exporter.runs.models import ActionState, Frees, RecordedAction, Run, Settled
from exporter.runs.recovery import KILLED, FindOut
from exporter.runs.trash import RunTrash, is_run_id, trash_of
from exporter.writing.target import Target

RESTORE_ACTION: Final = "give_back"
"""The action of an undo: it takes back whatever action it reverses."""
_SESSION: Final = Act.DELETE_SESSION.value


def note_purged(runs: RunJournal, run: str) -> None:
    """Note that what a run purged cannot be undone any more, unless rows of it had to stay.

    Also if not all of it could be deleted: what is left of it has no name any more.
    """
    for each in runs.actions(run):
        if each.action.kind == Act.PURGE_TRASH.value and is_run_id(each.action.target):
            with trash_of(runs.folder, each.action.target) as left:
                if left is None:
                    runs.set_not_undoable(each.action.target)


def trash_for(action: RecordedAction, trash: RunTrash | None) -> RunTrash | None:
    """Return the trash for this action; None if it deletes without the trash."""
    return None if action.action.frees is Frees.NOW else trash


def restore(remover: Remover, original: RecordedAction, trash: RunTrash | None) -> str:
    """Restore one target that is not a session; return why not, or ''."""
    if trash is None or original.action.frees is Frees.NOW:
        return "it was not put into the trash"
    try:
        return remover.restore(original, trash)
    except HomeError as error:
        return str(error)


def session_of(action: RecordedAction) -> str | None:
    """Return the session that a file belongs to."""
    session = action.action.expected.get("session")
    return session if isinstance(session, str) else None


def taken_sessions(runs: RunJournal, run: str) -> list[RecordedAction]:
    """Return the actions by which a run took sessions that are not restored yet."""
    return [
        each for each in runs.actions(run) if is_session(each) and each.state is ActionState.DONE
    ]


def sessions_in_trash(runs: RunJournal, run: str, trash: RunTrash | None) -> set[str]:
    """Return sessions of this run that can still be restored: their files stay in the trash too."""
    taken = taken_sessions(runs, run)
    if not taken or trash is None:
        return set()
    kept = overview(trash).sessions
    return {each.action.target for each in taken if each.number in kept}


def is_session(action: RecordedAction) -> bool:
    return action.action.kind == _SESSION


# Killed runs


def _deleted(
    target: Target, runs: RunJournal, run: Run, actions: Sequence[RecordedAction]
) -> list[Settled]:
    """Find out which sessions a prune has deleted."""
    with trash_of(runs.folder, run.id) as trash:
        return what_was_deleted(target, actions, trash, KILLED)


def _taken(
    target: Target, runs: RunJournal, run: Run, actions: Sequence[RecordedAction]
) -> list[Settled]:
    """Find out what else a prune took, and take the files of the sessions that it deleted."""
    removers = removers_for(target, runs.folder)
    gone = {each.action.target for each in taken_sessions(runs, run.id)}

    def take(action: RecordedAction, trash: RunTrash | None) -> str:
        remover, place = removers[Act(action.action.kind)], trash_for(action, trash)
        if place is None and action.action.frees is not Frees.NOW:
            return "its trash is gone"  # and nothing is ever taken without one
        if remover.was_taken(action, place):
            if action.action.kind == Act.PURGE_TRASH.value:
                runs.set_not_undoable(action.action.target)
            return ""
        return remover.take(action, place) if session_of(action) in gone else KILLED

    with trash_of(runs.folder, run.id) as trash:
        return [_settled(each, take, trash) for each in actions]


def _restored(
    target: Target, runs: RunJournal, run: Run, actions: Sequence[RecordedAction]
) -> list[Settled]:
    """Find out what an undo restored, and restore the files of the sessions that are back."""
    removers = removers_for(target, runs.folder)
    settled: list[Settled] = []
    for undone, returning in _reversals(actions).items():
        originals = {each.number: each for each in runs.actions(undone)}
        pairs = [(originals[number], each) for number, each in returning.items()]
        with trash_of(runs.folder, undone) as trash:
            sessions = [each for original, each in pairs if is_session(original)]
            back = what_was_restored(target, sessions, trash, KILLED)
            # Noted first: whether a file goes back depends on what the journal says of them.
            runs.settle(run.id, back)
            away = sessions_in_trash(runs, undone, trash)

            bring = partial(_bring_back, removers, away)
            for original, each in pairs:
                if not is_session(original):
                    found = _settled(original, bring, trash)
                    settled.append(Settled(each.number, found.state, found.why))
    return settled


def _bring_back(
    removers: Mapping[Act, Remover],
    away: set[str],
    original: RecordedAction,
    trash: RunTrash | None,
) -> str:
    """Restore one target that is not a session, unless its session is not restored yet."""
    remover = removers[Act(original.action.kind)]
    waits = session_of(original) in away
    if waits and trash is not None and remover.was_taken(original, trash):
        return KILLED
    return restore(remover, original, trash)


def _settled(
    action: RecordedAction,
    step: Callable[[RecordedAction, RunTrash | None], str],
    trash: RunTrash | None,
) -> Settled:
    """Settle one action; if damage hides what it did, the other actions are not affected."""
    try:
        return Settled.of(action, step(action, trash))
    except HomeError as error:
        return Settled(action.number, ActionState.INTENDED, str(error))
    except OSError as error:
        return Settled(action.number, ActionState.INTENDED, f"not known: {error.strerror}")


def _reversals(actions: Sequence[RecordedAction]) -> Mapping[str, Mapping[int, RecordedAction]]:
    """Return the actions of an undo, by run and number of the action that each takes back."""
    found: dict[str, dict[int, RecordedAction]] = {}
    for each in actions:
        reversal = each.reverses
        if reversal is not None:
            found.setdefault(reversal.run, {})[reversal.number] = each
    return found


BY_ACTION: Final[dict[str, FindOut]] = {
    **change_ends.BY_ACTION,
    _SESSION: _deleted,  # before the files that belong to sessions
    **dict.fromkeys((each.value for each in Act if each is not Act.DELETE_SESSION), _taken),
    RESTORE_ACTION: _restored,
    **emptied.BY_ACTION,
}
"""How actions of any run are settled after a kill; see `exporter.runs.recovery`."""
