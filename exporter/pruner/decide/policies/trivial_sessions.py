"""Ended sessions in which little was said.

All rows count: what compaction or a rewind has put aside was said too.
"""

from __future__ import annotations

from collections.abc import Sequence

from exporter.pruner.decide.findings import Scope
from exporter.pruner.decide.inventory import InventorySession
from exporter.pruner.decide.policies.conversations import max_messages, session_policy


def _is_trivial(sessions: Sequence[InventorySession], scope: Scope) -> bool:
    """True if none is too large. If all are empty, they belong to another policy."""
    return any(session.size for session in sessions) and all(
        session.size <= max_messages(session, scope) for session in sessions
    )


POLICY = session_policy("trivial_sessions", _is_trivial, "few messages", spares_last_copies=True)
