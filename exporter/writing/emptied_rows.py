"""Rows of emptied sessions: they stay, hidden, for a process that may have them in memory."""

from __future__ import annotations

from collections.abc import Collection, Container
from enum import StrEnum

import apsw
import msgspec

from exporter.hermes.odd_rows import EMPTIED, is_emptied, is_handed_off
from exporter.hermes.schema import Schema
from exporter.writing.search_index import truncate_indexed_texts
from exporter.writing.stored_session import StoredSession


class RowState(StrEnum):
    """The state of a row that we emptied."""

    UNTOUCHED = "untouched"
    GONE = "gone"
    USED = "used"
    """Hermes has continued the session, and its row is still hidden."""
    SHOWN = "shown"
    """A person has archived the session or shows it again: it is no longer ours."""


def empty_session(
    connection: apsw.Connection, stored: StoredSession, together: Container[str]
) -> None:
    """Delete the messages of a session and hide its row, in a transaction of the caller.

    A process that has the session in memory continues it with this row, and rows of other tables
    that name it stay valid. Children that are not in `together` lose their parent, as in a
    deletion. So any child that the row has later is a new one.
    """
    truncate_indexed_texts(connection, stored.indexed_up_to_nul)
    for child in stored.children:
        if child not in together:
            connection.execute(
                "UPDATE sessions SET parent_session_id = NULL "
                "WHERE id = ? AND parent_session_id = ?",
                (child, stored.id),
            )
    connection.execute("DELETE FROM messages WHERE session_id = ?", (stored.id,))
    connection.execute("UPDATE sessions SET archived = ? WHERE id = ?", (EMPTIED, stored.id))


def row_states(
    connection: apsw.Connection, schema: Schema, session_ids: Collection[str]
) -> dict[str, RowState]:
    """Return the state of each session; all were pruned by us, and some may have no row."""
    untouched = "0"
    if schema.has("sessions", "archived", "parent_session_id"):
        untouched = (
            f"sessions.archived IS {EMPTIED} AND sessions.ended_at IS NOT NULL "
            f"AND NOT {is_handed_off(schema)} "
            "AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.session_id = sessions.id) "
            # A child: a continuation or a branch, by a process that had the session in memory.
            "AND NOT EXISTS (SELECT 1 FROM sessions AS child "
            "WHERE child.parent_session_id = sessions.id "
            f"AND child.archived IS NOT {EMPTIED})"
        )
    found = connection.execute(
        f"SELECT id, {untouched}, {is_emptied(schema)} FROM sessions "
        "WHERE id IN (SELECT value FROM json_each(?))",
        (msgspec.json.encode(list(session_ids)).decode(),),
    )
    states = dict.fromkeys(session_ids, RowState.GONE)
    for session_id, is_untouched, is_hidden in found:
        used = RowState.USED if is_hidden else RowState.SHOWN
        states[session_id] = RowState.UNTOUCHED if is_untouched else used
    return states


def show_row(connection: apsw.Connection, session_id: str) -> None:
    """Show a session in Hermes's lists again: Hermes has continued it, and its trash is gone."""
    connection.execute(
        "UPDATE sessions SET archived = 0 WHERE id = ? AND archived IS ?", (session_id, EMPTIED)
    )
