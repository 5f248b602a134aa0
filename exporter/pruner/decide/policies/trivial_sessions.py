"""Ended sessions in which little was said, counted by all rows: what compaction or a rewind has
put aside was said too."""

from __future__ import annotations

from collections.abc import Sequence

from exporter.pruner.decide.findings import Finding, Scope
from exporter.pruner.decide.inventory import StockedSession
from exporter.pruner.decide.policies.conversations import find_sessions, max_messages
from exporter.pruner.models import Policy


def find(scope: Scope) -> Finding:
    return find_sessions(
        scope,
        Policy.TRIVIAL_SESSIONS,
        _is_trivial,
        lambda each: each.trivial_sessions,
        "few messages",
    )


def _is_trivial(sessions: Sequence[StockedSession], scope: Scope) -> bool:
    """None is larger than allowed; if all are empty, another policy is for them."""
    return any(session.size for session in sessions) and all(
        session.size <= max_messages(session, scope) for session in sessions
    )
