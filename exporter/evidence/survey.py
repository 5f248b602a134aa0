"""One scan of all processes of this host, for all homes.

The agent does it with the privileges that it has. The result names what it could not see (`blind`).
If a home has no holders and nothing is blind, no process on this kernel has its database open.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from exporter.evidence.descriptor_budget import DESCRIPTORS_PER_USER
from exporter.evidence.descriptor_scan import ProcessScan, SeenProcess
from exporter.evidence.gateway import judge_gateway
from exporter.evidence.holders import SurveyContext, describe_holders
from exporter.evidence.liveness import read_clock
from exporter.evidence.lock_table import LockTable, locks_are_shown
from exporter.evidence.models import Blindness, HomeEvidence, HomeFiles, PossibleHome, Survey
from exporter.evidence.namespaces import blindness, is_below, our_processes
from exporter.evidence.openers import still_locks
from exporter.evidence.procfs import GONE, read_stat
from exporter.hermes.process_kinds import DATABASE_NAME
from exporter.snapshot import LockAnswer

_CANDIDATES_PER_USER: Final = 64
"""A limit per user, so that no user can fill the list and hide another user's home."""
_HIDDEN_USERS: Final = frozenset({Blindness.PERMISSIONS, Blindness.HIDEPID})
_PAUSE_SECONDS: Final = 0.005
_PAUSES_MAX: Final = 40
"""The limit for all suspects of a survey together: many of them must not make it slow."""


def survey(
    targets: Sequence[HomeFiles],
    *,
    ours: Callable[[], Collection[int]] = tuple,
    descriptors_per_user: int = DESCRIPTORS_PER_USER,
    proc: str = "/proc",
    pause: Callable[[], None] = lambda: time.sleep(_PAUSE_SECONDS),
    platform: str = sys.platform,
) -> Survey:
    """Find the processes that have these databases open, their locks, and the gateways that run.

    `ours` returns the PIDs of the processes that this agent started; it is asked before and after,
    because such a process may begin or end meanwhile. `pause` waits between two checks for a lock
    that is missing.
    """
    if platform != "linux":
        from exporter.evidence import psutil_survey  # psutil; Linux does not need it

        return psutil_survey.survey(targets)
    started = set(ours())
    process_scan = ProcessScan(proc, targets, descriptors_per_user)
    try:
        process_scan.run()
    except OSError as error:
        why = Blindness.NO_PROC if isinstance(error, GONE) else Blindness.UNREADABLE
        unseen = HomeEvidence(holders=(), gateway=None, blind=(why,))
        return Survey(homes={home.key: unseen for home in targets}, candidates=(), blind=(why,))
    context = SurveyContext(
        proc=proc,
        clock=read_clock(),
        process_scan=process_scan,
        ours=our_processes(proc, started.union(ours())),
        locks=LockTable(_inodes(targets, process_scan), proc) if locks_are_shown(proc) else None,
        blind=_host_blindness(process_scan, proc),
        pause=_at_most(_PAUSES_MAX, pause),
    )
    start_ticks = {pid: ticks for pid, ticks in context.ours.items() if ticks is not None}
    return Survey(
        homes={home.key: _judge_home(home, context, start_ticks) for home in targets},
        candidates=_candidates(process_scan.seen_processes.by_pid.values()),
        blind=tuple(context.blind),
        limited_users=len(process_scan.budget.limited),
    )


def _at_most(times: int, pause: Callable[[], None]) -> Callable[[], None]:
    left = iter(range(times))

    def limited() -> None:
        if next(left, None) is not None:
            pause()

    return limited


def _inodes(targets: Iterable[HomeFiles], process_scan: ProcessScan) -> set[int]:
    inodes = process_scan.seen_processes.inodes()
    for home in targets:
        inodes |= home.lock_inodes
        if home.gateway and home.gateway.lock:
            inodes.add(home.gateway.lock.inode)
    return inodes


def _host_blindness(process_scan: ProcessScan, proc: str) -> list[Blindness]:
    blind = blindness(proc)
    whole_host = Blindness.PID_NAMESPACE not in blind
    if any(_could_be_hermes(pid, proc, whole_host=whole_host) for pid in process_scan.unreadable):
        blind.append(Blindness.PERMISSIONS)
    if 0 in process_scan.failed_users:
        blind.append(Blindness.UNREADABLE)
    return blind


def _could_be_hermes(pid: int, proc: str, *, whole_host: bool) -> bool:
    """True unless the process is the host's init, a kernel thread or dead.

    Init may have capabilities that even root's agent lacks in a sandbox, so its descriptors may be
    unreadable. In a container PID 1 may be Hermes.
    """
    if whole_host and pid == 1:
        return False
    try:
        stat = read_stat(proc, pid)
    except OSError:
        return True
    return stat is not None and not stat.kernel_thread and not stat.dead


def _judge_home(home: HomeFiles, context: SurveyContext, ours: dict[int, int]) -> HomeEvidence:
    blind = [*_blindness_of(home, context), *_find_lock_owners(home, context)]
    gateway = judge_gateway(home, home.gateway, context, blind) if home.gateway else None
    holders = describe_holders(home, context, blind)
    if context.locks is not None and context.locks.failed:
        blind.append(Blindness.UNREADABLE)
    return HomeEvidence(
        holders=holders,
        gateway=gateway,
        blind=tuple(dict.fromkeys(blind)),
        sees_locks=context.locks is not None,
        sees_deleted=True,
        ours=ours,
    )


def _blindness_of(home: HomeFiles, context: SurveyContext) -> Iterator[Blindness]:
    """Yield what could not be seen of this host, as far as it may hide a process of this home.

    Only users that can write this home can blind it. Other users cannot enter a private one. The
    lock table names every process with a lock to every user, also one whose files are hidden:
    `_find_lock_owners` finds it there.
    """
    for reason in context.blind:
        if not (home.private and reason in _HIDDEN_USERS and context.locks is not None):
            yield reason
    process_scan = context.process_scan
    if any(map(home.trusts, process_scan.failed_users)):
        yield Blindness.UNREADABLE
    if any(map(home.trusts, process_scan.budget.limited)):
        yield Blindness.LIMITED
    if any(is_below(home.directory, upper) for upper in process_scan.upper_folders):
        yield Blindness.OVERLAY


def _find_lock_owners(home: HomeFiles, context: SurveyContext) -> list[Blindness]:
    """Find processes that hold SQLite's locks on this database but were not seen with it.

    Either they opened it after we had scanned them: then they are added to the seen processes. Or
    they cannot be seen: then the holders that we see prove nothing about this home.
    """
    blind = [Blindness.PID_NAMESPACE] if home.lock_probe is LockAnswer.HELD_UNSEEN else []
    if context.locks is None or not _may_have_unseen_owners(home, context):
        return blind
    holders = {seen.pid for seen, _ in context.process_scan.seen_processes.of(home)}
    for pid in frozenset().union(*context.locks.owners(home)) - holders:
        if pid <= 0:
            blind.append(Blindness.PID_NAMESPACE)
        elif (why := _find_lock_owner(pid, home, context)) is not None:
            blind.append(why)
    return blind


def _find_lock_owner(pid: int, home: HomeFiles, context: SurveyContext) -> Blindness | None:
    """Scan the owner of a lock. If it still has the lock but is not visible, return why."""
    try:
        context.process_scan.scan_process(pid)
    except PermissionError:
        return Blindness.PERMISSIONS
    except OSError as error:
        if not isinstance(error, GONE):
            return Blindness.UNREADABLE
    if any(seen.pid == pid for seen, _ in context.process_scan.seen_processes.of(home)):
        return None  # a holder by now
    try:
        # if so, it has no descriptor that we can see
        return Blindness.PERMISSIONS if still_locks(pid, home, context.proc) else None
    except OSError:
        return Blindness.UNREADABLE


def _may_have_unseen_owners(home: HomeFiles, context: SurveyContext) -> bool:
    """True if the lock table could show more than the processes that we see.

    A lock that a visible process has says nothing about others: one of them may have come by
    another name of the file, or in a thread whose descriptors are not those of its process.
    """
    incomplete = (
        context.blind or context.process_scan.failed_users or context.process_scan.budget.limited
    )
    return bool(incomplete) or home.lock_probe in (LockAnswer.HELD, LockAnswer.HELD_UNSEEN)


def _candidates(seen_processes: Iterable[SeenProcess]) -> tuple[PossibleHome, ...]:
    by_user: dict[int, dict[PossibleHome, None]] = {}
    for seen in seen_processes:
        for found in seen.descriptors:
            if found.name == DATABASE_NAME and not found.suffix and not found.deleted:
                of_user = by_user.setdefault(seen.uid, {})
                if len(of_user) < _CANDIDATES_PER_USER:
                    of_user[PossibleHome(found.directory, seen.uid, found.identity)] = None
    return tuple(candidate for of_user in by_user.values() for candidate in of_user)
