"""The results of a survey of this host's processes, as frozen values."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from exporter.hermes.process_kinds import NamedBy, ProcessKind
from exporter.snapshot import FileIdentity, GatewayFiles, LockAnswer, SessionId, Timestamp, Word

ProcessKey = tuple[int, int]
"""PID and start ticks: a PID alone is reused."""


class Blindness(StrEnum):
    """Why a process that was not seen may still exist."""

    PERMISSIONS = "permissions"
    """We may not see a process's descriptors: it is another user's, and we are not root."""
    HIDEPID = "hidepid"
    """/proc hides other users' processes (hidepid, or systemd's ProtectProc)."""
    PID_NAMESPACE = "pid_namespace"
    """Processes outside our PID namespace share this kernel, or are known to hold the database."""
    NO_PROC = "no_proc"
    """There is no /proc, or no /proc/locks in it."""
    UNREADABLE = "unreadable"
    """Reading a living process failed: a call was denied, no memory, or another error."""
    OVERLAY = "overlay"
    """The home is in the writable layer of an overlay mount: processes there cannot be seen."""
    LIMITED = "limited"
    """A user that can write the home has more open files than one scan reads."""
    PLATFORM = "platform"
    """Not Linux: neither locks nor other users' descriptors can be seen."""


HIDES_PROCESSES: Final = frozenset(
    {Blindness.HIDEPID, Blindness.PID_NAMESPACE, Blindness.NO_PROC, Blindness.UNREADABLE}
)
"""With these a process may be alive although we can read no entry of it in /proc."""

HIDES_LOCKS: Final = frozenset(
    {Blindness.PID_NAMESPACE, Blindness.NO_PROC, Blindness.OVERLAY, Blindness.PLATFORM}
)
"""With these a process may have a lock that the kernel's table does not show us."""


class Liveness(StrEnum):
    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


class GatewayState(StrEnum):
    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


class HomeFiles(Struct, frozen=True):
    """A database to look for among open descriptors, and the gateway of its home."""

    key: str
    database: FileIdentity | None
    wal: FileIdentity | None
    shm: FileIdentity | None
    wal_mode: bool | None
    gateway: GatewayFiles | None = None
    lock_probe: LockAnswer = LockAnswer.BLIND
    name: str = "state.db"
    directory: str = ""
    """Its folder on this host.

    Finds processes that still have a deleted database of that path open.
    """
    owner: int | None = None
    """The owner's uid. If None, every process counts as the owner's."""
    private: bool = False
    """True if no user but the owner, who asks, and root can enter its folder, and the operator
    says that this suffices: then processes of other users hide nothing of it.
    """

    @property
    def files(self) -> set[FileIdentity]:
        return {file for file in (self.database, self.wal, self.shm) if file is not None}

    @property
    def lock_inodes(self) -> set[int]:
        """The files on which SQLite has its lasting locks."""
        return {file.inode for file in (self.database, self.shm) if file is not None}

    def trusts(self, uid: int) -> bool:
        """True for the owner and root: they can write it, and what they say of it counts."""
        return self.owner is None or uid in (0, self.owner)


class NamedSession(Struct, frozen=True):
    """A session that a process says it runs, and where it says so."""

    id: SessionId
    how: NamedBy


class Holder(Struct, frozen=True):
    """A process that has a database, or its -wal or -shm, open. Identity: PID and start ticks."""

    pid: int
    start_ticks: int
    started_at: Timestamp
    namespace_pid: int
    """The PID that the process sees itself; differs from `pid` in a container."""
    kind: ProcessKind
    may_resume: bool
    """True if it was, or may have been, told to resume a session that it did not begin."""
    shm_inode: int | None
    """Of its -shm; None if it has none open, or is an outsider."""
    lockless_database: bool = False
    """It uses the database in WAL mode and has lost its lock: writing beside it loses its data."""
    lockless_shm: bool = False
    """It has lost its lock on -shm: opening the database at all would kill it."""
    deleted_wal: bool = False
    """It writes into a deleted WAL, WAL index or database: nothing of that is saved."""
    forked_copy: bool = False
    """Forked by a holder that has its locks. It has the descriptors and needs no lock."""
    outsider: bool = False
    """A process of another user that can only read. It is not Hermes, and it needs no locks."""
    sessions: tuple[NamedSession, ...] = ()
    written: int | None = None
    """Bytes it has written so far, to any file; None if the kernel does not tell.

    Read before the worker reads the database: later writes show in the next survey.
    """
    ours: bool = False
    """A process that this agent started, or a descendant of one."""
    stopped: bool = False
    """Stopped by a signal or a debugger, or frozen by its cgroup.

    Then its silence proves nothing.
    """

    @property
    def key(self) -> ProcessKey:
        return self.pid, self.start_ticks


class GatewayEvidence(Struct, frozen=True):
    state: GatewayState
    started_at: Timestamp | None = None


class HomeEvidence(Struct, frozen=True):
    """All that this survey knows about the processes of one home."""

    holders: tuple[Holder, ...]
    gateway: GatewayEvidence | None
    blind: tuple[Blindness, ...]
    """The reasons of the whole host and of this database. Empty: `holders` is complete."""
    sees_locks: bool = False
    sees_deleted: bool = False
    """True if open files that were deleted can be seen."""
    ours: dict[int, int] = {}
    """The start ticks of all workers of this agent, by PID, whether they have it open or not."""

    @property
    def deleted_wal_pids(self) -> list[int] | None:
        """Return the processes whose writes are lost; None if that cannot be seen."""
        if not self.sees_deleted:
            return None
        return sorted(each.pid for each in self.holders if each.deleted_wal)

    @property
    def lockless_pids(self) -> list[int] | None:
        """Return the processes that have lost a lock; None if locks cannot be seen."""
        if not self.sees_locks:
            return None
        lost = (each for each in self.holders if each.lockless_database or each.lockless_shm)
        return sorted(each.pid for each in lost)


class LeaseFact(Struct, frozen=True):
    """A lease, and whether the process that took it is alive."""

    session_id: SessionId
    surface: Word
    pid: int
    liveness: Liveness


class ProcessFacts(Struct, frozen=True):
    """What the agent found out about the processes of one home."""

    holders: tuple[Holder, ...] = ()
    leases: tuple[LeaseFact, ...] = ()
    lock_probe: LockAnswer = LockAnswer.BLIND
    blind: tuple[str, ...] = ("not_looked_yet",)
    """Every reason why missing evidence proves nothing."""
    clock_stepped: bool = False
    """The wall clock was stepped by more than an hour since the agent first saw this boot."""
    plugins: bool = False
    """The home has plugins or hooks, which may run an agent in any Hermes process."""
    hermes_prunes_after_days: int | None = None
    """Hermes itself deletes ended sessions that began so long ago; None: it does not."""
    backend_beat_at: float | None = None
    """The last heartbeat of a TUI, desktop or web backend; newer releases write it."""
    turns: frozenset[str] = frozenset()
    """Conversations in the middle of a turn, if the release of Hermes records that."""
    turns_elsewhere: bool = False
    """True if some of them are named by a session that is not open: the first of a lineage."""


class PossibleHome(Struct, frozen=True):
    """A directory in which some process has a state.db open. It may be a home."""

    directory: str
    """The path that the process sees. Only `database` tells if it is the same file here."""
    uid: int
    database: FileIdentity


class Survey(Struct, frozen=True):
    """One scan of all processes, for all homes."""

    homes: dict[str, HomeEvidence]
    candidates: tuple[PossibleHome, ...]
    blind: tuple[Blindness, ...]
    limited_users: int = 0
    """Users that have more open files than a scan reads."""
