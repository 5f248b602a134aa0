"""The types of the pruner: actions, plans, reports, and what it remembers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from exporter.config.prune import PolicyName
from exporter.hermes.continuity import DatabaseFingerprint
from exporter.runs.models import Frees as Frees
from exporter.runs.models import RunOutcome
from exporter.snapshot import Bytes, Count, SessionId, Text, Timestamp, Word

Target = Annotated[str, Meta(max_length=4096)]
"""What an action is taken on; see `Act`."""


class ThresholdName(StrEnum):
    """The thresholds, as their keys in the settings name them."""

    TRANSCRIPTS = "transcripts"
    CHECKPOINTS = "checkpoints"
    STATE_DB_PAYLOAD = "state_db_payload"
    DISK_USED = "disk_used"
    EMPTY_SESSIONS = "empty_sessions"


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


class PruneAction(Struct, frozen=True):
    """One thing to take, why, and what must still hold at that moment."""

    action: Act
    policy: PolicyName
    target: Target
    reason: Text
    bytes: Bytes = 0
    """Allocated bytes of files, estimated payload of sessions."""
    frees: Frees = Frees.AT_PURGE
    lowers: tuple[ThresholdName, ...] = ()
    """The thresholds that it lowers by its bytes, or by one where things are counted."""
    group: int = 0
    """Actions of one group other than 0 are taken together or not at all: a lineage of sessions,
    a parent with its delegates. They follow each other in the plan, children first."""
    expected: dict[str, str | int | float | None] = {}
    """What the target must still be like; compared at the moment the action is taken."""


class ProtectedCount(Struct, frozen=True):
    """How many items a rule protects from a policy that would take them."""

    rule: Text
    items: Count


class Unreachable(Struct, frozen=True):
    """Bytes above the low mark of a threshold that no policy may free."""

    threshold: Text
    reason: Text
    bytes: Bytes


class Capped(Struct, frozen=True):
    """What automatic runs leave for later, because of what they may take in 24 hours."""

    items: Count
    bytes: Bytes
    too_large: Count = 0
    """Those of the items that alone are more than a whole day's caps: they wait for a person."""
    caps: Annotated[list[Word], Meta(max_length=3)] = []
    """The keys of `prune.caps` that are reached."""
    more_at: Timestamp | None = None
    """When more may go; None if only a person can take the rest."""


class NotYet(Struct, frozen=True):
    """Items that a policy will take when they are old enough."""

    policy: PolicyName
    items: Count
    first_at: Timestamp
    """When the first of them is old enough."""
    last_at: Timestamp


class HomePrunePlan(Struct, frozen=True):
    """What would be done to one home, in this order."""

    home: str
    hash: str = ""
    """Of actions, targets and their states; not of the time of the plan."""
    created_at: Timestamp = 0.0
    actions: tuple[PruneAction, ...] = ()
    protected: tuple[ProtectedCount, ...] = ()
    unreachable: tuple[Unreachable, ...] = ()
    blocked: Annotated[str, Meta(max_length=64)] = ""
    """Why it does nothing, as a label value; empty if nothing prevents it."""
    why: Text = ""
    """The same in a sentence."""
    warnings: tuple[Text, ...] = ()
    """What a person should know before saying yes, e.g. that it is more than a day's caps."""
    capped: Capped | None = None
    """Of an automatic plan: what is left for later."""
    not_yet: tuple[NotYet, ...] = ()
    """By policy: what is too young, and from when on it may go."""


RULES_MAX = 32
UNREACHABLE_MAX = 40
REASONS_MAX = 16


class PolicyReport(Struct, frozen=True):
    """What one policy could do now."""

    policy: PolicyName
    reclaimable_bytes: Bytes = 0
    eligible: Count = 0
    """Items that are old enough and that no rule protects."""
    oldest: Timestamp | None = None
    """The clock of the oldest item that it covers, old enough or not."""
    not_yet: Count = 0
    """Items that are too young."""
    next_at: Timestamp | None = None
    """When the first of those is old enough."""


class ThresholdReport(Struct, frozen=True):
    name: Word
    value: float | None
    """In bytes, as a ratio or as a count; None while it is not known."""
    high: float
    low: float
    pressure: bool


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
    protected: Annotated[list[ProtectedCount], Meta(max_length=RULES_MAX)] = []
    emergency: bool = False
    capped: Capped | None = None


class PruneOutcome(Struct, frozen=True):
    """What became of an order; its targets are told apart from it."""

    run: Word | None
    outcome: RunOutcome
    why: Text = ""
    freed_now_bytes: Bytes = 0
    freed_at_purge_bytes: Bytes = 0
    freed_after_upkeep_bytes: Bytes = 0
    longest_hold_seconds: float = 0.0


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
    """What the pruner remembers of one home; kept in the state directory."""

    thresholds: Annotated[dict[Word, ThresholdMemory], Meta(max_length=16)] = {}
    last_run_at: Timestamp | None = None
    witness: DeletionMemory = DeletionMemory()
    missing: Annotated[dict[Word, Timestamp], Meta(max_length=ITEMS_MAX)] = {}
    """By checkpoint: since when its working directory is known to be missing."""
    present: Annotated[tuple[Word, ...], Meta(max_length=WORKDIRS_MAX)] = ()
    """Checkpoints whose working directories the agent has seen on this host."""
    emergency_since: Timestamp | None = None
    """When the filesystem got above `emergency`; kept until it is at its low mark again."""
    strangers: Annotated[dict[SessionId, Timestamp], Meta(max_length=ITEMS_MAX)] = {}
    """Sessions with our end reason that no journal lists, and when they were first seen."""
