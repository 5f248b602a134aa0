"""After a run in a home that no process has open, nothing is left in the WAL.

The last Hermes process that closes the database leaves no WAL. So people, and `hermes import`, put
another `state.db` in its place, and SQLite would write what is left in the WAL over it. If that
happens during the run, the WAL is truncated and not written back.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from exporter.errors import DatabaseError
from exporter.evidence.procfs import own_pid
from exporter.writing.target import Target


def empty_wal(target: Target) -> None:
    """Write the WAL back and truncate it, if it may have frames of ours and no process is there.

    That is checked by descriptors and locks, now: a Hermes that ended during the run could not
    write the WAL back while our connection was open. Where Hermes is there, the WAL is Hermes's.
    What fails does no harm.
    """
    if not target.openers.locks_seen:
        return
    if is_replaced(target):
        # Who writes another database into the file has it open, too, but not its WAL.
        if not is_open_elsewhere(target.database + "-wal", target.proc):
            target.watch.drop_old_wal(target.database)
        return
    if not target.wal_growth.is_ours:
        return
    if is_open_elsewhere(target.database, target.proc):
        return
    with suppress(DatabaseError):
        target.refuse_unwritable()  # a process that the survey saw may have lost its locks
        with replace(target, openers=target.openers.forgotten()).writing() as writer:
            writer.truncate_wal()


def is_replaced(target: Target) -> bool:
    """True if another database has taken the place of the one that the run has written."""
    with suppress(DatabaseError):
        target.refuse_replaced()
    return target.watch.replaced


def is_open_elsewhere(path: str, proc: str = "/proc") -> bool:
    """True if another process that we may inspect has this file open."""
    wanted = os.path.realpath(path)
    own = str(own_pid(proc))
    try:
        pids = [name for name in os.listdir(proc) if name.isdecimal() and name != own]
    except OSError:
        return False
    return any(_has_open(f"{proc}/{pid}/fd", wanted) for pid in pids)


def _has_open(folder: str, path: str) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") == path:
                return True
        except OSError:
            continue
    return False
