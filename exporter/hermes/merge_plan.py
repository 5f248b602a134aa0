"""How the past of a session is joined with what it says now; pure.

A session was deleted, and a process that had it in memory went on: Hermes made a row of its id
again. What that row holds depends on the process. Most append, so it has only the new messages.
Some write their whole history again (ACP up to 0.16, an import): then it begins with the old active
messages. After a compaction it has a summary instead of them. Putting the old rows in front of it
in every case would double the past.

Hermes orders messages by id and never gives an id out twice. So the old ids are below the new ones,
unless the database was begun anew: then another message may have an old id, or a new one is lower.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from msgspec import Struct

from exporter.hermes.table_rows import TableRows, parameter

_SUMMARY: Final = re.compile(
    r"\[CONTEXT COMPACTION .{1,8} REFERENCE ONLY\]|\A\s*\[CONTEXT SUMMARY\]:"
)
"""How every release from 0.13 to 0.19 marks a summary; it may follow the text it was joined to."""
_INJECTED: Final = re.compile(r"<\s*memory-context\s*>.*?</\s*memory-context\s*>", re.S | re.I)
_BLANK: Final = re.compile(r"\s+")
"""Hermes drops both when it loads a conversation, so they are missing from what it writes again."""
_RETOLD_SHARE: Final = 0.75
_RETOLD_LEAST: Final = 200
"""So many characters of the past, and that share of it, told again in order are no coincidence."""
_VARYING: Final = ("id", "session_id", "active", "compacted")
"""Columns in which an old row may differ once it is back."""
_HIDDEN: Final = {"active": 0, "compacted": 1}


class MergePlan(Struct, frozen=True):
    """What is to be done to the messages of a session that is there."""

    missing: TableRows
    """Old messages to put in, with the ids that they get, in the order of these."""
    old_ids: Sequence[int] = ()
    """The ids that they had."""
    needs_numbers: int = 0
    """If above 0: so many new ids are to be reserved, the present messages moved to the last of
    them, and the merge planned again; `missing` is empty then."""
    active_return: bool = False
    """Old active messages come back as active ones: they count as messages of the session."""
    unplaced: int = 0
    """Old messages that Hermes has compacted away, in a schema that cannot hold such."""


def plan_merge(
    old: TableRows,
    present: TableRows,
    columns: Collection[str],
    is_free: Callable[[Sequence[int]], bool],
    reserved: int = 0,
) -> MergePlan:
    """Plan what is missing of the old messages; both in the order of their ids.

    `columns` are those of the table now. `is_free` tells whether no message has any of these ids.
    `reserved` is the first of the ids that an earlier plan asked for. Planned again after a part
    was done, or after Hermes has written, it plans the rest.
    """
    numbering = _Numbering(present.column("id"), is_free, reserved)
    back = _already_back(old, present)
    missing = [row for row in old.rows if _value(old, row, "id") not in back.old_ids]
    new = TableRows(
        present.columns, [r for r in present.rows if _value(present, r, "id") not in back.ids]
    )
    seen_active = [row for row in new.rows if _is_active(new, row)]
    old_active = [row for row in old.rows if _is_active(old, row)]
    if seen_active and _begins_with(new, seen_active, old, old_active):
        missing = [row for row in missing if not _is_active(old, row)]
        return numbering.plan(TableRows(old.columns, missing))
    if not (_is_compacted(new, seen_active) or _is_retold(new, seen_active, old, old_active)):
        active = any(_is_active(old, row) for row in missing)
        past = TableRows(old.columns, missing)
        return numbering.plan(past, before=new.column("id"), active_return=active)
    if "active" not in columns:
        return MergePlan(TableRows(old.columns, []), unplaced=len(missing))
    hidden = _hidden(TableRows(old.columns, missing), columns)
    return numbering.plan(hidden, before=new.column("id"))


class _Back(Struct, frozen=True):
    """Which old messages are back already: by their old ids, and by those they have now."""

    old_ids: frozenset[int]
    ids: frozenset[int]


def _already_back(old: TableRows, present: TableRows) -> _Back:
    shared = [name for name in old.columns if name in present.columns and name not in _VARYING]
    now = {_value(present, row, "id"): _fields(present, row, shared) for row in present.rows}
    same = frozenset(
        number
        for row in old.rows
        if (number := _value(old, row, "id")) in now and now[number] == _fields(old, row, shared)
    )
    if same:
        return _Back(same, same)
    # Under other ids: the newest come back first, so they are the first that the session has.
    before = [_fields(old, row, shared) for row in old.rows]
    after = list(now.values())
    for place, fields in enumerate(before):
        count = len(before) - place
        if after and fields == after[0] and before[place:] == after[:count]:
            numbers = [_value(old, row, "id") for row in old.rows[place:]]
            return _Back(frozenset(numbers), frozenset(list(now)[:count]))
    return _Back(frozenset(), frozenset())


class _Numbering(Struct, frozen=True):
    """Gives messages ids that are free and in order."""

    present: Sequence[int]
    is_free: Callable[[Sequence[int]], bool]
    reserved: int

    def plan(
        self, missing: TableRows, *, before: Sequence[int] = (), active_return: bool = False
    ) -> MergePlan:
        """Their own ids if these are free and lower than those of `before`, else others."""
        numbers = old_ids = missing.column("id")
        in_order = not before or not numbers or max(numbers) < min(before)
        if not in_order or not self.is_free(numbers):
            count = len(numbers)
            # Right below the present ones, where room was made for them.
            first = min(self.present) - count if self.present else self.reserved
            numbers = list(range(first, first + count))
            if first <= 0 or not self.is_free(numbers):
                needed = count + len(self.present)
                return MergePlan(TableRows(missing.columns, []), needs_numbers=needed)
        return MergePlan(renumbered(missing, numbers), old_ids, active_return=active_return)


def renumbered(rows: TableRows, numbers: Sequence[int]) -> TableRows:
    """The same messages with other ids."""
    place = rows.columns.index("id")
    pairs = zip(rows.rows, numbers, strict=True)
    return TableRows(
        rows.columns, [(*row[:place], number, *row[place + 1 :]) for row, number in pairs]
    )


def _begins_with(
    new: TableRows, seen: Sequence[tuple[Any, ...]], old: TableRows, past: Sequence[tuple[Any, ...]]
) -> bool:
    if len(seen) < len(past):
        return False
    return all(_said(new, n) == _said(old, o) for n, o in zip(seen, past, strict=False))


def _said(rows: TableRows, row: tuple[Any, ...]) -> tuple[Any, str]:
    """Who says what in a message: a rewrite gives it another time, and writes its JSON anew."""
    calls = _value(rows, row, "tool_calls")
    try:
        calls = json.loads(calls) if isinstance(calls, str) else calls
    except ValueError:
        pass  # then it is compared as it stands
    told = _INJECTED.sub("", _text(_value(rows, row, "content")))
    if calls:
        told += json.dumps(calls, sort_keys=True, default=str)
    return _value(rows, row, "role"), _BLANK.sub("", told)


def _is_retold(
    new: TableRows, seen: Sequence[tuple[Any, ...]], old: TableRows, past: Sequence[tuple[Any, ...]]
) -> bool:
    """Whether most of the past is told again, in order.

    A process that repairs what it has loaded (it joins two questions without an answer, say) writes
    its whole history again and yet not every message of it.
    """
    now = "".join(_said(new, row)[1] for row in seen)
    texts = [_said(old, row)[1] for row in past]
    total = sum(map(len, texts))
    spare, place = (1 - _RETOLD_SHARE) * total, 0
    for text in texts:
        at = now.find(text, place)
        if at >= 0:
            place = at + len(text)
        else:
            spare -= len(text)
            if spare < 0:
                return False  # soon, if it is not so: each search may go through all that is said
    return total >= _RETOLD_LEAST


def _is_compacted(new: TableRows, seen: Sequence[tuple[Any, ...]]) -> bool:
    if any(_value(new, row, "compacted") for row in new.rows):
        return True
    return any(_SUMMARY.search(_text(_value(new, row, "content"))) for row in seen)


def _text(value: Any) -> str:
    value = parameter(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else str(value)


def _is_active(rows: TableRows, row: tuple[Any, ...]) -> bool:
    """As Hermes reads it: NULL, and no such column, are active."""
    return bool(_value(rows, row, "active") != 0)


def _hidden(rows: TableRows, columns: Collection[str]) -> TableRows:
    """Active ones as Hermes leaves those that a summary stands for; the others as they are."""
    names = (*rows.columns, *(n for n in _HIDDEN if n in columns and n not in rows.columns))
    found = []
    for row in rows.rows:
        named = dict(zip(rows.columns, row, strict=True))
        if _is_active(rows, row):
            named |= _HIDDEN
        found.append(tuple(named.get(name, 0) for name in names))
    return TableRows(names, found)


def _fields(rows: TableRows, row: tuple[Any, ...], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[rows.columns.index(name)] for name in names)


def _value(rows: TableRows, row: tuple[Any, ...], name: str) -> Any:
    return row[rows.columns.index(name)] if name in rows.columns else None
