"""The run journal of a home: what was done to it, by which run, and what became of it.

An action is noted before it is taken and again when it is settled, each time durably. A run that
was killed leaves actions that are only intended; whoever runs next looks at the home to find out
which of them had happened. The journal belongs to the home, and knows nothing of what actions mean.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import apsw
import msgspec

from exporter.runs.folder import RunError, RunFullError, run_folder, run_lock, unusable
from exporter.runs.records import (
    Action,
    ActionState,
    Intent,
    Kind,
    Reversal,
    Run,
    RunOutcome,
    Settlement,
    Trip,
)
from exporter.runs.reserve import make_reserve, release_reserve

VERSION: Final = 1
"""Raised when an older hermes-exporter could not read what this one writes."""
FILE: Final = "journal.db"
_BUSY_TIMEOUT_MS: Final = 5000

_SCHEMA: Final = """
CREATE TABLE runs (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, plan TEXT NOT NULL, by_hand INTEGER NOT NULL,
    started_at REAL NOT NULL, finished_at REAL, outcome TEXT, why TEXT NOT NULL DEFAULT '',
    undoable_until REAL
) WITHOUT ROWID;
CREATE TABLE actions (
    run TEXT NOT NULL REFERENCES runs(id), number INTEGER NOT NULL,
    action TEXT NOT NULL, policy TEXT NOT NULL, target TEXT NOT NULL, reason TEXT NOT NULL,
    bytes INTEGER NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, evidence TEXT NOT NULL,
    reverses_run TEXT, reverses_number INTEGER,
    state TEXT NOT NULL, why TEXT NOT NULL DEFAULT '', settled_at REAL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;
CREATE INDEX actions_by_state ON actions (state, action, settled_at);
CREATE INDEX actions_by_target ON actions (target, action);
CREATE TABLE breaker (tripped_at REAL NOT NULL, why TEXT NOT NULL);
CREATE TABLE strangers (
    target TEXT NOT NULL, mark TEXT NOT NULL, seen_at REAL NOT NULL, PRIMARY KEY (target, mark)
) WITHOUT ROWID;
"""


@contextmanager
def running(
    home: str, owner: int, purpose: str, clock: Callable[[], float] = time.time
) -> Iterator[Runs]:
    """Yield the journal under the home's run lock; both are made if need be.

    Raise RunBusyError if another run is under way, RunError if the folder is not fit for use.
    """
    with run_folder(home, owner, create=True) as folder:
        if folder is None:
            raise RunError(f"{home} has no folder for runs; nothing was done")
        with run_lock(folder, purpose):
            release_reserve(folder)
            try:
                path = folder.file(FILE, create=True)
            except OSError as error:
                raise unusable(f"{folder.path}/{FILE}", error) from error
            with _opened(path or "") as connection:
                _prepare(connection, path or "")
                yield Runs(connection, clock)
            make_reserve(folder)


@contextmanager
def journal_of(
    home: str, owner: int, clock: Callable[[], float] = time.time
) -> Iterator[Runs | None]:
    """Yield the journal to read it, without the lock; None if this home has none."""
    with run_folder(home, owner) as folder:
        path = folder.file(FILE) if folder is not None else None
        if path is None:
            yield None
            return
        with _opened(path) as connection:
            # A run that was killed when it was about to begin has left an empty file.
            yield Runs(connection, clock) if _version(connection, path) else None


@contextmanager
def _opened(path: str) -> Iterator[apsw.Connection]:
    connection: apsw.Connection | None = None
    try:
        # Read-write also to read: a run that was killed may have left something to roll back.
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
        connection = apsw.Connection(path, flags=flags)
        connection.set_busy_timeout(_BUSY_TIMEOUT_MS)
        # What was noted must outlive a power cut, and a reader must not need files of its own.
        connection.execute("PRAGMA synchronous=EXTRA")
        connection.execute("PRAGMA journal_mode=DELETE")
        yield connection
    except apsw.FullError as error:
        raise RunFullError(f"cannot use {path}: {error}") from error
    except apsw.Error as error:
        raise RunError(f"cannot use {path}: {error}") from error
    finally:
        if connection is not None:
            connection.close(force=True)


def _prepare(connection: apsw.Connection, path: str) -> None:
    if not _version(connection, path):
        with _transaction(connection):
            connection.execute(_SCHEMA)
            connection.pragma("user_version", VERSION)


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[None]:
    """All or nothing. Where the disk is full SQLite takes it back by itself."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: apsw.Connection, path: str) -> int:
    """The version of a journal that can be read; 0 if there is nothing in it yet."""
    version = int(connection.pragma("user_version"))
    if version > VERSION:
        raise RunError(
            f"{path} was written by a newer hermes-exporter (version {version}, this one knows "
            f"{VERSION}); upgrade to act on this home"
        )
    return version


class Runs:
    """An open journal."""

    def __init__(self, connection: apsw.Connection, clock: Callable[[], float]) -> None:
        self._connection = connection
        self._clock = clock

    # Writing, under the run lock

    def begin(
        self,
        kind: Kind,
        intents: Sequence[Intent],
        *,
        run: str = "",
        plan: str = "",
        by_hand: bool = False,
        undoable_seconds: float | None = None,
    ) -> str:
        """Note a run and all that it is about to do; return its id.

        A run that acts on several homes has one id, given by `new_run_id`, in all their journals.
        """
        now = self._clock()
        run = run or self._free_id(now)
        until = None if undoable_seconds is None else now + undoable_seconds
        with _transaction(self._connection):
            self._connection.execute(
                "INSERT INTO runs (id, kind, plan, by_hand, started_at, undoable_until) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (run, kind.value, plan, by_hand, now, until),
            )
            self._connection.executemany(
                "INSERT INTO actions (run, number, action, policy, target, reason, bytes, before, "
                "after, evidence, reverses_run, reverses_number, state) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (_columns(run, number, intent) for number, intent in enumerate(intents)),
            )
        return run

    def _free_id(self, now: float) -> str:
        """An id that no run of this home has."""
        while True:
            run = new_run_id(now)
            if not self._runs("runs.id = ?", run):
                return run

    def settle(self, run: str, settlements: Iterable[Settlement]) -> None:
        """Note what became of actions; what a done one takes back is undone with it."""
        now = self._clock()
        with _transaction(self._connection):
            for each in settlements:
                self._connection.execute(
                    "UPDATE actions SET state = ?, why = ?, settled_at = ? "
                    "WHERE run = ? AND number = ?",
                    (each.state.value, each.why, now, run, each.number),
                )
                if each.state is ActionState.DONE:
                    self._take_back(run, each.number)

    def _take_back(self, run: str, number: int) -> None:
        self._connection.execute(
            "UPDATE actions SET state = 'undone', why = ? WHERE state = 'done' AND (run, number) = "
            "(SELECT reverses_run, reverses_number FROM actions WHERE run = ? AND number = ?)",
            (f"by run {run}", run, number),
        )

    def finish(self, run: str, outcome: RunOutcome, why: str = "") -> None:
        """Close a run; nothing may be left intended."""
        self._connection.execute(
            "UPDATE runs SET finished_at = ?, outcome = ?, why = ? WHERE id = ?",
            (self._clock(), outcome.value, why[:300], run),
        )

    def not_undoable(self, run: str) -> None:
        """Note that a run cannot be undone any more: its trash is gone."""
        self._connection.execute("UPDATE runs SET undoable_until = NULL WHERE id = ?", (run,))

    def trip(self, why: str) -> None:
        """Stop automatic runs until one is made by hand; the first reason stands."""
        self._connection.execute(
            "INSERT INTO breaker SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM breaker)",
            (self._clock(), why[:300]),
        )

    def close_breaker(self) -> None:
        self._connection.execute("DELETE FROM breaker")

    def first_seen(self, target: str, mark: str) -> float:
        """When a thing that looks like our doing, but is in no journal, was seen here first."""
        self._connection.execute(
            "INSERT OR IGNORE INTO strangers VALUES (?, ?, ?)", (target, mark, self._clock())
        )
        return float(
            self._connection.execute(
                "SELECT seen_at FROM strangers WHERE target = ? AND mark = ?", (target, mark)
            ).get
        )

    # Reading

    def tripped(self) -> Trip | None:
        found = self._connection.execute("SELECT tripped_at, why FROM breaker").fetchone()
        return Trip(*found) if found else None

    def list_runs(self) -> list[Run]:
        """All runs, the newest first."""
        return self._runs("1")

    def unfinished_runs(self) -> list[Run]:
        """Those under way; under the run lock those that were killed. The oldest first."""
        return self._runs("runs.finished_at IS NULL")[::-1]

    def find(self, run: str) -> Run:
        found = self._runs("runs.id = ?", run)
        if not found:
            raise RunError(f"there is no run {run} in this home")
        return found[0]

    def _runs(self, condition: str, *values: str) -> list[Run]:
        rows: list[Any] = self._connection.execute(
            _RUNS + condition + _NEWEST_RUNS_FIRST, values
        ).fetchall()
        with _understood():
            return [_run(row) for row in rows]

    def actions(self, run: str) -> list[Action]:
        """All actions of a run, in order."""
        return self._actions("run = ? ORDER BY number", run)

    def standing(self, action: str) -> list[Action]:
        """Actions of this name that were done and not taken back, in any run; the newest first."""
        return self._actions("state = 'done' AND action = ? ORDER BY settled_at DESC", action)

    def done_on(self, action: str, target: str) -> list[Action]:
        """Actions of this name that were ever done to a target; the newest first."""
        return self._actions(
            "target = ? AND action = ? AND state IN ('done', 'undone') ORDER BY settled_at DESC",
            target,
            action,
        )

    def _actions(self, condition: str, *values: str) -> list[Action]:
        rows: list[Any] = self._connection.execute(_ACTIONS + condition, values).fetchall()
        with _understood():
            return [_action(row) for row in rows]

    def done_since(self, action: str, moment: float) -> int:
        """How many actions of this name were done since then, in all runs."""
        return int(
            self._connection.execute(
                "SELECT COUNT(*) FROM actions "
                "WHERE action = ? AND state IN ('done', 'undone') AND settled_at >= ?",
                (action, moment),
            ).get
        )

    def restored_since(self, moment: float) -> set[str]:
        """What somebody took back by hand since then."""
        rows: list[Any] = self._connection.execute(
            "SELECT DISTINCT target FROM actions JOIN runs ON runs.id = actions.run "
            "WHERE kind = 'undo' AND state = 'done' AND settled_at >= ?",
            (moment,),
        ).fetchall()
        return {target for (target,) in rows}

    def restored(self) -> dict[str, float]:
        """Everything that somebody took back by hand, and when it was last."""
        rows: list[Any] = self._connection.execute(
            "SELECT target, MAX(settled_at) FROM actions JOIN runs ON runs.id = actions.run "
            "WHERE kind = 'undo' AND state = 'done' GROUP BY target"
        ).fetchall()
        return dict(rows)

    def count_by(self, action: str, detail: str) -> dict[str, int]:
        """How many actions of this name were ever done, by a detail of what their targets were."""
        return self._tally(
            "SELECT json_extract(before, ?), COUNT(*) FROM actions "
            "WHERE action = ? AND state IN ('done', 'undone') GROUP BY 1",
            f"$.{detail}",
            action,
        )

    def count_reversed(self, kind: Kind, detail: str) -> dict[str, int]:
        """The same of those that runs of this kind took back."""
        return self._tally(
            "SELECT json_extract(first.before, ?), COUNT(*) "
            "FROM runs JOIN actions AS later ON later.run = runs.id "
            "JOIN actions AS first "
            "ON first.run = later.reverses_run AND first.number = later.reverses_number "
            "WHERE runs.kind = ? AND later.state = 'done' GROUP BY 1",
            f"$.{detail}",
            kind.value,
        )

    def count_runs(self, kind: Kind) -> dict[str, tuple[int, float]]:
        """How many runs of this kind had which outcome, and when the last of them ended."""
        rows: list[Any] = self._connection.execute(
            "SELECT outcome, COUNT(*), MAX(finished_at) FROM runs "
            "WHERE kind = ? AND outcome IS NOT NULL GROUP BY outcome",
            (kind.value,),
        ).fetchall()
        return {outcome: (count, last) for outcome, count, last in rows}

    def count_by_policy(self, kind: Kind) -> dict[str, tuple[int, int]]:
        """What runs of this kind ever did by each policy: actions, and bytes freed at once."""
        rows: list[Any] = self._connection.execute(
            "SELECT policy, COUNT(*), "
            "SUM(bytes * (json_extract(after, '$.frees') = 'now')) "
            "FROM actions JOIN runs ON runs.id = actions.run "
            "WHERE kind = ? AND state IN ('done', 'undone') GROUP BY policy",
            (kind.value,),
        ).fetchall()
        return {policy: (count, int(size or 0)) for policy, count, size in rows}

    def _tally(self, query: str, *values: str) -> dict[str, int]:
        rows: list[Any] = self._connection.execute(query, values).fetchall()
        return {str(word or ""): count for word, count in rows}


_RUNS: Final = """
    SELECT runs.id, kind, plan, by_hand, started_at, finished_at, outcome, runs.why, undoable_until,
           SUM(state IN ('done', 'undone')), SUM(bytes * (state IN ('done', 'undone'))),
           SUM(state = 'undone')
      FROM runs LEFT JOIN actions ON actions.run = runs.id WHERE """
_NEWEST_RUNS_FIRST: Final = " GROUP BY runs.id ORDER BY started_at DESC, runs.id DESC"
_ACTIONS: Final = """
    SELECT run, number, action, target, reason, policy, bytes, before, after, evidence,
           reverses_run, reverses_number, state, why, settled_at
      FROM actions WHERE """


def new_run_id(now: float) -> str:
    moment = datetime.fromtimestamp(now, UTC)
    return f"{moment:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


def _columns(run: str, number: int, intent: Intent) -> tuple[Any, ...]:
    reverses = intent.reverses
    return (
        run,
        number,
        intent.action,
        intent.policy,
        intent.target,
        intent.reason,
        intent.bytes,
        _json(intent.before),
        _json(intent.after),
        _json(intent.evidence),
        reverses.run if reverses else None,
        reverses.number if reverses else None,
        ActionState.INTENDED.value,
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@contextmanager
def _understood() -> Iterator[None]:
    """The file is its owner's, who may have written anything into it."""
    try:
        yield
    except (ValueError, TypeError, msgspec.DecodeError) as error:
        raise RunError(f"the run journal holds what no run writes: {error}"[:300]) from error


def _run(row: Sequence[Any]) -> Run:
    return Run(
        id=row[0],
        kind=Kind(row[1]),
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
    )


def _action(row: Sequence[Any]) -> Action:
    intent = Intent(
        action=row[2],
        target=row[3],
        reason=row[4],
        policy=row[5],
        bytes=row[6],
        before=msgspec.json.decode(row[7]),
        after=msgspec.json.decode(row[8]),
        evidence=msgspec.json.decode(row[9]),
        reverses=Reversal(row[10], row[11]) if row[10] is not None else None,
    )
    return Action(row[0], row[1], intent, ActionState(row[12]), row[13], row[14])
