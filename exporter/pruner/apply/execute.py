"""Executing a plan: exactly what it lists, and of that only what still is as it was planned.

One run at a time in a home. The journal knows every intent before anything is touched. Sessions go
first and then the files that belong to them; groups go whole or not at all. Whatever is killed or
goes wrong in between, looking at the home tells what has happened.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Final

import apsw
import msgspec

from exporter.errors import DatabaseError
from exporter.pruner.apply.delete_sessions import SessionEffect, Unit
from exporter.pruner.apply.full_disk import garbage_first
from exporter.pruner.apply.purge import PurgeEffect
from exporter.pruner.apply.recovery import note_purged, recover, trash_for
from exporter.pruner.apply.registry import effects_on, take
from exporter.pruner.apply.remover import Effect
from exporter.pruner.beside import Beside
from exporter.pruner.decide.trash_wait import BESIDE, why_not_purged
from exporter.pruner.models import Act, HomePrunePlan, Policy, PruneAction
from exporter.runs.folder import RunError, RunFolder, run_folder
from exporter.runs.journal import Runs, running_on
from exporter.runs.models import (
    Action,
    ActionState,
    Frees,
    Intent,
    Kind,
    Outcome,
    RunOutcome,
    Settlement,
    Skipped,
    outcome_of,
)
from exporter.runs.recovery import give_up, not_known
from exporter.runs.trash import TrashRun, trash_folder, trash_of
from exporter.writing.index_upkeep import merge_index
from exporter.writing.target import Target

Progress = Callable[[int, int], None]
"""Told how many of how many actions are settled."""
_SETTLED_AT_ONCE: Final = 64
_MERGE_SHARE: Final = 0.15
"""Of the time that deleting took, so much may be spent on merging the text index."""
_LEAST_MERGE_SECONDS: Final = 0.5


def execute(
    plan: HomePrunePlan,
    target: Target,
    *,
    keep_seconds: float,
    by_hand: bool = False,
    only: Collection[str] | None = None,
    run: str = "",
    progress: Progress | None = None,
    beside: Beside | None = None,
    emergency: bool = False,
) -> Outcome:
    """Do what a plan says; in a process of the home's owner that has no connection to it.

    `only` are the targets that are left of the plan. Raise RunBusyError if another run is under
    way, RunError if the journal cannot be used: what is then unsettled the next run settles.
    """
    actions = chosen(plan.actions, only)
    if plan.blocked or not actions:
        return Outcome(None, RunOutcome.DONE, why=plan.why)
    intents = [intent_of(each) for each in actions]
    gone = garbage_first(target.home, target.owner, intents, lambda: acting(target, "prune"))
    noted = _Noted()
    try:
        with acting(target, "prune") as (runs, folder):
            recover(target, runs, folder)
            pruning = _Pruning(target, runs, folder, progress, noted, purging=emergency)
            pruning.beside = beside
            return pruning.execute(
                actions,
                gone=gone,
                run=run,
                plan=plan.hash,
                by_hand=by_hand,
                undoable_seconds=keep_seconds,
            )
    except RunError as error:
        if not noted.run:
            raise
        return noted.unknown(str(error))


@contextmanager
def acting(target: Target, purpose: str) -> Iterator[tuple[Runs, RunFolder]]:
    """The home's journal under its run lock, and the folder with the trash."""
    with running_on(target, purpose) as runs, run_folder(target.home, target.owner) as folder:
        if folder is None:
            raise RunError(f"{target.home} has no folder for runs; nothing was done")
        yield runs, folder


def chosen(actions: Sequence[PruneAction], only: Collection[str] | None) -> list[PruneAction]:
    """The actions that are left; a group of which one is not loses all."""
    if only is None:
        return list(actions)
    split = {each.group for each in actions if each.group and each.target not in only}
    return [each for each in actions if each.target in only and each.group not in split]


def intent_of(action: PruneAction) -> Intent:
    return Intent(
        action=action.action.value,
        target=action.target,
        reason=action.reason,
        policy=action.policy.value,
        bytes=action.bytes,
        before=dict(action.expected),
        after={"frees": action.frees.value, "group": action.group},
    )


class _Noted:
    """What the journal has of a run: all that is known of it, should that fail in between."""

    def __init__(self) -> None:
        self.run = ""
        """Empty until the run has begun."""
        self.actions: list[Action] = []
        self.settled: dict[int, Settlement] = {}

    def is_done(self, action: Action) -> bool:
        settled = self.settled.get(action.number)
        return settled is not None and settled.state is ActionState.DONE

    def unknown(self, error: str) -> Outcome:
        """The outcome of a run of which not all could be noted, or seen."""
        why = not_known(self.run, error)
        known = self.settled
        return Outcome(
            run=self.run,
            outcome=RunOutcome.UNKNOWN,
            done=tuple(each.intent.target for each in self.actions if self.is_done(each)),
            skipped=tuple(
                Skipped(each.intent.target, known[each.number].why if each.number in known else why)
                for each in self.actions
                if not self.is_done(each)
            ),
            why=why,
        )


class _Pruning:
    """One run."""

    def __init__(
        self,
        target: Target,
        runs: Runs,
        folder: RunFolder,
        progress: Progress | None,
        noted: _Noted,
        *,
        purging: bool = False,
    ) -> None:
        """`purging`: the trash is emptied whatever waits in it, by a person or an emergency."""
        self.beside: Beside | None = None
        """The processes that may have had a session in memory, to be noted."""
        self._target = target
        self._runs = runs
        self._folder = folder
        self._effects: dict[Act, Effect] = effects_on(target, folder)
        if not purging:
            self._effects[Act.PURGE_TRASH] = PurgeEffect(
                folder, lambda run: why_not_purged(target, runs, run)
            )
        self._sessions = SessionEffect(target)
        self._progress = progress
        self._noted = noted
        self._total = 0
        self._why = ""
        """What went wrong."""

    def execute(
        self, actions: Sequence[PruneAction], *, gone: Sequence[int] = (), **run: Any
    ) -> Outcome:
        """Take these; those of the numbers `gone` had to go before anything could be noted."""
        intents = [intent_of(each) for each in actions]
        self._note_beside(intents)
        self._total = len(intents)
        taken = self._begin(intents, gone, run)
        self._noted.actions = noted = self._runs.actions(self._run)
        self._settle([Settlement(number, ActionState.DONE) for number in taken])
        began = self._target.monotonic()
        try:
            needs_trash = any(each.frees is not Frees.NOW for each in actions)
            with trash_of(self._folder, self._run, create=needs_trash) as trash:
                for units, others in _parts(noted):
                    self._take_sessions(units, trash)
                    self._take_others(others, trash)
        except DatabaseError as error:
            # It can neither be written nor read: what became of the last ones is not known.
            return self._noted.unknown(str(error))
        except OSError as error:
            self._why = f"cannot write the trash: {error.strerror}"
            self._settle(_skip(self._open(noted), self._why))
        outcome = self._outcome(noted)
        if remove_if_empty(self._folder, self._run):
            self._runs.not_undoable(self._run)
        note_purged(self._runs, self._run)
        self._runs.finish(self._run, outcome.outcome, outcome.why)
        if any(act == Act.DELETE_SESSION.value for act in self._done(noted)):
            self._merge(self._target.monotonic() - began)
        return self._outcome(noted)

    def _note_beside(self, intents: Sequence[Intent]) -> None:
        """The trash of sessions waits for these processes."""
        first = next((each for each in intents if each.action == Act.DELETE_SESSION.value), None)
        if first is not None and self.beside is not None:
            first.after[BESIDE] = msgspec.to_builtins(self.beside)

    def _begin(
        self, intents: Sequence[Intent], gone: Sequence[int], run: dict[str, Any]
    ) -> list[int]:
        """Note the run. Where not even that fits on the disk, garbage goes first: its numbers."""
        taken = list(gone)
        garbage = [
            number
            for number, each in enumerate(intents)
            if _is_garbage(each) and number not in gone
        ]
        while True:
            try:
                self._noted.run = self._runs.begin(Kind.PRUNE, intents, **run)
                return taken
            except apsw.FullError:
                if not garbage:
                    raise
            number = garbage.pop(0)
            each = intents[number]
            action = Action("", number, each, ActionState.INTENDED, "", None)
            if not take(self._effects[Act(each.action)], action, None):
                taken.append(number)

    def _take_sessions(self, units: Sequence[Unit], trash: TrashRun | None) -> None:
        if not units:
            return
        actions = [each for unit in units for each in unit]
        if trash is None:
            self._settle(_skip(actions, "no session is deleted without the trash"))
            return
        try:
            self._target.refuse_unwritable()
        except DatabaseError as error:
            self._why = str(error)
            self._settle(_skip(actions, self._why))
            return
        self._why = self._sessions.take(units, trash, self._settle) or self._why
        self._settle(_skip(self._open(actions), self._why))

    def _take_others(self, actions: Sequence[Action], trash: TrashRun | None) -> None:
        taken = self._taken_sessions()
        waiting: list[Settlement] = []
        for each in self._open(actions):
            session = each.intent.before.get("session")
            if session is not None and session not in taken:
                why = "the session it belongs to was not deleted"
            else:
                why = take(self._effects[Act(each.intent.action)], each, trash_for(each, trash))
            state = ActionState.SKIPPED if why else ActionState.DONE
            waiting.append(Settlement(each.number, state, why[:300]))
            if len(waiting) == _SETTLED_AT_ONCE:
                self._settle(waiting)
                waiting = []
        self._settle(waiting)

    def _taken_sessions(self) -> set[str]:
        return {
            each.intent.target
            for each in self._runs.actions(self._run)
            if each.intent.action == Act.DELETE_SESSION.value and each.state is ActionState.DONE
        }

    def _settle(self, settlements: Sequence[Settlement]) -> None:
        if settlements:
            self._runs.settle(self._run, settlements)
            self._noted.settled |= {each.number: each for each in settlements}
            if self._progress is not None:
                self._progress(len(self._noted.settled), self._total)

    @property
    def _run(self) -> str:
        return self._noted.run

    def _open(self, actions: Sequence[Action]) -> list[Action]:
        return [each for each in actions if each.number not in self._noted.settled]

    def _done(self, actions: Sequence[Action]) -> list[str]:
        return [each.intent.action for each in actions if self._is_done(each)]

    def _is_done(self, action: Action) -> bool:
        return self._noted.is_done(action)

    def _merge(self, took_seconds: float) -> None:
        """Deleting leaves tombstones in the text index. Not to have merged them harms nobody."""
        seconds = max(_MERGE_SHARE * took_seconds, _LEAST_MERGE_SECONDS)
        try:
            held = merge_index(self._target, seconds)
        except DatabaseError:
            return
        self._sessions.longest_hold_seconds = max(self._sessions.longest_hold_seconds, held)

    def _outcome(self, actions: Sequence[Action]) -> Outcome:
        freed = dict.fromkeys(Frees, 0)
        for each in actions:
            if self._is_done(each):
                freed[Frees(each.intent.after["frees"])] += each.intent.bytes
        done = tuple(each.intent.target for each in actions if self._is_done(each))
        return Outcome(
            run=self._run,
            outcome=outcome_of(went_wrong=bool(self._why), anything_done=bool(done)),
            done=done,
            skipped=tuple(
                Skipped(each.intent.target, self._reason(each))
                for each in actions
                if not self._is_done(each)
            ),
            why=self._why,
            freed=freed,
            kept_bytes=self._sessions.kept_bytes,
            longest_hold_seconds=self._sessions.longest_hold_seconds,
        )

    def _reason(self, action: Action) -> str:
        settled = self._noted.settled.get(action.number)
        return settled.why if settled else self._why


def remove_if_empty(folder: RunFolder, run: str) -> bool:
    """Leave no empty trash behind; True if there is none of this run now."""
    with trash_folder(folder) as above:
        if above is None:
            return True
        try:
            os.rmdir(run, dir_fd=above)
        except FileNotFoundError:
            return True
        except OSError:
            return False
    return True


def _parts(actions: Sequence[Action]) -> Iterator[tuple[list[Unit], list[Action]]]:
    """The plan in its order: sessions, many at a time, and what follows them."""
    units: list[Unit] = []
    others: list[Action] = []
    for unit in _units(actions):
        sessions = tuple(each for each in unit if _is_session(each))
        rest = [each for each in unit if not _is_session(each)]
        # Files of sessions lie between these; anything else is taken in its turn.
        if sessions and any("session" not in each.intent.before for each in others):
            yield units, others
            units, others = [], []
        units += [sessions] if sessions else []
        others += rest
    yield units, others


def _units(actions: Sequence[Action]) -> Iterator[list[Action]]:
    def key(action: Action) -> tuple[int, int]:
        group = int(action.intent.after.get("group") or 0)
        return (group, 0) if group else (0, action.number)

    for _, unit in groupby(actions, key):
        yield list(unit)


def _is_session(action: Action) -> bool:
    return action.intent.action == Act.DELETE_SESSION.value


def _is_garbage(intent: Intent) -> bool:
    """What may go before it is noted, for there is nothing to give back."""
    return intent.after["frees"] == Frees.NOW.value and "session" not in intent.before


def _skip(actions: Sequence[Action], why: str) -> list[Settlement]:
    return [Settlement(each.number, ActionState.SKIPPED, why[:300]) for each in actions]


def purge(run: str | None, target: Target, *, by_hand: bool = True) -> Outcome:
    """Empty the trash of one run, or all of it, for good.

    Raise RunBusyError if another run is under way, RunError if there is no such trash.
    """
    with acting(target, "purge") as (runs, folder):
        unsettled = recover(target, runs, folder).left
        found = PurgeEffect(folder).runs_with_trash()
        if run is not None and run not in found:
            raise RunError(f"run {run} has no trash in {target.home}; nothing was done")
        actions = [
            PruneAction(
                action=Act.PURGE_TRASH,
                policy=Policy.EXPIRED_TRASH,
                target=name,
                reason="it was asked for" if by_hand else "its keep time is over",
                bytes=size,
                frees=Frees.NOW,
            )
            for name, size in found.items()
            if run in (None, name)
        ]
        if not actions:
            return Outcome(None, RunOutcome.DONE)
        outcome = _Pruning(target, runs, folder, None, _Noted(), purging=by_hand).execute(
            actions, by_hand=by_hand
        )
        for name in unsettled.keys() & set(outcome.done):
            give_up(runs, name, "its trash was purged before it was known what it had done")
        return outcome
