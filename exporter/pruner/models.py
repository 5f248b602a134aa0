"""The words of the pruner: what may go, by which policy, and what that frees when."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from exporter.snapshot import Bytes, Count, Text, Timestamp

Target = Annotated[str, Meta(max_length=4096)]
"""What an action is taken on; see `Act`."""


class Policy(StrEnum):
    """In order of harm: what is safest to lose comes first."""

    EXPIRED_TRASH = "expired_trash"
    REQUEST_DUMPS = "request_dumps"
    ORPHAN_FILES = "orphan_files"
    ORPHAN_CHECKPOINTS = "orphan_checkpoints"
    STALE_CHECKPOINTS = "stale_checkpoints"
    EMPTY_SESSIONS = "empty_sessions"
    TRIVIAL_SESSIONS = "trivial_sessions"
    OLD_SESSIONS = "old_sessions"


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


class Frees(StrEnum):
    """When the bytes of an action come free."""

    NOW = "now"
    AT_PURGE = "at_purge"
    """It waits in the trash on the same filesystem."""
    AFTER_UPKEEP = "after_upkeep"
    """Only VACUUM or `git gc` gives it back."""


class PruneAction(Struct, frozen=True):
    """One thing to take, why, and what must still hold at that moment."""

    action: Act
    policy: Policy
    target: Target
    reason: Text
    bytes: Bytes = 0
    """Allocated bytes of files, estimated payload of sessions."""
    frees: Frees = Frees.AT_PURGE
    group: int = 0
    """Actions of one group other than 0 are taken together or not at all: a lineage of sessions,
    a parent with its delegates. They follow each other in the plan, children first."""
    expected: dict[str, str | int | float | None] = {}
    """What the plan was made from; compared again in the same moment as the action is taken."""


class ProtectedCount(Struct, frozen=True):
    """How many items a rule keeps from a policy that would take them."""

    rule: Text
    items: Count


class Unreachable(Struct, frozen=True):
    """Bytes above the low mark of a threshold that no policy may free."""

    threshold: Text
    reason: Text
    bytes: Bytes


class HomePrunePlan(Struct, frozen=True):
    """What would be done to one home, in this order."""

    home: str
    hash: str = ""
    """Of what would be done to which target in which state; not of the time it was planned."""
    created_at: Timestamp = 0.0
    actions: tuple[PruneAction, ...] = ()
    protected: tuple[ProtectedCount, ...] = ()
    unreachable: tuple[Unreachable, ...] = ()
    blocked: Annotated[str, Meta(max_length=64)] = ""
    """Why it does nothing, as a label value; empty if nothing stands in the way."""
    why: Text = ""
    """The same in a sentence."""
    warnings: tuple[Text, ...] = ()
    """What a person should know before saying yes: caps that an automatic run would not pass."""
