"""Count what sessions used since they were last counted.

The rows that counters are summed from are pruned, rewritten and restored. So for each session ever
seen, the store keeps what was counted of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import apsw

from exporter.agent.label_limits import allow
from exporter.collectors.labels import AllowedValues, LabelFamily, label_value, most_used_first
from exporter.snapshot import ModelUsage, SessionUsage

_TOKEN_KINDS: Final = ("input", "output", "cache_read", "cache_write", "reasoning")


class _Counted(NamedTuple):
    """What was counted of one session, and its rows at that time."""

    rows: int
    tool_calls: int
    api_calls: int
    active_rows: int
    had_rows: int
    """1 if it ever had a row, else 0."""


_NOTHING_COUNTED: Final = _Counted(0, 0, 0, 0, 0)


def _copies(usage: SessionUsage, before: _Counted | None) -> int:
    """Return how many of the rows with repeated text are copies made by compaction.

    Compaction copies active rows only. A session without active rows has no copies: repeated text
    there is new. Compaction copies from the parent session only into a session that never had a
    row.
    """
    if before is None:
        return usage.copied
    all_new = usage.rows == usage.above_watermark
    possible = not before.had_rows if all_new else before.active_rows > 0
    return usage.copied if possible else 0


class UsageCounter:
    """Counts one page, inside its transaction."""

    def __init__(
        self, connection: apsw.Connection, home: int, *, first_sight: bool, today: int
    ) -> None:
        self._connection = connection
        self._home = home
        self._first_sight = first_sight
        self._today = today
        self._added: dict[tuple[str, str, str, str], float] = {}
        self._sources = self._models = AllowedValues(frozenset())
        self._active_sources: set[tuple[str, ...]] = set()
        self._active_models: set[tuple[str, ...]] = set()

    def admit(self, page: Sequence[SessionUsage]) -> None:
        """Reserve places for the label values of a page."""
        sources: dict[tuple[str, ...], float] = {}
        models: dict[tuple[str, ...], float] = {}
        for usage in page:
            source = label_value(LabelFamily.SOURCE, usage.source)
            sources[(source,)] = sources.get((source,), 0) + 1
            for model in usage.models:
                pair = source, label_value(LabelFamily.SOURCE_MODEL, model.model)
                models[pair] = models.get(pair, 0) + model.input + model.output
        self._sources = self._places(LabelFamily.SOURCE, sources)
        self._models = self._places(LabelFamily.SOURCE_MODEL, models)

    def _places(self, family: LabelFamily, weights: dict[tuple[str, ...], float]) -> AllowedValues:
        order = most_used_first(weights)
        return allow(self._connection, self._home, family, order, today=self._today)

    def count(self, usage: SessionUsage) -> None:
        """Add what this session used since it was last counted."""
        own = label_value(LabelFamily.SOURCE, usage.source)
        (source,) = self._sources(own)  # `other` if it has no place
        before = self._session_before(usage.key)
        counted = before or _NOTHING_COUNTED
        if usage.reborn and before is not None:
            self._count_reborn(source, usage, before)
            return
        if before is None and self._first_sight:
            new_rows = usage.active_rows
        else:
            # Rows that an undo restored are not above the watermark.
            new_rows = min(usage.rows - counted.rows, usage.above_watermark)
            new_rows -= _copies(usage, before)
        if new_rows > 0 or usage.api_calls > counted.api_calls:
            self._active_sources.add((own,))
        self._add("messages", source, "", "", new_rows)
        self._add("tool_calls", source, "", "", usage.tool_calls - counted.tool_calls)
        self._add("api_calls", source, "", "", usage.api_calls - counted.api_calls)
        had_rows = counted.had_rows or usage.rows > 0
        self._connection.execute(
            "INSERT OR REPLACE INTO session_counted VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                self._home,
                usage.key,
                usage.rows,
                usage.tool_calls,
                usage.api_calls,
                usage.active_rows,
                had_rows,
                self._today,
            ),
        )
        for model in usage.models:
            self._count_model(usage, model)

    def _count_reborn(self, source: str, usage: SessionUsage, before: _Counted) -> None:
        """Count only the new messages of a deleted session that exists again.

        Its other figures can be compared only after its history is restored.
        """
        has_old_rows = usage.rows >= before.rows  # a process wrote them again, from its memory
        new_rows = usage.rows - before.rows if has_old_rows else usage.rows
        new_rows = min(new_rows, usage.above_watermark)
        self._add("messages", source, "", "", new_rows)
        self._connection.execute(
            "UPDATE session_counted SET message_rows = message_rows + ? "
            "WHERE home = ? AND session = ?",
            (new_rows, self._home, usage.key),
        )

    def _session_before(self, key: int) -> _Counted | None:
        found: tuple[int, int, int, int, int] | None = self._connection.execute(
            "SELECT message_rows, tool_calls, api_calls, active_rows, had_rows "
            "FROM session_counted WHERE home = ? AND session = ?",
            (self._home, key),
        ).fetchone()
        return None if found is None else _Counted(*found)

    def _count_model(self, usage: SessionUsage, model: ModelUsage) -> None:
        own = (
            label_value(LabelFamily.SOURCE, usage.source),
            label_value(LabelFamily.SOURCE_MODEL, model.model),
        )
        source, name = self._models(*own)
        key = _hash_of(model.model)
        found = self._connection.execute(
            "SELECT input, output, cache_read, cache_write, reasoning, estimated, actual "
            "FROM model_counted WHERE home = ? AND session = ? AND model = ?",
            (self._home, usage.key, key),
        ).fetchone()
        before = found or (0, 0, 0, 0, 0, 0.0, 0.0)
        now = (
            model.input,
            model.output,
            model.cache_read,
            model.cache_write,
            model.reasoning,
            model.estimated_usd,
            model.actual_usd,
        )
        if any(value > counted for value, counted in zip(now, before, strict=True)):
            self._active_models.add(own)
        # Not strict: `now` and `before` end with two costs, which are no kinds of tokens.
        for kind, value, counted in zip(_TOKEN_KINDS, now, before, strict=False):
            self._add("tokens", source, name, kind, value - counted)
        self._add("cost_usd", source, name, "estimated", now[5] - before[5])
        self._add("cost_usd", source, name, "actual", now[6] - before[6])
        if now != found:
            self._connection.execute(
                "INSERT OR REPLACE INTO model_counted VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (self._home, usage.key, key, *now),
            )

    def _add(self, name: str, source: str, model: str, kind: str, amount: float) -> None:
        """Add to a counter. Figures that shrank (a rewritten transcript) subtract nothing."""
        key = (name, source, model, kind)
        self._added[key] = self._added.get(key, 0) + max(0, amount)

    def finish(self) -> None:
        """Write the sums; a counter with nothing to count yet is written as 0."""
        self._connection.executemany(
            "INSERT INTO counters VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET value = value + excluded.value",
            [(self._home, *key, amount) for key, amount in self._added.items()],
        )
        # A new value that gets a place now is counted under its name from the next page on.
        for family, active in (
            (LabelFamily.SOURCE, self._active_sources),
            (LabelFamily.SOURCE_MODEL, self._active_models),
        ):
            if active:
                allow(
                    self._connection,
                    self._home,
                    family,
                    sorted(active),
                    active=active,
                    today=self._today,
                )


def _hash_of(word: str) -> int:
    """Return a stable 63-bit hash of a text of any length."""
    digest = blake2b(word.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1  # an integer of SQLite has a sign
