"""Ended sessions of any size that were idle for long."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.pruner.decide.findings import Scope
from exporter.pruner.decide.inventory import InventorySession
from exporter.pruner.decide.policies.conversations import session_policy


def _any_size(sessions: Sequence[InventorySession], scope: Scope) -> bool:
    del sessions, scope
    return True


POLICY = session_policy("old_sessions", _any_size, "old")
