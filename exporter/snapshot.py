"""The picture of one home at one instant, and the parts it is made of.

Everything here is frozen and crosses the pipe between a worker and the agent as JSON. The agent
trusts no worker, so each field carries the limit it is decoded under: a hostile worker can falsify
its own home and nothing more.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

Word = Annotated[str, Meta(max_length=128)]
"""A short identifier as Hermes wrote it (source, end reason, model); not yet fit for a label."""
SessionId = Annotated[str, Meta(max_length=512)]
Text = Annotated[str, Meta(max_length=300)]
Count = Annotated[int, Meta(ge=0)]
Bytes = Annotated[int, Meta(ge=0)]
Seconds = float
Timestamp = float
"""Seconds since the epoch."""

OTHER: Final = "other"
"""The label value for whatever has no place of its own."""

MESSAGE_BUCKETS: tuple[float, ...] = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
IDLE_BUCKETS: tuple[float, ...] = (60, 600, 3600, 21600, 86400, 604800, 2592000, 7776000)


class Trouble(StrEnum):
    """Why a home's database was not read at this scan; `none`: it was, or there is none yet."""

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
    """What a file under a home is; `other` is the remainder, so that a new leak shows."""

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
    """Which file this is, whatever its name: the key by which descriptors and locks are matched."""

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
    """False while the first walk of a large home is still under way, or parts were unreadable."""
    unreadable: Count = 0
    """Folders and files that could not be looked at."""


class Filesystem(Struct, frozen=True):
    """The filesystem that holds the home."""

    size_bytes: Bytes
    avail_bytes: Bytes
    kind: Word
    """As /proc/self/mountinfo names it, `unknown` where there is none."""
    used_bytes: Bytes = 0
    """With `avail_bytes` it is less than the size where some is reserved for root."""


class DatabaseHealth(Struct, frozen=True):
    """What state.db says of itself."""

    schema_version: int | None
    pages: Count
    free_pages: Count
    page_size_bytes: Count
    integrity_ok: bool | None = None
    """Of the last quick_check; None when none was made."""


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
    """All sessions of a home, folded into the figures that metrics show."""

    open_by_source: Annotated[dict[Word, Count], Meta(max_length=64)]
    ended: Annotated[list[EndedCount], Meta(max_length=256)]
    messages: Annotated[list[MessageHistogram], Meta(max_length=64)]
    open_idle_buckets: Annotated[list[Count], Meta(min_length=9, max_length=9)]
    open_idle_sum_seconds: Seconds
    empty: Count
    trivial: Count
    marathon_near: Count
    marathon_over: Count
    messages_max: Count
    open_oldest_started_at: Timestamp | None
    tool_error_streak_max: Count
    tool_repeat_streak_max: Count
    written_after_end: Annotated[dict[Word, Count], Meta(max_length=64)]
    unreadable: Count = 0
    """Rows that are in none of these figures: no session can be told by their id."""


class TurnState(StrEnum):
    """How the last message of a session left it: the cause shown when it leaked."""

    EMPTY = "empty"
    MID_TURN = "mid_turn"
    AFTER_TURN = "after_turn"


class Hold(StrEnum):
    """Why an open session may rightly have nobody running it."""

    ROUTED = "routed"
    TOPIC_BOUND = "topic_bound"
    HANDOFF = "handoff"
    COMPRESSION_LOCK = "compression_lock"
    DELEGATION = "delegation"
    PINNED = "pinned"
    GOAL = "goal"
    RESTORED = "restored"
    """A person took its reap back."""


class OpenSession(Struct, frozen=True):
    """One session with `ended_at IS NULL`."""

    id: SessionId
    source: Word
    started_at: Timestamp
    """0.0: not known; never shown as a moment."""
    last_activity_at: Timestamp
    """Newest of every clock there is; 0.0 if there is none."""
    clocks_sane: bool
    """False if any clock is missing, no moment, or in the future, or the row is not one that Hermes
    can have written: such a session is protected."""
    messages: Count
    """Active rows."""
    rows: Count
    """All rows, whatever `active` or `compacted` say."""
    turn: TurnState
    holds: Annotated[list[Hold], Meta(max_length=8)] = []
    parent_id: SessionId | None = None
    last_heartbeat_at: Timestamp | None = None
    tool_error_streak: Count = 0
    tool_repeat_streak: Count = 0


class ModelUsage(Struct, frozen=True):
    """What one session has used of one model so far."""

    model: Word
    input: Count = 0
    output: Count = 0
    cache_read: Count = 0
    cache_write: Count = 0
    reasoning: Count = 0
    estimated_usd: float = 0.0
    actual_usd: float = 0.0


class SessionUsage(Struct, frozen=True):
    """What one session has used so far; the journal turns these into counters that never fall."""

    key: int
    """64 bits of a hash of the session id: enough to recognise it, nothing to read in it."""
    source: Word
    active_rows: Count
    rows: Count
    """All its rows, whatever `active` or `compacted` say."""
    above_watermark: Count
    """Its rows that are newer than all that was counted before."""
    copied: Count
    """How many of the rows above the message watermark only repeat older ones (compaction)."""
    tool_calls: Count
    api_calls: Count
    models: Annotated[list[ModelUsage], Meta(max_length=32)] = []
    reborn: bool = False
    """It was pruned and is there again without its past, which it will get back: until then its
    figures, counted from nothing, are less than what was counted of it."""


class Lease(Struct, frozen=True):
    """An entry of runtime/active_sessions.json: a surface says that it has a session open."""

    session_id: SessionId
    surface: Word
    pid: int
    process_started_at: Timestamp | None
    """Epoch seconds, as psutil's create_time gives them."""


class GatewayFiles(Struct, frozen=True):
    """What a gateway left on disk; whether it is alive is for the agent to find out."""

    pid: int | None
    start_ticks: int | None
    lock: FileIdentity | None
    starts: Annotated[list[Timestamp], Meta(max_length=64)] = []
    """When it was started lately, from gateway-starts.log."""


class KanbanClaim(Struct, frozen=True):
    """A running kanban task and the process that should be working on it."""

    pid: int
    host: Word
    started_at: Timestamp


class LockAnswer(StrEnum):
    """What F_GETLK on byte 128 of state.db-shm said, asked where no connection is open."""

    FREE = "free"
    HELD = "held"
    HELD_UNSEEN = "held_unseen"
    """Held by a process outside our PID namespace."""
    BLIND = "blind"


class DatabaseProbe(Struct, frozen=True):
    """A database's files, as far as they can be known without opening them through SQLite."""

    name: Word
    """Its path below the home: `state.db`, or a kanban board's."""
    database: FileIdentity | None
    wal: FileIdentity | None
    shm: FileIdentity | None
    wal_mode: bool | None
    lock_probe: LockAnswer


class Probe(Struct, frozen=True):
    """The first half of a scan: what can be known of a home without opening its databases."""

    trouble: Trouble
    detail: Text
    state: DatabaseProbe
    boards: Annotated[list[DatabaseProbe], Meta(max_length=17)]
    gateway: GatewayFiles | None
    leases: Annotated[list[Lease], Meta(max_length=512)]
    leases_readable: bool
    filesystem: Filesystem | None


class MatchedFiles(Struct, frozen=True):
    """The files of a home that match a pattern which a collector has declared."""

    files: Count
    bytes: Bytes
    """Sum of the file lengths; what they take on disk is in `DiskReport`."""
    newest_at: Timestamp | None
    """When one of them was last modified; None if there is none."""


class Snapshot(Struct, frozen=True):
    """One home at one instant, without the sessions themselves: those follow in pages."""

    scanned_at: Timestamp
    trouble: Trouble
    detail: Text
    """One line for the log: cause and path, never content."""
    database_present: bool
    health: DatabaseHealth | None
    sessions: SessionSummary | None
    disk: DiskReport
    routing_readable: bool
    routed: Count
    hermes_version: Word | None
    cron_ticker_at: Timestamp | None
    kanban: Annotated[list[KanbanClaim], Meta(max_length=512)] | None
    message_watermark: int
    """Highest message id this scan has counted."""
    missing_columns: Annotated[list[Word], Meta(max_length=32)] = []
    matched_files: Annotated[dict[Word, MatchedFiles], Meta(max_length=256)] = {}
    """By pattern; one that could not be matched in full is missing."""
