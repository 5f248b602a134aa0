"""The holders of one home: every process that has its database open, with all known facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from exporter.evidence.descriptor_scan import OpenFiles, ProcessScan, SeenProcess
from exporter.evidence.liveness import Clock
from exporter.evidence.lock_table import LockTable
from exporter.evidence.lost_locks import (
    is_forked_copy,
    lost_at_every_check,
    lost_now,
    missing_locks,
)
from exporter.evidence.models import Blindness, Holder, HomeFiles, NamedSession
from exporter.evidence.process import Descriptor, PinnedProcess
from exporter.evidence.procfs import GONE, ancestors, list_pids, read_stat
from exporter.hermes.process_kinds import NamedBy, ProcessKind, session_in_environment

_CHILDREN_MAX: Final = 256


class SurveyContext(NamedTuple):
    """The results of one scan, for every home, and the means to examine a process again."""

    proc: str
    clock: Clock
    process_scan: ProcessScan
    ours: dict[int, int | None]
    """Processes that this agent started, each with its start ticks; None if it is gone."""
    locks: LockTable | None
    """None if this system does not show locks."""
    blind: list[Blindness]
    pause: Callable[[], None]
    """Wait between two checks for a missing lock."""


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
    missing = missing_locks(home, has) if context.locks is not None else frozenset()
    inherited = False
    for file in (has.database, has.shm):
        if file is not None and file.suffix in missing:
            owners = _owners(file, context)
            forked_copy = seen.pid not in owners and is_forked_copy(seen.stat, owners, context.proc)
            inherited |= forked_copy
            if forked_copy or seen.pid in owners:
                missing -= {file.suffix}
    if missing:
        look = partial(lost_now, home, seen.pid, context.proc, seen.stat.start_ticks)
        missing &= lost_at_every_check(look, context.pause)
    try:
        sessions = tuple(dict.fromkeys(_sessions(home, seen, context.proc)))
    except OSError:
        blind.append(Blindness.UNREADABLE)
        sessions = ()
    ours = _is_ours(seen, context)
    return Holder(
        pid=seen.pid,
        start_ticks=seen.stat.start_ticks,
        started_at=context.clock.epoch(seen.stat.start_ticks),
        namespace_pid=seen.namespace_pid,
        kind=ProcessKind.EXPORTER if ours else seen.role.kind,
        may_resume=seen.role.may_resume,
        shm_inode=has.shm.identity.inode if has.shm and not has.outsider else None,
        lockless_database="" in missing,
        lockless_shm="-shm" in missing,
        deleted_wal=has.deleted,
        forked_copy=inherited,
        outsider=has.outsider,
        sessions=sessions,
        written=seen.written,
        ours=ours,
        stopped=seen.stopped,
    )


def _owners(file: Descriptor, context: SurveyContext) -> set[int]:
    """Return the holders of SQLite's lock on a file, by their own fdinfo or by the lock table."""
    if context.locks is None:
        return set()
    inode = file.identity.inode
    shm = file.suffix == "-shm"
    listed = context.locks.shm_owners(inode) if shm else context.locks.database_owners(inode)
    return context.process_scan.seen_processes.lock_owners(file.identity) | listed


def _is_ours(seen: SeenProcess, context: SurveyContext) -> bool:
    """True if its PID, or an ancestor's, is ours. A process's own arguments prove nothing."""
    if not context.ours or seen.pid in context.ours:
        return bool(context.ours)
    return any(pid in context.ours for pid, _ in ancestors(context.proc, seen.stat))


def _sessions(home: HomeFiles, seen: SeenProcess, proc: str) -> Iterator[NamedSession]:
    """Yield the sessions that a process names; only the home's owner and root are trusted.

    Hermes puts its session id into the environment of the processes it starts. The id that Hermes
    itself was started with belongs to another process's session, so it is skipped. A child may have
    only that id: a forked child, or a child that was started before the session began.

    Raise OSError if reading failed.
    """
    role = seen.role
    if role.kind is ProcessKind.MAINTENANCE or not home.trusts(seen.uid):
        return
    if role.session_id and role.how:
        yield NamedSession(role.session_id, role.how)
    # If it has ended since, its children are not its children any more.
    with suppress(*GONE), PinnedProcess(proc, seen.pid) as process:
        children = process.children()
        if children is None:
            children = _find_children(seen.pid, proc)
        answers = [_named_by_child(pid, seen.pid, home, proc) for pid in children[:_CHILDREN_MAX]]
        named = [session_id for session_id in answers if session_id is not None]
        inherited = session_in_environment(process.environment()) if named else None
        for session_id in named:
            if session_id != inherited:
                yield NamedSession(session_id, NamedBy.CHILD_ENVIRONMENT)


def _find_children(parent: int, proc: str) -> list[int]:
    others = ((int(pid), read_stat(proc, int(pid))) for pid in list_pids(proc))
    return [pid for pid, stat in others if stat is not None and stat.parent == parent]


def _named_by_child(pid: int, parent: int, home: HomeFiles, proc: str) -> str | None:
    try:
        with PinnedProcess(proc, pid) as child:
            is_child = child.stat().parent == parent
            session_id = session_in_environment(child.environment())
            if session_id is None or not is_child:
                return None
            return session_id if home.trusts(child.user_and_namespace_pid()[0]) else None
    except (*GONE, PermissionError):
        # a child that also hides its descriptors has made this survey blind already
        return None
