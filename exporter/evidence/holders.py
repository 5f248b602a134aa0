"""The holders of one home: every process that has its database open, with all known facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from exporter.evidence.boot import Clock
from exporter.evidence.descriptor_scan import OpenFiles, ProcessScan, SeenProcess
from exporter.evidence.lock_table import LockReader
from exporter.evidence.lost_locks import (
    NO_LOCKS,
    Locks,
    confirm_missing,
    is_forked_copy,
    missing_locks,
    own_locks,
)
from exporter.evidence.models import Blindness, Holder, HomeFiles, NamedSession
from exporter.evidence.named_sessions import sessions_of
from exporter.evidence.process import Descriptor
from exporter.evidence.procfs import ancestors
from exporter.hermes.process_kinds import ProcessKind


class SurveyContext(NamedTuple):
    """The results of one scan, for every home, and the means to examine a process again."""

    proc: str
    clock: Clock
    process_scan: ProcessScan
    ours: frozenset[int]
    """Processes that this agent started."""
    locks: LockReader | None
    """None if this system does not show locks."""
    blind: list[Blindness]
    checks: int
    pause: Callable[[], None]


def describe_holders(
    home: HomeFiles, context: SurveyContext, blind: list[Blindness]
) -> tuple[Holder, ...]:
    """Return every process that has a file of this database open, by PID; may add to `blind`."""
    return tuple(
        _describe(home, seen, has, context, blind)
        for seen, has in context.process_scan.seen_processes.of(home)
    )


def _describe(
    home: HomeFiles,
    seen: SeenProcess,
    has: OpenFiles,
    context: SurveyContext,
    blind: list[Blindness],
) -> Holder:
    held, missing, inherited = own_locks(has), NO_LOCKS, NO_LOCKS
    if context.locks is not None and missing_locks(home, has, held) != NO_LOCKS:
        owners = _owners(has.database, context), _owners(has.shm, context)
        held = Locks(*(seen.pid in pids for pids in owners))
        missing = missing_locks(home, has, held)
        forked_copy = Locks(*(is_forked_copy(seen.stat, pids, context.proc) for pids in owners))
        inherited = missing & forked_copy
        missing = missing.without(inherited)
    if missing != NO_LOCKS:
        missing &= confirm_missing(
            home, seen, proc=context.proc, checks=context.checks, pause=context.pause
        )
    ours = _is_ours(seen, context)
    return Holder(
        pid=seen.pid,
        start_ticks=seen.stat.start_ticks,
        started_at=context.clock.epoch(seen.stat.start_ticks),
        namespace_pid=seen.namespace_pid,
        kind=ProcessKind.EXPORTER if ours else seen.role.kind,
        may_resume=seen.role.may_resume,
        shm_inode=has.shm.identity.inode if has.shm and not has.stranger else None,
        lockless_database=missing.database,
        lockless_shm=missing.shm,
        deleted_wal=has.deleted,
        forked_copy=inherited != NO_LOCKS,
        outsider=has.stranger,
        sessions=_sessions(home, seen, context, blind),
        written=seen.written,
        ours=ours,
        stopped=seen.stopped,
    )


def _sessions(
    home: HomeFiles, seen: SeenProcess, context: SurveyContext, blind: list[Blindness]
) -> tuple[NamedSession, ...]:
    """Return the sessions that the process names; only the home's owner and root are trusted."""
    trusted = None if home.owner is None else frozenset({0, home.owner})
    if trusted is not None and seen.uid not in trusted:
        return ()
    try:
        return sessions_of(seen, context.proc, trusted)
    except OSError:
        blind.append(Blindness.UNREADABLE)
        return ()


def _is_ours(seen: SeenProcess, context: SurveyContext) -> bool:
    """True if its PID, or an ancestor's, is ours. A process's own arguments prove nothing."""
    if not context.ours or seen.pid in context.ours:
        return bool(context.ours)
    return any(pid in context.ours for pid, _ in ancestors(context.proc, seen.stat))


def _owners(file: Descriptor | None, context: SurveyContext) -> set[int]:
    """Return the holders of SQLite's lock on a file, by their own fdinfo or by the lock table."""
    if file is None or context.locks is None:
        return set()
    inode = file.identity.inode
    table = context.locks.table
    listed = table.shm_owners(inode) if file.suffix == "-shm" else table.database_owners(inode)
    return context.process_scan.seen_processes.lock_owners(file.identity) | listed
