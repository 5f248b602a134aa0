"""How much room a run needs on the home's filesystem, so that it says so before it begins."""

from __future__ import annotations

from typing import Final

from exporter.text import format_size

WAL_BYTES_MAX: Final = 64 << 20
"""A run lets the WAL grow by no more than this, see `exporter.writing.connection`."""
_WAL_SHARE: Final = 4
"""A short run adds this many times the text of its rows to the WAL: rows, search index, merges."""
_LEAST_WAL_BYTES: Final = 1 << 20
_COPIES: Final = 2
"""Rows and their export: text that cannot be compressed takes its size in each."""
_SESSION_BYTES: Final = 2048
_FILES_BYTES: Final = 16384
"""Names of columns, and blocks of files that are not full."""


def rows_trash_bytes(sessions: int, payload_bytes: int) -> int:
    """Return how much these sessions take in the trash at most; compressed text takes less."""
    if not sessions:
        return 0
    return _COPIES * payload_bytes + sessions * _SESSION_BYTES + _FILES_BYTES


def wal_bytes(payload_bytes: int) -> int:
    """Return by how much the WAL may grow meanwhile."""
    return min(WAL_BYTES_MAX, _WAL_SHARE * payload_bytes + _LEAST_WAL_BYTES)


def why_no_room(needed_bytes: int, free_bytes: int, what: str) -> str:
    """Return why this cannot begin; '' if there is enough room."""
    if needed_bytes <= free_bytes:
        return ""
    needed, free = format_size(needed_bytes), format_size(free_bytes)
    return f"{what} may need {needed} of disk, and {free} are free"
