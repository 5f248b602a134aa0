"""The result of `reap --json` and `prune --json`: a plan, and its outcome in all homes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from exporter.agent.saved_plans import SavedItem, SavedPlan
from exporter.runs.models import Frees, RunOutcome, Skipped
from exporter.snapshot import Snapshot
from exporter.text import closest_match, escape_control, join_words, quoted

_NO_LONGER: Final = "it no longer is as planned"
_HOME_NOT_SCANNED: Final = "its home was not looked at; give the same --home and --config.file"


class RunResult:
    """Collects the outcome of each home; one run has the same id in all of them."""

    def __init__(
        self, plan_hash: str, created_at: float, actions: Sequence[dict[str, Any]]
    ) -> None:
        self.plan_hash = plan_hash
        self.created_at = created_at
        self.actions = list(actions)
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
        self.in_the_way = ""
        """If nothing is planned: what is not known or held back, and the way on."""
        self.could_not_see = False
        """True if nothing is planned, and that does not mean that there is nothing to do."""
        self.notes: list[str] = []
        """More lines for a person: a source that no session has, a policy that is off."""
        self.freed: dict[Frees, int] = dict.fromkeys(Frees, 0)
        """Bytes of the actions done, by the time when they become free."""
        self._saved = False
        self._outcomes: list[RunOutcome] = []

    def add(
        self,
        wanted: Iterable[str],
        *,
        outcome: RunOutcome,
        run: str | None = None,
        done: Sequence[str] = (),
        skipped: Sequence[Skipped] = (),
        why: str = "",
    ) -> None:
        """Add the outcome of one home; a wanted target that it does not name counts as skipped."""
        self._outcomes.append(outcome)
        self.run = run or self.run
        self.done += len(done)
        self.skipped.extend(skipped)
        told = {*done, *(each.target for each in skipped)}
        self.skipped.extend(
            Skipped(target, why or _NO_LONGER) for target in wanted if target not in told
        )

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
    def is_interrupted(self) -> bool:
        return self.outcome is RunOutcome.INTERRUPTED

    @property
    def did_nothing(self) -> bool:
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
        if all(each is RunOutcome.DONE for each in self._outcomes):
            return RunOutcome.DONE
        return RunOutcome.PARTIAL if self.done else RunOutcome.FAILED

    def _of_prune(self) -> dict[str, Any]:
        """Return what only a plan to prune has: by policy, what is not old enough yet."""
        if self.kind != "prune":
            return {}
        return {
            "rows_trash_bytes": sum(home.plan.rows_trash_bytes for home in self.plans),
            "not_yet": [
                {"home": home.state.home.label, **msgspec.to_builtins(each)}
                for home in self.plans
                for each in home.plan.not_yet
            ],
        }

    def json(self) -> dict[str, Any]:
        return {
            "plan": {
                "hash": self.plan_hash,
                "created_at": self.created_at,
                "actions": self.actions,
                **self._of_prune(),
            },
            "executed": self.executed,
            "run": self.run,
            "outcome": self.outcome.value if self.outcome is not None else None,
            "done": self.done,
            "skipped": [{"target": each.target, "why": each.why} for each in self.skipped],
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
