"""Homes of a few sessions, made in milliseconds."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.fabricate.database import MessageRow, SessionRow, StateDatabase


def small_home(path: Path, sessions: int = 3, source: str = "cli") -> Path:
    """Make a cold home with this many open sessions of two messages each."""
    path.mkdir(mode=0o700, parents=True)
    (path / "sessions").mkdir()
    write_sessions(path / "state.db", sessions, source)
    return path


def write_sessions(database: Path, sessions: int, source: str = "cli") -> None:
    """Make a state.db; there must be none yet."""
    began = time.time() - 3600
    with StateDatabase(str(database)) as state:
        for number in range(sessions):
            name = f"20260101_{number:06}_aaaaaa"
            said = [
                MessageRow(name, "user", "what is it?", began + 1),
                MessageRow(name, "assistant", "this", began + 2, finish_reason="stop"),
            ]
            state.add_session(SessionRow(name, source, began), said)
