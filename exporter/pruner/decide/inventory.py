"""Everything in a home that the pruner might take, at one moment.

`gather.inventory_reader` reads it in a worker. Protection, policies, thresholds and plan are
functions of it. It stays in the worker: session ids leave it only as actions of a plan, working
directories never.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from exporter.evidence.models import ProcessFacts
from exporter.hermes.checkpoints import CheckpointLayout
from exporter.hermes.own_pruning import OwnPruning
from exporter.pruner.decide.stores import Amount, Store
from exporter.pruner.expected import ExpectedFolder, ExpectedProject
from exporter.reaper.models import ReaperRules
from exporter.snapshot import DiskKind, Filesystem, Hold


class ParentLink(StrEnum):
    """What a session is to the parent it names."""

    NONE = "none"
    """It names no parent, or one that is gone."""
    COMPRESSION = "compression"
    """It continues its parent, which was compressed: both are one conversation."""
    BRANCH = "branch"
    DELEGATE = "delegate"
    """It did a task for its parent; Hermes deletes both together."""
    CHILD = "child"
    """Its row does not say what it is, as for sub-agents up to 0.16. It outlives its parent."""


class InventorySession(Struct, frozen=True, gc=False):
    """One session, open or ended."""

    id: str
    source: str
    is_open: bool
    last_activity_at: float
    """The newest of all its clocks, its end included."""
    clocks_sane: bool
    """False if a clock is missing, no number or in the future; then the session is protected."""
    size: int
    """Its rows, or the count that Hermes keeps if that is larger: the count may only protect."""
    payload_bytes: int = 0
    said_at: float = 0.0
    """When its last message was written; 0 if it has none."""
    end_reason: str = ""
    ended_at: float | None = None
    parent_id: str | None = None
    link: ParentLink = ParentLink.NONE
    archived: bool = False
    """A person archived it."""
    emptied: bool = False
    """A prune took its messages, and Hermes has continued it: it waits for healing."""
    pinned: bool = False
    titled: bool = False
    handed_off: bool = False
    """A handoff is pending or running."""
    expected: bytes = b"{}"
    """What it must still be like when it is deleted, as JSON: there may be 100,000 sessions."""


class Deletion(StrEnum):
    """What is known of the missing row of a file."""

    SEEN = "seen"
    """The agent saw the row, and later the same database without it."""
    OURS = "ours"
    """A run of ours deleted it."""
    UNSETTLED = "unsettled"
    """A run of ours that was killed may have deleted it; recovery finds out."""
    UNPROVEN = "unproven"
    """It may be missing from a replaced database: the file may be the last copy."""


class SessionFile(Struct, frozen=True, gc=False):
    """A transcript or request dump in sessions/, with exactly a name that Hermes gives."""

    name: str
    kind: DiskKind
    allocated_bytes: int
    modified_at: float
    session_id: str | None
    """The session that it belongs to; None if the database has none."""
    is_surely_hermes: bool
    """True if only Hermes gives such names."""
    is_own: bool
    """A regular file of the home's owner with one hard link."""
    deletion: Deletion = Deletion.UNPROVEN
    """For a file without a session."""
    holds_more: bool = False
    """A transcript that may have messages that its session does not have in the database."""
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0


class WorkdirState(StrEnum):
    """Whether the working directory of a checkpoint exists."""

    PRESENT = "present"
    MISSING = "missing"
    """It is gone, and the filesystem that held it is mounted."""
    UNKNOWN = "unknown"
    """Its disk may not be mounted, it may be in another container, or its path is not known."""


class Archive(StrEnum):
    """A folder of migrated shadow repositories; beside the two layouts."""

    ARCHIVE = "archive"


class Checkpoint(Struct, frozen=True):
    """Snapshots of one working directory, or a whole archive of old ones."""

    layout: CheckpointLayout | Archive
    target: str
    """The hash of a store project, otherwise a path below the home."""
    allocated_bytes: int
    touched_at: float
    """When anything in it was last written; 0 if not known, which protects it."""
    workdir: WorkdirState = WorkdirState.UNKNOWN
    missing_since: float | None = None
    """Since when its working directory is known to be missing."""
    is_own: bool = True
    expected: ExpectedFolder | ExpectedProject | None = None
    """None if it could not be read; then it is left alone."""


class HomeFile(Struct, frozen=True, gc=False):
    """A file that belongs to no session."""

    path: str
    """Below the home."""
    allocated_bytes: int
    modified_at: float
    is_own: bool
    """A regular file of the home's owner with one hard link."""
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0


class TrashedRun(Struct, frozen=True):
    """What an earlier run has put into the trash."""

    run: str
    allocated_bytes: int
    taken_at: float
    kept_until: float
    waiting_bytes: int = 0
    """The part that stays for now: rows of sessions that a process may still have in memory."""

    @property
    def purgeable_bytes(self) -> int:
        """The bytes that come free if it is emptied without an emergency."""
        return max(0, self.allocated_bytes - self.waiting_bytes)


class TakenRecently(Struct, frozen=True):
    """What automatic runs have taken in the last 24 hours, by the run journal."""

    items: int = 0
    bytes: int = 0
    stores: Mapping[Store, Amount] = {}
    first_at: float | None = None
    """When the first of it was taken."""


class Safeguards(Struct, frozen=True):
    """What protects sessions, apart from their own rows."""

    facts: ProcessFacts = ProcessFacts()
    rules: ReaperRules = ReaperRules()
    """How long a session must be idle beside each kind of process."""
    holds: Mapping[str, list[Hold]] = {}
    turn_leases: frozenset[str] = frozenset()
    restored: frozenset[str] = frozenset()
    """Targets that an undo restored within `keep.undone`."""
    reaped_at: Mapping[str, float] = {}
    """When we reaped each session that still has the end that we wrote."""
    can_hide_rows: bool = True
    """The schema has `archived`: a pruned row can stay hidden for a process that may need it."""
    unreadable: tuple[str, ...] = ()
    """Sources of protection that could not be read; if there is one, nothing is pruned."""


class Inventory(Struct, frozen=True):
    """One home at one moment."""

    taken_at: float
    sessions: tuple[InventorySession, ...] = ()
    files: tuple[SessionFile, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    leftovers: tuple[HomeFile, ...] = ()
    """Half-written packs and objects that a killed git left behind."""
    gathered: Mapping[str, tuple[HomeFile, ...]] = {}
    """By policy: the files that it gathers for itself, see `Policy.gather`."""
    trash: tuple[TrashedRun, ...] = ()
    safeguards: Safeguards = Safeguards()
    self_pruning: OwnPruning = OwnPruning()
    transcripts_bytes: int = 0
    """Of all transcripts and request dumps, also of those that are not in `files`."""
    checkpoints_bytes: int | None = None
    """None until the first walk of a large home is complete."""
    payload_bytes: int | None = None
    """None if the database could not be read."""
    awaiting_gc_bytes: int = 0
    """Bytes of deleted store projects that the next `git gc` frees."""
    filesystem: Filesystem | None = None
    free_bytes: int | None = None
    """What may still be written there; None if that is not known."""
    taken_recently: TakenRecently = TakenRecently()
    disk_share: float = 1.0
    """Of all bytes that the watched homes have on this filesystem, the share of this home."""
    purged_bytes: int = 0
    """Trash emptied since the filesystem is under pressure: what this home gave already."""
