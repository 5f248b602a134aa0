"""Classify a child of an ended session: a continuation, a branch, or neither.

Hermes before 0.16 does not record this. When it compresses a session into a child, and the session
has already ended, the session keeps its end, and the child is in no list. So the rules read the
child's row and its first messages. They were recorded from every release from 0.13 to 0.19 (see the
table in tests/stories). The first rule that matches decides:

    a marker, or a source that only helpers have    neither
    a compaction summary among its first messages   continuation
    it begins with all of the session's messages    continuation if an agent made the row and the
                                                    release has no `compacted`, else a branch
    no agent made the row (a fork, a branch)        neither
    the session's title with ` #n`                  continuation
    `compacted` exists: helpers are always marked   continuation
    the child itself ended by compression           continuation
    the same prompt and the same limits             continuation
    anything else                                   not known yet
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

import apsw

from exporter.hermes.schema import Schema
from exporter.hermes.utf8 import rows_in_utf8

SUMMARY_PREFIXES: Final = (
    "[CONTEXT COMPACTION \N{EM DASH} REFERENCE ONLY]",
    "[CONTEXT SUMMARY]:",
)
SUMMARY_BELOW: Final = "[END OF PRIOR CONTEXT \N{EM DASH} COMPACTION SUMMARY BELOW]"
MARKERS: Final = ("_branched_from", "_delegate_from")
_HELPERS: Final = frozenset({"tool", "subagent"})
MADE_BY_AGENT: Final = "max_tokens"
"""Every row that an agent makes has this key in model_config; no branch or fork has it."""
_FIRST_MESSAGES: Final = 16
"""The summary is the first message, or follows a few messages that Hermes keeps before it."""
_COMPARED_MESSAGES: Final = 4_000
_DATE_LINE: Final = re.compile(r"^Conversation started:.*$", re.MULTILINE)
_NUMBERED: Final = re.compile(r" #\d+$")


class Relation(Enum):
    """The relation of a child to its parent session."""

    NEITHER = "neither"
    CONTINUATION = "compression"
    """The value is the end reason that Hermes gives to the parent session."""
    BRANCH = "branched"
    NOT_YET = "not_yet"


class Head(NamedTuple):
    """The parts of a session that the rules read."""

    source: Any
    title: Any
    system_prompt: Any
    model_config: dict[str, Any]
    started_at: Any
    end_reason: Any
    messages: Sequence[tuple[Any, Any]]
    """Role and content of the first active messages, in order."""


def children_begun_by(connection: apsw.Connection, session_id: str, moment: float) -> list[str]:
    """Return the children that did not begin after this moment."""
    rows, _ = rows_in_utf8(
        connection,
        "SELECT id FROM sessions WHERE parent_session_id = ? AND (started_at > ?) IS NOT 1",
        (session_id, moment),
    )
    return [child for (child,) in rows]


def children_of(connection: apsw.Connection, session_id: str) -> list[str]:
    """Return the ids of a session's direct children, oldest first; only ids that are UTF-8 text."""
    rows, _ = rows_in_utf8(
        connection,
        "SELECT id FROM sessions WHERE parent_session_id = ? ORDER BY started_at, id",
        (session_id,),
    )
    return [child for (child,) in rows if isinstance(child, str)]


def children_of_each(
    connection: apsw.Connection, schema: Schema, session_ids: Sequence[str]
) -> Mapping[str, list[str] | None]:
    """Return the children of each session, in no order; None if the schema has no parents."""
    if not schema.has("sessions", "parent_session_id"):
        return dict.fromkeys(session_ids)
    found: dict[str, list[str]] = {each: [] for each in session_ids}
    # No join: after an ANALYZE SQLite may not use the index, and would read all sessions for each
    # parent.
    rows, _ = rows_in_utf8(
        connection,
        "SELECT parent_session_id, id FROM sessions WHERE typeof(id) = 'text' "
        "AND parent_session_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(session_ids)),),
    )
    for parent, child in rows:
        found[parent].append(child)
    return found


class LastRows(NamedTuple):
    """The row ids of the newest rows that a scan has read."""

    session: int
    message: int


_ANCESTORS: Final = (
    # NOT INDEXED: SQLite would scan an index of all rows instead of the few new ones.
    "WITH RECURSIVE ancestors(id) AS "
    "(SELECT parent_session_id FROM sessions NOT INDEXED WHERE rowid > ?1 "
    "UNION SELECT parent_session_id FROM sessions "
    "WHERE id IN (SELECT session_id FROM messages NOT INDEXED WHERE id > ?2) "
    "UNION SELECT parent_session_id FROM sessions JOIN ancestors USING (id)) "
    "SELECT id FROM ancestors WHERE typeof(id) = 'text'"
)


def ancestors_of_active(
    connection: apsw.Connection, schema: Schema, last: LastRows
) -> frozenset[str]:
    """Return the ancestors of all sessions that began, or got a message, after these rows."""
    if not schema.has("sessions", "parent_session_id"):
        return frozenset()
    rows, _ = rows_in_utf8(connection, _ANCESTORS, last)
    return frozenset(session_id for (session_id,) in rows)


_PARENTS_MAX: Final = 100_000
_PARENTS: Final = (
    "WITH RECURSIVE chain(id, parent) AS (SELECT id, parent_session_id FROM sessions "
    "WHERE id IN (SELECT value FROM json_each(?)) "
    "UNION SELECT sessions.id, parent_session_id FROM chain CROSS JOIN sessions "
    f"ON sessions.id = chain.parent LIMIT {_PARENTS_MAX}) "
    "SELECT id, parent FROM chain WHERE typeof(id) = 'text' AND typeof(parent) = 'text'"
)


def parents_of(
    connection: apsw.Connection, schema: Schema, session_ids: Iterable[str]
) -> dict[str, str]:
    """Return the parent of each of these sessions, and of each of their ancestors."""
    wanted = json.dumps(list(session_ids))
    if wanted == "[]" or not schema.has("sessions", "parent_session_id"):
        return {}
    rows, _ = rows_in_utf8(connection, _PARENTS, (wanted,))
    return dict(rows)


def read_head(
    connection: apsw.Connection, schema: Schema, session_id: str, messages: int
) -> Head | None:
    """Read the parts of a session that the rules need; None if the session is gone."""
    columns = [
        schema.expression("sessions", name, "NULL")
        for name in (
            *("source", "title", "system_prompt", "model_config"),
            *("started_at", "end_reason"),
        )
    ]
    row = connection.execute(
        f"SELECT {', '.join(columns)} FROM sessions WHERE id = ?", (session_id,)
    ).fetchone()
    if row is None:
        return None
    source, title, prompt, config, started_at, end_reason = row
    return Head(
        source,
        title,
        prompt,
        _json(config),
        started_at,
        end_reason,
        _messages(connection, schema, session_id, messages),
    )


def _count(connection: apsw.Connection, schema: Schema, session_id: str) -> int:
    active = "AND active IS NOT 0" if schema.has("messages", "active") else ""
    found = connection.execute(
        f"SELECT COUNT(*) FROM messages WHERE session_id = ? {active}", (session_id,)
    ).fetchone()
    return int(found[0]) if found else 0


def _messages(
    connection: apsw.Connection, schema: Schema, session_id: str, limit: int
) -> list[tuple[Any, Any]]:
    active = "AND active IS NOT 0" if schema.has("messages", "active") else ""
    found: list[Any] = connection.execute(
        f"SELECT role, content FROM messages WHERE session_id = ? {active} ORDER BY id LIMIT ?",
        (session_id, limit),
    ).fetchall()
    return [(role, content) for role, content in found]


def relation_of(
    connection: apsw.Connection, schema: Schema, parent_id: str, child_id: str
) -> tuple[Relation, Any]:
    """Return the relation of a child to a session, and the time when the child began."""
    child = read_head(connection, schema, child_id, _FIRST_MESSAGES)
    if child is None or is_marked(child):
        return Relation.NEITHER, None
    # Read the messages of a long session only if the child could begin with all of them.
    most = min(_count(connection, schema, child_id), _COMPARED_MESSAGES)
    count = _count(connection, schema, parent_id)
    parent = read_head(connection, schema, parent_id, count if count <= most else 0)
    if parent is None:
        return Relation.NEITHER, None
    if _FIRST_MESSAGES < count <= most:
        child = child._replace(messages=_messages(connection, schema, child_id, count))
    found = classify(parent, child, marks_helpers=schema.has("messages", "compacted"))
    return found, child.started_at


def is_marked(child: Head) -> bool:
    return child.source in _HELPERS or any(marker in child.model_config for marker in MARKERS)


def classify(parent: Head, child: Head, *, marks_helpers: bool) -> Relation:
    """Return the relation of two sessions.

    `marks_helpers` is True for a release that marks every subagent.
    """
    if is_marked(child):
        return Relation.NEITHER
    if any(_is_summary(content) for _, content in child.messages[:_FIRST_MESSAGES]):
        return Relation.CONTINUATION
    by_agent = MADE_BY_AGENT in child.model_config and child.source == parent.source
    if _begins_with_all_of(parent, child):
        # A compression with nothing to summarise copies everything, and so does a branch.
        return Relation.CONTINUATION if by_agent and not marks_helpers else Relation.BRANCH
    if not by_agent:
        return Relation.NEITHER
    if _is_next_title(parent.title, child.title) or marks_helpers:
        return Relation.CONTINUATION
    if child.end_reason == Relation.CONTINUATION.value or _has_same_prompt(parent, child):
        return Relation.CONTINUATION
    return Relation.NOT_YET


def _is_summary(content: Any) -> bool:
    if not isinstance(content, str):
        return False
    return content.lstrip().startswith(SUMMARY_PREFIXES) or SUMMARY_BELOW in content


def _begins_with_all_of(parent: Head, child: Head) -> bool:
    count = len(parent.messages)
    return count > 0 and list(child.messages[:count]) == list(parent.messages)


def _is_next_title(title: Any, next_title: Any) -> bool:
    if not isinstance(title, str) or not isinstance(next_title, str) or not title:
        return False
    base = _NUMBERED.sub("", title)
    return next_title != title and _NUMBERED.sub("", next_title) == base


def _has_same_prompt(parent: Head, child: Head) -> bool:
    """True if prompt and turn limit are the same.

    A subagent has other tools and another turn limit, and therefore another prompt.
    """
    if not isinstance(parent.system_prompt, str) or not isinstance(child.system_prompt, str):
        return False
    limits = [each.model_config.get("max_iterations") for each in (parent, child)]
    if None not in limits and limits[0] != limits[1]:
        return False
    cut = [_DATE_LINE.sub("", each.system_prompt) for each in (parent, child)]
    return bool(child.messages) and cut[0] == cut[1]


def _json(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
