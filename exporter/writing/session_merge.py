"""Write the past of a session back into a session that exists; `merge_plan` says what to write.

Hermes counts what a session uses in its row and in `session_model_usage`. A new row counts from 0,
so the old figures are added. A row with the old start time has them already: an import or a
restored backup brought it back, an earlier part of this merge did, or it was only emptied.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, Final

import apsw
import msgspec

from exporter.hermes.merge_plan import MergePlan, plan_merge, renumbered
from exporter.hermes.odd_rows import EMPTIED, is_handed_off
from exporter.hermes.table_rows import TableRows, parameter, placeholder, quoted, read_rows
from exporter.writing.search_index import (
    IndexedUpToNul,
    SearchIndex,
    add_to_index,
    index_new_message,
    remove_from_index,
    reserve_ids,
)
from exporter.writing.stored_session import (
    MESSAGES,
    SESSIONS,
    SessionTables,
    StoredSession,
    all_or_nothing,
    exists,
    free_title,
    put_rows,
    relink_children,
    restore_session,
)

_USAGE: Final = "session_model_usage"
_CONVERSATION: Final = ("message_count", "tool_call_count")
"""Hermes counts these up, or sets them to the number of active ones."""
_COUNTERS: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "estimated_cost_usd",
    "actual_cost_usd",
    "api_call_count",
    "rewind_count",
)
_PRESENT: Final = (
    "id",
    "ended_at",
    "end_reason",
    "handoff_state",
    "handoff_platform",
    "handoff_error",
    "expiry_finalized",
    "compression_failure_cooldown_until",
    "compression_failure_error",
    "compression_fallback_streak",
    "last_activity_at",
    "last_heartbeat_at",
    "pinned",
    "hidden",
)
"""Columns that say how the session is now. All others get their old values back."""

MessagesStamp = tuple[Any, ...]


def needs_merge(connection: apsw.Connection, layout: SessionTables, stored: StoredSession) -> bool:
    """True if messages were added since, to a session with its id or with its message ids."""
    if not are_free(connection, stored.message_ids()):
        return True
    return exists(connection, stored.id) and not is_still_empty(connection, layout, stored)


def is_still_empty(
    connection: apsw.Connection, layout: SessionTables, stored: StoredSession
) -> bool:
    """True if its row is there as a prune left it: hidden, and without messages."""
    if not layout.schema.has(SESSIONS, "archived"):
        return False
    found = connection.execute(
        "SELECT 1 FROM sessions WHERE id = ? AND started_at IS ? AND archived IS ? "
        f"AND NOT {is_handed_off(layout.schema)} "
        "AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id)",
        (stored.id, parameter(stored.began_at), EMPTIED),
    ).fetchone()
    return found is not None


def are_free(connection: apsw.Connection, message_ids: Sequence[int]) -> bool:
    found = connection.execute(
        "SELECT 1 FROM messages WHERE id IN (SELECT value FROM json_each(?)) LIMIT 1",
        (msgspec.json.encode(list(message_ids)).decode(),),
    ).fetchone()
    return found is None


def read_messages(connection: apsw.Connection, layout: SessionTables, session_id: str) -> TableRows:
    return read_rows(connection, MESSAGES, layout.columns[MESSAGES], "session_id = ?", session_id)


def messages_stamp(
    connection: apsw.Connection, layout: SessionTables, session_id: str
) -> MessagesStamp:
    """Return a value that changes if anything but the text of a message changes; it is cheap."""
    flags = [name for name in ("active", "compacted") if name in layout.columns[MESSAGES]]
    sums = "".join(f", TOTAL({name})" for name in flags)
    found = connection.execute(
        f"SELECT COUNT(*), MIN(id), MAX(id){sums} FROM messages WHERE session_id = ?",
        (session_id,),
    ).fetchone()
    return (exists(connection, session_id), *(found or ()))


def plan_for(
    connection: apsw.Connection, layout: SessionTables, stored: StoredSession, reserved: int = 0
) -> MergePlan:
    """Plan how to restore the missing messages of a session."""
    return plan_merge(
        stored.messages,
        read_messages(connection, layout, stored.id),
        layout.columns[MESSAGES],
        lambda message_ids: are_free(connection, message_ids),
        reserved,
    )


def is_restored(connection: apsw.Connection, layout: SessionTables, stored: StoredSession) -> bool:
    """True if all of a session is there, whatever was added to it since."""
    row = _row(connection, layout, stored.id)
    if row is None or not _is_same_row(stored, row) or row.get("archived") == EMPTIED:
        return False
    plan = plan_for(connection, layout, stored)
    return not plan.missing.rows and not plan.needs_numbers


def merge_row(
    connection: apsw.Connection,
    layout: SessionTables,
    stored: StoredSession,
    plan: MergePlan,
    coming: Container[str],
) -> str:
    """Restore all of a session but its messages; return a note of what differs, or ''."""
    present = _row(connection, layout, stored.id)
    if present is None:
        return restore_session(connection, layout, stored, coming, with_messages=False)
    old = stored.tables[SESSIONS].as_dict(0)
    adds_up = not _is_same_row(stored, present)
    if adds_up:
        values, note = _merged(connection, old, present, plan, coming)
    else:
        values, note = _refilled(connection, old, present), ""
    _update(connection, stored.id, values)
    for table, rows in stored.tables.items():
        if table == _USAGE and adds_up:
            _add_usage(connection, layout, rows)
        elif table not in (SESSIONS, MESSAGES):
            put_rows(connection, layout, table, rows, present_wins=True)
    relink_children(connection, stored)
    return note


def refill_session(
    connection: apsw.Connection,
    layout: SessionTables,
    stored: StoredSession,
    coming: Container[str],
) -> str:
    """Restore a session whose row is still empty, in a transaction of the caller.

    Return what is different now, or ''. Raise RestoreError, with nothing done, if it cannot be
    restored without loss. If the text index is known and has the messages, its triggers must be
    off.
    """
    with all_or_nothing(connection, stored):
        note = merge_row(connection, layout, stored, MergePlan(stored.messages), coming)
        put_rows(connection, layout, MESSAGES, stored.messages)
    return note


def _refilled(
    connection: apsw.Connection, old: dict[str, Any], present: dict[str, Any]
) -> dict[str, Any]:
    """Return the columns that an emptied row gets back; none for another row.

    Hermes kept counting in it, so nothing is added up. If a person archived it or showed it again,
    `archived` has another value than ours, and that value stays.
    """
    if present.get("archived") != EMPTIED:
        return {}
    values = {"archived": old.get("archived", 0)}
    parent = old.get("parent_session_id")
    if present.get("parent_session_id") is None and parent is not None:
        values |= {"parent_session_id": parent} if exists(connection, parent) else {}
    return values


def _row(
    connection: apsw.Connection, layout: SessionTables, session_id: str
) -> dict[str, Any] | None:
    found = read_rows(connection, SESSIONS, layout.columns[SESSIONS], "id = ?", session_id)
    return found.as_dict(0) if found.rows else None


def _is_same_row(stored: StoredSession, present: dict[str, Any]) -> bool:
    return bool(stored.tables[SESSIONS].as_dict(0)["started_at"] == present["started_at"])


def _merged(
    connection: apsw.Connection,
    old: dict[str, Any],
    present: dict[str, Any],
    plan: MergePlan,
    coming: Container[str],
) -> tuple[dict[str, Any], str]:
    """Return the columns to change, and a note of what differs from before."""
    counted = (*_COUNTERS, *(_CONVERSATION if plan.active_return else ()))
    values: dict[str, Any] = {}
    for name, now in present.items():
        was = old.get(name)
        if was is None or name in _PRESENT:
            continue
        if name in counted:
            values[name] = _sum(was, now)
        elif name not in _CONVERSATION:
            values[name] = was
    notes = []
    parent = old.get("parent_session_id")
    if parent is not None and not exists(connection, parent):
        values.pop("parent_session_id", None)
        notes += [] if parent in coming else ["its parent is gone, so it has none now"]
    if present.get("title"):
        values.pop("title", None)  # given since then, by a person or by Hermes: the newer one stays
    if values.get("title") is not None:
        title, note = free_title(connection, values["title"], old["id"])
        values["title"] = title
        notes += [note] if note else []
    return values, "; ".join(notes)


def _sum(was: Any, now: Any) -> Any:
    """Return the sum of two figures; if neither is a number, the present one, else the old one."""
    numbers = [each for each in (was, now) if isinstance(each, int | float)]
    return sum(numbers) if numbers else (was if now is None else now)


def _update(connection: apsw.Connection, session_id: str, values: dict[str, Any]) -> None:
    if values:
        assigned = ", ".join(
            f"{quoted(name)} = {placeholder(value)}" for name, value in values.items()
        )
        bindings = [parameter(value) for value in values.values()]
        connection.execute(f"UPDATE sessions SET {assigned} WHERE id = ?", (*bindings, session_id))


_USAGE_KEYS: Final = (
    "session_id",
    "model",
    "billing_provider",
    "billing_base_url",
    "billing_mode",
    "task",
)


def _add_usage(connection: apsw.Connection, layout: SessionTables, rows: TableRows) -> None:
    """Add the old usage of each model to the present usage."""
    for place, row in enumerate(rows.rows):
        old = rows.as_dict(place)
        sums: dict[str, Any] = {name: old[name] or 0 for name in _COUNTERS if name in old}
        keys: dict[str, Any] = {name: old[name] for name in _USAGE_KEYS if name in old}
        assigned = [f"{quoted(name)} = {quoted(name)} + ?" for name in sums]
        if "first_seen" in old:
            assigned.append("first_seen = MIN(first_seen, ?)")
            sums["first_seen"] = old["first_seen"]
        same = " AND ".join(
            f"{quoted(name)} IS {placeholder(value)}" for name, value in keys.items()
        )
        connection.execute(
            f"UPDATE {_USAGE} SET {', '.join(assigned)} WHERE {same}",
            [*sums.values(), *map(parameter, keys.values())],
        )
        if not connection.changes():
            put_rows(connection, layout, _USAGE, TableRows(rows.columns, [row]))


def put_messages(
    connection: apsw.Connection, layout: SessionTables, rows: TableRows, up_to_nul: IndexedUpToNul
) -> None:
    """Insert messages. If the index is known, its triggers must be off."""
    put_rows(connection, layout, MESSAGES, rows)
    if layout.index.known:
        add_to_index(connection, layout.index, rows, rows.column("id"), up_to_nul)


def reserve_numbers(connection: apsw.Connection, count: int) -> int:
    """Reserve `count` message ids, which Hermes then gives to no message; return the first."""
    highest = connection.execute(
        "SELECT MAX(COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0), "
        "COALESCE((SELECT MAX(id) FROM messages), 0))"
    ).get
    reserve_ids(connection, int(highest) + count)
    return int(highest) + 1


def move_message(
    connection: apsw.Connection,
    index: SearchIndex,
    message: TableRows,
    number: int,
    up_to_nul: IndexedUpToNul,
) -> None:
    """Give one message another id. If the index is known, its triggers must be off."""
    old = message.column("id")[0]
    if index.known:
        remove_from_index(connection, index, [old], up_to_nul)
    connection.execute("UPDATE messages SET id = ? WHERE id = ?", (number, old))
    if index.known:
        moved = {table: [number] for table, message_ids in up_to_nul.items() if old in message_ids}
        index_new_message(connection, index, renumbered(message, [number]), number, moved)
