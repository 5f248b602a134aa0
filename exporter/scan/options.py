"""How to read a home. The agent loads this to ask a worker, and not what reads homes."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from exporter.evidence.openers import KnownHolder

OPEN_SESSIONS_MAX: Final = 150_000
"""The default of `limits.open_sessions_per_home`: about 150 MB of a worker's memory."""


class ScanOptions(Struct, frozen=True, kw_only=True):
    """How to read a home: limits from its settings, and what the evidence allows to open."""

    home: str
    owner: int
    openable: list[str]
    """Databases, named as in the probe, that can be opened without harm to any process."""
    holders: list[KnownHolder]
    quiet: bool
    """No process has the database open and the agent sees every process: a check may run."""
    watermark: int
    excluded_profiles: list[str]
    trivial_max_messages: int
    marathon_max_messages: int
    marathon_near_ratio: float
    stale_after_seconds: float
    full_interval_seconds: float
    walk_disk: bool
    """False: no walk was requested, and the snapshot has no figures of files."""
    report_usage: bool = True
    """False: tokens, cost and calls of sessions are not read, for a command that shows none."""
    open_sessions_max: int = OPEN_SESSIONS_MAX
    file_patterns: list[str] = []
    """Files that collectors want counted."""
