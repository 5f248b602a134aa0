"""The open sessions that the agent keeps: as many as fit, and the number of the others."""

from __future__ import annotations

import os

from exporter.agent.session_list import SessionList
from exporter.reaper.models import JudgedSession, Verdict
from exporter.snapshot import OpenSession, TurnState


def page(sessions: int = 100) -> list[JudgedSession]:
    """Return sessions whose names hardly compress."""
    return [
        JudgedSession(
            OpenSession(os.urandom(250).hex(), "cli", 1.0, 1.0, True, 1, 1, TurnState.EMPTY),
            Verdict.UNKNOWN,
            (),
        )
        for _ in range(sessions)
    ]


def test_what_is_too_long_to_be_kept_is_counted() -> None:
    kept = SessionList()
    for number in range(300):
        kept.add(page(), first=number == 0)
    kept.close()
    listed = sum(1 for _ in kept.sessions())
    assert 0 < listed < 30_000
    assert listed + kept.left_out == 30_000


def test_a_shorter_list_leaves_nothing_out_again() -> None:
    kept = SessionList()
    for number in range(300):
        kept.add(page(), first=number == 0)
    kept.close()
    kept.add(page(3), first=True)
    assert kept.left_out > 0, "until it is complete, the list before is the list"
    kept.close()
    assert (kept.left_out, sum(1 for _ in kept.sessions())) == (0, 3)
