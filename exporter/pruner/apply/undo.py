"""Giving back what a prune took, exactly as it was; what is newer stays, and is merged with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from exporter.errors import DatabaseError
from exporter.pruner.apply.execute import Progress, acting
from exporter.pruner.apply.recovery import GIVE_BACK, give_back, recover, session_of, sessions_away
from exporter.pruner.apply.registry import effects_on
from exporter.pruner.apply.restore_sessions import SessionReturn
from exporter.pruner.models import Act
from exporter.runs.folder import RunError, RunFolder
from exporter.runs.journal import Runs, journal_of
from exporter.runs.models import (
    UNREADABLE,
    Action,
    ActionState,
    Intent,
    Kind,
    Outcome,
    Reversal,
    RunOutcome,
    Settlement,
    Skipped,
    outcome_of,
)
from exporter.runs.recovery import not_known
from exporter.runs.trash import TrashRun, trash_of
from exporter.writing.target import Target


def undo(run: str, target: Target, *, progress: Progress | None = None) -> Outcome:
    """Give back what a prune took; in a process of the home's owner, without a connection.

    Raise RunError if there is no such prune or its trash is gone, RunBusyError if another run is
    under way, and DatabaseError if what killed runs had done cannot be found out.
    """
    with journal_of(target.home, target.owner, target.clock) as journal:
        if journal is None:
            raise RunError(f"there is no run {run} in {target.home}")
        kind = journal.find(run).kind
        if kind is not Kind.PRUNE:
            raise RunError(f"run {run} is no prune but one of kind {kind.value}; nothing was done")
    undoing: GiveBack | None = None
    try:
        with acting(target, f"undo of {run}") as (runs, folder):
            recover(target, runs, folder)
            with trash_of(folder, run) as trash:
                if trash is None:
                    raise RunError(f"the trash of run {run} is gone; nothing can be given back")
                undoing = GiveBack(run, target, runs, folder, progress=progress)
                return undoing.give_back(trash)
    except RunError as error:
        if undoing is None or not undoing.has_begun:
            raise
        return Outcome(run, RunOutcome.UNKNOWN, why=not_known(run, error))


class GiveBack:
    """Gives back what one run took: all of it, or only what `wanted` says."""

    def __init__(
        self,
        run: str,
        target: Target,
        runs: Runs,
        folder: RunFolder,
        *,
        kind: Kind = Kind.UNDO,
        reason: str = "",
        wanted: Callable[[Action], bool] = lambda _: True,
        progress: Progress | None = None,
    ) -> None:
        self._run = run
        self._kind = kind
        self._reason = reason or f"undo of {run}"
        self._wanted = wanted
        self._target = target
        self._runs = runs
        self._effects = effects_on(target, folder)
        self._progress = progress
        self._sessions = SessionReturn(target)
        self._undoing = ""
        self._settled: dict[int, Settlement] = {}
        self._total = 0
        self._why = ""

    @property
    def has_begun(self) -> bool:
        """Whether the journal has it: from then on something may have been given back."""
        return self._undoing != ""

    def give_back(self, trash: TrashRun) -> Outcome:
        actions = [each for each in self._runs.actions(self._run) if self._wanted(each)]
        earlier = tuple(
            Skipped(each.intent.target, f"it was given back already, {each.why}")
            for each in actions
            if each.state is ActionState.UNDONE
        )
        earlier += tuple(
            Skipped(each.intent.target, f"not known whether it was taken: {each.why}")
            for each in actions
            if each.state is ActionState.INTENDED
        )
        earlier += tuple(
            Skipped(each.intent.target, each.why)
            for each in actions
            if each.intent.action == UNREADABLE
        )
        done = [each for each in actions if each.state is ActionState.DONE][::-1]
        if not done:
            return Outcome(self._run, RunOutcome.DONE, skipped=earlier)
        self._undoing = self._runs.begin(
            self._kind,
            [_returning(each, self._reason) for each in done],
            by_hand=self._kind is Kind.UNDO,
        )
        returning = self._runs.actions(self._undoing)
        self._total = len(returning)
        originals = dict(zip((each.number for each in returning), done, strict=True))
        try:
            # Rows, then their files: killed in between, no transcript is without its session.
            self._give_back_sessions(returning, originals, trash)
            self._give_back_others(returning, originals, trash)
        except DatabaseError as error:
            self._why = not_known(self._run, error)
            return structs.replace(self._returned(returning, earlier), outcome=RunOutcome.UNKNOWN)
        returned = self._returned(returning, earlier)
        self._runs.finish(self._undoing, returned.outcome, self._why)
        return returned

    def _give_back_others(
        self, returning: Sequence[Action], originals: dict[int, Action], trash: TrashRun
    ) -> None:
        away = sessions_away(self._runs, self._run, trash)
        for each in returning:
            original = originals[each.number]
            if original.intent.action == Act.DELETE_SESSION.value:
                continue
            if session_of(original) in away:
                why = "its session was not given back"
            else:
                why = give_back(self._effects[Act(original.intent.action)], original, trash)
            state = ActionState.SKIPPED if why else ActionState.DONE
            self._settle([Settlement(each.number, state, why)])

    def _give_back_sessions(
        self, returning: Sequence[Action], originals: dict[int, Action], trash: TrashRun
    ) -> None:
        sessions = {
            originals[each.number].number: each
            for each in returning
            if originals[each.number].intent.action == Act.DELETE_SESSION.value
        }
        if not sessions:
            return
        try:
            self._target.refuse_unwritable()
        except DatabaseError as error:
            self._why = str(error)
            self._settle(
                [
                    Settlement(each.number, ActionState.SKIPPED, self._why[:300])
                    for each in sessions.values()
                ]
            )
            return
        self._why = self._sessions.give_back(sessions, trash, self._settle)

    def _settle(self, settlements: Sequence[Settlement]) -> None:
        if settlements:
            self._runs.settle(self._undoing, settlements)
            self._settled |= {each.number: each for each in settlements}
            if self._progress is not None:
                self._progress(len(self._settled), self._total)

    def _returned(self, returning: Sequence[Action], earlier: tuple[Skipped, ...]) -> Outcome:
        settled = [(each.intent.target, self._settled.get(each.number)) for each in returning]
        done = [
            (name, found)
            for name, found in settled
            if found is not None and found.state is ActionState.DONE
        ]
        failed = tuple(
            Skipped(name, found.why if found else self._why)
            for name, found in settled
            if found is None or found.state is not ActionState.DONE
        )
        return Outcome(
            run=self._run,
            outcome=outcome_of(went_wrong=bool(self._why), anything_done=bool(done)),
            done=tuple(name for name, _ in done),
            skipped=(*failed, *earlier),
            why=self._why,
            notes=tuple(Skipped(name, found.why) for name, found in done if found.why),
            longest_hold_seconds=self._sessions.longest_hold_seconds,
        )


def _returning(action: Action, reason: str) -> Intent:
    """The intent to take back an action of a prune."""
    return Intent(
        action=GIVE_BACK,
        target=action.intent.target,
        reason=reason,
        policy=action.intent.policy,
        bytes=action.intent.bytes,
        reverses=Reversal(action.run, action.number),
    )
