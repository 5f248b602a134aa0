"""All that a home holds and the pruner might take, as it was at one moment.

Gathered by `gather.inventory_reader` in a worker; everything that decides (protection,
policies, pressure, plan) is a function of this. It stays in the worker: session ids leave it only
as actions of a plan, working directories never.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from exporter.hermes.checkpoints import CheckpointLayout
from exporter.hermes.own_pruning import OwnPruning
from exporter.pruner.expected import ExpectedFolder, ExpectedProject
from exporter.reaper.models import ProcessFacts, ReaperRules
from exporter.snapshot import DiskKind, Filesystem, Hold


class ParentLink(StrEnum):
    """What a session is to the parent it names."""

    NONE = "none"
    """It names none, or one that is gone."""
    COMPRESSION = "compression"
    """It goes on where its parent was compressed: one conversation."""
    BRANCH = "branch"
    DELEGATE = "delegate"
    """It did a task for its parent; Hermes deletes it with its parent."""
    CHILD = "child"
    """Nothing says what: sub-agents up to 0.16 are so. It outlives its parent."""


class InventorySession(Struct, frozen=True, gc=False):
    """One session, open or ended."""

    id: str
    source: str
    is_open: bool
    started_at: float
    last_activity_at: float
    """Newest of every clock there is, its end included."""
    clocks_sane: bool
    """False if a clock is missing, no number or in the future: such a session is protected."""
    rows: int
    size: int
    """The larger of its rows and what Hermes counted: a count may only protect."""
    payload_bytes: int = 0
    end_reason: str = ""
    ended_at: float | None = None
    parent_id: str | None = None
    link: ParentLink = ParentLink.NONE
    archived: bool = False
    pinned: bool = False
    titled: bool = False
    handed_off: bool = False
    """A handoff is pending or running."""
    expected: bytes = b"{}"
    """What it must still be like when it is deleted, as JSON: there may be a hundred thousand."""


class Deletion(StrEnum):
    """What is known of the row of a file that has none."""

    SEEN = "seen"
    """The agent saw the row, and saw it go while the database stayed the same."""
    OURS = "ours"
    """A run of ours deleted it."""
    UNSETTLED = "unsettled"
    """A run of ours that was stopped may have deleted it; recovery finds out."""
    UNPROVEN = "unproven"
    """It may have gone with a replaced database: the file may be the last copy."""


class SessionFile(Struct, frozen=True, gc=False):
    """A transcript or request dump below sessions/, by one of the exact names that Hermes gives."""

    name: str
    kind: DiskKind
    allocated_bytes: int
    modified_at: float
    session_id: str | None
    """The session of the database whose it is; None if there is none."""
    is_surely_hermes: bool
    """No other program would name a file so."""
    is_own: bool
    """A regular file of the home's owner with no other name."""
    deletion: Deletion = Deletion.UNPROVEN
    """Of a file without a session."""
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0


class WorkdirState(StrEnum):
    """Whether the working directory of a checkpoint is there."""

    PRESENT = "present"
    MISSING = "missing"
    """It is gone, and the filesystem that held it is there."""
    UNKNOWN = "unknown"
    """Its disk may not be mounted, it may be another container's, or nothing tells where it was."""


class Archive(StrEnum):
    """A folder of migrated shadow repositories, besides the two layouts."""

    ARCHIVE = "archive"


class Checkpoint(Struct, frozen=True):
    """Snapshots of one working directory, or a whole archive of old ones."""

    layout: CheckpointLayout | Archive
    target: str
    """The hash of a store project, otherwise a path below the home."""
    allocated_bytes: int
    touched_at: float
    """When anything in it was last written; 0 where nothing tells, which protects it."""
    workdir: WorkdirState = WorkdirState.UNKNOWN
    missing_since: float | None = None
    """Since when its working directory is known to be missing."""
    is_own: bool = True
    expected: ExpectedFolder | ExpectedProject | None = None
    """None if it could not be looked at; then it is left alone."""


class HomeFile(Struct, frozen=True, gc=False):
    """A file that belongs to no session."""

    path: str
    """Below the home."""
    allocated_bytes: int
    modified_at: float
    is_own: bool
    """A regular file of the home's owner with no other name."""
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0


class TrashedRun(Struct, frozen=True):
    """What an earlier run has put into the trash."""

    run: str
    allocated_bytes: int
    taken_at: float
    kept_until: float


class Safeguards(Struct, frozen=True):
    """What speaks for sessions besides their own rows."""

    facts: ProcessFacts = ProcessFacts()
    rules: ReaperRules = ReaperRules()
    """How long a session must be idle beside which process."""
    holds: Mapping[str, list[Hold]] = {}
    turn_leases: frozenset[str] = frozenset()
    restored: frozenset[str] = frozenset()
    """Targets that an undo gave back not long ago."""
    reaped_at: Mapping[str, float] = {}
    """Sessions that still have the end that we wrote."""
    unreadable: tuple[str, ...] = ()
    """Sources of protection that exist and could not be read; with any, nothing is pruned."""


class Inventory(Struct, frozen=True):
    """One home at one moment."""

    taken_at: float
    sessions: tuple[InventorySession, ...] = ()
    files: tuple[SessionFile, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    leftovers: tuple[HomeFile, ...] = ()
    """Half packs and objects that a killed git left behind."""
    gathered: Mapping[str, tuple[HomeFile, ...]] = {}
    """By policy: the files that are listed for it alone, see `Policy.gather`."""
    trash: tuple[TrashedRun, ...] = ()
    safeguards: Safeguards = Safeguards()
    self_pruning: OwnPruning = OwnPruning()
    transcripts_bytes: int = 0
    """Of all transcripts and request dumps, whether or not they are in `files`."""
    checkpoints_bytes: int | None = None
    """None while the first walk of a large home is under way."""
    payload_bytes: int | None = None
    """None if the database could not be read."""
    awaiting_gc_bytes: int = 0
    """Of checkpoints that are gone from the store and that the next `git gc` gives back."""
    filesystem: Filesystem | None = None
