"""One process of Linux's /proc, held by its folder while it is read."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Final, NamedTuple, Self

from exporter.evidence.freezer import is_frozen
from exporter.evidence.lock_table import LockEntry, parse_lock
from exporter.evidence.procfs import STANDARD_DESCRIPTORS, ProcessStat, parse_stat, split_link
from exporter.evidence.statx import device_of, identity_of
from exporter.snapshot import FileIdentity

_CHUNK_BYTES: Final = 64 * 1024
_ALL_BYTES_MAX: Final = 1024 * 1024
_ACCESS_MASK: Final = os.O_RDONLY | os.O_WRONLY | os.O_RDWR
_PATH_ONLY: Final = 0o10000000
"""O_PATH: such a descriptor names a file and can neither read, map nor lock it."""


class _DescriptorInfo(NamedTuple):
    inode: int | None
    """None before Linux 5.14."""
    flags: int
    locks: list[LockEntry]

    @property
    def path_only(self) -> bool:
        return bool(self.flags & _PATH_ONLY)

    @property
    def read_only(self) -> bool:
        return self.flags & _ACCESS_MASK == os.O_RDONLY


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
        self._folder = os.open(f"{proc}/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._folder)

    def stat(self) -> ProcessStat:
        found = parse_stat(self._read_once("stat"))
        if found is None:
            raise OSError(errno.EIO, "no process is described so", f"{self.pid}/stat")
        return found

    def user_and_namespace_pid(self) -> tuple[int, int]:
        """Return its effective uid, and its PID in its own PID namespace."""
        uid, innermost = -1, self.pid
        for line in self._read_once("status").splitlines():
            if line.startswith(b"Uid:"):
                uid = int(line.split()[2])
            elif line.startswith(b"NSpid:"):
                innermost = int(line.split()[-1])
        return uid, innermost

    def command_line(self) -> bytes | None:
        """Return the command line; None if it is too long to be trusted."""
        content = self._read_all("cmdline")
        return content if len(content) < _ALL_BYTES_MAX else None

    def written(self) -> int | None:
        """Return how many bytes it has passed to write calls since it began; None if not known."""
        try:
            content = self._read_once("io")
        except OSError:
            return None
        for line in content.splitlines():
            if line.startswith(b"wchar:"):
                return int(line[6:])
        return None

    def stopped(self, stat: ProcessStat) -> bool:
        """True if it cannot run: stopped by a signal or a debugger, or frozen by its cgroup."""
        if stat.state in "Tt":
            return True
        return is_frozen(self._read_once("cgroup"))

    def environment(self) -> bytes:
        """Return the environment at the start of the program; later changes do not show."""
        return self._read_all("environ")

    def descriptors(
        self, names: Collection[str], numbers: Iterable[str] | None = None
    ) -> list[Descriptor]:
        """Return its open files with such names, among these descriptors or among all."""
        chosen = self._numbers() if numbers is None else numbers
        found = (self._describe(number, names) for number in chosen)
        return [descriptor for descriptor in found if descriptor is not None]

    def identities(self, inodes: Collection[int]) -> set[FileIdentity]:
        """Return its open files that have one of these inode numbers, whatever their names."""
        found = set()
        for number in self._numbers():
            try:
                identity = self._identity(number)
            except FileNotFoundError:
                continue
            if identity.inode in inodes:
                found.add(identity)
        return found

    def has_shm_lock(self, inode: int) -> bool | None:
        """True if it has SQLite's lock on this -shm; None if it does not have the file open."""
        answer = None
        for number in self._numbers():
            try:
                link = os.readlink(f"fd/{number}", dir_fd=self._folder)
                if link.endswith("-shm") and self._identity(number).inode == inode:
                    info = self._info(number)
                    if any(lock.of_shm for lock in info.locks):
                        return True
                    # A read-only descriptor that is not mapped is a backup's: it needs no lock.
                    if not info.path_only and (not info.read_only or self.maps(inode)):
                        answer = False
            except FileNotFoundError:
                continue
        return answer

    def maps(self, inode: int) -> bool:
        """True if it has a -shm of this inode mapped, as SQLite has, or if that is not known.

        Only a mapped file can break a process when another process resets the file.
        """
        try:
            content = self._read_all("maps")
        except OSError:
            return True
        if len(content) >= _ALL_BYTES_MAX:
            return True
        number = str(inode).encode()
        fields = (line.split(maxsplit=5) for line in content.splitlines())
        return any(len(each) == 6 and each[4] == number and b"-shm" in each[5] for each in fields)

    def children(self) -> list[int] | None:
        """Return the processes it started; None if the kernel does not list them."""
        found: list[int] = []
        for thread in self._list("task"):
            try:
                found += map(int, self._read_all(f"task/{thread}/children").split())
            except FileNotFoundError:
                if thread in self._list("task"):
                    return None  # the thread exists, but its list does not
        return found

    def _numbers(self) -> list[str]:
        return [number for number in self._list("fd") if number not in STANDARD_DESCRIPTORS]

    def _describe(self, number: str, names: Collection[str]) -> Descriptor | None:
        try:
            parts = split_link(os.readlink(f"fd/{number}", dir_fd=self._folder), names)
            if parts is None:
                return None
            identity = self._identity(number)
            wal = parts[2] == "-wal"
            info = _DescriptorInfo(None, os.O_RDWR, []) if wal else self._info(number)
        except FileNotFoundError:
            return None
        if info.path_only:
            return None
        return Descriptor(*parts, identity, info.locks, info.read_only)

    def _identity(self, number: str) -> FileIdentity:
        try:
            return identity_of(f"fd/{number}", self._folder)
        except PermissionError:
            inode = self._info(number).inode
            if inode is None:
                raise
            # A private FUSE mount denies even root, but the kernel knows the number.
            return FileIdentity(device_of(f"fd/{number}", self._folder), inode)

    def _info(self, number: str) -> _DescriptorInfo:
        """Return what the kernel itself knows of a descriptor."""
        inode, flags, locks = None, os.O_RDWR, []
        for line in self._read_once(f"fdinfo/{number}").splitlines():
            if line.startswith(b"ino:"):
                inode = int(line[4:])
            elif line.startswith(b"flags:"):
                flags = int(line[6:], 8)
            elif line.startswith(b"lock:") and (lock := parse_lock(line[5:])):
                locks.append(lock)
        return _DescriptorInfo(inode, flags, locks)

    def _list(self, path: str) -> list[str]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        folder = os.open(path, flags, dir_fd=self._folder)
        try:
            return os.listdir(folder)
        finally:
            os.close(folder)

    def _read_once(self, path: str) -> bytes:
        """Read a file that the kernel writes in one piece."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        try:
            return os.read(descriptor, _CHUNK_BYTES)
        finally:
            os.close(descriptor)

    def _read_all(self, path: str) -> bytes:
        """Read a file that the kernel writes in pieces, up to a limit."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        try:
            content = b""
            while len(content) < _ALL_BYTES_MAX and (chunk := os.read(descriptor, _CHUNK_BYTES)):
                content += chunk
            return content
        finally:
            os.close(descriptor)
