"""Ended sessions in which nothing was ever said."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.config.prune import ThresholdName
from exporter.pruner.decide.findings import Scope
from exporter.pruner.decide.inventory import InventorySession
from exporter.pruner.decide.policies.conversations import session_policy


def _is_empty(sessions: Sequence[InventorySession], scope: Scope) -> bool:
    del scope
    return all(session.size == 0 for session in sessions)


POLICY = session_policy(
    "empty_sessions",
    _is_empty,
    "no messages",
    ThresholdName.EMPTY_SESSIONS,
    spares_last_copies=True,
)
