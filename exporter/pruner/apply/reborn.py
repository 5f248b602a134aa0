"""Healing prunes: a deleted session that exists again gets its past back by itself.

A process that had the session in memory went on with it, or a client came back to its id. Hermes
made the row again, with only what is new. As long as the past is in the trash it is merged in, in
every mode: the journal says that we took it. Only a turn that began before the merge has missed it.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from exporter.pruner.apply.recovery import BY_ACTION
from exporter.pruner.apply.undo import RunRestorer
from exporter.pruner.decide.trash_wait import find_reborn
from exporter.pruner.models import Act
from exporter.runs.journal import RunJournal, journal_of, running_on
from exporter.runs.models import ActionState, RecordedAction, RunKind, Skipped
from exporter.runs.recovery import recover
from exporter.runs.trash import trash_of
from exporter.writing.target import Target

_DELETION = Act.DELETE_SESSION.value


class HealedPrunes(Struct, frozen=True):
    """What became of sessions that existed again."""

    sessions: tuple[str, ...] = ()
    """These have their past again."""
    left: tuple[Skipped, ...] = ()
    """These do not yet."""


def heal_reborn(target: Target, *, besides: str = "") -> HealedPrunes:
    """Give sessions that exist again their past; in a process of the home's owner.

    It has no connection to the database. What the run `besides` took is left alone. Raise
    RunBusyError if a run is under way, and RunError or DatabaseError if journal or database cannot
    be used: then they are found again the next time.
    """
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is None or not find_reborn(target, journal.targets_in_trash(_DELETION)):
            return HealedPrunes()
    with running_on(target, "heal") as runs:
        recover(target, runs, BY_ACTION)
        return _heal(target, runs, besides)


def _heal(target: Target, runs: RunJournal, besides: str) -> HealedPrunes:
    reborn = find_reborn(target, runs.targets_in_trash(_DELETION))
    # A session may have been pruned twice: the newer past goes in front of the present first.
    by_run: dict[str, None] = {
        each.run: None
        for each in runs.done_actions(_DELETION)
        if each.action.target in reborn and each.run != besides
    }
    healed: list[str] = []
    left: list[Skipped] = []
    for run in by_run:  # the newest first; ids of runs of one second say nothing
        with trash_of(runs.folder, run) as trash:
            if trash is None:
                continue  # it was purged: there is no past any more
            restorer = RunRestorer(
                run,
                target,
                runs,
                kind=RunKind.HEAL,
                reason="Hermes has gone on with the session",
                wanted=lambda action: _belongs_to(action, reborn),
            )
            outcome = restorer.restore(trash)
        healed += [each for each in outcome.done if each in reborn]
        left += [each for each in outcome.skipped if each.target in reborn]
    return HealedPrunes(tuple(dict.fromkeys(healed)), tuple(left))


def _belongs_to(action: RecordedAction, sessions: Collection[str]) -> bool:
    """True if it took one of these sessions, or a file of it, and no run restored that since."""
    if action.state is not ActionState.DONE:
        return False
    if action.action.kind == _DELETION:
        return action.action.target in sessions
    return action.action.expected.get("session") in sessions
