"""In words, why a home is down: JSON names it by one word."""

from __future__ import annotations

from typing import Final

_DOWN: Final = {
    "not_a_file": "state.db is no file",
    "foreign_owner": "a part of it belongs to another user",
    "permission": "it may not be read",
    "corrupt": "its database is damaged",
    "not_a_database": "its state.db is no database",
    "no_sessions_table": "its database has no sessions",
    "busy": "its database is locked",
    "io_error": "reading it failed",
    "moved_while_reading": "its database was replaced while it was read",
    "lockless_shm_holder": "a process has lost its lock, and opening the database could end it",
    "home_gone": "it is not there, or is no folder",
    "timeout": "its filesystem does not answer",
    "worker_died": "the process that reads it has died",
}


def why_down(trouble: str, detail: str) -> str:
    """Return why a home is down: what was found there, or else what kind of trouble it is."""
    return detail or _DOWN.get(trouble, trouble.replace("_", " "))
