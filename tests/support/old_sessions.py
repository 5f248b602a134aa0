"""Homes with ended sessions that are old enough to be pruned, made in a moment."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.support.fabricate.database import MessageRow, SessionRow, StateDatabase
from tests.support.pruned_home import transcript

_DAYS = 200


def old_sessions(home: Path, sessions: int, *, messages: int = 4) -> Path:
    """Make a cold home with this many sessions, each with its transcript."""
    (home / "sessions").mkdir(parents=True, mode=0o700)
    began = time.time() - _DAYS * 86400
    with StateDatabase(str(home / "state.db")) as state:
        for number in range(sessions):
            name = f"20260101_{number:06}_aaaaaa"
            said = [
                MessageRow(name, "user", f"word{number} {each}", began + each)
                for each in range(messages)
            ]
            row = SessionRow(name, "cli", began + number, began + number + 10, "cli_close")
            state.add_session(row, said)
            (home / transcript(name)).write_text("{}")
            os.utime(home / transcript(name), (began, began))
    return home
