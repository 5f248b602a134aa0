"""Which trash may not be purged yet, because a session may still need its history.

- The trash of a session that exists in the database again.
- The trash of a session that a process may have in memory, if the process had the database open at
  the prune. A chat or a program of unknown kind is waited for until it ends. A server is waited
  for as long as `reaper.presume_after.server`, since a silent turn may go on; where Hermes writes
  a turn only at its end, until the server ends.

Automatic purges wait for this. A `purge` by hand and an emergency do not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

import apsw
import msgspec

from exporter.errors import DatabaseError
from exporter.evidence.liveness import read_boot_time
from exporter.evidence.procfs import read_stat
from exporter.hermes import database
from exporter.hermes.schema import probe_schema
from exporter.pruner.beside import ProcessesAtPrune
from exporter.pruner.models import Act
from exporter.runs.journal import RunJournal
from exporter.runs.models import ActionState
from exporter.writing.emptied_rows import RowState, row_states
from exporter.writing.target import Target, read_with_retry

_DELETION: Final = Act.DELETE_SESSION.value
BESIDE: Final = "beside"
"""The key under which the journal notes it, with the first session that a run deletes."""


def find_reborn(target: Target, session_ids: Collection[str]) -> set[str]:
    """Return the sessions among these that Hermes continued after we had pruned them.

    They are in the database again, or their emptied rows are not as we left them.
    """
    if not session_ids or database.file_state(target.database) is None:
        return set()

    def used(connection: apsw.Connection) -> set[str]:
        states = row_states(connection, probe_schema(connection), session_ids)
        return {
            session_id
            for session_id, state in states.items()
            if state not in (RowState.GONE, RowState.UNTOUCHED)
        }

    return read_with_retry(target, used)


def why_not_purged(target: Target, runs: RunJournal, run: str) -> str:
    """Return why the trash of a run must not be purged automatically yet; '' if it may be."""
    deletions = [each for each in runs.actions(run) if each.action.kind == _DELETION]
    deleted = {each.action.target for each in deletions if each.state is ActionState.DONE}
    if not deleted:
        return ""
    noted = (each.after.get(BESIDE) for each in deletions)
    found: Any = next((each for each in noted if each is not None), None)
    try:
        reborn = find_reborn(target, deleted)
        waits_for = waits_for_process(target.proc, found, partial(writes_turns_late, target))
    except (DatabaseError, OSError, msgspec.ValidationError) as error:
        return f"it is not known whether a session of it is still in use: {error}"[:300]
    if reborn:
        return "a session of it exists again and needs its history"
    if waits_for is not None:
        return f"process {waits_for}, which was there at the prune, may still have a session of it"
    return ""


def waits_for_process(proc: str, noted: Any, writes_turns_late: Callable[[], bool]) -> int | None:
    """Return the PID of a process that trash and emptied rows wait for; None if there is none.

    `noted` is what the journal has of the processes at the prune; raise ValidationError if that is
    nothing that a run writes. `writes_turns_late` is asked only if it matters.
    """
    if noted is None:
        return None
    beside = msgspec.convert(noted, ProcessesAtPrune)
    now = read_boot_time()
    if now.boot_id != beside.boot_id:
        return None  # every process of an earlier boot has ended
    for pid, start_ticks in beside.chats:
        if _lives(proc, pid, start_ticks):
            return pid
    servers = [pid for pid, start_ticks in beside.servers if _lives(proc, pid, start_ticks)]
    if not servers:
        return None
    waited = now.monotonic - beside.monotonic
    if beside.server_seconds is not None and waited >= beside.server_seconds:
        return servers[0] if writes_turns_late() else None
    return servers[0]


def _lives(proc: str, pid: int, start_ticks: int) -> bool:
    stat = read_stat(proc, pid)
    if stat is None:
        return exists_unseen(pid)
    return not stat.dead and stat.start_ticks == start_ticks


def exists_unseen(pid: int) -> bool:
    """True if a process exists that /proc does not show: it may be hidden from this user.

    The kernel tells so whatever /proc is mounted with. Another may have its PID by now: then the
    trash waits in vain.
    """
    try:
        os.getpgid(pid)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def writes_turns_late(target: Target) -> bool:
    """True for Hermes up to 0.17, which stores nothing of a turn before its end."""
    if database.file_state(target.database) is None:
        return False
    return not read_with_retry(target, lambda each: probe_schema(each).has("messages", "compacted"))
