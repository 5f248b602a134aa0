"""The types of the pruner: kinds of action, reports, and what it remembers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

from exporter.config.prune import PolicyName
from exporter.hermes.continuity import DatabaseFingerprint
from exporter.runs.models import Action, Capped, Plan, Unreachable
from exporter.snapshot import Bytes, Count, SessionId, Text, Timestamp, Word

State = dict[str, str | int | float | None]
"""What the target of a prune must still be like: see `pruner.expected`, `hermes.session_state`."""
PruneAction = Action[State]
PrunePlan = Plan[State]


class Act(StrEnum):
    """What is done, and to what kind of target."""

    PURGE_TRASH = "purge_trash"
    """Of a run, by its id."""
    DELETE_FILE = "delete_file"
    """By its path below the home: a transcript, a request dump, a temporary pack. If `expected`
    names a `session`, the file is taken only after that session was."""
    DELETE_REPO = "delete_repo"
    """A legacy shadow repo or an archive of such, by its path below the home."""
    DELETE_PROJECT = "delete_project"
    """Of the checkpoint store, by its hash."""
    DELETE_SESSION = "delete_session"
    """By its id; its transcripts are actions of their own."""


UNREACHABLE_MAX = 40
REASONS_MAX = 16


class PolicyReport(Struct, frozen=True):
    """What one policy could do now."""

    policy: PolicyName
    reclaimable_bytes: Bytes = 0
    eligible: Count = 0
    """Sessions or files that are old enough and that no rule protects."""
    items: Count = 0
    """The same as a plan counts them: each session, and each of its files."""
    oldest: Timestamp | None = None
    """The clock of the oldest item that it covers, old enough or not."""


class ThresholdReport(Struct, frozen=True):
    name: Word
    value: float | None
    """In bytes, as a ratio or as a count; None while it is not known."""
    high: float
    low: float
    pressure: bool
    over_since: Timestamp | None = None
    """Since when it is over the high watermark, or was and has not been at the low one since."""
    acts_at: Timestamp | None = None
    """Until when no automatic run begins for it, if that is later than now."""


class PruneReport(Struct, frozen=True):
    """What the pruner says of one home."""

    made_at: Timestamp = 0.0
    policies: Annotated[list[PolicyReport], Meta(max_length=16)] = []
    thresholds: Annotated[list[ThresholdReport], Meta(max_length=16)] = []
    unreachable: Annotated[list[Unreachable], Meta(max_length=UNREACHABLE_MAX)] = []
    blocked: Annotated[list[Word], Meta(max_length=REASONS_MAX)] = []
    """All reasons why the pruner, or one of its policies, does nothing."""
    why: Text = ""
    would_items: Count = 0
    """Of the plan that an automatic run would execute now."""
    would_bytes: Bytes = 0
    could_items: Count | None = None
    """Of the plan that `prune` by hand would make now; None before that is computed."""
    could_bytes: Bytes = 0
    emergency: bool = False
    capped: Capped | None = None


ITEMS_MAX = 20_000
WORKDIRS_MAX = 4_000
ROWS_MAX = 16_000
DELETED_MAX = 8_000
PACKED_BYTES = 16
"""Bytes of one entry in `DeletionMemory`."""


class ThresholdMemory(Struct, frozen=True):
    """What is remembered of one threshold."""

    pressing: bool = False
    """It was above `high` and has not been at `low` since."""
    above_since: Timestamp | None = None
    attempted_at: Timestamp | None = None
    """When a run last tried to lower it."""
    attempted_from: float = 0.0
    attempted_relief: float = 0.0
    """By how much that run should have lowered it."""
    attempted_whole: bool = False
    """True if that was all that was needed."""
    pressing_since: Timestamp | None = None


class SeenDatabase(Struct, frozen=True):
    """The database at the last plan."""

    looked_at: Timestamp
    device: int
    inode: int
    content: DatabaseFingerprint


class DeletionMemory(Struct, frozen=True):
    """Which files of one home had a row, and whose row was deleted."""

    seen: SeenDatabase | None = None
    rows: Annotated[bytes, Meta(max_length=ROWS_MAX * PACKED_BYTES)] = b""
    """Packed: a key of the name of each file with a row, and the number of a late message."""
    deleted: Annotated[bytes, Meta(max_length=DELETED_MAX * PACKED_BYTES)] = b""
    """Packed: a key of the name of each file whose row was deleted, and when that was seen."""


class PruneMemory(Struct, frozen=True):
    """What the pruner remembers of one home; kept in the state directory.

    Two fields are stored under the names that they had in the first release.
    """

    thresholds: Annotated[dict[Word, ThresholdMemory], Meta(max_length=16)] = {}
    last_run_at: Timestamp | None = None
    deletions: DeletionMemory = field(default=DeletionMemory(), name="witness")
    missing: Annotated[dict[Word, Timestamp], Meta(max_length=ITEMS_MAX)] = {}
    """By checkpoint: since when its working directory is known to be missing."""
    present: Annotated[tuple[Word, ...], Meta(max_length=WORKDIRS_MAX)] = ()
    """Checkpoints whose working directories the agent has seen on this host."""
    cleaned_at: Timestamp | None = None
    """When the last daily clean-up by age was."""
    emergency_since: Timestamp | None = None
    """When the filesystem got above `emergency`; kept until it is at its low watermark again."""
    unrecorded_reaps: Annotated[dict[SessionId, Timestamp], Meta(max_length=ITEMS_MAX)] = field(
        default_factory=dict, name="strangers"
    )
    """Sessions with our end reason that no journal lists, and when they were first seen."""
