"""Plan how to merge the old messages of a session with its present ones. Pure functions.

The case: a session was deleted, but a process still had it in memory and went on. Then Hermes
created a row with the same id again. The content of that row depends on the process:

    most processes append                        it has only the new messages
    some write the whole history again           it begins with the old active messages
    (ACP up to 0.16, an import)
    after a compaction                           it has a summary instead of the old messages

Putting the old rows in front in every case would duplicate the past.

Hermes orders messages by id and never uses an id twice. So old ids are lower than new ones, unless
the database was created anew. Then another message may have an old id, or a new id may be lower.
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
"""How every release from 0.13 to 0.19 marks a summary. It may follow the text it was joined to."""
_INJECTED: Final = re.compile(r"<\s*memory-context\s*>.*?</\s*memory-context\s*>", re.S | re.I)
_BLANK: Final = re.compile(r"\s+")
"""Hermes drops memory context and blanks when it loads a conversation.

So they are missing when it writes the conversation again.
"""
_REPEATED_SHARE: Final = 0.75
_REPEATED_CHARACTERS_MIN: Final = 200
"""So many characters, and this share of the past, repeated in order are no coincidence."""
_VARYING: Final = ("id", "session_id", "active", "compacted")
"""Columns in which an old row may differ after it was restored."""
_HIDDEN: Final = {"active": 0, "compacted": 1}


class MergePlan(Struct, frozen=True):
    """The changes to make to the messages of a session that exists."""

    missing: TableRows
    """Old messages to insert, with the ids that they will get, in the order of these ids."""
    old_ids: Sequence[int] = ()
    """The ids that these messages had before."""
    needs_numbers: int = 0
    """If above 0, the caller must reserve this many new ids. `missing` is empty then.

    The caller also moves the present messages to the last of these ids, and plans the merge again.
    """
    active_return: bool = False
    """True if old active messages return as active: they count as messages of the session."""
    unplaced: int = 0
    """The number of old messages that Hermes has compacted away, if the schema cannot hold them."""


def plan_merge(
    old: TableRows,
    present: TableRows,
    columns: Collection[str],
    is_free: Callable[[Sequence[int]], bool],
    reserved: int = 0,
) -> MergePlan:
    """Plan which old messages to insert. Both tables are in the order of their ids.

    `columns` are the present columns of the table. `is_free` returns True if no message has any of
    the given ids. `reserved` is the first of the ids that an earlier plan asked for. After a part
    of the plan was done, or after Hermes has written, planning again gives the rest.
    """
    numbering = _Numbering(present.column("id"), is_free, reserved)
    back = _find_restored(old, present)
    missing = [row for row in old.rows if _value(old, row, "id") not in back.old_ids]
    new = TableRows(
        present.columns, [r for r in present.rows if _value(present, r, "id") not in back.ids]
    )
    seen_active = [row for row in new.rows if _is_active(new, row)]
    old_active = [row for row in old.rows if _is_active(old, row)]
    if seen_active and _begins_with(new, seen_active, old, old_active):
        missing = [row for row in missing if not _is_active(old, row)]
        return numbering.plan(TableRows(old.columns, missing))
    if not (_is_compacted(new, seen_active) or _repeats_past(new, seen_active, old, old_active)):
        active = any(_is_active(old, row) for row in missing)
        past = TableRows(old.columns, missing)
        return numbering.plan(past, before=new.column("id"), active_return=active)
    if "active" not in columns:
        return MergePlan(TableRows(old.columns, []), unplaced=len(missing))
    hidden = _hidden(TableRows(old.columns, missing), columns)
    return numbering.plan(hidden, before=new.column("id"))


class _Restored(Struct, frozen=True):
    """The old messages that were restored already: their old ids, and their present ids."""

    old_ids: frozenset[int]
    ids: frozenset[int]


def _find_restored(old: TableRows, present: TableRows) -> _Restored:
    shared = [name for name in old.columns if name in present.columns and name not in _VARYING]
    now = {_value(present, row, "id"): _fields(present, row, shared) for row in present.rows}
    same = frozenset(
        number
        for row in old.rows
        if (number := _value(old, row, "id")) in now and now[number] == _fields(old, row, shared)
    )
    if same:
        return _Restored(same, same)
    # Restored with other ids: the newest are restored first, so they are the first messages that
    # the session has now.
    before = [_fields(old, row, shared) for row in old.rows]
    after = list(now.values())
    for place, fields in enumerate(before):
        count = len(before) - place
        if after and fields == after[0] and before[place:] == after[:count]:
            numbers = [_value(old, row, "id") for row in old.rows[place:]]
            return _Restored(frozenset(numbers), frozenset(list(now)[:count]))
    return _Restored(frozenset(), frozenset())


class _Numbering(Struct, frozen=True):
    """Chooses ids for messages that are free and in order."""

    present: Sequence[int]
    is_free: Callable[[Sequence[int]], bool]
    reserved: int

    def plan(
        self, missing: TableRows, *, before: Sequence[int] = (), active_return: bool = False
    ) -> MergePlan:
        """Keep the old ids if they are free and below those of `before`, else use others."""
        numbers = old_ids = missing.column("id")
        in_order = not before or not numbers or max(numbers) < min(before)
        if not in_order or not self.is_free(numbers):
            count = len(numbers)
            # Just below the present messages, where room was made for them.
            first = min(self.present) - count if self.present else self.reserved
            numbers = list(range(first, first + count))
            if first <= 0 or not self.is_free(numbers):
                needed = count + len(self.present)
                return MergePlan(TableRows(missing.columns, []), needs_numbers=needed)
        return MergePlan(renumbered(missing, numbers), old_ids, active_return=active_return)


def renumbered(rows: TableRows, numbers: Sequence[int]) -> TableRows:
    """Return the same messages with other ids."""
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
    return all(
        _role_and_text(new, n) == _role_and_text(old, o) for n, o in zip(seen, past, strict=False)
    )


def _role_and_text(rows: TableRows, row: tuple[Any, ...]) -> tuple[Any, str]:
    """Return role and text of a message, in a form that survives a rewrite by Hermes.

    A rewrite changes the message's time and formats its JSON anew.
    """
    calls = _value(rows, row, "tool_calls")
    try:
        calls = json.loads(calls) if isinstance(calls, str) else calls
    except ValueError:
        pass  # compare the text as it is
    told = _INJECTED.sub("", _text(_value(rows, row, "content")))
    if calls:
        told += json.dumps(calls, sort_keys=True, default=str)
    return _value(rows, row, "role"), _BLANK.sub("", told)


def _repeats_past(
    new: TableRows, seen: Sequence[tuple[Any, ...]], old: TableRows, past: Sequence[tuple[Any, ...]]
) -> bool:
    """True if most of the past is repeated, in order.

    A process that repairs a loaded conversation writes its whole history again, but not every
    message of it. For example, it joins two questions without an answer.
    """
    now = "".join(_role_and_text(new, row)[1] for row in seen)
    texts = [_role_and_text(old, row)[1] for row in past]
    total = sum(map(len, texts))
    spare, place = (1 - _REPEATED_SHARE) * total, 0
    for text in texts:
        at = now.find(text, place)
        if at >= 0:
            place = at + len(text)
        else:
            spare -= len(text)
            if spare < 0:
                return False  # give up early: each search may go through the whole text
    return total >= _REPEATED_CHARACTERS_MIN


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
    """True if Hermes treats the message as active: also with NULL, and without the column."""
    return bool(_value(rows, row, "active") != 0)


def _hidden(rows: TableRows, columns: Collection[str]) -> TableRows:
    """Return the rows with active ones hidden, as Hermes hides messages that a summary replaces."""
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
