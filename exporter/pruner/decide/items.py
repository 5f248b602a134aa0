"""What a policy finds: items, each of which becomes one action, in groups that go together."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from exporter.config.prune import ThresholdName
from exporter.hermes.checkpoints import CheckpointLayout
from exporter.hermes.paths import SESSIONS
from exporter.pruner.decide.inventory import (
    Checkpoint,
    HomeFile,
    InventorySession,
    SessionFile,
    TrashedRun,
)
from exporter.pruner.decide.thresholds import relief
from exporter.pruner.expected import ExpectedFile, ExpectedOnDisk, ExpectedSession
from exporter.pruner.models import Act
from exporter.runs.models import Frees

_SESSIONS_FOLDER: Final = SESSIONS.decode() + "/"
_FILE: Final = (ThresholdName.TRANSCRIPTS, ThresholdName.DISK_USED)
_CHECKPOINT: Final = (ThresholdName.CHECKPOINTS, ThresholdName.DISK_USED)


class Item(Struct, frozen=True, gc=False):
    """One thing that a policy may take."""

    kind: Act
    target: str
    bytes: int
    """Allocated bytes of what is on disk, estimated payload of a session."""
    lowers: tuple[ThresholdName, ...]
    """The thresholds that it lowers by its bytes, or by one where things are counted."""
    frees: Frees
    expected: ExpectedOnDisk | ExpectedSession | None = None
    """What it must still be like when it is taken."""
    session: str | None = None
    """The id of the session, or of the session that a file belongs to."""
    is_garbage: bool = False
    """A half-written pack or old trash: in an emergency it may skip the trash."""


class ItemGroup(Struct, frozen=True, gc=False):
    """Items that go together or not at all: a conversation with its files, or one item."""

    policy: str
    clock: float
    """When its age begins; the oldest go first."""
    reason: str
    """Why it goes, with `{age}` in place of its age."""
    items: tuple[Item, ...]
    """Sessions first, children before parents, then their files."""
    sessions: int = 0
    """How many of them are sessions."""

    @property
    def leading(self) -> tuple[Item, ...]:
        """Its sessions, or its one item. Files only follow their session."""
        return self.items[: self.sessions] if self.sessions else self.items

    @property
    def bytes(self) -> int:
        return sum(item.bytes for item in self.items)

    def relief(self, threshold: ThresholdName) -> int:
        """Return by how much it lowers a threshold, in bytes or as a count."""
        return sum(relief(item, threshold) for item in self.items)


def session_item(session: InventorySession, lowers: tuple[ThresholdName, ...]) -> Item:
    return Item(
        kind=Act.DELETE_SESSION,
        target=session.id,
        bytes=session.payload_bytes,
        lowers=lowers,
        frees=Frees.AFTER_UPKEEP,
        expected=session.expected,
        session=session.id,
    )


def session_file_item(file: SessionFile, *, after_session: bool = False) -> Item:
    """Return a transcript or dump; with `after_session` it is taken only after its session."""
    session = file.session_id if after_session else None
    return Item(
        kind=Act.DELETE_FILE,
        target=path_of(file),
        bytes=file.allocated_bytes,
        lowers=_FILE,
        frees=Frees.AT_PURGE,
        expected=ExpectedFile(file.inode, file.size, file.mtime_ns, session),
        session=file.session_id,
    )


def file_item(
    file: HomeFile, lowers: tuple[ThresholdName, ...], *, is_garbage: bool = False
) -> Item:
    """Return a file that belongs to no session."""
    return Item(
        kind=Act.DELETE_FILE,
        target=file.path,
        bytes=file.allocated_bytes,
        lowers=lowers,
        frees=Frees.AT_PURGE,
        expected=ExpectedFile(file.inode, file.size, file.mtime_ns),
        is_garbage=is_garbage,
    )


def checkpoint_item(checkpoint: Checkpoint) -> Item:
    in_store = checkpoint.layout is CheckpointLayout.STORE
    return Item(
        kind=Act.DELETE_PROJECT if in_store else Act.DELETE_REPO,
        target=checkpoint.target,
        bytes=checkpoint.allocated_bytes,
        # Its objects stay in the store until git collects garbage, and its bundle in the trash is a
        # copy: a full disk would only get fuller.
        lowers=(ThresholdName.CHECKPOINTS,) if in_store else _CHECKPOINT,
        frees=Frees.AFTER_UPKEEP if in_store else Frees.AT_PURGE,
        expected=checkpoint.expected,
    )


def trash_item(run: TrashedRun, *, whole: bool = False) -> Item:
    """Return the trash of a run; with `whole` also the rows that a process may still need."""
    return Item(
        kind=Act.PURGE_TRASH,
        target=run.run,
        bytes=run.allocated_bytes if whole else run.purgeable_bytes,
        lowers=(),  # thresholds count the trash as reclaimed already
        frees=Frees.NOW,
        is_garbage=True,
    )


def path_of(file: SessionFile) -> str:
    """Return its path below the home."""
    return _SESSIONS_FOLDER + file.name


def when_freed(item: Item, *, emergency: bool) -> Frees:
    """Return when its bytes come free: in an emergency garbage skips the trash."""
    return Frees.NOW if emergency and item.is_garbage else item.frees
