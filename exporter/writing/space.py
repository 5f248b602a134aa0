"""How much room a run needs on the home's filesystem, so that it says so before it begins."""

from __future__ import annotations

from typing import Final

from exporter.text import format_size

WAL_BYTES_MAX: Final = 64 << 20
"""A run lets the WAL grow by no more than this, see `exporter.writing.connection`."""
_WAL_FACTOR: Final = 4
"""A short run adds this many times the text of its rows to the WAL: rows, search index, merges."""
_LEAST_WAL_BYTES: Final = 1 << 20
_COPIES: Final = 2
"""Rows and their export: text that cannot be compressed takes its size in each."""
_SESSION_BYTES: Final = 2048
_LEAST_JOURNAL_BYTES: Final = 2 << 20
_ACTION_BYTES: Final = 2048
"""For each action: in the journal, and in its rollback file until the transaction is over."""
_REAP_BYTES: Final = 16384
"""For each session that is ended: the pages of its row, and of the indexes that have the row."""
_FILES_BYTES: Final = 16384
"""Once for each trash: names of columns, and the last blocks of files, which are not full."""


def rows_trash_bytes(sessions: int, payload_bytes: int) -> int:
    """Return how much these sessions take in the trash at most; compressed text takes less."""
    if not sessions:
        return 0
    return _COPIES * payload_bytes + sessions * _SESSION_BYTES + _FILES_BYTES


def wal_bytes(payload_bytes: int) -> int:
    """Return by how much the WAL may grow meanwhile."""
    return min(WAL_BYTES_MAX, _WAL_FACTOR * payload_bytes + _LEAST_WAL_BYTES)


def deletion_bytes(sessions: int, payload_bytes: int) -> int:
    """Return how much room deleting these sessions needs: rows in the trash, and the WAL."""
    return rows_trash_bytes(sessions, payload_bytes) + wal_bytes(payload_bytes)


def reap_bytes(sessions: int) -> int:
    """Return how much the WAL may grow when so many sessions are ended."""
    return min(WAL_BYTES_MAX, sessions * _REAP_BYTES)


def journal_bytes(actions: int) -> int:
    """Return how much room it takes to note a run."""
    return _LEAST_JOURNAL_BYTES + actions * _ACTION_BYTES


def enough(size_bytes: int) -> str:
    """Return a size to free, rounded up: `format_size` rounds to one decimal, also down."""
    unit = 1 << max(19, size_bytes.bit_length() - 5)
    return format_size(-(-size_bytes // unit) * unit)  # -(-a // b) is a / b, rounded up


def why_no_room(needed_bytes: int, free_bytes: int, what: str) -> str:
    """Return why this cannot begin; '' if there is enough room."""
    if needed_bytes <= free_bytes:
        return ""
    needed, free = enough(needed_bytes), format_size(free_bytes)
    return f"{what} may need {needed} of disk, and {free} are free"
