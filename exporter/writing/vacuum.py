"""VACUUM of state.db, only while no other process has the database open.

It rewrites the whole file and would lock Hermes out for longer than Hermes waits. So it takes the
exclusive lock first, which fails while any other connection is open, and it gives up, with nothing
changed, as soon as another process opens the database.
"""

from __future__ import annotations

import os
import time
import urllib.parse
from collections.abc import Callable
from typing import Final

import apsw
from msgspec import Struct

from exporter.evidence.openers import KnownOpeners
from exporter.hermes.database import leave_wal_in_place, stat_files
from exporter.writing.search_index import merge_pages
from exporter.writing.write_checks import (
    WriteError,
    WriteTrouble,
    check_openers,
    refuse_unwritable,
)

_DEADLINE_SECONDS: Final = 400.0
"""Together with the time for gc it is less than an agent waits for its worker."""
_LOOK_EVERY_SECONDS: Final = 0.2
_PROGRESS_EVERY_STEPS: Final = 20_000
_SPACE_FACTOR: Final = 1.1
"""Each place that the new database is written to needs this, times the pages in use."""
_MERGE_PAGES: Final = 1000
TEMPORARY: Final = "/var/tmp"  # noqa: S108 - SQLite's own choice
FreeBytes = Callable[[str], int]


class VacuumFigures(Struct, frozen=True):
    """What a VACUUM did."""

    before_bytes: int
    after_bytes: int


def vacuum(
    path: str,
    *,
    owner: int,
    openers: KnownOpeners,
    is_wanted: Callable[[], bool],
    free_bytes: FreeBytes,
) -> VacuumFigures:
    """Merge the text index and give unused pages back to the filesystem.

    `openers` must be empty: no process has the database open. That is checked again here. While
    VACUUM works, `is_wanted` tells whether another process has opened the database. The caller's
    process must have no connection to it. Raise `DatabaseError` with the reason if it was not done.
    """
    refuse_unwritable(path, owner)
    found = check_openers(path, openers)
    if openers.pids or found.opened_since:
        raise WriteError(WriteTrouble.BUSY, f"{path} is in use; it was not vacuumed")
    before = stat_files(path)
    connection: apsw.Connection | None = None
    watch = _StopCheck(is_wanted)
    try:
        connection = _connect(path, keep_wal=before.wal is not None)
        pages, free, size = _pages(connection)
        _refuse_without_space(path, (pages - free) * size, free_bytes)
        connection.set_progress_handler(watch.must_stop, _PROGRESS_EVERY_STEPS)
        _merge_text_indexes(connection, watch)
        connection.execute("VACUUM")
        connection.set_progress_handler(None)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.InterruptError as error:
        why = f"{path} {watch.why}; it was not vacuumed"
        raise WriteError(WriteTrouble.TOO_LONG, why) from error
    except apsw.BusyError as error:
        raise WriteError(WriteTrouble.BUSY, f"{path} is in use; it was not vacuumed") from error
    except apsw.FullError as error:
        raise WriteError(
            WriteTrouble.FULL, f"no space for VACUUM of {path}; nothing was changed"
        ) from error
    except apsw.Error as error:
        raise WriteError(WriteTrouble.BROKEN, f"cannot vacuum {path}: {error}") from error
    finally:
        if connection is not None:
            connection.close(force=True)
    return VacuumFigures(pages * size, os.stat(path).st_size)


class _StopCheck:
    """Asked many times a second whether to give up; checks the time and other processes rarely."""

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self._is_wanted = is_wanted
        self._give_up_at = time.monotonic() + _DEADLINE_SECONDS
        self._check_at = 0.0
        self.why = ""

    def must_stop(self) -> bool:
        now = time.monotonic()
        if now >= self._check_at and not self.why:
            self._check_at = now + _LOOK_EVERY_SECONDS
            if now > self._give_up_at:
                self.why = "took too long"
            elif self._is_wanted():
                self.why = "was wanted by another process"
        return bool(self.why)


def _connect(path: str, *, keep_wal: bool) -> apsw.Connection:
    """Open an exclusive connection. It uses no -shm, and fails if another connection is open."""
    uri = "file:" + urllib.parse.quote(os.fsencode(path))
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
    connection = apsw.Connection(uri, flags=flags)
    try:
        if keep_wal:
            leave_wal_in_place(connection)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("BEGIN IMMEDIATE; COMMIT")
    except BaseException:
        connection.close(force=True)
        raise
    return connection


def _pages(connection: apsw.Connection) -> tuple[int, int, int]:
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (int(connection.pragma(name)) for name in names)
    return pages, free, size


def _merge_text_indexes(connection: apsw.Connection, watch: _StopCheck) -> None:
    """Merge step by step, so that it can be given up in between.

    Without this the index keeps most of what was deleted. An index that this SQLite cannot read is
    left as it is.
    """
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%USING fts5%'"
    ).fetchall()
    for (name,) in tables:
        pages, is_left = -_MERGE_PAGES, True
        try:
            while is_left:
                if watch.must_stop():
                    raise apsw.InterruptError
                is_left = merge_pages(connection, str(name), pages)
                pages = _MERGE_PAGES
        except apsw.SQLError:
            continue


def _refuse_without_space(path: str, used_bytes: int, free_bytes: FreeBytes) -> None:
    """VACUUM writes the database twice: as a temporary file of SQLite, then beside the old one."""
    needs: dict[int, tuple[str, int]] = {}
    for place in (os.path.dirname(path), os.environ.get("SQLITE_TMPDIR") or TEMPORARY):
        try:
            device = os.stat(place).st_dev
        except OSError:
            continue
        _, needed = needs.get(device, (place, 0))
        needs[device] = (place, needed + int(used_bytes * _SPACE_FACTOR))
    for place, needed in needs.values():
        free = free_bytes(place)
        if free < needed:
            raise WriteError(
                WriteTrouble.FULL,
                f"VACUUM of {path} needs {needed} bytes free in {place}, and there are {free}; "
                "nothing was done",
            )


def free_bytes_in(folder: str) -> int:
    """Return the bytes that a process other than root may still write there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
