"""Recognise a database that was seen before, by its messages instead of its file.

`hermes import` rewrites state.db in place, so inode and birth time prove nothing. Hermes numbers
messages by AUTOINCREMENT and never uses a number twice in one database. So if a message still has
the same number, session and time, the database holds everything that was written before that
message, except rows deleted since. A restored copy lacks the newest messages. If Hermes gave the
numbers out again after a restore, the session or the time differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Annotated, Any, Final

import apsw
from msgspec import Meta, Struct

from exporter.hermes.payload_sizes import highest_message
from exporter.hermes.schema import Schema

ANCHORS_MAX: Final = 64
Key = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


def text_key(text: str) -> int:
    """Return 63 bits that stand for a text."""
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class AnchorMessage(Struct, frozen=True):
    """One message by which a database is recognised."""

    message: Key
    session: Key
    """Stands for the message's session."""
    content: Key
    """Stands for the message's session and time."""


class DatabaseFingerprint(Struct, frozen=True):
    """The facts by which a database is recognised."""

    sequence: Key
    """The highest number that any message ever had."""
    schema: Key
    """Stands for the tables and columns."""
    anchors: Annotated[tuple[AnchorMessage, ...], Meta(max_length=ANCHORS_MAX)] = ()
    """The newest message first, then older and older ones."""


def read_content(connection: apsw.Connection, schema: Schema) -> DatabaseFingerprint:
    """Return the fingerprint of an open database."""
    columns = {table: sorted(names) for table, names in sorted(schema.columns.items())}
    return DatabaseFingerprint(
        sequence=max(0, highest_message(connection, schema)),
        schema=text_key(repr((schema.version, columns))),
        anchors=tuple(_anchors(connection)) if _can_tell(schema) else (),
    )


def _anchors(connection: apsw.Connection) -> Iterable[AnchorMessage]:
    """Return the newest message, and those 1, 2, 4, 8 … numbers before it.

    If no message has such a number, the one with the next lower number is used.
    """
    newest = _message(connection, "ORDER BY id DESC LIMIT 1")
    found = {newest.message: newest} if newest is not None else {}
    step = 1
    while newest is not None and step < newest.message and len(found) < ANCHORS_MAX:
        older = _message(
            connection, "WHERE id <= ? ORDER BY id DESC LIMIT 1", newest.message - step
        )
        if older is None:
            break
        found[older.message] = older
        step *= 2
    return found.values()


def unchanged_anchors(
    connection: apsw.Connection, schema: Schema, anchors: Iterable[AnchorMessage]
) -> frozenset[int]:
    """Return the numbers of those messages that still exist unchanged."""
    if not _can_tell(schema):
        return frozenset()
    return frozenset(
        each.message
        for each in anchors
        if _message(connection, "WHERE id = ?", each.message) == each
    )


def newest_messages(
    connection: apsw.Connection, schema: Schema, session_ids: Iterable[str]
) -> dict[str, int]:
    """Return the number of a late message by session; only sessions with messages."""
    if not _can_tell(schema):
        return {}
    found: dict[str, int] = {}
    for session_id in set(session_ids):
        # By time, because the index is sorted by time: a long session costs no more than a short
        # one.
        number: Any = connection.execute(
            "SELECT id FROM messages WHERE session_id = ? ORDER BY timestamp DESC LIMIT 1",
            (session_id,),
        ).get
        if isinstance(number, int) and 0 <= number < 1 << 63:
            found[session_id] = number
    return found


def _can_tell(schema: Schema) -> bool:
    return schema.has("messages", "id", "session_id", "timestamp")


def _message(connection: apsw.Connection, which: str, *values: int) -> AnchorMessage | None:
    row: Any = connection.execute(
        # quote(), because a damaged row may hold bytes instead of a text or a number.
        f"SELECT id, quote(session_id), quote(timestamp) FROM messages {which}",
        values,
    ).fetchone()
    if row is None or not isinstance(row[0], int) or row[0] < 0:
        return None
    return AnchorMessage(row[0], text_key(row[1]), text_key(f"{row[1]} {row[2]}"))
