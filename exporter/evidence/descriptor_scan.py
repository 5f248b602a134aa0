"""Processes that have a database open, and the files of it that they have open."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from msgspec import structs

from exporter.evidence.descriptor_budget import DescriptorBudget
from exporter.evidence.models import HomeFiles
from exporter.evidence.overlays import mount_table, upper_folders
from exporter.evidence.process import Descriptor, PinnedProcess
from exporter.evidence.procfs import (
    ProcessStat,
    find_descriptors,
    is_gone,
    list_kernel_threads,
    list_pids,
    read_real_uid,
)
from exporter.hermes.process_kinds import (
    DATABASE_NAME,
    GATEWAY_LOCK_NAME,
    UNREADABLE,
    Role,
    classify,
)
from exporter.snapshot import FileIdentity


class WantedFiles:
    """The file names and identities to look for, for all homes at once."""

    def __init__(self, targets: Iterable[HomeFiles]) -> None:
        homes = tuple(targets)
        names = (home.name for home in homes)
        self.names: Final = frozenset({DATABASE_NAME, GATEWAY_LOCK_NAME, *names})
        files = {file for home in homes for file in (home.database, home.wal, home.shm)}
        self._files: Final = files - {None}
        self._places: Final = {(home.directory, home.name) for home in homes if home.directory}

    def concerns(self, descriptors: Iterable[Descriptor]) -> bool:
        """True if any of these may belong to a home, so that its process matters."""
        return any(
            found.identity in self._files or (found.directory, found.name) in self._places
            for found in descriptors
        )


class SeenProcess(NamedTuple):
    """One process with a database open."""

    pid: int
    stat: ProcessStat
    uid: int
    namespace_pid: int
    descriptors: list[Descriptor]
    role: Role
    children: list[int] | None
    """None if the kernel does not list them."""
    written: int | None
    """None if the kernel does not count it."""
    stopped: bool


class OpenFiles(NamedTuple):
    """The files of one home's database that a process has open."""

    database: Descriptor | None
    wal: Descriptor | None
    shm: Descriptor | None
    deleted: bool
    stranger: bool
    """True for a process of another user (not the owner, not root) that cannot write.

    Any user can start such a process.
    """

    @property
    def any(self) -> bool:
        return self.deleted or any((self.database, self.wal, self.shm))

    @property
    def in_wal_mode(self) -> bool:
        """True if the process uses a WAL.

        A backup, or a connection never used, has only the database.
        """
        return self.deleted or any((self.wal, self.shm))


class SeenProcesses:
    """The processes that were seen, and the files that each has open."""

    def __init__(self) -> None:
        self.by_pid: dict[int, SeenProcess] = {}
        self._by_file: dict[FileIdentity, set[int]] = {}
        self._by_place: dict[tuple[str, str], set[int]] = {}
        self._lockers: dict[FileIdentity, set[int]] = {}
        self._flock_owners: dict[FileIdentity, set[int]] = {}

    def add(self, seen_process: SeenProcess) -> None:
        self.by_pid[seen_process.pid] = seen_process
        for found in seen_process.descriptors:
            self._by_file.setdefault(found.identity, set()).add(seen_process.pid)
            self._by_place.setdefault((found.directory, found.name), set()).add(seen_process.pid)
            if found.locked:
                self._lockers.setdefault(found.identity, set()).add(seen_process.pid)
            takers = {lock.pid for lock in found.locks if lock.kind == "FLOCK"}
            self._flock_owners.setdefault(found.identity, set()).update(takers)

    def of(self, home: HomeFiles) -> list[tuple[SeenProcess, OpenFiles]]:
        """Return the processes that have a file of this home's database open, by PID."""
        files = (home.database, home.wal, home.shm)
        pids = self._by_place.get((home.directory, home.name), set()).union(
            *(self._by_file.get(file, set()) for file in files if file)
        )
        having = [
            (seen, open_files(home, seen.descriptors, seen.uid))
            for seen in map(self.by_pid.__getitem__, pids)
        ]
        return sorted((pair for pair in having if pair[1].any), key=lambda pair: pair[0].pid)

    def lock_owners(self, file: FileIdentity) -> set[int]:
        """Return the processes that have SQLite's lock on a file, by their own fdinfo."""
        return self._lockers.get(file, set())

    def flock_owners(self, file: FileIdentity) -> set[int]:
        """Return the processes that took a flock that is still held.

        They may be dead: a child keeps its dead parent's flock.
        """
        return self._flock_owners.get(file, set())

    def inodes(self) -> set[int]:
        return {file.inode for file in self._by_file}


class ProcessScan:
    """One scan of all processes; it can scan a single process again."""

    def __init__(self, proc: str, wanted: WantedFiles, descriptors_per_user: int) -> None:
        self.seen_processes: Final = SeenProcesses()
        self.budget: Final = DescriptorBudget(descriptors_per_user, proc)
        self.unreadable: Final[list[int]] = []
        self.failed_users: Final[set[int]] = set()
        """Users whose processes could not be read for another reason; -1 for an unknown user."""
        self.upper_folders: Final[set[str]] = set()
        self._proc = proc
        self._wanted = wanted
        self._mount_namespaces: set[int] = set()

    def run(self) -> None:
        """Scan every process; raise OSError if there is no /proc."""
        kernel_threads = list_kernel_threads(self._proc)
        pids = [int(pid) for pid in list_pids(self._proc) if pid not in kernel_threads]
        for pid in pids:
            try:
                self.scan_process(pid)
                self._look_at_mounts(pid)
            except PermissionError:
                self.unreadable.append(pid)
            except OSError as error:
                if not is_gone(error):
                    self.failed_users.add(self._user_of(pid))

    def scan_process(self, pid: int) -> None:
        """Scan one process, and add it to `seen_processes` if it has a file of interest open.

        Raise PermissionError if it may not be read, OSError if it is gone or reading failed.
        """
        numbers = self._find_descriptors(pid)
        seen = read_process(self._proc, pid, self._wanted, numbers) if numbers else None
        if seen is not None:
            self.seen_processes.add(seen)

    def _find_descriptors(self, pid: int) -> list[str]:
        while True:
            allowed = self.budget.allowed(pid)
            found, count = find_descriptors(self._proc, pid, self._wanted.names, allowed)
            if count <= allowed:
                self.budget.spend(pid, count)
                return found
            if self.budget.exceed(pid):
                return []

    def _look_at_mounts(self, pid: int) -> None:
        """Read the mounts of every mount namespace once."""
        namespace = os.stat(f"{self._proc}/{pid}/ns/mnt").st_ino
        if namespace in self._mount_namespaces:
            return
        mounts = mount_table(self._proc, pid)
        self._mount_namespaces.add(namespace)
        if mounts is None:
            self.budget.limited.add(read_real_uid(self._proc, pid))
            return
        self.budget.spend(pid, mounts.count(b"\n"))
        self.upper_folders.update(upper_folders(mounts))

    def _user_of(self, pid: int) -> int:
        try:
            return read_real_uid(self._proc, pid)
        except OSError:
            return -1


def read_process(
    proc: str, pid: int, wanted: WantedFiles, numbers: Iterable[str]
) -> SeenProcess | None:
    """Read one process in one moment; None if it is dead or has no file of interest open."""
    with PinnedProcess(proc, pid) as process:
        stat = process.stat()
        before = process.command_line()
        descriptors = process.descriptors(wanted.names, numbers)
        if stat.dead or not descriptors:
            return None
        uid, namespace_pid = process.user_and_namespace_pid()
        role, children, written, stopped = UNREADABLE, None, None, False
        if wanted.concerns(descriptors):
            # An exec in between (`sessions browse` becomes `--resume ID`) keeps PID and start time.
            # So compare the command line before and after.
            unchanged = before is not None and before == process.command_line()
            role = classify(before) if before is not None and unchanged else UNREADABLE
            if stat.forked:
                # It has its parent's command line, and may have a session of its parent's.
                role = structs.replace(role, may_resume=True)
            children = process.children()
            written = process.written()
            stopped = process.stopped(stat)
        return SeenProcess(
            pid, stat, uid, namespace_pid, descriptors, role, children, written, stopped
        )


def open_files(home: HomeFiles, descriptors: Collection[Descriptor], uid: int) -> OpenFiles:
    """Return the descriptors that belong to this home's database; `uid` is the process's user.

    A sidecar belongs to the database in the same folder, as the same process sees it. This also
    finds a sidecar that was created after the home was examined, or that was deleted. But a
    process's mount namespace decides about its paths. So for a process of another user only
    identities count.
    """
    ours = [found for found in descriptors if found.name == home.name]
    database = _prefer_locked(found for found in ours if _is_file(found, "", home.database))
    folder = database.directory if database else None

    def sidecar(suffix: str, identity: FileIdentity | None) -> Descriptor | None:
        beside = (found for found in ours if found.suffix == suffix and found.directory == folder)
        known = (found for found in ours if _is_file(found, suffix, identity))
        return _prefer_locked(found for found in (*known, *beside) if not found.deleted)

    wal, shm = sidecar("-wal", home.wal), sidecar("-shm", home.shm)
    trusted = home.owner is None or uid in (0, home.owner)
    writes = any(found is not None and not found.read_only for found in (database, shm))
    # Any user can have a deleted file with this path. So the home's path counts only for trusted
    # processes, and the database's folder only for trusted processes or those that can write.
    deleted = any(
        found.deleted
        and _same_device(found, home)
        and (
            (found.suffix and found.directory == folder and (trusted or writes))
            or (found.directory == home.directory and trusted)
        )
        for found in ours
    )
    return OpenFiles(database, wal, shm, deleted, stranger=not (trusted or writes))


def locks_another_file(process: PinnedProcess, home: HomeFiles) -> bool:
    """True if a lock of this process is on a file of another filesystem, with the same inode.

    The lock table names files by inode alone.
    """
    ours = {home.database, home.shm} - {None}
    found = process.identities({file.inode for file in ours if file is not None})
    return bool(found) and not found & ours


def _prefer_locked(found: Iterable[Descriptor]) -> Descriptor | None:
    """Return one of them, preferably a locked one.

    The kernel shows a lock at only one of several descriptors of the same file.
    """
    return max(found, key=lambda descriptor: descriptor.locked, default=None)


def _is_file(found: Descriptor, suffix: str, identity: FileIdentity | None) -> bool:
    return not found.deleted and found.suffix == suffix and found.identity == identity


def _same_device(found: Descriptor, home: HomeFiles) -> bool:
    """True if the file is on this home's device.

    A container may use the same path on another one.
    """
    return home.database is not None and found.identity.device == home.database.device
