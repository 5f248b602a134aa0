"""Settling what runs that were killed, or could not note what they did, have left open.

One recovery for every kind of run. Each kind of action has a function that looks at the home and
says what became of such actions, and finishes what was half done. Damage stays with what it hit: an
action of which nothing can be told keeps its run open, and the other actions and runs go on. All of
it may be killed and made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from exporter.errors import HomeError
from exporter.runs.journal import Runs
from exporter.runs.models import Action, ActionState, Run, RunOutcome, Settlement

KILLED: Final = "the run was killed"
Settle = Callable[[Run, Sequence[Action]], list[Settlement]]
"""What became of open actions of a run, all of one kind; INTENDED with a reason: cannot be told."""


class Recovered(Struct, frozen=True):
    """What a recovery came to."""

    settled: tuple[str, ...] = ()
    """Runs of which everything is known now."""
    left: dict[str, str] = {}
    """Runs that stay open for the next time, and why."""


def recover(runs: Runs, by_action: Mapping[str, Settle]) -> Recovered:
    """Settle all runs that were not finished; under the run lock.

    The kinds of action are settled in the order of `by_action`. A run with an action of another
    kind is left to those that know it.
    """
    settled, left = [], {}
    for run in runs.unfinished_runs():
        opened = open_actions(runs, run.id)
        if any(each.intent.action not in by_action for each in opened):
            continue
        try:
            why = _settle(runs, run, opened, by_action)
        except HomeError as error:
            why = str(error)[:300]
        except (LookupError, TypeError, ValueError) as error:
            why = f"the run journal holds what no run writes: {type(error).__name__}"
        if why:
            left[run.id] = why
        else:
            settled.append(run.id)
    return Recovered(tuple(settled), left)


def not_known(run: str, why: object) -> str:
    """What to say of a run of which nobody could note, or see, what it had done."""
    return f"not known what was done; `hermes-exporter undo {run}` ({why})"[:300]


def open_actions(runs: Runs, run: str) -> list[Action]:
    """The actions of a run of which it is not known what became of them."""
    return [each for each in runs.actions(run) if each.state is ActionState.INTENDED]


def give_up(runs: Runs, run: str, why: str) -> None:
    """Finish a run of which the rest will never be known."""
    left = open_actions(runs, run)
    runs.settle(run, [Settlement(each.number, ActionState.SKIPPED, why) for each in left])
    _finish(runs, run, why)


def _settle(runs: Runs, run: Run, opened: Sequence[Action], by_action: Mapping[str, Settle]) -> str:
    """Settle one run; return why it stays open, if it does."""
    for name, settle in by_action.items():
        alike = [each for each in opened if each.intent.action == name]
        if alike:
            # Noted kind by kind: what belongs to a session asks the journal whether that was taken.
            runs.settle(run.id, settle(run, alike))
    left = open_actions(runs, run.id)
    if left:
        return next((each.why for each in left if each.why), "not all of it is known")
    _finish(runs, run.id, "it was killed")
    return ""


def _finish(runs: Runs, run: str, why: str) -> None:
    done = any(each.state is ActionState.DONE for each in runs.actions(run))
    runs.finish(run, RunOutcome.PARTIAL if done else RunOutcome.FAILED, why)
