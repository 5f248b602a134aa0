"""Healing prunes: a deleted session that is there again gets its past back by itself.

A process that had the session in memory went on with it, or a client came back to its id. Hermes
made the row again, with only what is new. As long as the past is in the trash it is merged in, in
every mode: the journal says that it was us who took it. Only a turn that began between rebirth and
merge has missed it.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from exporter.pruner.apply.execute import acting
from exporter.pruner.apply.recovery import recover
from exporter.pruner.apply.undo import GiveBack
from exporter.pruner.decide.trash_wait import find_reborn
from exporter.pruner.models import Act
from exporter.runs.folder import RunFolder
from exporter.runs.journal import Runs, journal_of
from exporter.runs.models import Action, ActionState, Kind, Skipped
from exporter.runs.trash import trash_of
from exporter.writing.target import Target

_DELETION = Act.DELETE_SESSION.value


class Healed(Struct, frozen=True):
    """What became of sessions that were there again."""

    sessions: tuple[str, ...] = ()
    """These have their past again."""
    left: tuple[Skipped, ...] = ()
    """These do not yet."""


def heal_reborn(target: Target, *, besides: str = "") -> Healed:
    """Give sessions that were born again their past; in a process of the home's owner.

    It has no connection to the database. What the run `besides` took is left alone. Raise
    RunBusyError if a run is under way, and RunError or DatabaseError if journal or database cannot
    be used: then they are found again the next time.
    """
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is None or not find_reborn(target, journal.targets_in_trash(_DELETION)):
            return Healed()
    with acting(target, "heal") as (runs, folder):
        recover(target, runs, folder)
        return _heal(target, runs, folder, besides)


def _heal(target: Target, runs: Runs, folder: RunFolder, besides: str) -> Healed:
    reborn = find_reborn(target, runs.targets_in_trash(_DELETION))
    # A session may have been pruned twice: the newer past goes in front of the present first.
    by_run: dict[str, None] = {
        each.run: None
        for each in runs.standing(_DELETION)
        if each.intent.target in reborn and each.run != besides
    }
    healed: list[str] = []
    left: list[Skipped] = []
    for run in by_run:  # the newest first; ids of runs of one second say nothing
        with trash_of(folder, run) as trash:
            if trash is None:
                continue  # it was purged: there is no past any more
            giving = GiveBack(
                run,
                target,
                runs,
                folder,
                kind=Kind.HEAL,
                reason="Hermes has gone on with the session",
                wanted=lambda action: _belongs_to(action, reborn),
            )
            returned = giving.give_back(trash)
        healed += [each for each in returned.done if each in reborn]
        left += [each for each in returned.skipped if each.target in reborn]
    return Healed(tuple(dict.fromkeys(healed)), tuple(left))


def _belongs_to(action: Action, sessions: Collection[str]) -> bool:
    """Whether this took one of these sessions, or a file of it, and nothing gave it back since."""
    if action.state is not ActionState.DONE:
        return False
    if action.intent.action == _DELETION:
        return action.intent.target in sessions
    return action.intent.before.get("session") in sessions
