"""Ended sessions in which nothing was ever said."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.pruner.decide.findings import Finding, Scope
from exporter.pruner.decide.inventory import StockedSession
from exporter.pruner.decide.policies.conversations import find_sessions
from exporter.pruner.models import Policy, ThresholdName


def find(scope: Scope) -> Finding:
    return find_sessions(
        scope,
        Policy.EMPTY_SESSIONS,
        _is_empty,
        lambda each: each.empty_sessions,
        "no messages",
        lowers=(ThresholdName.STATE_DB, ThresholdName.EMPTY_SESSIONS),
    )


def _is_empty(sessions: Sequence[StockedSession], scope: Scope) -> bool:
    del scope
    return all(session.size == 0 for session in sessions)
