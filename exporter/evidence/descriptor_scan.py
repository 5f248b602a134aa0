"""Processes that have a database open, and the files of it that they have open."""

from __future__ import annotations

import errno
import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec import structs

from exporter.evidence.descriptor_budget import DescriptorBudget
from exporter.evidence.models import HomeFiles
from exporter.evidence.namespaces import mount_table, upper_folders
from exporter.evidence.process import Descriptor, PinnedProcess
from exporter.evidence.procfs import (
    GONE,
    ProcessStat,
    find_descriptors,
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


class SeenProcess(NamedTuple):
    """One process with a database open."""

    pid: int
    stat: ProcessStat
    uid: int
    namespace_pid: int
    descriptors: list[Descriptor]
    role: Role
    written: int | None
    """None if the kernel does not count it."""
    stopped: bool


class OpenFiles(NamedTuple):
    """The files of one home's database that a process has open."""

    database: Descriptor | None
    wal: Descriptor | None
    shm: Descriptor | None
    deleted: bool
    outsider: bool
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
        self._pids: defaultdict[FileIdentity | tuple[str, str], set[int]] = defaultdict(set)
        """By file, and by folder and name."""

    def add(self, seen_process: SeenProcess) -> None:
        self.by_pid[seen_process.pid] = seen_process
        for found in seen_process.descriptors:
            self._pids[found.identity].add(seen_process.pid)
            self._pids[found.directory, found.name].add(seen_process.pid)

    def of(self, home: HomeFiles) -> list[tuple[SeenProcess, OpenFiles]]:
        """Return the processes that have a file of this home's database open, by PID."""
        pids = self._pids.get((home.directory, home.name), set()).union(
            *(self._pids.get(file, ()) for file in home.files)
        )
        having = [
            (seen, open_files(home, seen.descriptors, seen.uid))
            for seen in map(self.by_pid.__getitem__, sorted(pids))
        ]
        return [pair for pair in having if pair[1].any]

    def lock_owners(self, file: FileIdentity) -> set[int]:
        """Return the processes that have SQLite's lock on a file, by their own fdinfo."""
        return {pid for pid, found in self._descriptors(file) if found.locked}

    def flock_owners(self, file: FileIdentity) -> set[int]:
        """Return the processes that took a flock that is still held.

        They may be dead: a child keeps its dead parent's flock.
        """
        locks = (lock for _, found in self._descriptors(file) for lock in found.locks)
        return {lock.pid for lock in locks if lock.kind == "FLOCK"}

    def inodes(self) -> set[int]:
        return {key.inode for key in self._pids if isinstance(key, FileIdentity)}

    def _descriptors(self, file: FileIdentity) -> Iterator[tuple[int, Descriptor]]:
        for pid in self._pids.get(file, ()):
            for found in self.by_pid[pid].descriptors:
                if found.identity == file:
                    yield pid, found


class ProcessScan:
    """One scan of all processes for the files of all homes; it can scan a single process again."""

    def __init__(
        self, proc: str, targets: Collection[HomeFiles], descriptors_per_user: int
    ) -> None:
        self.seen_processes: Final = SeenProcesses()
        self.budget: Final = DescriptorBudget(descriptors_per_user, proc)
        self.unreadable: Final[list[int]] = []
        self.failed_users: Final[set[int]] = set()
        """Users whose processes could not be read for another reason."""
        self.upper_folders: Final[set[str]] = set()
        self._proc = proc
        self._names = frozenset(
            {DATABASE_NAME, GATEWAY_LOCK_NAME, *(each.name for each in targets)}
        )
        self._files = {file for home in targets for file in home.files}
        self._places = {(home.directory, home.name) for home in targets if home.directory}
        # Mounts tell which homes are below an overlay. Without a home none is read.
        self._reads_mounts = bool(targets)
        self._mount_namespaces: set[int] = set()

    def run(self) -> None:
        """Scan every process; raise OSError if there is no /proc."""
        kernel_threads = list_kernel_threads(self._proc)
        pids = [int(pid) for pid in list_pids(self._proc) if pid not in kernel_threads]
        for pid in pids:
            try:
                self.scan_process(pid)
                if self._reads_mounts:
                    self._look_at_mounts(pid)
            except PermissionError:
                self.unreadable.append(pid)
            except GONE:
                if self._threads_go_on(pid):
                    self.failed_users.add(self._user_of(pid))
            except OSError:
                self.failed_users.add(self._user_of(pid))

    def scan_process(self, pid: int) -> None:
        """Scan one process, and add it to `seen_processes` if it has a file of interest open.

        Raise PermissionError if it may not be read, OSError if it is gone or reading failed.
        """
        numbers = self._find_descriptors(pid)
        if numbers and (seen := self._read_process(pid, numbers)):
            self.seen_processes.add(seen)

    def _find_descriptors(self, pid: int) -> list[str]:
        while True:
            allowed = self.budget.allowed(pid)
            found, count = find_descriptors(self._proc, pid, self._names, allowed)
            if count <= allowed:
                self.budget.spend(pid, count)
                return found
            if self.budget.exceed(pid):
                return []

    def _read_process(self, pid: int, numbers: Iterable[str]) -> SeenProcess | None:
        """Read one process in one moment; None if it is dead or has no file of interest open."""
        with PinnedProcess(self._proc, pid) as process:
            stat = process.stat()
            before = process.command_line()
            descriptors = process.descriptors(self._names, numbers)
            if stat.dead or not descriptors:
                return None
            uid, namespace_pid = process.user_and_namespace_pid()
            role, written, stopped = UNREADABLE, None, False
            if any(map(self._concerns_a_home, descriptors)):
                # An exec in between (`sessions browse` becomes `--resume ID`) keeps PID and start
                # time. So compare the command line before and after.
                if before is not None and before == process.command_line():
                    role = classify(before)
                if stat.forked:
                    # It has its parent's command line, and may have a session of its parent's.
                    role = structs.replace(role, may_resume=True)
                written = process.written()
                stopped = process.stopped(stat)
            return SeenProcess(pid, stat, uid, namespace_pid, descriptors, role, written, stopped)

    def _concerns_a_home(self, found: Descriptor) -> bool:
        return found.identity in self._files or (found.directory, found.name) in self._places

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

    def _threads_go_on(self, pid: int) -> bool:
        """True if a process that seems to be gone has a file of a home open, or may have one.

        If its first thread has ended, /proc/PID shows none of the files that the others have open.
        """
        threads = f"{self._proc}/{pid}/task"
        try:
            allowed = self.budget.allowed(pid)
            for thread in map(int, list_pids(threads)):
                with suppress(*GONE):
                    found, count = find_descriptors(threads, thread, self._names, allowed)
                    if count > allowed:
                        return True
                    with PinnedProcess(threads, thread) as living:
                        descriptors = living.descriptors(self._names, found)
                    if count:  # its threads share their files
                        return any(map(self._concerns_a_home, descriptors))
        except OSError as error:
            return not isinstance(error, GONE)
        return False

    def _user_of(self, pid: int) -> int:
        try:
            return read_real_uid(self._proc, pid)
        except OSError:
            return 0  # a user that is not known counts as root, who can write every home


def read_open_files(process: PinnedProcess, home: HomeFiles) -> OpenFiles:
    """Return the files of this home's database that a process has open; raise OSError."""
    if process.stat().dead:
        raise ProcessLookupError(errno.ESRCH, "it is a zombie", str(process.pid))
    uid, _ = process.user_and_namespace_pid()
    return open_files(home, process.descriptors({home.name}), uid)


def open_files(home: HomeFiles, descriptors: Collection[Descriptor], uid: int) -> OpenFiles:
    """Return the descriptors that belong to this home's database; `uid` is the process's user.

    A sidecar belongs to the database in the same folder, as the same process sees it. This also
    finds a sidecar that was created after the home was examined, or that was deleted. But a
    process's mount namespace decides about its paths. So for a process of another user only
    identities count.
    """
    ours = [found for found in descriptors if found.name == home.name]

    def find(suffix: str, identity: FileIdentity | None, folder: str | None) -> Descriptor | None:
        having = (
            found
            for found in ours
            if found.suffix == suffix and not found.deleted
            if found.identity == identity or found.directory == folder
        )
        # The kernel shows a lock at only one of several descriptors of the same file.
        return max(having, key=lambda each: (each.locked, each.identity == identity), default=None)

    database = find("", home.database, None)
    folder = database.directory if database else None
    wal, shm = find("-wal", home.wal, folder), find("-shm", home.shm, folder)
    trusted = home.trusts(uid)
    writes = any(found is not None and not found.read_only for found in (database, shm))
    # A container may use the same path on another device. And any user can have a deleted file with
    # this path: so the home's path counts only for trusted processes, and the database's folder
    # only for trusted processes or those that can write.
    device = home.database.device if home.database else None
    deleted = any(
        found.deleted
        and found.identity.device == device
        and (
            (found.suffix and found.directory == folder and (trusted or writes))
            or (found.directory == home.directory and trusted)
        )
        for found in ours
    )
    return OpenFiles(database, wal, shm, deleted, outsider=not (trusted or writes))
