"""Reading the run journal: its runs, and their actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from exporter.runs.folder import RunError
from exporter.runs.journal_counts import JournalCounts, damage_as_error
from exporter.runs.journal_rows import NotedAction, NotedPast, NotedRun, Why, checked
from exporter.runs.models import (
    FINISH_ROW,
    Action,
    Evidence,
    Frees,
    KeptRows,
    RecordedAction,
    Reversal,
    Run,
    RunKind,
)

_LONGEST_RUN_SECONDS: Final = 86400.0
"""No run takes longer; queries skip the actions of runs that began earlier."""


class TakenAction(Struct, frozen=True):
    """Something that a run took, or may have taken."""

    action: str
    target: str
    bytes: int
    at: float
    frees_now: bool


STOPPED_BY_VOLUME: Final = "%sessions would be ended in one pass, more than%"
"""Why version 0.1 stopped automatic reaping where many sessions were dead. Slow start has replaced
that, so such a stop in an old journal no longer counts.
"""


class JournalReader(JournalCounts):
    """What an open journal says."""

    def tripped(self) -> str | None:
        """Return why automatic reaping has stopped; None if it has not."""
        query = "SELECT why FROM breaker WHERE why NOT LIKE ?"
        found = self._connection.execute(query, (STOPPED_BY_VOLUME,)).get
        with damage_as_error():
            return msgspec.convert(found, Why | None)

    def list_runs(self) -> list[Run]:
        """All runs, the newest first."""
        return self._runs("1")  # a condition that is always true

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
                # `strangers`: ended sessions that no journal lists
                "SELECT EXISTS (SELECT 1 FROM strangers WHERE mark = ?)",
                (end_reason,),
            ).get
        )

    def unfinished_runs(self) -> list[Run]:
        """Runs without an end, the oldest first.

        To the holder of the run lock these are killed runs: no other run can be under way.
        """
        return self._runs("runs.finished_at IS NULL")[::-1]

    def unlisted(self, runs: Sequence[str]) -> list[str]:
        """Return those of these run ids that are not in this journal."""
        known: list[Any] = self._connection.execute("SELECT id FROM runs").fetchall()
        return [run for run in runs if (run,) not in set(known)]

    def find(self, run: str) -> Run:
        found = self._runs("runs.id = ?", run)
        if not found:
            raise RunError(f"there is no run {run} in this home")
        return found[0]

    def find_listed(self, run: str) -> Run:
        """Return a run; its sums are of the actions still listed, without the trimmed ones."""
        return self._listed("runs.id = ?", run)[0][0]

    def _runs(self, condition: str, *values: str) -> list[Run]:
        past = self._trimmed_runs()
        return [
            _with_past(run, listed, past.get(run.id))
            for run, listed in self._listed(condition, *values)
        ]

    def _listed(self, condition: str, *values: str) -> list[tuple[Run, int]]:
        """Return runs, and how many actions of each are still listed."""
        rows: list[Any] = self._connection.execute(
            _RUNS + condition + _NEWEST_RUNS_FIRST, values
        ).fetchall()
        with damage_as_error():
            return [(_run(row), row[13]) for row in rows]

    def _trimmed_runs(self) -> dict[str, NotedPast]:
        """Return by run the sums of its trimmed actions."""
        if not self.was_trimmed():
            return {}
        rows: list[Any] = self._connection.execute("SELECT * FROM trimmed_runs").fetchall()
        with damage_as_error():
            return {row[0]: checked(row, NotedPast) for row in rows}

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

    def ever_done(self, *actions: str) -> list[RecordedAction]:
        """Actions of these names that were done; those that were taken back come last."""
        return self._actions(
            "state IN ('done', 'undone') AND action IN (SELECT value FROM json_each(?)) "
            "ORDER BY state = 'undone', settled_at DESC, number",
            msgspec.json.encode(actions).decode(),
        )

    def last_done(self, target: str, *actions: str) -> RecordedAction | None:
        """Return the newest of these actions on a target that was done and not taken back."""
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

    def targets_ever(self, *actions: str) -> frozenset[str]:
        """Return the targets of actions of these names that were ever done, or may have been."""
        rows: list[Any] = self._connection.execute(
            "SELECT DISTINCT target FROM actions WHERE state IN ('done', 'undone', 'intended') "
            "AND action IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode(actions).decode(),),
        ).fetchall()
        return frozenset(target for (target,) in rows if isinstance(target, str))

    def done_at(self, action: str) -> dict[str, float]:
        """The targets of actions of this name, and when the action was last done to each."""
        rows: list[Any] = self._connection.execute(
            "SELECT target, MAX(settled_at) FROM actions "
            "WHERE state = 'done' AND action = ? AND settled_at IS NOT NULL GROUP BY target",
            (action,),
        ).fetchall()
        return dict(rows)

    def unsettled(self, action: str) -> set[str]:
        """The targets of actions of this name whose run was stopped, or goes on, before the result
        was noted.
        """
        rows: list[Any] = self._connection.execute(
            "SELECT DISTINCT target FROM actions WHERE state = 'intended' AND action = ?",
            (action,),
        ).fetchall()
        return {target for (target,) in rows}

    def targets_in_trash(self, action: str) -> frozenset[str]:
        """Return the targets of actions of this name that are in the trash and not given back."""
        rows: list[Any] = self._connection.execute(
            "SELECT DISTINCT target FROM actions JOIN runs ON runs.id = actions.run "
            "WHERE state = 'done' AND action = ? AND undoable_until IS NOT NULL",
            (action,),
        ).fetchall()
        return frozenset(target for (target,) in rows)

    def kept_rows(self, action: str) -> list[KeptRows]:
        """Return by run the session rows that this action emptied, and that still wait.

        They are neither deleted nor given back yet. With them come the processes for which they
        wait (`pruner.beside`).
        """
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
        """Yield what automatic runs of this kind took since then, even if it was given back.

        Actions without a result count as well: they may have been done.
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
        """Everything that a person took back by hand, and when that was last.

        Actions of an undo without a result count as well: they may have been done. None of them
        was before what it took back, whatever a clock that was behind said.
        """
        rows: list[Any] = self._connection.execute(
            "SELECT undone.target, MAX(MAX(COALESCE(undone.settled_at, started_at), "
            "COALESCE(taken.settled_at, 0))) "
            "FROM actions AS undone JOIN runs ON runs.id = undone.run LEFT JOIN actions AS taken "
            "ON taken.run = undone.reverses_run AND taken.number = undone.reverses_number "
            "WHERE kind = 'undo' AND undone.state IN ('done', 'intended') GROUP BY undone.target"
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
    SELECT run, number, action, policy, target, reason, bytes, before, after, evidence,
           reverses_run, reverses_number, state, why, settled_at
      FROM actions WHERE """


def _run(row: Sequence[Any]) -> Run:
    noted = checked(row[:9], NotedRun)
    return Run(
        id=noted.id,
        kind=noted.kind,
        plan=noted.plan,
        by_hand=bool(noted.by_hand),
        started_at=noted.started_at,
        finished_at=noted.finished_at,
        outcome=noted.outcome,
        why=noted.why,
        undoable_until=noted.undoable_until,
        actions=row[9] or 0,
        bytes=row[10] or 0,
        undone=row[11] or 0,
        sole_action=row[12] or "",
    )


def _with_past(run: Run, listed: int, past: NotedPast | None) -> Run:
    """Return the run with the sums of its trimmed actions added."""
    if past is None:
        return run
    return structs.replace(
        run,
        actions=run.actions + past.actions,
        bytes=run.bytes + past.bytes,
        undone=run.undone + past.undone,
        sole_action=past.sole_action if not listed or run.sole_action == past.sole_action else "",
        trimmed=past.lines,
    )


def _action(row: Sequence[Any]) -> RecordedAction:
    noted = checked(row, NotedAction)
    after = _JSON.decode(noted.after)
    by_run, by_number = noted.reverses_run, noted.reverses_number
    return RecordedAction(
        action=Action(
            kind=noted.action,
            policy=noted.policy,
            target=noted.target,
            reason=noted.reason,
            bytes=noted.bytes,
            expected=_JSON.decode(noted.before),
            frees=_FREES.get(after.get("frees"), Frees.AT_PURGE),
            group=int(after.get("group") or 0),
            evidence=_evidence(noted.evidence),
        ),
        after=after,
        reverses=None if by_run is None or by_number is None else Reversal(by_run, by_number),
        run=noted.run,
        number=noted.number,
        state=noted.state,
        why=noted.why,
        settled_at=noted.settled_at,
    )


def _evidence(stored: str) -> tuple[Evidence, ...]:
    """Return the evidence of an end; none if another version wrote it in another form."""
    try:
        return _EVIDENCE.decode(stored)
    except msgspec.ValidationError:
        return ()


_EVIDENCE: Final = msgspec.json.Decoder(tuple[Evidence, ...])
_FREES: Final[dict[Any, Frees]] = {each.value: each for each in Frees}
_JSON: Final = msgspec.json.Decoder(dict[str, Any])
