"""What a survey of this host's processes found, as frozen values."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from exporter.hermes.process_kinds import NamedBy, ProcessKind
from exporter.snapshot import FileIdentity, GatewayFiles, LockAnswer, SessionId, Timestamp


class Blindness(StrEnum):
    """Why the absence of a process proves nothing here."""

    PERMISSIONS = "permissions"
    """Some process does not let us see its descriptors: another user's, and we are not root."""
    HIDEPID = "hidepid"
    """/proc hides other users' processes (hidepid, or systemd's ProtectProc)."""
    PID_NAMESPACE = "pid_namespace"
    """Processes outside our PID namespace share this kernel, or are known to hold the database."""
    NO_PROC = "no_proc"
    """There is no /proc, or no /proc/locks in it."""
    UNREADABLE = "unreadable"
    """A look at a process failed otherwise than by its end: a call denied, no memory, an error."""
    OVERLAY = "overlay"
    """The home is in the writable layer of an overlay mount: who uses it there cannot be seen."""
    LIMITED = "limited"
    """A user who can write the home has more open files than are looked at in one scan."""
    PLATFORM = "platform"
    """Not Linux: neither locks nor other users' descriptors can be seen."""


HIDES_PROCESSES: Final = frozenset(
    {Blindness.HIDEPID, Blindness.PID_NAMESPACE, Blindness.NO_PROC, Blindness.UNREADABLE}
)
"""Under these a process may be alive and have no entry that we can read in /proc."""


class Liveness(StrEnum):
    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


class GatewayState(StrEnum):
    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


class GatewayProof(StrEnum):
    """Which evidence decided about a gateway."""

    PROCESS_AND_LOCK = "process_and_lock"
    """Up: the recorded process runs and holds gateway.lock."""
    LOCK = "lock"
    """Up: another living gateway holds the lock; its record is not written yet."""
    PROCESS = "process"
    """Up: the recorded process runs; locks cannot be seen on this platform."""
    NEITHER = "neither"
    """Down: the recorded process is gone and nobody holds the lock."""
    LOCK_OUTLIVED = "lock_outlived"
    """Down: the recorded process is gone, but a child that it forked keeps its lock."""
    CONFLICT = "conflict"
    """Unknown: one of process and lock says yes, the other no."""
    BLIND = "blind"
    """Unknown: we might not see the process or its lock from here."""


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
    """Where it is on this host: finds those who still have a deleted database of that path."""
    owner: int | None = None
    """Whose it is; None if that was not told, and then every process may be one of his."""


class NamedSession(Struct, frozen=True):
    """A session that a process says it is running, and how it says so."""

    id: SessionId
    how: NamedBy
    since: Timestamp
    """Start of the process that says it. A CLI moves on and its children do not: newest is best."""


class Holder(Struct, frozen=True):
    """A process that has a database, or its -wal or -shm, open. Identity: PID and start ticks."""

    pid: int
    start_ticks: int
    started_at: Timestamp
    uid: int
    namespace_pid: int
    """Its PID as it sees it itself; differs from `pid` in a container."""
    kind: ProcessKind
    may_resume: bool
    """It was, or may have been, told to take up a session that it did not begin."""
    holds_database: bool
    holds_shm: bool
    shm_inode: int | None
    """None also for a stranger."""
    database_locked: bool | None
    """None where locks cannot be seen."""
    shm_locked: bool | None
    lockless_database: bool
    """It uses the database in WAL mode and has lost its lock: writing beside it loses its data."""
    lockless_shm: bool
    """It has lost its lock on -shm: opening the database at all would kill it."""
    deleted_wal: bool
    """It writes into a WAL, WAL index or database that has no name any more: nothing is saved."""
    forked_copy: bool
    """Forked by a holder that has its locks; it has the descriptors and needs no lock."""
    stranger: bool = False
    """Another user's, that can only read: no Hermes, and nothing that it lacks is missed."""
    sessions: tuple[NamedSession, ...] = ()
    written: int | None = None
    """Bytes it has written so far, to whatever; None where the kernel does not tell.

    Read before the worker reads the database: what it writes afterwards shows in the next survey.
    """
    ours: bool = False
    """A process that this agent started, or a descendant of one."""
    stopped: bool = False
    """Stopped by a signal or a debugger, or frozen by its cgroup: it is silent whatever it does."""


class GatewayEvidence(Struct, frozen=True):
    state: GatewayState
    decided_by: GatewayProof
    pid: int | None = None
    started_at: Timestamp | None = None


class HomeEvidence(Struct, frozen=True):
    """All that this survey knows about the processes of one home."""

    holders: tuple[Holder, ...]
    lockless_database: int | None
    """None where locks cannot be seen."""
    lockless_shm: int | None
    deleted_wal_holders: int | None
    gateway: GatewayEvidence | None
    blind: tuple[Blindness, ...]
    """Of the whole host, and of this database besides. Empty: `holders` are all there are."""

    @property
    def deleted_wal_pids(self) -> list[int] | None:
        """Whose writing is lost; None where that cannot be seen."""
        if self.deleted_wal_holders is None:
            return None
        return sorted(each.pid for each in self.holders if each.deleted_wal)

    @property
    def lockless_pids(self) -> list[int] | None:
        """Who has lost a lock; None where locks cannot be seen."""
        if self.lockless_database is None or self.lockless_shm is None:
            return None
        lost = (each for each in self.holders if each.lockless_database or each.lockless_shm)
        return sorted(each.pid for each in lost)


class Candidate(Struct, frozen=True):
    """A directory in which some process has a state.db open: perhaps a home."""

    directory: str
    """In the view of that process: only `database` tells whether it is the same file here."""
    uid: int
    database: FileIdentity


class Survey(Struct, frozen=True):
    """One pass over all processes, for all homes."""

    homes: dict[str, HomeEvidence]
    candidates: tuple[Candidate, ...]
    blind: tuple[Blindness, ...]
    processes: int
    unreadable: int
    """Processes whose descriptors could not be seen."""
    limited_users: int = 0
    """Users who have more open files than are looked at."""
