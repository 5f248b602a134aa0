"""Settling what runs left open that were killed, or could not note what they did.

One recovery for every kind of run. For each kind of action a function looks at the home, says what
became of such actions, and finishes what was half done. Damage stays with what it hit: an action of
which nothing can be told keeps its run open, and the other actions and runs go on. All of it may be
killed and made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from exporter.errors import HomeError
from exporter.runs.folder import run_folder
from exporter.runs.journal import RunJournal, running_on
from exporter.runs.models import (
    WHY_MAX,
    ActionState,
    RecordedAction,
    Run,
    RunOutcome,
    Settled,
    skip,
)
from exporter.text import cut
from exporter.writing.target import Target

KILLED: Final = "the run was killed"
FindOut = Callable[[Target, RunJournal, Run, Sequence[RecordedAction]], list[Settled]]
"""What became of open actions of a run, all of one kind; INTENDED with a reason: cannot be told."""


class Recovered(Struct, frozen=True):
    """What a recovery came to."""

    settled: tuple[str, ...] = ()
    """Runs of which everything is known now."""
    left: dict[str, str] = {}
    """Runs that stay open for the next time, and why."""


def recover(target: Target, journal: RunJournal, by_action: Mapping[str, FindOut]) -> Recovered:
    """Settle all runs that were not finished; under the run lock.

    The kinds of action are settled in the order of `by_action`. A run with an action of another
    kind is left to a caller that knows it.
    """
    settled, left = [], {}
    for run in journal.unfinished_runs():
        opened = open_actions(journal, run.id)
        if any(each.action.kind not in by_action for each in opened):
            continue
        try:
            why = _recover_run(target, journal, run, opened, by_action)
        except HomeError as error:
            why = cut(str(error), WHY_MAX)
        except (LookupError, TypeError, ValueError) as error:
            why = f"the run journal holds what no run writes: {type(error).__name__}"
        if why:
            left[run.id] = why
        else:
            settled.append(run.id)
    return Recovered(tuple(settled), left)


def recover_home(target: Target, by_action: Mapping[str, FindOut]) -> Recovered:
    """Settle all that is open in a home, before anything is planned or chosen there.

    A killed run has left the home between two states: a transcript of a deleted session looks like
    an orphan until the run is settled. In a process of the home's owner without a connection. Raise
    RunBusyError if another run is under way, RunError if the journal cannot be used, and
    JournalMendedError if it was damaged: then what can be read of it is in its place.
    """
    with run_folder(target.home, target.owner) as folder:
        if folder is None:  # and none is made to find nothing in it
            return Recovered()
    with running_on(target, "recovery") as journal:
        journal.refuse_damage()
        return recover(target, journal, by_action)


def not_known(run: str, why: object) -> str:
    """Return what to say of a run if it could not be noted, or seen, what it did."""
    return cut(f"not known what was done; `hermes-exporter undo {run}` ({why})", WHY_MAX)


def open_actions(journal: RunJournal, run: str) -> list[RecordedAction]:
    """The actions of a run of which it is not known what became of them."""
    return [each for each in journal.actions(run) if each.state is ActionState.INTENDED]


def abandon(journal: RunJournal, run: str, why: str) -> None:
    """Finish a run of which the rest will never be known."""
    journal.settle(run, skip(open_actions(journal, run), why))
    _finish(journal, run, why)


def _recover_run(
    target: Target,
    journal: RunJournal,
    run: Run,
    opened: Sequence[RecordedAction],
    by_action: Mapping[str, FindOut],
) -> str:
    """Settle one run; return why it stays open, if it does."""
    for name, find_out in by_action.items():
        alike = [each for each in opened if each.action.kind == name]
        if alike:
            # Noted kind by kind: the files of a session ask the journal whether it was taken.
            journal.settle(run.id, find_out(target, journal, run, alike))
    left = open_actions(journal, run.id)
    if left:
        return next((each.why for each in left if each.why), "not all of it is known")
    if run.by_hand:  # by Ctrl-C, most often: a run of the agent that is killed has failed
        journal.finish(run.id, RunOutcome.INTERRUPTED, "it was killed")
    else:
        _finish(journal, run.id, "it was killed")
    return ""


def _finish(journal: RunJournal, run: str, why: str) -> None:
    done = any(each.state is ActionState.DONE for each in journal.actions(run))
    journal.finish(run, RunOutcome.PARTIAL if done else RunOutcome.FAILED, why)
