"""Trimming the run journal: old runs keep their line and their totals, and lose single actions.

An action takes about 500 bytes in the journal. Of a run that began 90 days ago an action goes once
nothing can need it any more:

- nothing of the run is in the trash, so there is nothing to undo;
- no session has the name of its target, and none of that name is in the trash of another run, from
  where it may come back. A session that we ended can go on years later, and healing must know then
  that the end is ours;
- the run is no undo: what a person took back stays listed, because `prune.keep.undone` protects it.

What is counted over all runs does not change: counters, what `history` shows of a run, and the
hours that the slow start rests on. One transaction does both: a kill leaves all of it or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import apsw
import msgspec

from exporter.runs.journal_file import TRIMMED_SCHEMA, transaction
from exporter.runs.journal_reader import JournalReader
from exporter.runs.models import PURGE_TRASH, RunKind
from exporter.writing.target import Target, read_with_retry

KEPT_SECONDS: Final = 90 * 86400.0
_EVERY_SECONDS: Final = 86400.0
_ACTIONS_MAX: Final = 5_000
"""At a time: the transaction needs some space, and the run lock is held for it."""
_HOURS_MAX: Final = 1_000
"""Of automatic reaping; the slow start is at its end after 32."""


class _Trimmer(JournalReader):
    """Trims one journal; under the run lock."""

    def __init__(self, connection: apsw.Connection, trashed: Sequence[str], now: float) -> None:
        super().__init__(connection)
        self._trashed = trashed
        self._now = now

    def trim(self, target: Target) -> int:
        """Delete actions that nothing can need any more; return how many."""
        if abs(self._now - self.past().trimmed_at) < _EVERY_SECONDS:
            return 0
        old = self._old_actions()
        there = _existing(target, {name for _, _, name in old})
        chosen = [(run, number) for run, number, name in old if name not in there]
        some = chosen[:_ACTIONS_MAX]
        if some:
            with transaction(self._connection):
                self._delete(some, is_last=some == chosen)
        return len(some)

    def _old_actions(self) -> list[tuple[str, int, str]]:
        rows: list[Any] = self._connection.execute(
            "SELECT run, number, target FROM actions JOIN runs ON runs.id = actions.run "
            "WHERE started_at < ?1 AND finished_at IS NOT NULL AND kind != ?2 AND action != ?3 "
            "AND state != 'intended' AND run NOT IN (SELECT value FROM json_each(?4)) "
            "AND target NOT IN (SELECT target FROM actions WHERE state != 'skipped' "
            "AND run IN (SELECT value FROM json_each(?4))) ORDER BY run, number",
            (
                self._now - KEPT_SECONDS,
                RunKind.UNDO.value,
                PURGE_TRASH,
                msgspec.json.encode(self._trashed).decode(),
            ),
        ).fetchall()
        return rows

    def _delete(self, chosen: Sequence[tuple[str, int]], *, is_last: bool) -> None:
        connection, before = self._connection, self.totals()
        connection.execute(TRIMMED_SCHEMA)
        lines = Counter(run for run, _ in chosen)
        were = {run: self.find_listed(run) for run in lines}
        connection.executemany("DELETE FROM actions WHERE run = ? AND number = ?", chosen)
        for run, was in were.items():
            left = self.find_listed(run)
            gone = (was.actions - left.actions, was.bytes - left.bytes, was.undone - left.undone)
            connection.execute(_ADD, (run, *gone, lines[run], was.sole_action))
        past = before.minus(self.totals_listed())
        past = past.as_past(self._now if is_last else 0.0, _HOURS_MAX)
        connection.execute("DELETE FROM trimmed")
        connection.execute("INSERT INTO trimmed VALUES (?)", (msgspec.msgpack.encode(past),))


_ADD: Final = """
    INSERT INTO trimmed_runs VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (run) DO UPDATE SET
           actions = actions + excluded.actions, bytes = bytes + excluded.bytes,
           undone = undone + excluded.undone, lines = lines + excluded.lines,
           sole_action = IIF(sole_action = excluded.sole_action, sole_action, '')"""


def _existing(target: Target, names: set[str]) -> set[str]:
    """Return those of these names that sessions of the home have."""
    if not names:
        return set()

    def look(connection: apsw.Connection) -> set[str]:
        found = connection.execute(
            "SELECT id FROM sessions WHERE id IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode(sorted(names)).decode(),),
        )
        return {name for (name,) in found}

    return read_with_retry(target, look)


def trim_journal(connection: apsw.Connection, trashed: Sequence[str], target: Target) -> int:
    """Trim the journal of a home, under its run lock; return how many actions went.

    `trashed` are the runs that have trash. Raise DatabaseError if the home's sessions cannot be
    read now: then nothing goes.
    """
    return _Trimmer(connection, trashed, target.clock()).trim(target)
