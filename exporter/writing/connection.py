"""Writing to state.db without harm to any Hermes process.

This is the only way to write, and it is narrow: an existing database in WAL mode, owned by the
owner of its home, and every process that has it open still has its locks. A transaction is short.
It waits a limited time for the write lock, and is rolled back whole if anything goes wrong. The
fsync comes after the lock is released, and once for all transactions of a connection: on a busy
machine it takes longer than all the rest.

A long run does not let the WAL grow: between its transactions it writes the WAL back by a PASSIVE
checkpoint, which waits for no process and makes none wait. It never removes the WAL. It truncates
it only where no other process has the database open.

Before each transaction and checkpoint it is checked that every process that has the database open
still has its locks; before these and each commit, that the file at the path is still the database
that was opened: see `exporter.writing.file_watch`.
"""

from __future__ import annotations

import os
import random
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from exporter.evidence.openers import KnownOpeners, OpenerCheck
from exporter.hermes.database import leave_wal_in_place
from exporter.writing.file_watch import During, FileWatch, reader_of
from exporter.writing.write_checks import (
    WriteError,
    WriteTrouble,
    check_openers,
    refuse_unwritable,
)

LOCK_BUDGET_SECONDS: Final = 0.05
LOCK_LIMIT_SECONDS: Final = 0.25
"""No transaction may hold the write lock for longer."""
_GIVE_UP: Final = 0.8
"""After this share of the limit it is taken back, because that, or its commit, takes time too."""
LOCK_WAIT_SECONDS: Final = 5.0
_STALE_SECONDS: Final = 0.1
"""If it took longer to get the write lock, the processes are checked again under it."""
BUSY_TIMEOUT_MS: Final = 50
_RETRY_SECONDS: Final = (0.005, 0.05)
_PROGRESS_EVERY_STEPS: Final = 1_000
CHECKPOINT_BYTES: Final = 16 << 20
"""While the WAL is larger than this, it is written back after each transaction."""
WAL_GROWTH_MAX: Final = 48 << 20
"""When a run has added this much to the WAL, it waits, and then stops: a reader keeps the WAL from
beginning anew. The transaction that crosses this limit stays below 64 MiB in all."""


class Transaction:
    """A write transaction under way."""

    def __init__(self, budget_seconds: float, monotonic: Callable[[], float]) -> None:
        self.done = 0
        """How much was done in it, in the units of its `BatchSize`; its body says so."""
        self.new_openers: tuple[int, ...] = ()
        """Processes that have opened the database since the survey, without workers of this agent.
        """
        self._began = monotonic()
        self._budget_seconds = budget_seconds
        self._monotonic = monotonic
        self.checked_seconds = 0.0
        """How long the checks took, for which the lock was held before any work."""

    @property
    def seconds(self) -> float:
        """Seconds that the write lock has been held."""
        return self._monotonic() - self._began

    def checked(self) -> None:
        """From here on time counts as work: the checks take as long for few rows as for many."""
        self.checked_seconds = self.seconds

    @property
    def work_seconds(self) -> float:
        """Seconds that the write lock has been held since the checks."""
        return self.seconds - self.checked_seconds

    @property
    def is_due(self) -> bool:
        """True after half of the budget: the commit needs its share too."""
        return self.seconds > self._budget_seconds / 2


class WalGrowth:
    """What a run has added to the WAL, over all its connections, since the WAL last began anew."""

    def __init__(self) -> None:
        self.size_bytes: int | None = None
        """What the WAL has in all; None before the first commit of the run."""
        self.killed_run = False
        """True if a killed run was found: it may have left frames in the WAL."""
        self.added_bytes = 0

    def note(self, size_bytes: int) -> None:
        """Note what the WAL has after a commit; what was written beside us counts as ours."""
        before = size_bytes if self.size_bytes is None else self.size_bytes
        if size_bytes < before:
            self.added_bytes = before = 0
        self.added_bytes += size_bytes - before
        self.size_bytes = size_bytes

    @property
    def is_ours(self) -> bool:
        """True if frames of ours may be in the WAL."""
        return self.killed_run or self.size_bytes is not None

    @property
    def is_large(self) -> bool:
        return (self.size_bytes or 0) > CHECKPOINT_BYTES


class Writer:
    """A connection that may write; see `writing`."""

    def __init__(
        self,
        connection: apsw.Connection,
        check: Callable[[], OpenerCheck],
        path: str,
        *,
        lock_wait_seconds: float,
        budget_seconds: float,
        limit_seconds: float,
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
        growth: WalGrowth,
        watch: FileWatch,
    ) -> None:
        self.connection = connection
        self._path = path
        self._watch = watch
        self._growth = growth
        connection.set_wal_hook(self._note_commit)
        self._data_version = self._connection_version()
        self.held_seconds = 0.0
        """How long the last transaction held the write lock."""
        self.released_at = float("-inf")
        """When the last transaction released it."""
        self._check = check
        self._is_durable = True
        self._lock_wait_seconds = lock_wait_seconds
        self._budget_seconds = budget_seconds
        self._limit_seconds = limit_seconds
        self._monotonic = monotonic
        self._sleep = sleep

    @contextmanager
    def transaction(self, *, check_under_lock: bool = False) -> Iterator[Transaction]:
        """Hold the write lock; commit at the end, or roll back on any exception.

        What is committed is durable once the connection is closed, or after `make_durable`. If the
        commit itself fails, only reading the database tells whether it happened.

        Raise WriteError if a process has lost its locks. Reading the kernel's table of locks can
        take 10 ms, so it is read right before the write lock is taken. `check_under_lock`: under
        it, for a change that a process could contradict without writing a row.
        """
        self._wait_for_room_in_wal()
        new_openers = () if check_under_lock else self.new_openers()
        checked_at = self._monotonic()
        self.refuse_replaced()
        self._begin()
        transaction = Transaction(self._budget_seconds, self._monotonic)
        most_seconds = _GIVE_UP * self._limit_seconds
        self.connection.set_progress_handler(
            lambda: transaction.seconds > most_seconds, _PROGRESS_EVERY_STEPS
        )
        try:
            self.refuse_replaced()  # again: another process may have come and gone meanwhile
            self._data_version = self._connection_version()
            if check_under_lock or self._monotonic() - checked_at > _STALE_SECONDS:
                new_openers = self.new_openers()
            transaction.new_openers = new_openers
            transaction.checked()
            yield transaction
            if transaction.seconds > most_seconds:
                raise apsw.InterruptError("held the write lock for too long")
            self.refuse_replaced(During.TRANSACTION)
            self._is_durable = False
            self.connection.execute("COMMIT")
        finally:
            self.connection.set_progress_handler(None)
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            self._watch.note_wal_start(self._path, self._is_untouched_since)
            self.held_seconds = transaction.seconds
            self.released_at = self._monotonic()
        if self._growth.is_large:
            self.checkpoint()

    def flush_index(self) -> None:
        """Have the text index write what it has gathered; in a transaction.

        FTS5 does so at the commit, and merges then, which takes longer than all that was done
        before: too late to give the transaction up, and unseen by what learns from its time. At a
        savepoint it does the same.
        """
        self.connection.execute("SAVEPOINT flushed; RELEASE flushed")

    def make_durable(self) -> None:
        """Have what was committed survive a power cut; raise WriteError if that fails."""
        if not self._is_durable:
            _sync_wal(self._path + "-wal")
            self._is_durable = True

    def refuse_replaced(self, during: During = During.CONNECTION) -> None:
        """Raise ReplacedError if this is not the database that the run has opened any more."""

        def read(offset: int, size: int) -> bytes:
            # Through SQLite: to close another descriptor of it would drop our locks.
            complete, found = self.connection.read("main", 0, offset, size)
            return found if complete else b""

        self._watch.refuse_replaced(
            self._path, read, self.new_openers, during, self._is_written_beside
        )

    def _is_written_beside(self) -> bool:
        """True if another process has committed since the last transaction; SQLite tells."""
        before = self._data_version
        try:
            self._data_version = self._connection_version()
        except apsw.Error:
            return False  # what is there now is no database
        return self._data_version != before

    def _is_untouched_since(self) -> bool:
        """True if no other process has committed, or begun the WAL anew, since the transaction."""
        try:
            return self._connection_version() == self._data_version
        except apsw.Error:
            return False

    def _connection_version(self) -> int:
        return int(self.connection.pragma("data_version"))

    def _note_commit(self, connection: apsw.Connection, name: str, pages: int) -> int:
        del name
        self._growth.note(pages * int(connection.pragma("page_size")))
        return apsw.SQLITE_OK

    def checkpoint(self) -> bool:
        """Write the WAL back as far as no reader needs it; never wait. True if all of it was.

        Then the next writer begins the WAL anew. Raise WriteError if a process has lost its locks:
        a checkpoint would change pages under it, and if it would write into another database.
        """
        self.new_openers()
        self.refuse_replaced()
        try:
            pages, written = self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.BusyError, apsw.LockedError):
            return False  # another process is doing a checkpoint
        self.refuse_replaced()
        return bool(pages == written)

    def _wait_for_room_in_wal(self) -> None:
        """Raise apsw.BusyError if a reader keeps the WAL from beginning anew for too long."""
        give_up_at = self._monotonic() + self._lock_wait_seconds
        while self._growth.added_bytes > WAL_GROWTH_MAX and not self.checkpoint():
            if self._monotonic() >= give_up_at:
                raise apsw.BusyError("a process reads it for so long that the WAL would grow")
            self._sleep(_RETRY_SECONDS[1])

    def truncate_wal(self) -> bool:
        """Write the whole WAL back and truncate it; True if that was done.

        Only where no other process has the database open: see `idle_wal.empty_wal`. The file stays.
        If another process opens the database meanwhile, it is left alone.
        """
        if self._check().opened_since or not self.checkpoint() or self._check().opened_since:
            return False
        try:
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.BusyError, apsw.LockedError):
            return False
        self._watch.note_wal_start(self._path, self._is_untouched_since)
        return True

    def _begin(self) -> None:
        give_up_at = self._monotonic() + self._lock_wait_seconds
        while True:
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                return
            except (apsw.BusyError, apsw.LockedError, apsw.ProtocolError):
                if self._monotonic() >= give_up_at:
                    raise
            self._sleep(random.uniform(*_RETRY_SECONDS))  # noqa: S311 - only to be out of step

    def new_openers(self) -> tuple[int, ...]:
        """Processes that opened the database since the survey, without workers of this agent.

        Raise WriteError if a known one has lost its locks.
        """
        found = self._check().new_openers
        if found:
            self._watch.note_shared()
        return found


@contextmanager
def writing(
    path: str,
    *,
    owner: int,
    openers: KnownOpeners,
    before_open: Callable[[], None] = lambda: None,
    lock_wait_seconds: float = LOCK_WAIT_SECONDS,
    lock_budget_seconds: float = LOCK_BUDGET_SECONDS,
    lock_limit_seconds: float = LOCK_LIMIT_SECONDS,
    proc: str = "/proc",
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    growth: WalGrowth | None = None,
    watch: FileWatch | None = None,
) -> Iterator[Writer]:
    """Yield a connection that may write, and always close it.

    `openers` are all processes that have the database open. The calling process must have no
    connection to it: closing a second descriptor would drop the locks of the first.

    Raise `DatabaseError` if the database must not or cannot be written, and ReplacedError if it is
    not the one that `watch` has noted.
    """
    watch = watch or FileWatch()
    if watch.has_noted:  # first: half of an imported file is not fit to be written either
        watch.refuse_replaced(path, reader_of(path), lambda: None, During.NO_CONNECTION)
    refuse_unwritable(path, owner)
    before_open()
    if check_openers(path, openers, proc).new_openers or openers.pids or not openers.locks_seen:
        watch.note_shared()
    watch.refuse_replaced(path, reader_of(path), lambda: None, During.NO_CONNECTION)
    connection: apsw.Connection | None = None
    try:
        connection = _connect(path)
        writer = Writer(
            connection,
            lambda: check_openers(path, openers, proc),
            path,
            lock_wait_seconds=lock_wait_seconds,
            budget_seconds=lock_budget_seconds,
            limit_seconds=lock_limit_seconds,
            monotonic=monotonic,
            sleep=sleep,
            growth=growth or WalGrowth(),
            watch=watch,
        )
        connection.pragma("schema_version")  # from here on no other process removes the WAL
        watch.note_wal(path, lambda: writer.refuse_replaced(During.NO_CONNECTION))
        try:
            yield writer
        except (apsw.Error, UnicodeDecodeError):
            writer.refuse_replaced()  # then that is why
            raise
        finally:
            writer.make_durable()
    except (apsw.Error, UnicodeDecodeError) as error:
        raise _explain(error, path) from error
    finally:
        if connection is not None:
            connection.close(force=True)


@contextmanager
def without_triggers(writer: Writer) -> Iterator[None]:
    """Fire no triggers on this connection meanwhile; the triggers themselves stay in the schema."""
    writer.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    try:
        yield
    finally:
        writer.connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)


def _connect(path: str) -> apsw.Connection:
    uri = "file:" + urllib.parse.quote(os.fsencode(path))
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
    connection = apsw.Connection(uri, flags=flags)
    try:
        leave_wal_in_place(connection)
        # None as part of a commit: it would lengthen the transaction. `Writer.checkpoint` makes it.
        connection.wal_autocheckpoint(0)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.execute("PRAGMA foreign_keys=ON")
        # Nor does a commit wait for the disk: `_sync_wal` does, after the lock is released.
        connection.execute("PRAGMA synchronous=NORMAL")
    except BaseException:
        connection.close(force=True)
        raise
    return connection


def _sync_wal(wal: str) -> None:
    """Make every commit survive a power cut.

    SQLite takes no locks on the WAL file, so closing a second descriptor of it loses none. On the
    other two files it would.
    """
    try:
        # O_NONBLOCK: the owner may have put a FIFO here.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(wal, flags)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return  # a process removes the WAL only after it has copied all of it into the database
    except OSError as error:
        raise WriteError(
            WriteTrouble.BROKEN, f"cannot write {wal}: {error.strerror}; what it holds may be lost"
        ) from error


_REASONS: Final[tuple[tuple[type[apsw.Error], WriteTrouble], ...]] = (
    (apsw.FullError, WriteTrouble.FULL),
    (apsw.ReadOnlyError, WriteTrouble.READ_ONLY),
    (apsw.PermissionsError, WriteTrouble.READ_ONLY),
    (apsw.BusyError, WriteTrouble.BUSY),
    (apsw.LockedError, WriteTrouble.BUSY),
    (apsw.ProtocolError, WriteTrouble.BUSY),
    (apsw.InterruptError, WriteTrouble.TOO_LONG),
)


def _explain(error: apsw.Error | UnicodeDecodeError, path: str) -> WriteError:
    why = next((why for kind, why in _REASONS if isinstance(error, kind)), WriteTrouble.BROKEN)
    return WriteError(why, f"cannot write {path}: {error}")
