"""The data of one home at one moment, and its parts.

All types here are frozen, and cross the pipe between a worker and the agent as JSON. The agent
trusts no worker, so each field has a limit that is checked when it is decoded. A hostile worker can
falsify its own home and nothing more.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Final

from msgspec import Meta, Struct

Word = Annotated[str, Meta(max_length=128)]
"""A short identifier that Hermes wrote (source, end reason, model); not yet safe for a label."""
SessionId = Annotated[str, Meta(max_length=512)]
Text = Annotated[str, Meta(max_length=300)]
Count = Annotated[int, Meta(ge=0)]
Bytes = Annotated[int, Meta(ge=0)]
Seconds = float
Timestamp = float
"""Seconds since the epoch."""

OTHER: Final = "other"
"""The label value for everything without a label value of its own."""

MESSAGE_BUCKETS: tuple[float, ...] = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
IDLE_BUCKETS: tuple[float, ...] = (60, 600, 3600, 21600, 86400, 604800, 2592000, 7776000)


class Trouble(StrEnum):
    """Why a home's database was not read in this scan; `none`: it was, or there is none yet."""

    NONE = "none"
    NOT_A_FILE = "not_a_file"
    FOREIGN_OWNER = "foreign_owner"
    PERMISSION = "permission"
    CORRUPT = "corrupt"
    NOT_A_DATABASE = "not_a_database"
    NO_SESSIONS_TABLE = "no_sessions_table"
    BUSY = "busy"
    IO_ERROR = "io_error"
    MOVED_WHILE_READING = "moved_while_reading"
    LOCKLESS_SHM_HOLDER = "lockless_shm_holder"
    HOME_GONE = "home_gone"
    TIMEOUT = "timeout"
    WORKER_DIED = "worker_died"


class DiskKind(StrEnum):
    """The kind of a file in a home; `other` is the rest, so that a new leak is visible."""

    TRANSCRIPTS = "transcripts"
    REQUEST_DUMPS = "request_dumps"
    CHECKPOINTS_LEGACY = "checkpoints_legacy"
    CHECKPOINTS_STORE = "checkpoints_store"
    CHECKPOINTS_ARCHIVE = "checkpoints_archive"
    STATE_DB = "state_db"
    STATE_WAL = "state_wal"
    LOGS = "logs"
    CACHE = "cache"
    CRON = "cron"
    TRASH = "trash"
    OTHER = "other"


class FileIdentity(Struct, frozen=True):
    """Identifies a file independently of its name; descriptors and locks are matched by it."""

    device: int
    inode: int


class DiskUsage(Struct, frozen=True):
    """Allocated bytes (as `du -s` counts them, folders included) and number of files of a kind."""

    allocated_bytes: Bytes = 0
    files: Count = 0


class CheckpointCount(Struct, frozen=True):
    layout: Annotated[str, Meta(pattern="^(legacy|store)$")]
    state: Annotated[str, Meta(pattern="^(active|orphan|stale)$")]
    projects: Count


class DiskReport(Struct, frozen=True):
    """The files of a home by kind, and its checkpoints by layout and state."""

    usage: dict[DiskKind, DiskUsage]
    checkpoints: Annotated[list[CheckpointCount], Meta(max_length=6)]
    complete: bool
    """False while the first walk of a large home is in progress, or if parts were unreadable."""
    unreadable: Count = 0
    """Folders and files that could not be read."""


class Filesystem(Struct, frozen=True):
    """The filesystem that holds the home."""

    size_bytes: Bytes
    avail_bytes: Bytes
    kind: Word
    """The name in /proc/self/mountinfo; `unknown` if there is none."""
    used_bytes: Bytes = 0
    """The sum with `avail_bytes` is less than the size if some space is reserved for root."""
    identity: Annotated[str, Meta(pattern="^([0-9a-f]{8})?$")] = ""
    """The same for all homes on this filesystem, and for no others; empty if it is not known."""


class DatabaseHealth(Struct, frozen=True):
    """Facts about state.db from the database itself."""

    schema_version: int | None
    pages: Count
    free_pages: Count
    page_size_bytes: Count
    integrity_ok: bool | None = None
    """Result of the last quick_check; None if there was none."""


class MessageHistogram(Struct, frozen=True):
    """Messages per session of one source: sessions per bucket of MESSAGE_BUCKETS and beyond."""

    source: Word
    buckets: Annotated[list[Count], Meta(min_length=12, max_length=12)]
    sum: Count


class EndedCount(Struct, frozen=True):
    source: Word
    end_reason: Word
    sessions: Count


class SessionSummary(Struct, frozen=True):
    """All sessions of a home, summed up to the figures that metrics show."""

    open_by_source: Annotated[dict[Word, Count], Meta(max_length=64)]
    ended: Annotated[list[EndedCount], Meta(max_length=256)]
    messages: Annotated[list[MessageHistogram], Meta(max_length=64)]
    open_idle_buckets: Annotated[list[Count], Meta(min_length=9, max_length=9)]
    open_idle_sum_seconds: Seconds
    empty: Count
    trivial: Count
    marathon_near: Count
    """Of the live and held ones: nothing more is sent to a model in the others."""
    marathon_over: Count
    messages_max: Count
    open_oldest_started_at: Timestamp | None
    tool_error_streak_max: Count
    tool_repeat_streak_max: Count
    written_after_end: Annotated[dict[Word, Count], Meta(max_length=64)]
    unreadable: Count = 0
    """Rows that no figure includes: their id cannot identify a session."""
    open_left_out: Count = 0
    """Open sessions above `limits.open_sessions_per_home`: counted, but neither read nor judged."""
    marathon_limit: Count = 0
    """Messages above which a session is over the limit."""


class TurnState(StrEnum):
    """The state after a session's last message. Shown as the cause if the session leaked."""

    EMPTY = "empty"
    MID_TURN = "mid_turn"
    AFTER_TURN = "after_turn"


class Hold(StrEnum):
    """Why an open session may correctly have no process that runs it."""

    ROUTED = "routed"
    TOPIC_BOUND = "topic_bound"
    HANDOFF = "handoff"
    COMPRESSION_LOCK = "compression_lock"
    DELEGATION = "delegation"
    PINNED = "pinned"
    GOAL = "goal"
    RESTORED = "restored"
    """An operator undid its reap."""


class OpenSession(Struct, frozen=True, gc=False):
    """One session with `ended_at IS NULL`."""

    id: SessionId
    source: Word
    started_at: Timestamp
    """0.0: not known; never shown as a time."""
    last_activity_at: Timestamp
    """The newest of all its clocks; 0.0 if there is none."""
    clocks_sane: bool
    """False if the session must be protected.

    Either a clock is missing, not a valid time or in the future, or Hermes cannot have written the
    row.
    """
    messages: Count
    """Active rows."""
    rows: Count
    """All rows, with any `active` or `compacted`."""
    turn: TurnState
    holds: Annotated[list[Hold], Meta(max_length=8)] = []
    parent_id: SessionId | None = None
    last_heartbeat_at: Timestamp | None = None
    tool_error_streak: Count = 0
    tool_repeat_streak: Count = 0
    tokens: Count = 0
    """Of all kinds, as far as its row has them."""
    is_subagent: bool = False
    """True if it is surely a subagent, although its source does not say so (Hermes up to 0.16)."""


class ModelUsage(Struct, frozen=True):
    """The usage of one model by one session so far."""

    model: Word
    input: Count = 0
    output: Count = 0
    cache_read: Count = 0
    cache_write: Count = 0
    reasoning: Count = 0
    estimated_usd: float = 0.0
    actual_usd: float = 0.0


def session_key(session_id: str) -> int:
    """Return 63 bits that stand for a session id where the id itself must not appear."""
    digest = blake2b(session_id.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class SessionUsage(Struct, frozen=True):
    """The usage of one session so far. The agent turns it into counters that never fall."""

    key: int
    """64 bits of a hash of the session id: enough to recognise it, without text of it."""
    source: Word
    active_rows: Count
    rows: Count
    """All its rows, with any `active` or `compacted`."""
    above_watermark: Count
    """Its rows that are newer than all rows counted before."""
    copied: Count
    """The number of rows above the message watermark that only repeat older ones (compaction)."""
    tool_calls: Count
    api_calls: Count
    models: Annotated[list[ModelUsage], Meta(max_length=32)] = []
    reborn: bool = False
    """True if it was pruned and exists again, still without its old messages.

    They will be restored. Until then its figures start from zero and are lower than those already
    counted.
    """


class Lease(Struct, frozen=True):
    """An entry of runtime/active_sessions.json: a surface says that it has a session open."""

    session_id: SessionId
    surface: Word
    pid: int
    process_started_at: Timestamp | None
    """Epoch seconds, as psutil's create_time gives them."""


class GatewayFiles(Struct, frozen=True):
    """The files that a gateway wrote. The agent finds out if the gateway is alive."""

    pid: int | None
    start_ticks: int | None
    lock: FileIdentity | None
    starts: Annotated[list[Timestamp], Meta(max_length=64)] = []
    """Its latest starts, from gateway-starts.log."""


class KanbanClaim(Struct, frozen=True):
    """A running kanban task and the process that should be working on it."""

    pid: int
    host: Word
    started_at: Timestamp


class LockAnswer(StrEnum):
    """The answer of F_GETLK on byte 128 of state.db-shm, asked while no connection is open."""

    FREE = "free"
    HELD = "held"
    HELD_UNSEEN = "held_unseen"
    """Held by a process outside our PID namespace."""
    BLIND = "blind"


class DatabaseProbe(Struct, frozen=True):
    """A database's files, as far as they can be known without opening them with SQLite."""

    name: Word
    """Its path relative to the home: `state.db`, or a kanban board's."""
    database: FileIdentity | None
    wal: FileIdentity | None
    shm: FileIdentity | None
    wal_mode: bool | None
    lock_probe: LockAnswer


class Probe(Struct, frozen=True):
    """The first half of a scan: facts about a home without opening its databases."""

    trouble: Trouble
    detail: Text
    state: DatabaseProbe
    boards: Annotated[list[DatabaseProbe], Meta(max_length=17)]
    gateway: GatewayFiles | None
    leases: Annotated[list[Lease], Meta(max_length=512)]
    leases_readable: bool
    filesystem: Filesystem | None
    private: bool = False
    """True if only the home's owner and root can enter it, or replace it."""
    cannot_write: Text = ""
    """Why its owner cannot write it, in words without a path; empty if nothing is known against it.
    """


class MatchedFiles(Struct, frozen=True):
    """The files of a home that match a pattern of a collector."""

    files: Count
    bytes: Bytes
    """Sum of the file lengths; their size on disk is in `DiskReport`."""
    newest_at: Timestamp | None
    """When the newest of them was last modified; None if there is none."""


class Snapshot(Struct, frozen=True):
    """One home at one moment, without the sessions themselves: these follow in pages."""

    trouble: Trouble
    detail: Text
    """One line for the log: cause and path, never content."""
    database_present: bool
    health: DatabaseHealth | None
    sessions: SessionSummary | None
    disk: DiskReport
    routing_readable: bool
    hermes_version: Word | None
    cron_ticker_at: Timestamp | None
    kanban: Annotated[list[KanbanClaim], Meta(max_length=512)] | None
    message_watermark: int
    """The highest message id that this scan has counted."""
    matched_files: Annotated[dict[Word, MatchedFiles], Meta(max_length=256)] = {}
    """By pattern. A pattern that could not be matched completely is missing."""
