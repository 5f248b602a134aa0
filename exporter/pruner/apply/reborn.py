"""Healing prunes: a pruned session that Hermes goes on with gets its past back.

A process that had the session in memory went on with it, or a client came back to its id. So Hermes
wrote to the emptied row, or made a new row that has only what is new.

- While the past is in the trash it is merged into the session. This happens in every mode: the
  journal says that we took the past. Only a turn that began before the merge has missed it.
- What was pruned together comes back together: a conversation of several sessions, or a session
  with its delegates.
- Emptied rows that no process can need any more are deleted; see `exporter.pruner.apply.emptied`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from msgspec import Struct, structs

from exporter.pruner.apply.emptied import finish_rows, has_rows_to_finish
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
    finished: int = 0
    """Rows of emptied sessions that were no longer needed, and are deleted."""


def heal_reborn(target: Target, *, besides: str = "") -> HealedPrunes:
    """Give sessions that exist again their past.

    Call it in a process of the home's owner that has no connection to the database. What the run
    `besides` took is left alone. Raise RunBusyError if a run is in progress, RunError or
    DatabaseError if journal or database cannot be used: then the next healing finds them again.
    """
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is None or not _has_work(target, journal):
            return HealedPrunes()
    with running_on(target, "heal") as runs:
        recover(target, runs, BY_ACTION)
        healed = _heal(target, runs, besides)
        return structs.replace(healed, finished=finish_rows(target, runs, besides=besides))


def _has_work(target: Target, journal: RunJournal) -> bool:
    if find_reborn(target, journal.targets_in_trash(_DELETION)):
        return True
    return has_rows_to_finish(target, journal)


def _heal(target: Target, runs: RunJournal, besides: str) -> HealedPrunes:
    reborn = find_reborn(target, runs.targets_in_trash(_DELETION))
    # A session may have been pruned twice. Its newer past must be in place before the older one.
    by_run: dict[str, None] = {
        each.run: None
        for each in runs.done_actions(_DELETION)
        if each.action.target in reborn and each.run != besides
    }
    healed: list[str] = []
    left: list[Skipped] = []
    for (
        run
    ) in by_run:  # newest first, as the journal lists them; ids of one second are not in order
        relatives = _pruned_together(runs.actions(run), reborn)
        with trash_of(runs.folder, run) as trash:
            if trash is None:
                continue  # it was purged: there is no past any more
            restorer = RunRestorer(
                run,
                target,
                runs,
                kind=RunKind.HEAL,
                reason="Hermes has gone on with the session",
                wanted=partial(_belongs_to, sessions=reborn | relatives),
                relatives=relatives,
            )
            outcome = restorer.restore(trash)
        healed += [each for each in outcome.done if each in reborn]
        left += [each for each in outcome.skipped if each.target in reborn]
    return HealedPrunes(tuple(dict.fromkeys(healed)), tuple(left))


def _pruned_together(actions: Sequence[RecordedAction], sessions: set[str]) -> set[str]:
    """Return the other sessions of their groups."""
    deletions = [each for each in actions if each.action.kind == _DELETION]
    groups = {_group(each) for each in deletions if each.action.target in sessions} - {0}
    return {each.action.target for each in deletions if _group(each) in groups} - sessions


def _group(action: RecordedAction) -> int:
    return int(action.after.get("group") or 0)


def _belongs_to(action: RecordedAction, sessions: Collection[str]) -> bool:
    """True if it took one of these sessions, or a file of it, and no run restored that since."""
    if action.state is not ActionState.DONE:
        return False
    if action.action.kind == _DELETION:
        return action.action.target in sessions
    return action.action.expected.get("session") in sessions
