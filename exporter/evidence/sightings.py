"""Processes that have a database open, and what of it they have."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from exporter.evidence.findings import HomeFiles
from exporter.evidence.procfs import (
    Descriptor,
    PinnedProcess,
    ProcessStat,
    has_database_open,
    list_kernel_threads,
    list_pids,
)
from exporter.hermes.processes import DATABASE_NAME, UNREADABLE, Role, classify
from exporter.snapshot import FileIdentity


class Wanted:
    """What to look for on behalf of all homes at once."""

    def __init__(self, targets: Iterable[HomeFiles]) -> None:
        homes = tuple(targets)
        self.names: Final = frozenset({DATABASE_NAME, *(home.name for home in homes)})
        files = {file for home in homes for file in (home.database, home.wal, home.shm)}
        self._files: Final = files - {None}
        self._places: Final = {(home.directory, home.name) for home in homes if home.directory}

    def concerns(self, descriptors: Iterable[Descriptor]) -> bool:
        """Whether any of these may belong to a home, so that its process is worth knowing."""
        return any(
            found.identity in self._files or (found.directory, found.name) in self._places
            for found in descriptors
        )


class Sighting(NamedTuple):
    """One process with a database open."""

    pid: int
    stat: ProcessStat
    uid: int
    namespace_pid: int
    descriptors: list[Descriptor]
    role: Role


class Possession(NamedTuple):
    """What of one home's database a process has open."""

    database: Descriptor | None
    wal: Descriptor | None
    shm: Descriptor | None
    deleted: bool

    @property
    def any(self) -> bool:
        return self.deleted or any((self.database, self.wal, self.shm))

    @property
    def in_wal_mode(self) -> bool:
        """It goes through a WAL. A backup, or a connection never used, has the database alone."""
        return self.deleted or any((self.wal, self.shm))


class Sweep(NamedTuple):
    """One pass over all processes."""

    sightings: dict[int, Sighting]
    processes: int
    unreadable: list[int]


def sweep(proc: str, wanted: Wanted) -> Sweep:
    """Look at every process; raise OSError if there is no /proc."""
    sightings: dict[int, Sighting] = {}
    unreadable: list[int] = []
    kernel_threads = list_kernel_threads(proc)
    pids = [pid for pid in list_pids(proc) if pid not in kernel_threads]
    for pid in pids:
        try:
            if has_database_open(proc, pid, wanted.names):
                sighting = look_at(proc, int(pid), wanted)
                if sighting is not None:
                    sightings[sighting.pid] = sighting
        except PermissionError:
            unreadable.append(int(pid))
        except OSError:
            continue  # it ended while we looked
    return Sweep(sightings, len(pids), unreadable)


def look_at(proc: str, pid: int, wanted: Wanted) -> Sighting | None:
    """One process, all of one moment; None if it is dead or has nothing of interest open.

    Raise PermissionError if it may not be seen, OSError if it is gone.
    """
    with PinnedProcess(proc, pid) as process:
        stat = process.stat()
        descriptors = process.descriptors(wanted.names)
        if stat is None or stat.dead or not descriptors:
            return None
        uid, namespace_pid = process.user_and_namespace_pid()
        role = UNREADABLE
        if wanted.concerns(descriptors):
            command_line = process.command_line()
            role = UNREADABLE if command_line is None else classify(command_line)
        return Sighting(pid, stat, uid, namespace_pid, descriptors, role)


def possession(home: HomeFiles, descriptors: Collection[Descriptor]) -> Possession:
    """Which of these descriptors are of this home's database.

    A sidecar belongs to the database that lies beside it in the eyes of the same process. That also
    finds one made after the home was looked at, and one that has no name any more.
    """
    ours = [found for found in descriptors if found.name == home.name]
    database = _best(found for found in ours if _is(found, "", home.database))
    folder = database.directory if database else None

    def sidecar(suffix: str, identity: FileIdentity | None) -> Descriptor | None:
        beside = (found for found in ours if found.suffix == suffix and found.directory == folder)
        known = (found for found in ours if _is(found, suffix, identity))
        return _best(found for found in (*known, *beside) if not found.deleted)

    deleted = any(
        found.deleted and ((found.suffix and found.directory == folder) or _was_here(found, home))
        for found in ours
    )
    return Possession(database, sidecar("-wal", home.wal), sidecar("-shm", home.shm), deleted)


def _best(found: Iterable[Descriptor]) -> Descriptor | None:
    """One of them; of several on the same file the kernel shows the lock at one only."""
    return max(found, key=lambda descriptor: descriptor.locked, default=None)


def _is(found: Descriptor, suffix: str, identity: FileIdentity | None) -> bool:
    return not found.deleted and found.suffix == suffix and found.identity == identity


def _was_here(found: Descriptor, home: HomeFiles) -> bool:
    """A container has paths of its own, but not on the device of this home."""
    device = home.database.device if home.database else None
    return found.directory == home.directory and found.identity.device == device
