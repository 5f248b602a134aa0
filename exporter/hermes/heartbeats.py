"""Signs of life that newer releases write into the database.

gateway_heartbeats   each backend (TUI, desktop, web) notes regularly that it is alive
session_turn_leases  a conversation in the middle of a turn, named by its first session
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import apsw
from msgspec import Struct

from exporter.hermes.schema import Schema
from exporter.hermes.utf8 import rows_in_utf8

BACKEND_SOURCES: Final = frozenset({"tui", "desktop", "webui"})
"""Sources whose sessions run in a backend."""
_BEATS: Final = ("last_heartbeat", "last_heartbeat_at", "updated_at")
_LEASES_MAX: Final = 10_000


class LifeSigns(Struct, frozen=True):
    """The signs of life that one read found."""

    backend_beat_at: float | None = None
    """The newest heartbeat of all backends."""
    turns: Mapping[str, float] = {}
    """Conversations in the middle of a turn, and when each lease expires."""


def read_life_signs(connection: apsw.Connection, schema: Schema) -> LifeSigns:
    """Read heartbeats and turn leases, if this schema has them."""
    return LifeSigns(_newest_beat(connection, schema), _turns(connection, schema))


def _newest_beat(connection: apsw.Connection, schema: Schema) -> float | None:
    column = next((name for name in _BEATS if schema.has("gateway_heartbeats", name)), None)
    if column is None:
        return None
    newest = connection.execute(
        f"SELECT MAX({column}) FROM gateway_heartbeats "
        f"WHERE typeof({column}) IN ('integer', 'real')"
    ).get
    return None if newest is None else float(newest)


def _turns(connection: apsw.Connection, schema: Schema) -> dict[str, float]:
    if not schema.has("session_turn_leases", "conversation_id", "expires_at"):
        return {}
    rows, _ = rows_in_utf8(
        connection,
        "SELECT CAST(conversation_id AS TEXT), CAST(expires_at AS REAL) FROM session_turn_leases "
        "WHERE conversation_id IS NOT NULL AND expires_at IS NOT NULL "
        "ORDER BY expires_at DESC LIMIT ?",
        (_LEASES_MAX,),
    )
    return dict(rows)
