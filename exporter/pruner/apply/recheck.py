"""Checks again, under the write lock, that sessions are still as they were planned.

Between the plan and the write a session may be resumed, written to, routed to or branched from, and
processes may open the database. Everything that protects a session is read again, unless no process
has written to the database or the file of chats since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import apsw

from exporter.evidence.liveness import LivingOwners
from exporter.hermes import database
from exporter.hermes.routing import RoutingReader, routing_file
from exporter.hermes.schema import schema_cookie
from exporter.hermes.session_state import FoundSession, SessionStateReader, first_difference
from exporter.runs.models import RecordedAction
from exporter.runs.take_actions import AbortedError, refuse_new_openers
from exporter.text import cut
from exporter.writing.connection import Transaction, Writer
from exporter.writing.session_end import has_turn_lease
from exporter.writing.stored_session import (
    SESSIONS,
    SessionTables,
    StoredSession,
    blocking_table,
    delegates_of,
    probe_session_tables,
    read_session,
    same_session,
)
from exporter.writing.target import Target

_NEEDED: Final = ("ended_at", "end_reason", "rows", "newest")
_CHANGES: Final = {
    "ended_at": "it has been opened, or ended again, since",
    "end_reason": "it has been opened, or ended again, since",
    "rows": "it has been written to since",
    "newest": "it has been written to since",
    "active": "its messages have been rewritten since",
    "last_activity_at": "it has been active since",
    "last_heartbeat_at": "it has been active since",
    "archived": "it has been archived, or brought back, since",
    "pinned": "it has been pinned, or let go, since",
    "titled": "it has been given a title since, or lost it",
    "children": "it has other children since",
}


class DeletedByThisRun:
    """Sessions that this run itself has deleted: their absence is no change by another process."""

    def __init__(self, *, rows_stay: bool = False) -> None:
        self._rows_stay = rows_stay
        self._ids: set[str] = set()
        self._children: Counter[Any] = Counter()

    def add(self, stored: StoredSession) -> None:
        self._ids.add(stored.id)
        if self._rows_stay:
            return  # its row still names its parent
        self._children[stored.tables[SESSIONS].as_dict(0).get("parent_session_id")] += 1

    def __contains__(self, session_id: object) -> bool:
        return session_id in self._ids

    def children_of(self, session_id: str) -> int:
        """Return how many of its children this run deleted."""
        return self._children[session_id]


class Recheck:
    """Checks sessions that one connection is about to delete."""

    layout: SessionTables

    def __init__(self, target: Target, gone: DeletedByThisRun, writer: Writer) -> None:
        self.writer = writer
        self._target = target
        self._gone = gone
        self._routing = RoutingReader(target.home, LivingOwners(target.proc))
        self._version: tuple[int, database.FileState | None] | None = None
        self._changed = True
        self.refresh()

    def refresh(self) -> None:
        """Read anew what takes long, before the write lock is held."""
        connection = self.writer.connection
        self.layout = probe_session_tables(connection)
        self._expected = SessionStateReader(self.layout.schema)
        self._routing.read(connection, self.layout.schema, self._target.clock())
        self._version = None

    def remember(self) -> None:
        """Note the version that this read transaction sees, to notice later writes."""
        self._version = self._read_version()

    def check_under_lock(self, transaction: Transaction) -> None:
        """Under the write lock, once: raise AbortedError if nothing may be deleted.

        A process that has opened the database since this transaction checked that is no new risk:
        it could also do so right before the commit, and what it changes is visible in the rows.
        """
        refuse_new_openers(transaction)
        self._changed = self._read_version() != self._version
        if not self._changed:
            return
        connection = self.writer.connection
        if schema_cookie(connection) != self.layout.schema.cookie:
            raise AbortedError("the tables of the database have changed since")

    def _read_version(self) -> tuple[int, database.FileState | None]:
        """Return values that change if another process writes the database or the file of chats."""
        file = database.file_state(routing_file(self._target.home))
        return int(self.writer.connection.pragma("data_version")), file

    def why_not(self, unit: Sequence[RecordedAction]) -> str:
        """Return why these sessions may not be deleted now; '' if they may."""
        if not self._changed:
            return ""
        connection = self.writer.connection
        now = self._target.clock()
        ids = [action.action.target for action in unit]
        found = self._expected.read(connection, ids)
        routing = self._routing.read(
            connection, self.layout.schema, now, moved=[each.row for each in found.values()]
        )
        if not routing.readable:
            raise AbortedError("it cannot be read any more which chats lead to which session")
        for action in unit:
            session_id = action.action.target
            if session_id not in found:
                return _of(session_id, ids, "it is gone")
            why = self._difference(action, found[session_id])
            if not why and session_id in routing.holds:
                why = f"it is held: {routing.holds[session_id][0].value}"
            if not why and has_turn_lease(connection, self.layout.schema, session_id, now):
                why = "a process is in the middle of a turn"
            why = why or self._relatives(connection, session_id, ids)
            if why:
                return _of(session_id, ids, why)
        return ""

    def why_not_exactly(
        self, unit: Sequence[RecordedAction], stored: Sequence[StoredSession]
    ) -> str:
        """Return the same, and check that every row is as it is in the trash."""
        why = self.why_not(unit)
        if why or not self._changed:
            return why
        for each in stored:
            found = read_session(self.writer.connection, self.layout, each.id, look_at_index=False)
            if not same_session(each, found, self._gone):
                return "it has been written to since it was put into the trash"
        return ""

    def _difference(self, action: RecordedAction, found: FoundSession) -> str:
        planned = action.action.expected
        missing = next((key for key in _NEEDED if key not in planned), "")
        if missing:
            return f"the plan does not say what its {missing} was"
        if found.row.is_open:
            return "it is open"
        expected = dict(found.expected)
        # Changes that this run made to the relatives of a session do not count.
        session_id = action.action.target
        expected["children"] = int(expected["children"] or 0) + self._gone.children_of(session_id)
        if expected["parent"] is None and planned.get("parent") in self._gone:
            expected["parent"] = planned["parent"]
        key = first_difference(planned, expected)
        return _CHANGES.get(key, f"its {key} has changed since") if key else ""

    def _relatives(self, connection: apsw.Connection, session_id: str, ids: Sequence[str]) -> str:
        if any(child not in ids for child in delegates_of(connection, self.layout, session_id)):
            return "it has delegated to a session that the plan does not delete with it"
        table = blocking_table(connection, self.layout, session_id)
        return f"the table {table} refers to it" if table else ""


def _of(session_id: str, ids: Sequence[str], why: str) -> str:
    """Name the session, if it is one of a group: the reason is told of each of them."""
    if len(ids) == 1:
        return why
    return f"{why} ({cut(session_id, 128)}, one of {len(ids)} that go together)"
