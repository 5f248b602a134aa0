"""The result of `reap --json` and `prune --json`: a plan, and its outcome in all homes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Generic

import msgspec
from msgspec import Struct

from exporter.agent.saved_plans import SavedItem, SavedPlan
from exporter.config.prune import Prune
from exporter.runs.models import Action, Expected, Frees, Outcome, Plan, RunOutcome, Skipped
from exporter.snapshot import Snapshot
from exporter.text import closest_match, escape_control, join_words, quoted

_NO_LONGER: Final = "it no longer is as planned"
_HOME_NOT_SCANNED: Final = "its home was not looked at; give the same --home and --config.file"


class RunResult:
    """Collects the outcome of each home; one run has the same id in all of them."""

    def __init__(self, plan_hash: str, created_at: float) -> None:
        self.plan_hash = plan_hash
        self.created_at = created_at
        self.executed = False
        self.run: str | None = None
        self.done = 0
        self.skipped: list[Skipped] = []
        self.plans: list[Any] = []
        """The `manual_run.PlannedHome` of each home that was scanned."""
        self.kind = ""
        """The name of the command that it is of."""
        self.unread: list[str] = []
        """Homes that could not be read or planned for."""
        self.refused: list[str] = []
        """Paths of homes of this user that are not watched."""
        self.in_the_way = ""
        """If nothing is planned: what is not known or held back, and the way on."""
        self.could_not_see = False
        """True if nothing is planned, and that does not mean that there is nothing to do."""
        self.notes: list[str] = []
        """More lines for a person: a source that no session has, a policy that is off."""
        self.not_saved = ""
        """Why the plan could not be saved; empty if it was, or was not to be."""
        self.freed: dict[Frees, int] = dict.fromkeys(Frees, 0)
        """Bytes of the actions done, by the time when they become free. `Frees.NOW` is net: below 0
        if the homes are larger than before."""
        self._saved = False
        self._outcomes: list[RunOutcome] = []

    def add(self, wanted: Iterable[str], outcome: Outcome) -> None:
        """Add the outcome of one home; a wanted target that it does not name counts as skipped."""
        self._outcomes.append(outcome.outcome)
        self.run = outcome.run or self.run
        self.done += len(outcome.done)
        self.skipped.extend(outcome.skipped)
        named = {*outcome.done, *(each.target for each in outcome.skipped)}
        why = outcome.why or _NO_LONGER
        self.skipped.extend(Skipped(target, why) for target in wanted if target not in named)
        for when, size_bytes in outcome.freed.items():
            self.freed[when] += size_bytes
        self.freed[Frees.NOW] -= outcome.grown_bytes

    def add_nothing_done(self, wanted: Iterable[str], outcome: RunOutcome, why: str) -> None:
        """Add a home in which nothing was begun."""
        self.add(wanted, Outcome(None, outcome, why=why))

    def skip_missing(
        self, saved: SavedPlan, still_planned: Collection[SavedItem], homes: Collection[str]
    ) -> None:
        """Mark as skipped what a saved plan names and a new plan does not.

        `homes` are the paths of the homes that were scanned.
        """
        self._saved = True
        self.skipped.extend(
            Skipped(item.target, _NO_LONGER if item.home in homes else _HOME_NOT_SCANNED)
            for item in saved.items
            if item not in still_planned
        )

    @property
    def _did_nothing(self) -> bool:
        """True if a saved plan was executed and nothing of it could be done."""
        return self.executed and self._saved and not self.done and bool(self.skipped)

    @property
    def outcome(self) -> RunOutcome | None:
        """The outcome of all homes together; None if nothing was executed."""
        if not self.executed:
            return None
        for told in (RunOutcome.UNKNOWN, RunOutcome.INTERRUPTED):
            if told in self._outcomes:
                return told
        if self._did_nothing:
            return RunOutcome.FAILED
        if all(each is RunOutcome.DONE for each in self._outcomes):
            return RunOutcome.DONE
        return RunOutcome.PARTIAL if self.done else RunOutcome.FAILED

    def report(self) -> RunReport[Any]:
        """Return all of it in a form that can be sent and shown."""
        return RunReport(
            kind=self.kind,
            plan_hash=self.plan_hash,
            created_at=self.created_at,
            plans=[
                ShownPlan(
                    each.state.home.label,
                    each.plan,
                    each.own.prune,
                    None if each.actions == each.plan.actions else each.actions,
                )
                for each in self.plans
            ],
            executed=self.executed,
            run=self.run,
            outcome=self.outcome,
            done=self.done,
            skipped=self.skipped,
            unread=self.unread,
            refused=self.refused,
            in_the_way=self.in_the_way,
            could_not_see=self.could_not_see,
            notes=self.notes,
            freed=self.freed,
            not_saved=self.not_saved,
        )


class ShownPlan(Struct, Generic[Expected], frozen=True):
    """The plan of one home in a report."""

    label: str
    plan: Plan[Expected]
    settings: Prune
    chosen: tuple[Action[Expected], ...] | None = None
    """What a saved plan names of it; None: all of it."""

    @property
    def actions(self) -> tuple[Action[Expected], ...]:
        return self.plan.actions if self.chosen is None else self.chosen


class RunReport(Struct, Generic[Expected], frozen=True, kw_only=True):
    """What a reap, a prune or a purge would do or has done, in all homes."""

    kind: str
    """The name of the command that it is of; empty for a purge."""
    plan_hash: str
    created_at: float
    plans: list[ShownPlan[Expected]]
    executed: bool
    run: str | None
    outcome: RunOutcome | None
    """The outcome of all homes together; None if nothing was executed."""
    done: int
    skipped: list[Skipped]
    unread: list[str]
    """Homes that could not be read or planned for."""
    in_the_way: str
    """If nothing is planned: what is not known or held back, and the way on."""
    could_not_see: bool
    """True if nothing is planned, and that does not mean that there is nothing to do."""
    notes: list[str]
    """More lines for a person: a source that no session has, a policy that is off."""
    freed: dict[Frees, int]
    """See `RunResult.freed`."""
    not_saved: str = ""
    """Why the plan could not be saved; empty if it was, or was not to be."""
    refused: list[str] = []
    """Paths of homes of this user that are not watched."""

    @property
    def is_interrupted(self) -> bool:
        return self.outcome is RunOutcome.INTERRUPTED

    def json(self) -> dict[str, Any]:
        return {
            "plan": {
                "hash": self.plan_hash,
                "created_at": self.created_at,
                "actions": [
                    _row(home.label, action) for home in self.plans for action in home.actions
                ],
                **self._of_prune(),
            },
            "executed": self.executed,
            "run": self.run,
            "outcome": self.outcome.value if self.outcome is not None else None,
            "done": self.done,
            "skipped": [{"target": each.target, "why": each.why} for each in self.skipped],
        }

    def _of_prune(self) -> dict[str, Any]:
        """Return what only a plan to prune has: by policy, what is not old enough yet."""
        if self.kind != "prune":
            return {}
        return {
            "rows_trash_bytes": sum(home.plan.rows_trash_bytes for home in self.plans),
            "not_yet": [
                {"home": home.label, **msgspec.to_builtins(each)}
                for home in self.plans
                for each in home.plan.not_yet
            ],
        }


def _row(label: str, action: Action[Any]) -> dict[str, Any]:
    """Return an action as `--json` prints it."""
    return {
        "action": action.kind,
        "home": label,
        "policy": action.policy or None,
        "target": action.target,
        "reason": action.reason,
        "bytes": action.bytes,
        # What only a prune frees, and when.
        **({"frees": action.frees.value} if action.policy and action.frees else {}),
    }


_LISTED_MAX: Final = 12
_KNOWN_MAX: Final = 64
"""The most sources that a snapshot reports of one home. If it has that many, there may be more."""


def unknown_sources(wanted: Sequence[str], snapshots: Iterable[Snapshot | None]) -> list[str]:
    """Return a line for each wanted source that no session has, open or ended, in any home read."""
    summaries = [each.sessions for each in snapshots if each is not None]
    known: set[str] = set()
    for summary in summaries:
        if summary is None or len(summary.messages) >= _KNOWN_MAX:
            return []
        known |= {each.source for each in summary.messages}
    return list(_lines(dict.fromkeys(wanted), sorted(known))) if summaries else []


def _lines(wanted: Iterable[str], known: Sequence[str]) -> Iterator[str]:
    for source in wanted:
        if source in known:
            continue
        meant = closest_match(source, known)
        if meant:
            fix = f", did you mean {quoted(meant)}?"
        elif known:
            fix = f"; there are {join_words(map(escape_control, known[:_LISTED_MAX]), 'and')}"
        else:
            fix = "; there are no sessions"
        yield f"no session has source {quoted(source)}{fix}"
