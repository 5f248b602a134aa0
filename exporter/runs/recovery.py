"""Settle the actions that killed runs left open.

There is one recovery for every kind of run. For each kind of action a function looks at the home,
finds out which actions were done, and finishes those that were half done. If nothing can be found
out about an action, its run stays open; the other actions and runs are settled. A recovery that is
killed can be repeated.
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
"""Returns what became of open actions of a run, all of one kind.

INTENDED with a reason means that it cannot be found out now.
"""


class Recovered(Struct, frozen=True):
    """The result of a recovery."""

    settled: tuple[str, ...] = ()
    """Runs without open actions now."""
    left: dict[str, str] = {}
    """Runs that stay open until the next recovery, and why."""


def recover(target: Target, journal: RunJournal, by_action: Mapping[str, FindOut]) -> Recovered:
    """Settle all runs that were not finished; under the run lock.

    The kinds of action are settled in the order of `by_action`. A run with an action of another
    kind is left to a caller that knows it.
    """
    settled, left = [], {}
    for run in journal.unfinished_runs():
        target.wal_growth.killed_run = True
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
    """Settle all open runs of a home, before anything is planned or chosen there.

    Until then the home is between two states: a transcript of a session that a killed run deleted
    looks like an orphan. Call it in a process of the home's owner that has no connection. Raise
    RunBusyError if another run is under way, RunError if the journal cannot be used, and
    JournalMendedError if the journal was damaged: then its readable part has replaced it.
    """
    with run_folder(target.home, target.owner) as folder:
        if folder is None:  # no run was ever made here
            return Recovered()
    with running_on(target, "recovery") as journal:
        journal.refuse_damage()
        return recover(target, journal, by_action)


def not_known(run: str, why: object) -> str:
    """Return the message for a run whose result could not be recorded or seen."""
    return cut(f"not known what was done; `hermes-exporter undo {run}` ({why})", WHY_MAX)


def open_actions(journal: RunJournal, run: str) -> list[RecordedAction]:
    """Return the actions of a run whose result is not known."""
    return [each for each in journal.actions(run) if each.state is ActionState.INTENDED]


def abandon(journal: RunJournal, run: str, why: str) -> None:
    """Finish a run whose open actions can never be settled."""
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
            # Settled kind by kind: whether files were taken depends on what the journal says of
            # their session.
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
