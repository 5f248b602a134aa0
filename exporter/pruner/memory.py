"""What must be remembered of a home from one look of the pruner to the next.

The caller keeps it, in the agent's state directory: a home is not written to for being looked at.
Losing it delays pruning, and never widens it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from exporter.snapshot import SessionId, Timestamp, Word

ITEMS_MAX = 20_000


class ThresholdMemory(Struct, frozen=True):
    """One threshold."""

    pressing: bool = False
    """`high` was crossed and `low` has not been reached since."""
    above_since: Timestamp | None = None
    attempted_at: Timestamp | None = None
    """When a run last tried to lower it."""
    attempted_from: float = 0.0
    attempted_relief: float = 0.0
    """By how much that run should have lowered it."""
    attempted_whole: bool = False
    """That was as much as was wanted."""


class DatabaseMemory(Struct, frozen=True):
    """Which database it is, and since when the agent knows it."""

    device: int
    inode: int
    highest_message: int
    """It never falls but in another database, or an older copy of this one."""
    since: Timestamp
    replaced: bool = False
    """Another one was in its place before."""


class PruneMemory(Struct, frozen=True):
    """All of it, of one home."""

    thresholds: Annotated[dict[Word, ThresholdMemory], Meta(max_length=16)] = {}
    last_run_at: Timestamp | None = None
    database: DatabaseMemory | None = None
    missing: Annotated[dict[Word, Timestamp], Meta(max_length=ITEMS_MAX)] = {}
    """Checkpoints by name, and since when their working directories are known to be missing."""
    strangers: Annotated[dict[SessionId, Timestamp], Meta(max_length=ITEMS_MAX)] = {}
    """Sessions with our end reason that are in no journal, and when they were first seen."""
