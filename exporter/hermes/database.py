"""Open state.db, and Hermes's other databases, so that no Hermes process can be harmed.

Careless readers have taken gateways down for hours. So this is the only module that opens these
databases for reading. It knows five cases:

    a process holds -shm     mode=ro, -shm read-only: share Hermes's WAL index, never write it
    -wal, but no holder      mode=ro without shared memory; the WAL index is built on the heap
    no -wal (cold)           immutable=1: any other mode would create sidecars and leave them
    DELETE journal           mode=ro
    a holder lost its lock   do not open (`exporter.evidence` decides that before we are called)

Cases two and three are correct only while no process writes. So the files are compared before and
after, and the result is discarded if anything changed. None of these modes can reset -shm; a reset
is what kills a holder without a lock. So a holder that is overlooked, where locks cannot be seen,
survives our read.

If a sidecar disappears between planning and opening, SQLite would create it anew and leave it
empty. So we take the shared lock that every connection has on the database before SQLite takes it,
and compare the files with the plan once more. A process that closes the database last sees our lock
and leaves the sidecars in place.

Raw reads of the same files are safe only because a worker has no connection open during them:
closing any descriptor of a file drops all POSIX locks that the process has on it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

import apsw
from msgspec import Struct

from exporter.errors import DatabaseError
from exporter.hermes.sqlite_locks import SHARED_BYTES, SHARED_FIRST, probe_shm
from exporter.snapshot import FileIdentity, LockAnswer, Trouble

BUSY_TIMEOUT_MS: Final = 500
_MAGIC: Final = b"SQLite format 3\x00"
_HEADER_BYTES: Final = 100
_WAL_INDEX_HEADER_BYTES: Final = 96
_PROGRESS_EVERY_STEPS: Final = 20_000
_MMAP_BYTES: Final = 1 << 36
_CACHE_KIBIBYTES: Final = 400
"""SQLite's default is 2,000. No page of a system prompt is read twice, and to take fresh memory for
each costs as much as to read it.
"""
_LOCK_STEP_SECONDS: Final = 0.01


class FileState(Struct, frozen=True):
    """The result of `lstat` for one of the three files. Equal states mean that nothing was written.

    The ctime is not part of it: where SQLite runs as root, it sets the owner of the WAL again at
    every opening.
    """

    identity: FileIdentity
    owner: int
    mode: int
    size_bytes: int
    modified_ns: int


class DatabaseFiles(Struct, frozen=True):
    """state.db and its sidecars as they are now; None for a missing file."""

    database: FileState | None
    wal: FileState | None
    shm: FileState | None


class JournalMode(StrEnum):
    """How state.db is written, by the file's header."""

    WAL = "wal"
    ROLLBACK = "rollback"


class OpenMode(StrEnum):
    """The ways to open state.db; see the docstring of this module."""

    SHARED = "shared"
    HEAP_WAL = "heap_wal"
    IMMUTABLE = "immutable"


class OpenPlan(Struct, frozen=True):
    """How a database will be opened, and the state of its files when that was decided."""

    path: str
    access: OpenMode
    journal: JournalMode
    files: DatabaseFiles


def database_path(home: str) -> str:
    return os.path.join(home, "state.db")


def stat_files(path: str) -> DatabaseFiles:
    """Stat a database and its sidecars without opening a file or following a symlink."""
    return DatabaseFiles(file_state(path), file_state(path + "-wal"), file_state(path + "-shm"))


def file_state(path: str) -> FileState | None:
    """Stat one file of any type; None if it does not exist."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileState(
        identity=FileIdentity(found.st_dev, found.st_ino),
        owner=found.st_uid,
        mode=found.st_mode,
        size_bytes=found.st_size,
        modified_ns=found.st_mtime_ns,
    )


def refuse_unfit_files(files: DatabaseFiles, owner: int, path: str) -> None:
    """Raise unless each of the files is a regular file of the home's owner."""
    for suffix, state in (("", files.database), ("-wal", files.wal), ("-shm", files.shm)):
        if state is None:
            continue
        where = path + suffix
        if not stat.S_ISREG(state.mode):
            raise DatabaseError(
                Trouble.NOT_A_FILE, f"{where} is not a regular file; left untouched"
            )
        if state.owner != owner:
            raise DatabaseError(
                Trouble.FOREIGN_OWNER,
                f"{where} belongs to uid {state.owner}, its home to uid {owner}; left untouched",
            )


def read_journal(path: str) -> JournalMode | None:
    """Return the journal mode by the file's header; None for a file that is empty or has none.

    Raise OSError if the file cannot be read. Only for a process without a connection to this
    database.
    """
    header = _read_start(path, _HEADER_BYTES)
    if not header.startswith(_MAGIC):
        return None
    return JournalMode.WAL if header[18:20] == b"\x02\x02" else JournalMode.ROLLBACK


def read_commit_stamp(path: str, files: DatabaseFiles) -> bytes:
    """Return bytes that change with every commit, even if sizes and times stay the same.

    In WAL mode this is the start of -shm, else the header of the database. Only for a process
    without a connection to this database.
    """
    try:
        if files.wal is not None and files.shm is not None:
            return _read_start(path + "-shm", _WAL_INDEX_HEADER_BYTES)
        return _read_start(path, _HEADER_BYTES)
    except OSError:
        return b""


def _read_start(path: str, size: int) -> bytes:
    # The home's owner may have put a FIFO or a symlink here: never block on it, never follow it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, 0)
    finally:
        os.close(descriptor)


def plan_open(path: str) -> OpenPlan:
    """Examine the files and choose how to open them; raise if this is no database.

    Only for a process without a connection to this database, and right before `reading`: the files
    may change at any time.
    """
    files = stat_files(path)
    try:
        journal = read_journal(path)
    except PermissionError as error:
        raise DatabaseError(Trouble.PERMISSION, f"cannot read {path}: permission denied") from error
    if journal is None:
        raise DatabaseError(
            Trouble.NOT_A_DATABASE, f"{path} is not an SQLite database; left untouched"
        )
    lock = probe_shm(path + "-shm") if files.shm is not None else LockAnswer.FREE
    return OpenPlan(path, choose_open_mode(files, journal, lock), journal, files)


def choose_open_mode(files: DatabaseFiles, journal: JournalMode, lock: LockAnswer) -> OpenMode:
    """Return the way of opening that leaves these files unchanged; `lock` is the lock on -shm."""
    if journal is JournalMode.ROLLBACK and (files.wal is None or files.wal.size_bytes == 0):
        return OpenMode.SHARED
    if files.wal is None:
        return OpenMode.IMMUTABLE
    if files.shm is None or lock is LockAnswer.FREE:
        return OpenMode.HEAP_WAL
    return OpenMode.SHARED


@contextmanager
def reading(
    opening: OpenPlan,
    *,
    deadline_seconds: float,
    mapped: bool = False,
) -> Iterator[apsw.Connection]:
    """Yield a read-only connection inside one read transaction, and always close it.

    `mapped` reads through mapped memory. This is three times faster for long rows, but the worker
    seems to use much memory meanwhile, and a file that shrinks meanwhile kills the worker.

    Raise `DatabaseError` with the reason if SQLite cannot read the file, or not in time, or if the
    files changed meanwhile so that the result is not valid.
    """
    with _files_unmoved(opening):
        yield from _reading(opening, deadline_seconds, mapped)


def _reading(opening: OpenPlan, deadline_seconds: float, mapped: bool) -> Iterator[apsw.Connection]:
    give_up_at = time.monotonic() + deadline_seconds
    connection: apsw.Connection | None = None
    try:
        connection = _connect(opening)
        connection.set_progress_handler(
            lambda: time.monotonic() > give_up_at, _PROGRESS_EVERY_STEPS
        )
        if mapped:
            connection.execute(f"PRAGMA mmap_size={_MMAP_BYTES}")
        connection.execute("BEGIN")
        # Inside the transaction: this statement reads the schema, and so begins to read the WAL.
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIBIBYTES}")
        yield connection
    except (apsw.Error, UnicodeDecodeError) as error:
        refuse_if_moved(opening)
        raise _explain(error, opening) from error
    except DatabaseError:
        refuse_if_moved(opening)
        raise
    else:
        refuse_if_moved(opening)
    finally:
        if connection is not None:
            connection.close(force=True)


@contextmanager
def _files_unmoved(opening: OpenPlan) -> Iterator[None]:
    """Hold the lock that keeps the sidecars; raise DatabaseError if the files differ from the plan.

    The caller must close its connection first: closing this descriptor drops all locks.
    """
    try:
        # O_NONBLOCK: since the plan was made the owner may have put a FIFO here.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(opening.path, flags)
    except OSError as error:
        raise DatabaseError(
            Trouble.BUSY, f"cannot read {opening.path}: {error.strerror}"
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # SQLite would block on it
            raise DatabaseError(Trouble.NOT_A_FILE, f"{opening.path} is no longer a regular file")
        _take_shared_lock(descriptor, opening.path)
        # Compared under the lock: from now on no process that closes the database deletes the
        # sidecars.
        if opening.access is not OpenMode.IMMUTABLE and _sidecars(opening.files) != _sidecars(
            stat_files(opening.path)
        ):
            raise DatabaseError(
                Trouble.BUSY, f"{opening.path} was opened or closed by Hermes at this very moment"
            )
        yield
    finally:
        os.close(descriptor)


def _take_shared_lock(descriptor: int, path: str) -> None:
    """Take SQLite's shared lock on the database.

    A process that holds the exclusive lock may be deleting the WAL.
    """
    for _ in range(int(BUSY_TIMEOUT_MS / 1000 / _LOCK_STEP_SECONDS)):
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, SHARED_BYTES, SHARED_FIRST)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                return  # the filesystem has no locks; SQLite finds that out by itself
            time.sleep(_LOCK_STEP_SECONDS)
        else:
            return
    raise DatabaseError(Trouble.BUSY, f"{path} is locked by another process")


def _sidecars(files: DatabaseFiles) -> tuple[FileIdentity | None, ...]:
    return tuple(
        state.identity if state is not None else None
        for state in (files.database, files.wal, files.shm)
    )


def refuse_if_moved(opening: OpenPlan) -> None:
    """Raise if we read without locks and another process wrote meanwhile."""
    if opening.access is OpenMode.SHARED or stat_files(opening.path) == opening.files:
        return
    raise DatabaseError(
        Trouble.MOVED_WHILE_READING,
        f"{opening.path} was written while it was read; tried again at the next scan",
    )


_OPTIONS: Final = {
    OpenMode.SHARED: "mode=ro&readonly_shm=1",
    OpenMode.HEAP_WAL: "mode=ro&vfs=unix-none",
    OpenMode.IMMUTABLE: "mode=ro&immutable=1",
}


def _connect(opening: OpenPlan) -> apsw.Connection:
    uri = "file:" + urllib.parse.quote(os.fsencode(opening.path)) + "?" + _OPTIONS[opening.access]
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
    connection = apsw.Connection(uri, flags=flags)
    try:
        leave_wal_in_place(connection)
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        # The home's owner may have put anything into the schema, so trust none of it.
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.execute("PRAGMA query_only=ON")
        if opening.access is OpenMode.HEAP_WAL:
            # In exclusive mode SQLite keeps the WAL index on the heap and creates no -shm.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    except BaseException:
        connection.close(force=True)
        raise
    return connection


def leave_wal_in_place(connection: apsw.Connection) -> None:
    """Keep SQLite from checkpointing or deleting the WAL when this connection closes.

    Without both settings the last connection removes -wal and -shm. SQLite does not count a Hermes
    that lost its POSIX locks, and that Hermes would go on writing into deleted files.
    """
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    persist = ctypes.c_int(1)
    connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, ctypes.addressof(persist))


_TROUBLES: Final[tuple[tuple[type[apsw.Error], Trouble], ...]] = (
    (apsw.NotADBError, Trouble.NOT_A_DATABASE),
    (apsw.CorruptError, Trouble.CORRUPT),
    (apsw.BusyError, Trouble.BUSY),
    (apsw.LockedError, Trouble.BUSY),
    (apsw.ProtocolError, Trouble.BUSY),
    (apsw.ReadOnlyError, Trouble.BUSY),
    (apsw.InterruptError, Trouble.TIMEOUT),
    (apsw.PermissionsError, Trouble.PERMISSION),
    (apsw.AuthError, Trouble.PERMISSION),
    (apsw.SQLError, Trouble.NO_SESSIONS_TABLE),
)


def _explain(error: apsw.Error | UnicodeDecodeError, opening: OpenPlan) -> DatabaseError:
    """Return the failure as a reason for metrics, with a message for the operator."""
    path = opening.path
    match error:
        case UnicodeDecodeError():
            return DatabaseError(Trouble.CORRUPT, f"{path} holds text that is not UTF-8")
        case apsw.CantOpenError():
            # If we have all permissions, a sidecar appeared or disappeared at this moment.
            trouble = Trouble.PERMISSION if _denied(path) else Trouble.BUSY
        case apsw.ReadOnlyError() if opening.journal is JournalMode.ROLLBACK:
            return DatabaseError(
                Trouble.BUSY, f"{path} waits for Hermes to undo a write that was cut short"
            )
        case _:
            trouble = next(
                (t for kind, t in _TROUBLES if isinstance(error, kind)), Trouble.IO_ERROR
            )
    return DatabaseError(trouble, f"cannot read {path}: {error}")


def _denied(path: str) -> bool:
    files = (path + suffix for suffix in ("", "-wal", "-shm"))
    return any(os.path.lexists(file) and not os.access(file, os.R_OK) for file in files)


_COMPLAINTS_MAX: Final = 100
_OF_THE_TEXT_INDEX: Final = "malformed inverted index for FTS5 table "


def is_sound(connection: apsw.Connection) -> bool:
    """True if quick_check finds no damage. Complaints about the text index do not count.

    Hermes stores pictures with a NUL in their text. The SQLite of Hermes indexes such a text up to
    the NUL, but ours would index all of it, so ours calls a healthy index malformed. A bad index
    loses no data anyway: Hermes can build it again from the messages.
    """
    rows = connection.execute(f"PRAGMA quick_check({_COMPLAINTS_MAX})").fetchall()
    return all(line == "ok" or str(line).startswith(_OF_THE_TEXT_INDEX) for (line,) in rows)
