"""What became of the actions of prunes and their undos that were killed, by looking at the home.

Sessions are gone and in the trash, or there; other things their effects know about. Files that
belong to a session follow it: where its rows are gone its files go to the trash too, as the run
intended, and where its rows were given back so are its files. So no transcript is left without its
session. Afterwards what was taken can be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from exporter.errors import HomeError
from exporter.pruner.apply.delete_sessions import what_happened
from exporter.pruner.apply.registry import effects_on
from exporter.pruner.apply.remover import Effect
from exporter.pruner.apply.restore_sessions import what_came_back
from exporter.pruner.apply.session_trash import overview
from exporter.pruner.models import Act
from exporter.runs import recovery, take_actions
from exporter.runs.folder import RunFolder
from exporter.runs.journal import Runs
from exporter.runs.models import Action, ActionState, Frees, Run, Settlement
from exporter.runs.recovery import KILLED, Recovered, Settle
from exporter.runs.trash import TrashRun, trash_of
from exporter.writing.target import Target

GIVE_BACK: Final = "give_back"
"""The action of an undo: it takes back whatever action it reverses."""
_SESSION: Final = Act.DELETE_SESSION.value


def recover(target: Target, runs: Runs, folder: RunFolder) -> Recovered:
    """Settle what killed runs of any kind left open."""
    pruning = _Pruning(target, runs, folder)
    taken = dict.fromkeys((each.value for each in Act if each.value != _SESSION), pruning.taken)
    by_action: dict[str, Settle] = {
        **take_actions.settlers(target),
        _SESSION: pruning.deleted,  # before the files that belong to sessions
        **taken,
        GIVE_BACK: pruning.given_back,
    }
    return recovery.recover(runs, by_action)


def note_purged(runs: Runs, run: str) -> None:
    """What a run has purged cannot be undone any more."""
    for each in runs.actions(run):
        if each.intent.action == Act.PURGE_TRASH.value and each.state is ActionState.DONE:
            runs.not_undoable(each.intent.target)


def trash_for(action: Action, trash: TrashRun | None) -> TrashRun | None:
    """Where this action puts what it takes; None if it is gone for good."""
    return None if _frees_now(action) else trash


def give_back(effect: Effect, original: Action, trash: TrashRun | None) -> str:
    """Give back one thing that is no session; '' or why not."""
    if trash is None or _frees_now(original):
        return "it was not put into the trash"
    try:
        return effect.give_back(original, trash)
    except HomeError as error:
        return str(error)[:300]


def session_of(action: Action) -> str | None:
    """The session that a file belongs to."""
    session = action.intent.before.get("session")
    return session if isinstance(session, str) else None


def sessions_away(runs: Runs, run: str, trash: TrashRun | None) -> set[str]:
    """Sessions that this run took and that can still come back: their files wait with them."""
    taken = [each for each in runs.actions(run) if _is_session(each)]
    taken = [each for each in taken if each.state is ActionState.DONE]
    if not taken or trash is None:
        return set()
    kept = overview(trash).began_at
    return {each.intent.target for each in taken if each.number in kept}


class _Pruning:
    """Settles prunes and their undos in one home."""

    def __init__(self, target: Target, runs: Runs, folder: RunFolder) -> None:
        self._target = target
        self._runs = runs
        self._folder = folder
        self._effects = effects_on(target, folder)

    def deleted(self, run: Run, actions: Sequence[Action]) -> list[Settlement]:
        """Which sessions a prune has deleted."""
        with trash_of(self._folder, run.id) as trash:
            return what_happened(self._target, actions, trash, KILLED)

    def taken(self, run: Run, actions: Sequence[Action]) -> list[Settlement]:
        """What else a prune has taken; it takes the files of the sessions that it has deleted."""
        gone = {
            each.intent.target
            for each in self._runs.actions(run.id)
            if _is_session(each) and each.state is ActionState.DONE
        }
        with trash_of(self._folder, run.id) as trash:
            return [_told(each, self._take, trash, session_of(each) in gone) for each in actions]

    def _take(self, action: Action, trash: TrashRun | None, *, goes_on: bool) -> str:
        effect, place = self._effects[Act(action.intent.action)], trash_for(action, trash)
        if place is None and not _frees_now(action):
            return "its trash is gone"  # and nothing is ever taken without one
        if effect.taken(action, place):
            if action.intent.action == Act.PURGE_TRASH.value:
                self._runs.not_undoable(action.intent.target)
            return ""
        return effect.take(action, place) if goes_on else KILLED

    def given_back(self, run: Run, actions: Sequence[Action]) -> list[Settlement]:
        """What an undo has given back; it gives back the files of the sessions that are back."""
        settled: list[Settlement] = []
        for undone, returning in _reversals(actions).items():
            originals = {each.number: each for each in self._runs.actions(undone)}
            pairs = [(originals[number], each) for number, each in returning.items()]
            with trash_of(self._folder, undone) as trash:
                sessions = [each for original, each in pairs if _is_session(original)]
                back = what_came_back(self._target, sessions, trash, KILLED)
                # Noted first: whether a file goes back depends on what the journal says of them.
                self._runs.settle(run.id, back)
                away = sessions_away(self._runs, undone, trash)
                for original, each in pairs:
                    if not _is_session(original):
                        told = _told(original, self._bring, trash, session_of(original) not in away)
                        settled.append(Settlement(each.number, told.state, told.why))
        return settled

    def _bring(self, original: Action, trash: TrashRun | None, *, goes_on: bool) -> str:
        effect = self._effects[Act(original.intent.action)]
        if not goes_on and trash is not None and effect.taken(original, trash):
            return KILLED
        return give_back(effect, original, trash)


def _told(
    action: Action, step: Callable[..., str], trash: TrashRun | None, goes_on: bool
) -> Settlement:
    """What became of one action; damage that hides it concerns no other."""
    try:
        why = step(action, trash, goes_on=goes_on)
    except HomeError as error:
        return Settlement(action.number, ActionState.INTENDED, str(error)[:300])
    except OSError as error:
        return Settlement(action.number, ActionState.INTENDED, f"cannot tell: {error.strerror}")
    state = ActionState.SKIPPED if why else ActionState.DONE
    return Settlement(action.number, state, why[:300])


def _reversals(actions: Sequence[Action]) -> Mapping[str, Mapping[int, Action]]:
    """The actions of an undo by the run and the number of the action that each takes back."""
    found: dict[str, dict[int, Action]] = {}
    for each in actions:
        reversal = each.intent.reverses
        if reversal is not None:
            found.setdefault(reversal.run, {})[reversal.number] = each
    return found


def _is_session(action: Action) -> bool:
    return action.intent.action == _SESSION


def _frees_now(action: Action) -> bool:
    return bool(action.intent.after.get("frees") == Frees.NOW.value)
