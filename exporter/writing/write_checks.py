"""May a state.db be written? Checked before it is opened, and again under the write lock."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Final

from exporter.errors import DatabaseError
from exporter.evidence.models import HomeFiles
from exporter.evidence.openers import KnownOpeners, OpenerCheck, compare_openers
from exporter.hermes.database import (
    FileState,
    JournalMode,
    read_journal,
    refuse_unfit_files,
    stat_files,
)
from exporter.snapshot import FileIdentity, Trouble


class WriteTrouble(StrEnum):
    """Why a database was not written."""

    LOCK_LOST = "lock_lost"
    """A process has it open and has lost its locks: what that process writes would be lost."""
    OTHER_WAL = "other_wal"
    """The file has another name, by which a process has, or may have, another WAL of it."""
    LOCKS_UNSEEN = "locks_unseen"
    """This system does not show which process has which lock."""
    NO_WAL = "no_wal"
    """It is not in WAL mode. Only there every process that has it open holds a lock."""
    READ_ONLY = "read_only"
    FULL = "full"
    BUSY = "busy"
    TOO_LONG = "too_long"
    BROKEN = "broken"
    REPLACED = "replaced"
    """Another database has taken its place while we wrote it."""


_TROUBLES: Final = {
    WriteTrouble.LOCK_LOST: Trouble.LOCKLESS_SHM_HOLDER,
    WriteTrouble.READ_ONLY: Trouble.PERMISSION,
    WriteTrouble.BUSY: Trouble.BUSY,
    WriteTrouble.TOO_LONG: Trouble.TIMEOUT,
}


class WriteError(DatabaseError):
    """The database was not written; a transaction that had begun was rolled back."""

    def __init__(self, why: WriteTrouble, message: str) -> None:
        super().__init__(_TROUBLES.get(why, Trouble.IO_ERROR), message)
        self.why = why


def refuse_unwritable(path: str, owner: int) -> None:
    """Raise WriteError unless these are the files of a database that we could write.

    Only for a process that has no connection to it.
    """
    files = stat_files(path)
    if files.database is None:
        raise WriteError(WriteTrouble.BROKEN, f"there is no {path}")
    refuse_unfit_files(files, owner, path)
    try:
        journal = read_journal(path)
        read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError as error:
        raise WriteError(
            WriteTrouble.READ_ONLY, f"cannot read {path}: {error.strerror}; left untouched"
        ) from error
    if journal is not JournalMode.WAL:
        raise WriteError(
            WriteTrouble.NO_WAL,
            f"{path} is not in WAL mode, so not every process that writes it can be seen; "
            "left untouched",
        )
    present = [path] + [path + s for s, f in (("-wal", files.wal), ("-shm", files.shm)) if f]
    _refuse_other_names(present)
    denied = [file for file in present if not os.access(file, os.W_OK)]
    if read_only or denied:
        where = "its filesystem is" if read_only else f"{denied[0]} is"
        raise WriteError(
            WriteTrouble.READ_ONLY, f"cannot write {path}: {where} read-only; left untouched"
        )


def _refuse_other_names(paths: list[str]) -> None:
    """Raise WriteError if one of these files has a second name.

    SQLite finds the WAL by the name of the database. So each name has a WAL of its own, and what is
    left in one of them is written over what came through the other. Also a backup of hard links
    (`cp -al`) would change with the home.
    """
    for path in paths:
        try:
            names = os.lstat(path).st_nlink
        except OSError:
            continue  # a sidecar that was removed since
        if names > 1:
            raise WriteError(
                WriteTrouble.OTHER_WAL,
                f"{path} has {names} names (hard links); a write through one of them may destroy "
                "the other's: remove the other names, also those in a backup by `cp -al`; "
                "left untouched",
            )


def check_openers(
    path: str, openers: KnownOpeners, proc: str = "/proc", *, wal_mode: bool | None = True
) -> OpenerCheck:
    """Return which processes have the database open; raise WriteError if one would be harmed.

    That is one that has lost its locks and, if the database is known to be in WAL mode, one that
    has another WAL. Call it right before opening the database, and while writing. It opens nothing
    itself.
    """
    files = stat_files(path)
    home = HomeFiles(
        key=path,
        database=_identity(files.database),
        wal=_identity(files.wal),
        shm=_identity(files.shm),
        wal_mode=wal_mode,
        name=os.path.basename(path),
        directory=os.path.dirname(path),
    )
    found = compare_openers(openers, home, proc=proc)
    if found is None:
        raise WriteError(
            WriteTrouble.LOCKS_UNSEEN,
            f"the locks on {path} cannot be seen on this system; left untouched",
        )
    if found.lost or openers.lockless:
        who = f"process {found.lost[0]}" if found.lost else "a process"
        raise WriteError(
            WriteTrouble.LOCK_LOST,
            f"{who} has {path} open and has lost its locks; writing would destroy what it does, "
            "so nothing was written",
        )
    if found.other_wal:
        raise WriteError(
            WriteTrouble.OTHER_WAL,
            f"process {found.other_wal[0]} has {path} open, but no lock on {path}-shm: it has a "
            "WAL elsewhere if it came by another name (a hard link, or the file alone mounted into "
            "a container); writing would destroy the database, so nothing was written",
        )
    return found


def _identity(state: FileState | None) -> FileIdentity | None:
    return state.identity if state is not None else None
