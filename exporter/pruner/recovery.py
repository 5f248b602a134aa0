"""Finding out what runs that were killed had done, by looking at the home.

It may be killed itself and made again. Sessions are gone and in the trash, or there; other things
their effects know about. Afterwards nothing is left intended, and what was taken can be undone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from exporter.errors import HomeError
from exporter.pruner.effects.effect import Effect
from exporter.pruner.effects.registry import effects_on
from exporter.pruner.effects.returning import what_came_back
from exporter.pruner.effects.sessions import what_happened
from exporter.pruner.trash import TrashRun, trash_of
from exporter.pruner.words import Act, Frees
from exporter.reaper import batches
from exporter.reaper.site import Site
from exporter.runs import Action, ActionState, Kind, Run, RunOutcome, Runs, Settlement
from exporter.runs.folder import RunFolder

GIVE_BACK: Final = "give_back"
"""The action of an undo: it takes back whatever action it reverses."""
_KILLED: Final = "the run was killed"


def recover(site: Site, runs: Runs, folder: RunFolder) -> list[str]:
    """Settle what killed runs of any kind left open; return the ids of those runs.

    Raise HomeError if the home cannot be read: then those runs stay open for the next time.
    """
    recovered = batches.recover(site, runs)
    for run in runs.unfinished_runs():
        actions = [each for each in runs.actions(run.id) if each.state is ActionState.INTENDED]
        if run.kind is Kind.PRUNE:
            with trash_of(folder, run.id) as trash:
                runs.settle(run.id, _taken(site, folder, actions, trash))
        elif is_return(runs, run):
            runs.settle(run.id, _returned(site, runs, folder, actions))
        else:
            continue
        note_purged(runs, run.id)
        done = any(each.state is ActionState.DONE for each in runs.actions(run.id))
        runs.finish(run.id, RunOutcome.PARTIAL if done else RunOutcome.FAILED, "it was killed")
        recovered.append(run.id)
    return recovered


def is_return(runs: Runs, run: Run) -> bool:
    """Whether this is the undo of a prune."""
    return run.kind is Kind.UNDO and any(
        each.intent.action == GIVE_BACK for each in runs.actions(run.id)
    )


def note_purged(runs: Runs, run: str) -> None:
    """What a run has purged cannot be undone any more."""
    for each in runs.actions(run):
        if each.intent.action == Act.PURGE_TRASH.value and each.state is ActionState.DONE:
            runs.not_undoable(each.intent.target)


def trash_for(action: Action, trash: TrashRun | None) -> TrashRun | None:
    """Where this action puts what it takes; None if it is gone for good."""
    return None if action.intent.after.get("frees") == Frees.NOW.value else trash


def _taken(
    site: Site, folder: RunFolder, actions: Sequence[Action], trash: TrashRun | None
) -> list[Settlement]:
    effects = effects_on(site, folder)
    sessions, others = _apart(actions)
    settled = what_happened(site, sessions, trash, _KILLED)
    for each in others:
        effect = effects[Act(each.intent.action)]
        settled.append(_settlement(each, effect.taken(each, trash_for(each, trash))))
    return settled


def _settlement(action: Action, done: bool) -> Settlement:
    if done:
        return Settlement(action.number, ActionState.DONE)
    return Settlement(action.number, ActionState.SKIPPED, _KILLED)


def _returned(
    site: Site, runs: Runs, folder: RunFolder, actions: Sequence[Action]
) -> list[Settlement]:
    """What an undo had given back."""
    effects = effects_on(site, folder)
    settled: list[Settlement] = []
    for run, returning in reversals(actions).items():
        originals = {each.number: each for each in runs.actions(run)}
        with trash_of(folder, run) as trash:
            sessions = []
            for number, each in returning.items():
                original = originals[number]
                if original.intent.action == Act.DELETE_SESSION.value:
                    sessions.append(each)
                else:
                    effect = effects[Act(original.intent.action)]
                    settled.append(_settlement(each, give_back(effect, original, trash) == ""))
            settled += what_came_back(site, sessions, trash, _KILLED)
    return settled


def reversals(actions: Sequence[Action]) -> Mapping[str, Mapping[int, Action]]:
    """The actions of an undo by the run and the number of the action that each takes back."""
    found: dict[str, dict[int, Action]] = {}
    for each in actions:
        reversal = each.intent.reverses
        if reversal is not None:
            found.setdefault(reversal.run, {})[reversal.number] = each
    return found


def give_back(effect: Effect, original: Action, trash: TrashRun | None) -> str:
    """Give back one thing that is no session; '' or why not."""
    if trash is None or original.intent.after.get("frees") == Frees.NOW.value:
        return "it was not put into the trash"
    try:
        return effect.give_back(original, trash)
    except HomeError as error:
        return str(error)[:300]


def _apart(actions: Sequence[Action]) -> tuple[list[Action], list[Action]]:
    """Sessions, and everything else."""
    session = Act.DELETE_SESSION.value
    return (
        [each for each in actions if each.intent.action == session],
        [each for each in actions if each.intent.action != session],
    )
