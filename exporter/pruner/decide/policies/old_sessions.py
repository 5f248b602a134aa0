"""Ended sessions of any size that nobody has come back to for long."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.pruner.decide.findings import Finding, Scope
from exporter.pruner.decide.inventory import StockedSession
from exporter.pruner.decide.policies.conversations import find_sessions
from exporter.pruner.models import Policy


def find(scope: Scope) -> Finding:
    return find_sessions(
        scope, Policy.OLD_SESSIONS, _any_size, lambda each: each.old_sessions, "old"
    )


def _any_size(sessions: Sequence[StockedSession], scope: Scope) -> bool:
    del sessions, scope
    return True
