"""What can be known of a home while no connection to its database is open.

Only locks, file identities and small files. A probe comes before every reading, because our own
open connection would hide Hermes's locks from the lock probe.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from exporter.errors import DatabaseError
from exporter.hermes import database, gateway_files, kanban, leases
from exporter.hermes.sqlite_locks import probe_database, probe_shm
from exporter.scan.filesystem import filesystem_of
from exporter.snapshot import DatabaseProbe, FileIdentity, LockAnswer, Probe, Trouble

STATE: Final = "state.db"
READ_ONLY: Final = "its filesystem is mounted read-only"


def probe_home(home: str, owner: int) -> Probe:
    """Probe a home without opening its database."""
    trouble, detail = Trouble.NONE, ""
    try:
        refuse_changed_home(home, owner)
        refuse_unfit_database(home, owner, STATE)
    except (DatabaseError, OSError) as error:
        trouble, detail = trouble_of(home, error)
    found_leases = leases.read_leases(home)
    return Probe(
        trouble=trouble,
        detail=detail,
        state=_probe_database(home, STATE),
        boards=[_probe_database(home, name) for name in kanban.board_names(home)],
        gateway=gateway_files.read_gateway(home),
        leases=found_leases or [],
        leases_readable=found_leases is not None,
        filesystem=filesystem_of(home),
        private=_is_private(home, owner),
        cannot_write=_why_not_writable(home),
    )


def _why_not_writable(home: str) -> str:
    """Return why nothing can be changed here by this process, which is of the home's owner."""
    try:
        if os.statvfs(home).f_flag & os.ST_RDONLY:
            return READ_ONLY
    except OSError:
        return ""  # then the home cannot be read either, which is told
    for name, what in (("", "the home's folder"), (STATE, STATE)):
        path = os.path.join(home, name)
        if os.path.exists(path) and not os.access(path, os.W_OK):
            return f"its owner may not write {what}"
    return ""


def _is_private(home: str, owner: int) -> bool:
    """True if no user but the owner and root can open anything in it, or put another in its place.

    A hard link outside of the home would be another way to its database.
    """
    try:
        if stat.S_IMODE(os.lstat(home).st_mode) & 0o077:
            return False
        for name in (STATE, f"{STATE}-wal", f"{STATE}-shm"):
            path = os.path.join(home, name)
            if os.path.lexists(path) and os.lstat(path).st_nlink > 1:
                return False
        folder = os.path.realpath(home)
        while folder != os.path.dirname(folder):
            folder = os.path.dirname(folder)
            found = os.lstat(folder)
            # In a sticky folder, as /tmp is, others can neither rename nor remove what is not
            # theirs.
            writable = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
            if found.st_uid not in (0, owner) or writable:
                return False
    except OSError:
        return False
    return True


def refuse_changed_home(home: str, owner: int) -> None:
    """Raise DatabaseError unless this is still the directory that the agent adopted."""
    try:
        found = os.lstat(home)
    except OSError as error:
        raise DatabaseError(Trouble.HOME_GONE, f"cannot read {home}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner:
        raise DatabaseError(Trouble.HOME_GONE, f"{home} is no longer what it was")
    if not os.access(home, os.R_OK | os.X_OK):
        raise DatabaseError(Trouble.PERMISSION, f"cannot read {home}: permission denied")


def refuse_unfit_database(home: str, owner: int, name: str) -> None:
    """Raise DatabaseError unless the files of this database are regular files of the owner."""
    path = os.path.join(home, name)
    database.refuse_unfit_files(database.stat_files(path), owner, path)


def trouble_of(home: str, error: DatabaseError | OSError) -> tuple[Trouble, str]:
    """Return what an error means for the home, and one line about it."""
    if isinstance(error, DatabaseError):
        return error.trouble, str(error)[:300]
    where = error.filename if isinstance(error.filename, str) else home
    trouble = Trouble.PERMISSION if isinstance(error, PermissionError) else Trouble.IO_ERROR
    return trouble, f"cannot read {where}: {error.strerror}"[:300]


def _probe_database(home: str, name: str) -> DatabaseProbe:
    path = os.path.join(home, name)
    files, journal = database.DatabaseFiles(None, None, None), None
    try:
        files = database.stat_files(path)
        journal = database.read_journal(path) if _is_regular(files.database) else None
    except OSError:
        pass  # the reading will report why
    is_wal = journal is database.JournalMode.WAL
    return DatabaseProbe(
        name=name[:128],
        database=_identity(files.database),
        wal=_identity(files.wal),
        shm=_identity(files.shm),
        wal_mode=None if journal is None else is_wal,
        lock_probe=_probe_locks(path, is_wal=is_wal, has_shm=_is_regular(files.shm)),
    )


def _probe_locks(path: str, *, is_wal: bool, has_shm: bool) -> LockAnswer:
    """Return what the kernel knows of locks on -shm, and in WAL mode on the database itself."""
    shm = probe_shm(path + "-shm") if has_shm else LockAnswer.BLIND
    held = (LockAnswer.HELD_UNSEEN, LockAnswer.HELD)
    on_database = probe_database(path) if is_wal and shm not in held else LockAnswer.BLIND
    return on_database if on_database in held else shm


def _identity(state: database.FileState | None) -> FileIdentity | None:
    return state.identity if state is not None else None


def _is_regular(state: database.FileState | None) -> bool:
    return state is not None and stat.S_ISREG(state.mode)
