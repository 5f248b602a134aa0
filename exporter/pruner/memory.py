"""What must be remembered of a home from one look of the pruner to the next.

The caller keeps it, in the agent's state directory: a home is not written to for being looked at.
Losing it delays pruning, and never widens it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from exporter.hermes.continuity import Content
from exporter.snapshot import SessionId, Timestamp, Word

ITEMS_MAX = 20_000
WORKDIRS_MAX = 4_000
ROWS_MAX = 16_000
DELETED_MAX = 8_000
PACKED_BYTES = 16
"""Of one of those."""


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


class Seen(Struct, frozen=True):
    """The database as it was at the last look."""

    looked_at: Timestamp
    device: int
    inode: int
    content: Content


class WitnessMemory(Struct, frozen=True):
    """What the agent saw of the files of one home and of their rows."""

    seen: Seen | None = None
    rows: Annotated[bytes, Meta(max_length=ROWS_MAX * PACKED_BYTES)] = b""
    """Files that had a row: a key of the name, and the number of a late message, packed."""
    deleted: Annotated[bytes, Meta(max_length=DELETED_MAX * PACKED_BYTES)] = b""
    """Files whose row was deleted: a key of the name, and when that was noticed, packed."""


class PruneMemory(Struct, frozen=True):
    """All of it, of one home."""

    thresholds: Annotated[dict[Word, ThresholdMemory], Meta(max_length=16)] = {}
    last_run_at: Timestamp | None = None
    witness: WitnessMemory = WitnessMemory()
    missing: Annotated[dict[Word, Timestamp], Meta(max_length=ITEMS_MAX)] = {}
    """Checkpoints by name, and since when their working directories are known to be missing."""
    present: Annotated[tuple[Word, ...], Meta(max_length=WORKDIRS_MAX)] = ()
    """Checkpoints by name whose working directories the agent once saw on this host."""
    emergency_since: Timestamp | None = None
    """When the filesystem became too full; kept until it is at its low mark again."""
    strangers: Annotated[dict[SessionId, Timestamp], Meta(max_length=ITEMS_MAX)] = {}
    """Sessions with our end reason that are in no journal, and when they were first seen."""
