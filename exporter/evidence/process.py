"""One process of Linux's /proc, held by its folder while it is read."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final, NamedTuple, Self

from exporter.evidence.lock_table import LockEntry, parse_lock
from exporter.evidence.procfs import (
    FOLDER,
    READ_MAX,
    STANDARD_DESCRIPTORS,
    ProcessStat,
    numbers_of,
    parse_stat,
    read_file,
    split_link,
)
from exporter.evidence.statx import device_of, identity_of
from exporter.snapshot import FileIdentity

_CGROUPS: Final = "/sys/fs/cgroup"
_PATH_ONLY: Final = 0o10000000
"""O_PATH: such a descriptor names a file and can neither read, map nor lock it."""


class Descriptor(NamedTuple):
    """An open file with a wanted name, or a sidecar of such a database."""

    directory: str
    name: str
    """The database's name, also for a sidecar."""
    suffix: str
    """Empty, "-wal" or "-shm"."""
    deleted: bool
    identity: FileIdentity
    locks: list[LockEntry]
    """Locks that were taken through this descriptor, not through another one of the same file."""
    read_only: bool = False
    """SQLite opens -shm read-only only if it may not write it. Not read for a -wal."""

    @property
    def locked(self) -> bool:
        """True if SQLite's lasting lock is among them: on the database, or on byte 128 of -shm."""
        shm = self.suffix == "-shm"
        return any(lock.of_shm if shm else lock.of_database for lock in self.locks)


class PinnedProcess:
    """One process, held by its folder in /proc.

    All reads go to the same process. If it ends and another process gets its PID, reading fails
    instead of describing the other process.
    """

    def __init__(self, proc: str, pid: int) -> None:
        self.pid = pid
        self._folder = os.open(f"{proc}/{pid}", FOLDER)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)

    def stat(self) -> ProcessStat:
        found = parse_stat(self._read("stat"))
        if found is None:
            raise OSError(errno.EIO, "no process is described so", f"{self.pid}/stat")
        return found

    def user_and_namespace_pid(self) -> tuple[int, int]:
        """Return its effective uid, and its PID in its own PID namespace."""
        status = self._read("status")
        uids, pids = numbers_of(status, b"Uid"), numbers_of(status, b"NSpid")
        return (uids[1] if uids else -1), (pids[-1] if pids else self.pid)

    def command_line(self) -> bytes | None:
        """Return the command line; None if it is too long to be trusted."""
        content = self._read("cmdline", at_most=READ_MAX)
        return content if len(content) < READ_MAX else None

    def written(self) -> int | None:
        """Return how many bytes it has passed to write calls since it began; None if not known."""
        try:
            return next(iter(numbers_of(self._read("io"), b"wchar")), None)
        except OSError:
            return None

    def stopped(self, stat: ProcessStat) -> bool:
        """True if it cannot run: stopped by a signal or a debugger, or frozen by its cgroup."""
        return stat.state in "Tt" or is_frozen(self._read("cgroup"))

    def environment(self) -> bytes:
        """Return the environment at the start of the program; later changes do not show."""
        return self._read("environ", at_most=READ_MAX)

    def descriptors(
        self, names: Collection[str], numbers: Iterable[str] | None = None
    ) -> list[Descriptor]:
        """Return its open files with such names, among these descriptors or among all."""
        chosen = self._numbers() if numbers is None else numbers
        found = (self._describe(number, names) for number in chosen)
        return [descriptor for descriptor in found if descriptor is not None]

    def identities(self, inodes: Collection[int]) -> dict[str, FileIdentity]:
        """Return its open files that have one of these inode numbers, whatever their names."""
        found = {}
        for number in self._numbers():
            try:
                identity = self._identity(number)
            except FileNotFoundError:
                continue
            if identity.inode in inodes:
                found[number] = identity
        return found

    def lacks_shm_lock(self, inode: int) -> bool:
        """True if it has a -shm of this inode open, as SQLite has, and not the lock on it."""
        lacks = False
        for number in self.identities({inode}):
            try:
                flags, locks = self._info(number)
            except FileNotFoundError:
                continue
            if any(lock.of_shm for lock in locks):
                return False
            # A read-only descriptor that is not mapped is a backup's: it needs no lock.
            if not flags & _PATH_ONLY and (not _is_read_only(flags) or self.maps(inode)):
                lacks = True
        return lacks

    def only_reads(self, file: FileIdentity) -> bool:
        """True if it has this file open, and through no descriptor for writing."""
        flags = []
        for number, found in self.identities({file.inode}).items():
            with suppress(FileNotFoundError):  # it was closed since
                if found == file:
                    flags.append(self._info(number)[0])
        return bool(flags) and all(map(_is_read_only, flags))

    def maps(self, inode: int) -> bool:
        """True if it has a -shm of this inode mapped, as SQLite has, or if that is not known.

        Only a mapped file can break a process when another process resets the file.
        """
        try:
            content = self._read("maps", at_most=READ_MAX)
        except OSError:
            return True
        if len(content) >= READ_MAX:
            return True
        number = str(inode).encode()
        fields = (line.split(maxsplit=5) for line in content.splitlines())
        return any(len(each) == 6 and each[4] == number and b"-shm" in each[5] for each in fields)

    def children(self) -> list[int] | None:
        """Return the processes it started; None if the kernel does not list them."""
        found: list[int] = []
        for thread in self._list("task"):
            try:
                children = self._read(f"task/{thread}/children", at_most=READ_MAX)
            except FileNotFoundError:
                if thread in self._list("task"):
                    return None  # the thread exists, but its list does not
            else:
                found += map(int, children.split())
        return found

    def _numbers(self) -> list[str]:
        return [number for number in self._list("fd") if number not in STANDARD_DESCRIPTORS]

    def _describe(self, number: str, names: Collection[str]) -> Descriptor | None:
        try:
            parts = split_link(os.readlink(f"fd/{number}", dir_fd=self._folder), names)
            if parts is None:
                return None
            identity = self._identity(number)
            flags, locks = (os.O_RDWR, []) if parts[2] == "-wal" else self._info(number)
        except FileNotFoundError:
            return None
        if flags & _PATH_ONLY:
            return None
        return Descriptor(*parts, identity, locks, _is_read_only(flags))

    def _identity(self, number: str) -> FileIdentity:
        try:
            return identity_of(f"fd/{number}", self._folder)
        except PermissionError:
            inodes = numbers_of(self._read(f"fdinfo/{number}"), b"ino")
            if not inodes:
                raise  # before Linux 5.14
            # A private FUSE mount denies even root, but the kernel knows the number.
            return FileIdentity(device_of(f"fd/{number}", self._folder), inodes[0])

    def _info(self, number: str) -> tuple[int, list[LockEntry]]:
        """Return the flags of a descriptor, and the locks that were taken through it."""
        flags, locks = os.O_RDWR, []
        for line in self._read(f"fdinfo/{number}").splitlines():
            if line.startswith(b"flags:"):
                flags = int(line[6:], 8)
            elif line.startswith(b"lock:") and (lock := parse_lock(line[5:])):
                locks.append(lock)
        return flags, locks

    def _list(self, path: str) -> list[str]:
        folder = os.open(path, FOLDER, dir_fd=self._folder)
        try:
            return os.listdir(folder)
        finally:
            os.close(folder)

    def _read(self, path: str, at_most: int = 1) -> bytes:
        return read_file(path, self._folder, at_most=at_most)


def _is_read_only(flags: int) -> bool:
    return flags & os.O_ACCMODE == os.O_RDONLY


def is_frozen(membership: bytes, root: str = _CGROUPS) -> bool:
    """True if a process with this /proc/PID/cgroup is frozen; False if the kernel does not show it.

    The kernel's files give the effective state of the group, even if an ancestor was frozen.
    """
    for line in membership.decode(errors="surrogateescape").splitlines():
        _, controllers, path = line.split(":", 2)
        if path == "/":
            continue  # the root cannot be frozen
        if controllers == "":
            folders = [f"{root}{path}", f"{root}/unified{path}"]
            if any(b"frozen 1" in _read_control(f"{each}/cgroup.events") for each in folders):
                return True
        elif "freezer" in controllers.split(","):
            # FREEZING: some of its threads are frozen already.
            state = _read_control(f"{root}/freezer{path}/freezer.state").strip()
            if state in {b"FROZEN", b"FREEZING"}:
                return True
    return False


def _read_control(path: str) -> bytes:
    try:
        return read_file(path)
    except OSError:
        return b""
