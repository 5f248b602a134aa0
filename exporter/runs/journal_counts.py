"""Counting what the run journal says: sessions, mistakes, items and bytes over all runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import apsw
import msgspec

from exporter.runs.folder import JournalDamagedError
from exporter.runs.journal_rows import DAMAGE, totals_of
from exporter.runs.models import DELETE_SESSION, END_SESSION, ENDS, WHY_MAX, Reaps, RunKind
from exporter.runs.totals import RunTotals
from exporter.text import cut

_ENDS: Final = msgspec.json.encode(ENDS).decode()


@contextmanager
def damage_as_error() -> Iterator[None]:
    """The file belongs to the home's owner, who may have written anything into it."""
    try:
        yield
    except DAMAGE as error:
        raise JournalDamagedError(
            cut(f"the run journal holds what no run writes: {error}", WHY_MAX)
        ) from error


class JournalCounts:
    """What is counted in an open journal."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def totals(self) -> RunTotals:
        """What is counted over all runs."""
        return self.past().plus(self.totals_listed())

    def totals_listed(self) -> RunTotals:
        """What is counted over all runs, as far as the journal lists their actions."""
        by_policy = self._count_by_policy()
        return RunTotals(
            reaped=self._count_reaped(),
            mistakes=self._count_mistakes(),
            healed=self._count_healed(),
            pruned={policy: count for policy, (count, _) in by_policy.items()},
            freed_bytes={policy: size for policy, (_, size) in by_policy.items() if size},
            reaps={int(each.at // 60): each.sessions for each in self._automatic_reaps()},
            reopenings=self._reopenings(),
        )

    def past(self) -> RunTotals:
        """What was counted of actions that the journal does not list any more."""
        found = None
        if self.was_trimmed():
            found = self._connection.execute("SELECT totals FROM trimmed").get
        with damage_as_error():
            return RunTotals() if found is None else totals_of(found)

    def was_trimmed(self) -> bool:
        """True if actions were ever taken out of the list, and only counted."""
        query = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'trimmed_runs')"
        return bool(self._connection.execute(query).get)

    def automatic_reaps(self) -> list[Reaps]:
        """Return how many sessions automatic reaps ended, by the minute; long ago by the hour."""
        past = [Reaps(60.0 * minute, count) for minute, count in self.past().reaps.items()]
        return [*past, *self._automatic_reaps()]

    def count_runs(self, kind: RunKind) -> dict[str, tuple[int, float]]:
        """Return how many runs of this kind had each outcome, and when the last one ended."""
        rows: list[Any] = self._connection.execute(
            "SELECT outcome, COUNT(*), MAX(finished_at) FROM runs "
            "WHERE kind = ? AND outcome IS NOT NULL GROUP BY outcome",
            (kind.value,),
        ).fetchall()
        return {outcome: (count, last) for outcome, count, last in rows}

    def _automatic_reaps(self) -> list[Reaps]:
        rows: list[Any] = self._connection.execute(
            "SELECT MIN(settled_at), COUNT(*) FROM actions JOIN runs ON runs.id = actions.run "
            "WHERE action = ? AND state IN ('done', 'undone') AND settled_at IS NOT NULL "
            "AND kind = 'reap' AND NOT by_hand GROUP BY CAST(settled_at / 60 AS INTEGER)",
            (END_SESSION,),
        ).fetchall()
        return [Reaps(float(at), sessions) for at, sessions in rows]

    def _reopenings(self) -> dict[float, bool]:
        """Return when ends were taken back, as mistakes or by a person; True for a wrong proof."""
        rows: list[Any] = self._connection.execute(
            "SELECT later.settled_at, MAX(runs.kind = 'heal' "
            "AND COALESCE(json_extract(first.after, '$.proof'), 'proven') = 'proven') "
            "FROM runs JOIN actions AS later ON later.run = runs.id "
            "JOIN actions AS first "
            "ON first.run = later.reverses_run AND first.number = later.reverses_number "
            "WHERE runs.kind IN ('heal', 'undo') AND later.state IN ('done', 'undone') "
            "AND later.settled_at IS NOT NULL "
            "AND first.action IN (SELECT value FROM json_each(?)) AND (runs.kind = 'undo' "
            "OR COALESCE(json_extract(later.before, '$.mistake'), 1)) GROUP BY 1",
            (_ENDS,),
        ).fetchall()
        return {float(at): bool(wrong_proof) for at, wrong_proof in rows}

    def _count_reaped(self) -> dict[tuple[str, str], int]:
        """Return how many sessions were ever ended, by source and proof.

        Journals from before there was a presumption do not name a proof.
        """
        return self._counts(
            "SELECT json_extract(before, '$.source'), "
            "COALESCE(json_extract(after, '$.proof'), 'proven'), COUNT(*) FROM actions "
            "WHERE action = ? AND state IN ('done', 'undone') GROUP BY 1, 2",
            END_SESSION,
        )

    def _count_mistakes(self) -> dict[tuple[str, str], int]:
        """Return how many ends were mistakes that healing corrected, by source and proof."""
        return self._counts(
            "SELECT json_extract(first.before, '$.source'), "
            "COALESCE(json_extract(first.after, '$.proof'), 'proven'), COUNT(*) "
            "FROM runs JOIN actions AS later ON later.run = runs.id "
            "JOIN actions AS first "
            "ON first.run = later.reverses_run AND first.number = later.reverses_number "
            "WHERE runs.kind = 'heal' AND later.state IN ('done', 'undone') "
            "AND first.action IN (SELECT value FROM json_each(?)) "
            "AND COALESCE(json_extract(later.before, '$.mistake'), 1) GROUP BY 1, 2",
            _ENDS,
        )

    def _count_healed(self) -> int:
        """Return how many deletions healing took back, without those that only came along."""
        return int(
            self._connection.execute(
                "SELECT COUNT(*) FROM runs JOIN actions AS later ON later.run = runs.id "
                "JOIN actions AS first "
                "ON first.run = later.reverses_run AND first.number = later.reverses_number "
                "WHERE runs.kind = 'heal' AND later.state IN ('done', 'undone') "
                "AND first.action = ? AND json_extract(later.before, '$.relative') IS NULL",
                (DELETE_SESSION,),
            ).get
        )

    def _count_by_policy(self) -> dict[str, tuple[int, int]]:
        """Return the actions, and the bytes freed at once, of all prunes by policy."""
        rows: list[Any] = self._connection.execute(
            "SELECT policy, COUNT(*), "
            "SUM(bytes * (json_extract(after, '$.frees') = 'now')) "
            "FROM actions JOIN runs ON runs.id = actions.run "
            "WHERE kind = 'prune' AND state IN ('done', 'undone') GROUP BY policy"
        ).fetchall()
        return {policy: (count, int(size or 0)) for policy, count, size in rows}

    def _counts(self, query: str, *values: str) -> dict[tuple[str, str], int]:
        rows: list[Any] = self._connection.execute(query, values).fetchall()
        return {(str(source or ""), str(proof)): count for source, proof, count in rows}
