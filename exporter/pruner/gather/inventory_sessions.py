"""Reads the sessions of a home for its inventory: ages, sizes, and how each is related."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

import apsw
import msgspec
from msgspec import structs

from exporter.hermes.odd_rows import HANDED_OFF
from exporter.hermes.payload_sizes import PayloadSizes
from exporter.hermes.prune_queries import PruneColumns, PruneQueries, children
from exporter.hermes.schema import Schema
from exporter.hermes.session_queries import SessionRecord
from exporter.hermes.session_state import ended_session_state
from exporter.pruner.decide.inventory import InventorySession, ParentLink

_NO_STATE: Final = b"{}"
_FUTURE_TOLERANCE_SECONDS: Final = 60.0


def read_sessions(
    connection: apsw.Connection,
    schema: Schema,
    payloads: PayloadSizes,
    now: float,
    *,
    with_states: bool,
) -> list[InventorySession]:
    """Return all sessions. The rows are read in slices, to need less memory.

    `with_states`: add what an ended session must still be like when it is taken.
    """
    counts = children(connection, schema)
    sessions: list[InventorySession] = []
    with_parents: dict[int, PruneColumns] = {}
    reasons: dict[str, str] = {}
    for part in PruneQueries(schema).slices(connection):
        for record, extras in part:
            if record.is_emptied:
                continue  # pruned already: only its row waits for a process to end
            row, rows = record.row, record.messages.rows
            reasons[row.id] = sys.intern(row.end_reason)
            if row.parent_id is not None:
                with_parents[len(sessions)] = extras
            size = payloads.of(connection, schema, row.id, rows)
            expected = _NO_STATE
            if with_states and not row.is_open:
                expected = _state(record, extras, counts.get(row.id, 0))
            sessions.append(_session(record, extras, expected, size, now))
    payloads.forget_others()
    for number, extras in with_parents.items():
        session = sessions[number]
        link = _link(session.parent_id, extras, reasons)
        sessions[number] = structs.replace(session, link=link)
    return sessions


def _state(record: SessionRecord, extras: PruneColumns, children: int) -> bytes:
    """Return what an ended session must still be like when it is deleted."""
    return msgspec.json.encode(
        ended_session_state(
            record, archived=extras.archived, titled=extras.titled, children=children
        )
    )


def _session(
    record: SessionRecord, extras: PruneColumns, expected: bytes, payload: int, now: float
) -> InventorySession:
    row, messages, _ = record
    clocks = [row.started_at, messages.newest, row.last_activity_at, row.last_heartbeat_at]
    known = [clock for clock in (*clocks, row.ended_at) if clock is not None]
    latest = max(known, default=0.0)
    return InventorySession(
        id=row.id,
        source=sys.intern(row.source),
        is_open=bool(row.is_open),
        last_activity_at=latest,
        clocks_sane=(
            row.intact == 1
            and row.started_at is not None
            and (bool(row.is_open) or row.ended_at is not None)
            and (messages.newest is not None or messages.rows == 0)
            and 0 < latest <= now + _FUTURE_TOLERANCE_SECONDS
        ),
        size=max(messages.rows, extras.message_count),
        payload_bytes=extras.row_bytes + payload,
        said_at=messages.newest or 0.0,
        end_reason=sys.intern(row.end_reason),
        ended_at=row.ended_at,
        parent_id=row.parent_id,
        archived=extras.archived,
        emptied=bool(row.emptied),
        pinned=bool(row.pinned),
        titled=extras.titled,
        handed_off=row.handoff_state in HANDED_OFF,
        expected=expected,
    )


def _link(parent_id: str | None, extras: PruneColumns, reasons: Mapping[str, str]) -> ParentLink:
    """Return how a session is related to its parent. Its own columns win over its parent's."""
    if parent_id is None or parent_id not in reasons:
        return ParentLink.NONE
    if extras.delegated:
        return ParentLink.DELEGATE
    if extras.branched or reasons[parent_id] == "branched":
        return ParentLink.BRANCH
    return ParentLink.COMPRESSION if reasons[parent_id] == "compression" else ParentLink.CHILD
