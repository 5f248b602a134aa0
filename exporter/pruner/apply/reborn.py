"""Heal prunes: if Hermes continues a pruned session, give it its old messages back.

This happens if a process had the session in memory, or if a client uses its id again. Then Hermes
writes to the emptied row, or makes a new row that has only the new messages.

- While the old messages are in the trash, they are merged into the session. This happens in every
  mode, because the journal says that we took them. A turn that began before the merge does not see
  them.
- Sessions that were pruned together come back together: a conversation of several sessions, or a
  session with its delegates.
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
    """The result of a healing."""

    sessions: tuple[str, ...] = ()
    """Sessions that have their old messages again."""
    left: tuple[Skipped, ...] = ()
    """Sessions that could not be healed yet."""
    finished: int = 0
    """How many rows of emptied sessions were deleted, because no process needs them."""


def heal_reborn(target: Target, *, besides: str = "") -> HealedPrunes:
    """Give sessions that Hermes continued their old messages back.

    Call it in a process of the home's owner that has no connection to the database. Sessions that
    the run `besides` took are left alone. Raise RunBusyError if a run is in progress, RunError or
    DatabaseError if journal or database cannot be used: then the next healing tries again.
    """
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is None or not _has_work(target, journal):
            return HealedPrunes()
    with running_on(target, "heal") as runs:
        recover(target, runs, BY_ACTION)
        # Before a run is noted: every scan finds the same again, and each would add one.
        target.refuse_unwritable()
        healed = _heal(target, runs, besides)
        return structs.replace(healed, finished=finish_rows(target, runs, besides=besides))


def _has_work(target: Target, journal: RunJournal) -> bool:
    if find_reborn(target, journal.targets_in_trash(_DELETION)):
        return True
    return has_rows_to_finish(target, journal)


def _heal(target: Target, runs: RunJournal, besides: str) -> HealedPrunes:
    reborn = find_reborn(target, runs.targets_in_trash(_DELETION))
    # Newest run first, as the journal lists them: if a session was pruned twice, its newer messages
    # must be back before the older ones. Run ids do not sort: their suffix is random.
    newest_first = dict.fromkeys(
        each.run
        for each in runs.done_actions(_DELETION)
        if each.action.target in reborn and each.run != besides
    )
    healed: list[str] = []
    left: list[Skipped] = []
    for run in newest_first:
        relatives = _pruned_together(runs.actions(run), reborn)
        with trash_of(runs.folder, run) as trash:
            if trash is None:
                continue  # it was purged: the old messages are gone
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
    """Return the other sessions that were pruned in one group with one of these."""
    deletions = [each for each in actions if each.action.kind == _DELETION]
    groups = {_group(each) for each in deletions if each.action.target in sessions} - {0}
    return {each.action.target for each in deletions if _group(each) in groups} - sessions


def _group(action: RecordedAction) -> int:
    return int(action.after.get("group") or 0)


def _belongs_to(action: RecordedAction, sessions: Collection[str]) -> bool:
    """True if the action took one of these sessions, or a file of one, and was not undone."""
    if action.state is not ActionState.DONE:
        return False
    if action.action.kind == _DELETION:
        return action.action.target in sessions
    return action.action.expected.get("session") in sessions
