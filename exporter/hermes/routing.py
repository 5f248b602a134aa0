"""Sessions that Hermes will return to, although no process runs them now.

A chat that the gateway routes to stays open for ever, and that is correct: ending its row makes the
bot forget the conversation. So this module reads every place that can point to a session. If one of
them exists but cannot be read, the result says so, and no session of that home may be judged dead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import apsw
import msgspec
from msgspec import Struct

from exporter.errors import HomeError
from exporter.hermes.compaction import COMPRESSION
from exporter.hermes.database import FileState, file_state
from exporter.hermes.schema import Schema
from exporter.hermes.session_queries import SessionRow
from exporter.hermes.small_files import read_json
from exporter.hermes.utf8 import rows_in_utf8
from exporter.snapshot import Hold

_LINEAGE_MAX: Final = 1000


class TaskOwner(NamedTuple):
    """The process that delegated a task and will deliver its answer."""

    pid: int | None
    start_ticks: int | None


OwnerLives = Callable[[TaskOwner], bool]
"""Tells if a process lives; True also if that is not known."""


def _not_known(_: TaskOwner) -> bool:
    return True


class Routing(Struct, frozen=True):
    """The reasons why sessions must stay open, by session id."""

    holds: dict[str, list[Hold]]
    readable: bool
    """False if a source of routing exists but could not be understood."""
    valid_until: float | None
    """When the first of the compression locks expires."""
    owners: frozenset[TaskOwner] = frozenset()
    """Living processes with delegated tasks. When one of them ends, its tasks hold nothing."""


def routing_file(home: str) -> str:
    """Return the path of the file that, like the database, may route to sessions."""
    return os.path.join(home, "sessions", "sessions.json")


class Pointers(NamedTuple):
    """The session ids that each kind of pointer names."""

    readable: bool
    routed: set[str]
    topics: set[str]
    locks: dict[str, float]
    delegating: dict[str, set[TaskOwner]]
    with_goals: set[str]


Lineage = Callable[[set[str]], set[str]]
"""Takes session ids. Returns them and all sessions that compression links to them."""


class CompressionLinks:
    """The links that compression makes between sessions, collected while all rows are read."""

    def __init__(self) -> None:
        self._parents: list[tuple[str, str]] = []
        self._compressed: set[str] = set()

    def add(self, rows: Iterable[SessionRow]) -> None:
        for row in rows:
            if row.parent_id is not None:
                self._parents.append((row.id, row.parent_id))
            if row.end_reason == COMPRESSION:
                self._compressed.add(row.id)

    def lineage(self, ids: set[str]) -> set[str]:
        relatives: dict[str, list[str]] = {}
        for child, parent in self._parents:
            if parent in self._compressed:
                relatives.setdefault(child, []).append(parent)
                relatives.setdefault(parent, []).append(child)
        return _closure(ids, lambda session_id: relatives.get(session_id, ()))


class RoutingReader:
    """The routing of one home over time; unchanged sources are not parsed again."""

    def __init__(self, home: str, owner_lives: OwnerLives = _not_known) -> None:
        self._home = home
        self._owner_lives = owner_lives
        self._table: tuple[int, set[str] | None] = (0, set())
        self._file: tuple[FileState | None, set[str] | None] = (None, set())
        self._last: dict[Hold, tuple[set[str], set[str]]] = {}
        """Sessions that a pointer names, and all sessions that compression links to them."""
        self._known: tuple[tuple[Any, ...], Routing] | None = None

    def read(
        self,
        connection: apsw.Connection,
        schema: Schema,
        now: float,
        moved: Sequence[SessionRow] | None = None,
    ) -> Routing:
        """Collect every pointer to a session, from the database and from sessions.json.

        `moved` are the sessions whose relatives may have changed since the last call; None means
        that any may have changed. A link that was removed still holds until a call with None.
        """

        def ask(ids: set[str]) -> set[str]:
            return _with_lineage(connection, schema, ids)

        return self._routing(self.pointers(connection, schema, now), ask, moved)

    def pointers(self, connection: apsw.Connection, schema: Schema, now: float) -> Pointers:
        """Return the pointers to sessions, without reading the sessions themselves."""
        by_table, by_file = self._routed_by_table(connection, schema), self._routed_by_file()
        return Pointers(
            readable=by_table is not None and by_file is not None,
            routed=by_table | by_file if by_table and by_file else by_table or by_file or set(),
            topics=_column(connection, schema, "telegram_dm_topic_bindings", "session_id"),
            locks=_locks(connection, schema, now),
            delegating=_delegating(connection, schema, self._owner_lives),
            with_goals=_with_goals(connection, schema),
        )

    def from_links(self, pointers: Pointers, links: CompressionLinks) -> Routing:
        """Return the same as `read`, from links that a scan of all sessions has collected."""
        return self._routing(pointers, links.lineage, None)

    def _routing(
        self, pointers: Pointers, ask: Lineage, moved: Sequence[SessionRow] | None
    ) -> Routing:
        found = (
            pointers,
            self._lineage(Hold.ROUTED, pointers.routed, ask, moved),
            self._lineage(Hold.TOPIC_BOUND, pointers.topics, ask, moved),
        )
        if self._known is None or self._known[0] != found:
            self._known = (found, _routing(*found))
        return self._known[1]

    def _lineage(
        self, reason: Hold, ids: set[str], ask: Lineage, moved: Sequence[SessionRow] | None
    ) -> set[str]:
        known, lineage = self._last.get(reason, (set(), set()))
        if moved is None or not (known is ids or known <= ids):
            lineage = ask(ids)
        else:
            new = ids - known if known is not ids else ()
            lineage = lineage | ask(set(new)) if new else lineage
            for row in moved:
                if _may_extend(row, lineage):
                    relatives = ask({row.id})
                    if not lineage.isdisjoint(relatives):
                        lineage = lineage | relatives
        self._last[reason] = (ids, lineage)
        return lineage

    def _routed_by_table(self, connection: apsw.Connection, schema: Schema) -> set[str] | None:
        """Return the sessions in the table gateway_routing; None if it is unreadable.

        All scopes count.
        """
        if not schema.has("gateway_routing", "entry_json"):
            return set()
        # The table may have thousands of entries. Comparing a hash of them is much cheaper than
        # parsing them again.
        content = connection.execute(
            "SELECT COUNT(*), CAST(group_concat(entry_json, char(10)) AS BLOB) FROM gateway_routing"
        ).fetchone()
        if self._table[0] != hash(content):
            self._table = (hash(content), _entries(connection))
        return self._table[1]

    def _routed_by_file(self) -> set[str] | None:
        """Return the sessions in sessions/sessions.json; None if it cannot be understood.

        All versions of Hermes write this mirror. Up to 0.18.0 it is the only source.
        """
        path = routing_file(self._home)
        state = file_state(path)
        # A file that could not be read is always read again.
        if self._file[0] != state or self._file[1] is None:
            self._file = (state, _chats(path))
        return self._file[1]


def read_routing(
    home: str,
    connection: apsw.Connection,
    schema: Schema,
    now: float,
    owner_lives: OwnerLives = _not_known,
) -> Routing:
    """Collect every pointer to a session once, without a cache."""
    return RoutingReader(home, owner_lives).read(connection, schema, now)


def _routing(pointers: Pointers, by_routing: set[str], by_topic: set[str]) -> Routing:
    holds: dict[str, list[Hold]] = {}
    _hold(holds, by_routing, Hold.ROUTED)
    _hold(holds, by_topic, Hold.TOPIC_BOUND)
    _hold(holds, pointers.locks, Hold.COMPRESSION_LOCK)
    _hold(holds, pointers.delegating, Hold.DELEGATION)
    _hold(holds, pointers.with_goals, Hold.GOAL)
    return Routing(
        holds,
        pointers.readable,
        min(pointers.locks.values(), default=None),
        frozenset(owner for owners in pointers.delegating.values() for owner in owners),
    )


def _hold(holds: dict[str, list[Hold]], ids: Iterable[str], reason: Hold) -> None:
    alone = [reason]  # one list for nearly all of them; no code changes holds in place
    for session_id in ids:
        known = holds.get(session_id)
        holds[session_id] = alone if known is None else [*known, reason]


def _may_extend(row: SessionRow, lineage: set[str]) -> bool:
    """True if this session may link further sessions to a lineage by compression."""
    if row.end_reason == COMPRESSION:
        return True
    return row.parent_id is not None and (row.id in lineage) != (row.parent_id in lineage)


def _entries(connection: apsw.Connection) -> set[str] | None:
    routed: set[str] = set()
    # Read as bytes: an entry that is not UTF-8 counts as unreadable, like any other bad entry.
    for (entry,) in connection.execute("SELECT CAST(entry_json AS BLOB) FROM gateway_routing"):
        try:
            found = _session_of(msgspec.json.decode(entry))
        except (TypeError, ValueError, RecursionError):
            return None
        if found is None:
            return None
        routed.add(found)
    return routed


def _chats(path: str) -> set[str] | None:
    try:
        document = read_json(path)
    except HomeError:
        return None
    if document is None:
        return set()
    if not isinstance(document, dict):
        return None
    routed: set[str] = set()
    for key, entry in document.items():
        if key.startswith("_"):  # Hermes's notes to the reader, not chats
            continue
        found = _session_of(entry)
        if found is None:
            return None
        routed.add(found)
    return routed


def _session_of(entry: Any) -> str | None:
    found = entry.get("session_id") if isinstance(entry, dict) else None
    return found if isinstance(found, str) and found else None


def _with_lineage(connection: apsw.Connection, schema: Schema, ids: set[str]) -> set[str]:
    """Return the sessions and all that compression links to them, earlier and later."""
    if not schema.has("sessions", "parent_session_id", "end_reason"):
        return ids

    def relatives(session_id: str) -> list[str]:
        rows, _ = rows_in_utf8(
            connection,
            "SELECT p.id FROM sessions c JOIN sessions p ON p.id = c.parent_session_id "
            "WHERE c.id = :id AND p.end_reason = :compression "
            "UNION SELECT c.id FROM sessions c JOIN sessions p ON p.id = c.parent_session_id "
            "WHERE p.id = :id AND p.end_reason = :compression",
            {"id": session_id, "compression": COMPRESSION},
        )
        return [relative for (relative,) in rows if isinstance(relative, str)]

    return _closure(ids, relatives)


def _closure(ids: set[str], relatives: Callable[[str], Iterable[str]]) -> set[str]:
    lineage: set[str] = set()
    todo = list(ids)
    while todo and len(lineage) < _LINEAGE_MAX + len(ids):
        session_id = todo.pop()
        if session_id not in lineage:
            lineage.add(session_id)
            todo.extend(relatives(session_id))
    return lineage


def _locks(connection: apsw.Connection, schema: Schema, now: float) -> dict[str, float]:
    """Return the sessions that are being compressed now, with the time when each lock expires."""
    if not schema.has("compression_locks", "session_id", "expires_at"):
        return {}
    rows, _ = rows_in_utf8(
        connection,
        "SELECT session_id, CAST(expires_at AS REAL) FROM compression_locks "
        "WHERE CAST(expires_at AS REAL) > ?",
        (now,),
    )
    return {session_id: until for session_id, until in rows if isinstance(session_id, str)}


def _delegating(
    connection: apsw.Connection, schema: Schema, owner_lives: OwnerLives
) -> dict[str, set[TaskOwner]]:
    """Return the sessions that wait for the answer of a delegated task, and who delivers it.

    The answer of a process that was killed stays `pending` for ever, and is never delivered.
    """
    if not schema.has("async_delegations", "state", "delivery_state", "parent_session_id"):
        return {}
    has_owner = schema.has("async_delegations", "owner_pid", "owner_started_at")
    owner = "owner_pid, owner_started_at" if has_owner else "NULL, NULL"
    waiting = (
        "FROM async_delegations "
        "WHERE state IN ('running', 'finalizing') OR delivery_state IS NOT 'delivered'"
    )
    # One id per row: an id that is not UTF-8 must not hide the other one.
    rows, _ = rows_in_utf8(
        connection,
        f"SELECT parent_session_id, {owner} {waiting} "
        f"UNION SELECT origin_session, {owner} {waiting}",
    )
    found: dict[str, set[TaskOwner]] = {}
    for session_id, pid, ticks in rows:
        owned_by = TaskOwner(_number(pid), _number(ticks))
        if isinstance(session_id, str) and session_id and owner_lives(owned_by):
            found.setdefault(session_id, set()).add(owned_by)
    return found


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _with_goals(connection: apsw.Connection, schema: Schema) -> set[str]:
    if not schema.has("state_meta", "key", "value"):
        return set()
    rows, _ = rows_in_utf8(
        connection,
        "SELECT substr(key, 6) FROM state_meta WHERE key GLOB 'goal:*' AND value IS NOT NULL "
        "AND CASE WHEN json_valid(value) "
        "THEN COALESCE(json_extract(value, '$.status'), 'active') ELSE 'active' END "
        "NOT IN ('done', 'completed', 'cleared', 'cancelled')",
    )
    return {value for (value,) in rows if isinstance(value, str) and value}


def _column(connection: apsw.Connection, schema: Schema, table: str, column: str) -> set[str]:
    if not schema.has(table, column):
        return set()
    rows, _ = rows_in_utf8(connection, f"SELECT {column} FROM {table}")
    return {value for (value,) in rows if isinstance(value, str) and value}
