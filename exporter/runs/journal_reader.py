"""Reading the run journal: its runs, and their actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from exporter.runs.folder import RunError
from exporter.runs.journal_counts import JournalCounts, damage_as_error
from exporter.runs.models import (
    FINISH_ROW,
    Action,
    ActionState,
    Evidence,
    Frees,
    KeptRows,
    RecordedAction,
    Reversal,
    Run,
    RunKind,
    RunOutcome,
)

_LONGEST_RUN_SECONDS: Final = 86400.0


class TakenAction(Struct, frozen=True):
    """Something that a run took, or may have taken."""

    action: str
    target: str
    bytes: int
    at: float
    frees_now: bool


STOPPED_BY_VOLUME: Final = "%sessions would be ended in one pass, more than%"
"""Version 0.1 stopped where many sessions were dead, and waited for a person. Slow start does not:
such a stop in its journal holds no more."""


class JournalReader(JournalCounts):
    """What an open journal says."""

    def tripped(self) -> str | None:
        """Return why automatic reaping has stopped; None if it has not."""
        query = "SELECT why FROM breaker WHERE why NOT LIKE ?"
        found = self._connection.execute(query, (STOPPED_BY_VOLUME,)).get
        with damage_as_error():
            return msgspec.convert(found, str | None)

    def list_runs(self) -> list[Run]:
        """All runs, the newest first."""
        return self._runs("1")

    def has_runs(self, kind: RunKind) -> bool:
        """True if any run of this kind ever began."""
        return bool(
            self._connection.execute(
                "SELECT EXISTS (SELECT 1 FROM runs WHERE kind = ?)", (kind.value,)
            ).get
        )

    def accepts_unrecorded_reaps(self, end_reason: str) -> bool:
        """True if a person accepted sessions with our end reason that no journal lists."""
        return bool(
            self._connection.execute(
                "SELECT EXISTS (SELECT 1 FROM strangers WHERE mark = ?)", (end_reason,)
            ).get
        )

    def unfinished_runs(self) -> list[Run]:
        """Those under way; under the run lock those that were killed. The oldest first."""
        return self._runs("runs.finished_at IS NULL")[::-1]

    def unlisted(self, runs: Sequence[str]) -> list[str]:
        """Return those of these ids that no run of this journal has."""
        known: list[Any] = self._connection.execute("SELECT id FROM runs").fetchall()
        return [run for run in runs if (run,) not in set(known)]

    def find(self, run: str) -> Run:
        found = self._runs("runs.id = ?", run)
        if not found:
            raise RunError(f"there is no run {run} in this home")
        return found[0]

    def find_listed(self, run: str) -> Run:
        """Return a run with the sums of the actions that are still listed, not of trimmed ones."""
        return self._listed("runs.id = ?", run)[0][0]

    def _runs(self, condition: str, *values: str) -> list[Run]:
        past = self._trimmed_runs()
        return [
            _with_past(run, listed, past.get(run.id))
            for run, listed in self._listed(condition, *values)
        ]

    def _listed(self, condition: str, *values: str) -> list[tuple[Run, int]]:
        """Return runs, and how many of their actions are listed."""
        rows: list[Any] = self._connection.execute(
            _RUNS + condition + _NEWEST_RUNS_FIRST, values
        ).fetchall()
        with damage_as_error():
            return [(_run(row), row[13]) for row in rows]

    def _trimmed_runs(self) -> dict[str, Sequence[Any]]:
        """What trimming took of each run."""
        if not self.was_trimmed():
            return {}
        rows: list[Any] = self._connection.execute("SELECT * FROM trimmed_runs").fetchall()
        return {row[0]: row for row in rows}

    def actions(self, run: str) -> list[RecordedAction]:
        """All actions of a run, in order."""
        return self._actions("run = ? ORDER BY number", run)

    def done_actions(self, *actions: str) -> list[RecordedAction]:
        """Actions of these names that were done and not taken back, in any run; newest first."""
        return self._actions(
            "state = 'done' AND action IN (SELECT value FROM json_each(?)) "
            "ORDER BY settled_at DESC, number",
            msgspec.json.encode(actions).decode(),
        )

    def last_done(self, target: str, *actions: str) -> RecordedAction | None:
        """Return the newest of such actions on this target that was done and not taken back."""
        found = self._actions(
            "target = ? AND state = 'done' AND action IN (SELECT value FROM json_each(?)) "
            "ORDER BY settled_at DESC LIMIT 1",
            target,
            msgspec.json.encode(actions).decode(),
        )
        return found[0] if found else None

    def named(self, action: str) -> list[RecordedAction]:
        """All actions of this name, whatever became of them."""
        return self._actions("action = ?", action)

    def done_targets(self, *actions: str) -> frozenset[str]:
        """Return the targets of such actions that were done, or may have been."""
        rows: list[Any] = self._connection.execute(
            "SELECT DISTINCT target FROM actions WHERE state IN ('done', 'intended') "
            "AND action IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode(actions).decode(),),
        ).fetchall()
        return frozenset(target for (target,) in rows if isinstance(target, str))

    def done_at(self, action: str) -> dict[str, float]:
        """The targets of such actions, and when each was last done."""
        rows: list[Any] = self._connection.execute(
            "SELECT target, MAX(settled_at) FROM actions "
            "WHERE state = 'done' AND action = ? AND settled_at IS NOT NULL GROUP BY target",
            (action,),
        ).fetchall()
        return dict(rows)

    def unsettled(self, action: str) -> set[str]:
        """The targets of such actions that no run has settled: it was stopped, or goes on."""
        rows: list[Any] = self._connection.execute(
            "SELECT DISTINCT target FROM actions WHERE state = 'intended' AND action = ?",
            (action,),
        ).fetchall()
        return {target for (target,) in rows}

    def targets_in_trash(self, action: str) -> frozenset[str]:
        """Return the targets of such actions that are in the trash, and that no run gave back."""
        rows: list[Any] = self._connection.execute(
            "SELECT DISTINCT target FROM actions JOIN runs ON runs.id = actions.run "
            "WHERE state = 'done' AND action = ? AND undoable_until IS NOT NULL",
            (action,),
        ).fetchall()
        return frozenset(target for (target,) in rows)

    def kept_rows(self, action: str) -> list[KeptRows]:
        """Return, by run, the rows that such actions emptied and no run finished or gave back."""
        found: dict[str, dict[str, int]] = {}
        for run, number, target in self._connection.execute(_KEPT_ROWS, (action, FINISH_ROW)):
            found.setdefault(run, {})[target] = number
        beside: dict[str, Any] = {}
        for run in found:
            noted = self._connection.execute(
                "SELECT json_extract(after, '$.beside') FROM actions WHERE run = ? "
                "AND json_extract(after, '$.beside') IS NOT NULL LIMIT 1",
                (run,),
            ).get
            beside[run] = msgspec.json.decode(noted) if isinstance(noted, str) else None
        return [KeptRows(run, sessions, beside[run]) for run, sessions in found.items()]

    def _actions(self, condition: str, *values: str) -> list[RecordedAction]:
        rows: list[Any] = self._connection.execute(_ACTIONS + condition, values).fetchall()
        with damage_as_error():
            return [_action(row) for row in rows]

    def done_since(self, action: str, moment: float) -> int:
        """Return how many actions of this name were done since then, in all runs."""
        return int(
            self._connection.execute(
                "SELECT COUNT(*) FROM actions "
                "WHERE action = ? AND state IN ('done', 'undone') AND settled_at >= ?",
                (action, moment),
            ).get
        )

    def done_bytes_since(self, action: str, moment: float) -> int:
        """The bytes of actions of this name that were done since then, in all runs."""
        found = self._connection.execute(
            "SELECT SUM(bytes) FROM actions WHERE action = ? AND state = 'done' "
            "AND settled_at >= ?",
            (action, moment),
        ).get
        return max(0, int(found or 0))

    def taken_automatically(self, kind: RunKind, moment: float) -> Iterator[TakenAction]:
        """Yield what automatic runs of this kind took since then, given back or not.

        What a run has not settled counts as well: it may have been taken.
        """
        rows: list[Any] = self._connection.execute(
            "SELECT action, target, bytes, COALESCE(settled_at, started_at), "
            "json_extract(after, '$.frees') = 'now' "
            "FROM runs JOIN actions ON actions.run = runs.id "
            "WHERE kind = ? AND NOT by_hand AND started_at >= ? AND state != 'skipped' "
            "AND COALESCE(settled_at, started_at) >= ?",
            (kind.value, moment - _LONGEST_RUN_SECONDS, moment),
        ).fetchall()
        with damage_as_error():
            for action, target, size, at, frees_now in rows:
                yield TakenAction(action, target, max(0, int(size)), float(at), bool(frees_now))

    def restored_since(self, moment: float) -> set[str]:
        """Return what a person took back by hand since then."""
        return {target for target, when in self.restored().items() if when >= moment}

    def restored(self) -> dict[str, float]:
        """Everything that a person took back by hand, and when it was last.

        An undo that was stopped may have taken back what it has not noted yet: until that is
        settled, it counts as well.
        """
        rows: list[Any] = self._connection.execute(
            "SELECT target, MAX(COALESCE(settled_at, started_at)) "
            "FROM actions JOIN runs ON runs.id = actions.run "
            "WHERE kind = 'undo' AND state IN ('done', 'intended') GROUP BY target"
        ).fetchall()
        return dict(rows)


_KEPT_ROWS: Final = """
    SELECT run, number, target FROM actions
     WHERE state = 'done' AND action = ? AND json_extract(after, '$.row') = 'kept'
    EXCEPT
    SELECT json_extract(before, '$.run'), json_extract(before, '$.number'), target FROM actions
     WHERE state = 'done' AND action = ?"""
_RUNS: Final = """
    SELECT runs.id, kind, plan, by_hand, started_at, finished_at, outcome, runs.why, undoable_until,
           SUM(state IN ('done', 'undone')), SUM(bytes * (state IN ('done', 'undone'))),
           SUM(state = 'undone'), CASE WHEN MIN(action) = MAX(action) THEN MIN(action) END,
           COUNT(actions.number)
      FROM runs LEFT JOIN actions ON actions.run = runs.id WHERE """
_NEWEST_RUNS_FIRST: Final = " GROUP BY runs.id ORDER BY started_at DESC, runs.id DESC"
_ACTIONS: Final = """
    SELECT run, number, action, target, reason, policy, bytes, before, after, evidence,
           reverses_run, reverses_number, state, why, settled_at
      FROM actions WHERE """


def _run(row: Sequence[Any]) -> Run:
    return Run(
        id=row[0],
        kind=RunKind(row[1]),
        plan=row[2],
        by_hand=bool(row[3]),
        started_at=row[4],
        finished_at=row[5],
        outcome=RunOutcome(row[6]) if row[6] else None,
        why=row[7],
        undoable_until=row[8],
        actions=row[9] or 0,
        bytes=row[10] or 0,
        undone=row[11] or 0,
        sole_action=row[12] or "",
    )


def _with_past(run: Run, listed: int, past: Sequence[Any] | None) -> Run:
    """Return the run with what trimming took of its actions."""
    if past is None:
        return run
    _, actions, size, undone, lines, sole_action = past
    return structs.replace(
        run,
        actions=run.actions + actions,
        bytes=run.bytes + size,
        undone=run.undone + undone,
        sole_action=sole_action if not listed or run.sole_action == sole_action else "",
        trimmed=lines,
    )


def _action(row: Sequence[Any]) -> RecordedAction:
    after = _OBJECT.decode(row[8])
    return RecordedAction(
        action=Action(
            kind=row[2],
            target=row[3],
            reason=row[4],
            policy=row[5],
            bytes=row[6],
            expected=_OBJECT.decode(row[7]),
            frees=_FREES.get(after.get("frees"), Frees.AT_PURGE),
            group=int(after.get("group") or 0),
            evidence=_evidence(row[9]),
        ),
        after=after,
        reverses=Reversal(row[10], row[11]) if row[10] is not None else None,
        run=row[0],
        number=row[1],
        state=ActionState(row[12]),
        why=row[13],
        settled_at=row[14],
    )


def _evidence(stored: str) -> tuple[Evidence, ...]:
    """The evidence of an end; none of what another version may have written."""
    try:
        return _EVIDENCE.decode(stored)
    except msgspec.ValidationError:
        return ()


_EVIDENCE: Final = msgspec.json.Decoder(tuple[Evidence, ...])
_FREES: Final[dict[Any, Frees]] = {each.value: each for each in Frees}
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
