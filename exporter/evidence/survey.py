"""One look at all processes of this host, on behalf of all homes.

The agent makes it with whatever privilege it has. What it cannot see it says (`blind`); a home with
no holders and nothing blind is a home that nobody on this kernel has open.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from exporter.evidence.boot import Clock, read_boot_id, read_clock
from exporter.evidence.findings import (
    Blindness,
    Candidate,
    HomeEvidence,
    HomeFiles,
    Survey,
)
from exporter.evidence.gateway import judge_gateway
from exporter.evidence.holders import Scene, describe_holders
from exporter.evidence.locks import LockReader, LockTable, locks_are_shown
from exporter.evidence.namespaces import blindness, our_processes, pid_namespace
from exporter.evidence.procfs import read_stat
from exporter.evidence.sightings import Sighting, Sweep, Wanted, look_at, sweep
from exporter.hermes.processes import DATABASE_NAME
from exporter.snapshot import LockAnswer

_CANDIDATES_PER_USER: Final = 64
"""No user can fill the list and so hide another's home."""
_CHECKS: Final = 4
_PAUSE_SECONDS: Final = 0.005
_PAUSES_MAX: Final = 40
"""For all suspects of a survey together: a crowd of them must not make it slow."""


def survey(
    targets: Sequence[HomeFiles],
    *,
    ours: Collection[int] = (),
    proc: str = "/proc",
    clock: Clock | None = None,
    checks: int = _CHECKS,
    pause: Callable[[], None] = lambda: time.sleep(_PAUSE_SECONDS),
    platform: str = sys.platform,
) -> Survey:
    """Who has these databases open, with which locks, and which gateways run.

    `ours`: PIDs of the processes that this agent started.
    `checks` and `pause`: how often a lock must be found missing before its holder counts as
    lockless, and the wait in between.
    """
    if platform != "linux":
        from exporter.evidence import portable  # psutil, of which Linux needs nothing

        return portable.survey(targets)
    wanted = Wanted(targets)
    try:
        swept = sweep(proc, wanted)
    except OSError:
        return _nothing_seen(targets)
    scene = Scene(
        proc=proc,
        clock=clock or read_clock(),
        wanted=wanted,
        sightings=swept.sightings,
        ours=our_processes(proc, ours),
        locks=LockReader(_inodes(targets, swept), proc) if locks_are_shown(proc) else None,
        blind=_host_blindness(swept, proc),
        checks=checks,
        pause=_at_most(_PAUSES_MAX, pause),
    )
    return Survey(
        boot_id=read_boot_id(proc),
        pid_namespace=pid_namespace(proc),
        homes={home.key: _judge_home(home, scene) for home in targets},
        candidates=_candidates(swept.sightings.by_pid.values()),
        blind=tuple(scene.blind),
        processes=swept.processes,
        unreadable=len(swept.unreadable),
    )


def _at_most(times: int, pause: Callable[[], None]) -> Callable[[], None]:
    left = iter(range(times))

    def limited() -> None:
        if next(left, None) is not None:
            pause()

    return limited


def _inodes(targets: Iterable[HomeFiles], swept: Sweep) -> set[int]:
    inodes = swept.sightings.inodes()
    for home in targets:
        inodes |= _database_inodes(home)
        if home.gateway and home.gateway.lock:
            inodes.add(home.gateway.lock.inode)
    return inodes


def _database_inodes(home: HomeFiles) -> set[int]:
    return {file.inode for file in (home.database, home.shm) if file}


def _host_blindness(swept: Sweep, proc: str) -> list[Blindness]:
    blind = blindness(proc)
    whole_host = Blindness.PID_NAMESPACE not in blind
    if any(_could_be_hermes(pid, proc, whole_host=whole_host) for pid in swept.unreadable):
        blind.append(Blindness.PERMISSIONS)
    return blind


def _nothing_seen(targets: Sequence[HomeFiles]) -> Survey:
    unseen = HomeEvidence(
        holders=(),
        lockless_database=None,
        lockless_shm=None,
        deleted_wal_holders=None,
        gateway=None,
        blind=(Blindness.NO_PROC,),
    )
    return Survey(
        boot_id=None,
        pid_namespace=None,
        homes={home.key: unseen for home in targets},
        candidates=(),
        blind=(Blindness.NO_PROC,),
        processes=0,
        unreadable=0,
    )


def _could_be_hermes(pid: int, proc: str, *, whole_host: bool) -> bool:
    """Not the host's init, nor a thread of the kernel, nor the dead.

    Init may have capabilities that even root's agent lacks, in a sandbox, and so keep its
    descriptors to itself. In a container PID 1 may well be Hermes.
    """
    if whole_host and pid == 1:
        return False
    stat = read_stat(proc, pid)
    return stat is not None and not stat.kernel_thread and not stat.dead


def _judge_home(home: HomeFiles, scene: Scene) -> HomeEvidence:
    unseen = _look_for_owners(home, scene)
    blind = tuple(dict.fromkeys([*scene.blind, *unseen]))
    gateway = None
    if home.gateway is not None:
        gateway = judge_gateway(home, home.gateway, scene, blind)
    holders = describe_holders(home, scene)
    locks_seen = scene.locks is not None
    return HomeEvidence(
        holders=holders,
        lockless_database=sum(h.lockless_database for h in holders) if locks_seen else None,
        lockless_shm=sum(h.lockless_shm for h in holders) if locks_seen else None,
        deleted_wal_holders=sum(h.deleted_wal for h in holders),
        gateway=gateway,
        blind=blind,
    )


def _look_for_owners(home: HomeFiles, scene: Scene) -> list[Blindness]:
    """Find the processes that hold SQLite's locks on this database and were not seen with it.

    They opened it after we had passed them, and are added to what was seen. Or they cannot be seen;
    then nothing about this home is proven by those who are.
    """
    blind = [Blindness.PID_NAMESPACE] if home.lock_probe is LockAnswer.HELD_UNSEEN else []
    if scene.locks is None or not _may_have_unseen_owners(home, scene):
        return blind
    holders = {seen.pid for seen, _ in scene.sightings.of(home)}
    for pid in _owners(home, scene.locks.table) - holders:
        if pid <= 0:
            blind.append(Blindness.PID_NAMESPACE)
            continue
        try:
            seen = look_at(scene.proc, pid, scene.wanted)
        except PermissionError:
            blind.append(Blindness.PERMISSIONS)
            continue
        except OSError:
            continue  # it has ended
        if seen is not None:
            scene.sightings.add(seen)
        elif pid in _owners(home, LockReader(_database_inodes(home), scene.proc).table):
            blind.append(Blindness.PERMISSIONS)  # it has the lock, and nothing that we can see
    return blind


def _may_have_unseen_owners(home: HomeFiles, scene: Scene) -> bool:
    """Whether the table of all locks could tell more than the holders themselves."""
    if scene.blind or home.lock_probe is LockAnswer.HELD_UNSEEN:
        return True
    seen = home.shm is not None and scene.sightings.lockers(home.shm)
    return home.lock_probe is LockAnswer.HELD and not seen


def _owners(home: HomeFiles, table: LockTable) -> frozenset[int]:
    database = table.database_owners(home.database.inode) if home.database else frozenset()
    return database | (table.shm_owners(home.shm.inode) if home.shm else frozenset())


def _candidates(sightings: Iterable[Sighting]) -> tuple[Candidate, ...]:
    by_user: dict[int, dict[Candidate, None]] = {}
    for seen in sightings:
        for found in seen.descriptors:
            if found.name == DATABASE_NAME and not found.suffix and not found.deleted:
                of_user = by_user.setdefault(seen.uid, {})
                if len(of_user) < _CANDIDATES_PER_USER:
                    of_user[Candidate(found.directory, seen.uid, found.identity)] = None
    return tuple(candidate for of_user in by_user.values() for candidate in of_user)
