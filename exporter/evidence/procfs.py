"""Reading Linux's /proc, one process at a time."""

from __future__ import annotations

import os
from collections.abc import Collection
from types import TracebackType
from typing import Final, NamedTuple, Self

from exporter.evidence.locks import LockEntry, parse_lock
from exporter.snapshot import FileIdentity

_SMALL_BYTES: Final = 16 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_LINE_BYTES_MAX: Final = 1024 * 1024
_DELETED: Final = " (deleted)"
_STANDARD: Final = frozenset({"0", "1", "2"})
"""SQLite never keeps a file at these, and most processes have nothing else open."""
_KERNEL_THREAD: Final = 0x00200000
KTHREADD: Final = 2
"""Where the kernel's own threads come from, in the namespace that shows them."""
_SIDECARS: Final = ("-wal", "-shm")


class ProcessStat(NamedTuple):
    """The fields of /proc/PID/stat that decide anything."""

    state: str
    parent: int
    flags: int
    start_ticks: int
    start_stack: int
    """Drawn at random by every exec and kept by fork: equal ones mean one program image."""

    @property
    def dead(self) -> bool:
        """A zombie holds nothing, and only waits for its parent to notice."""
        return self.state in "ZX"

    @property
    def kernel_thread(self) -> bool:
        return bool(self.flags & _KERNEL_THREAD)


class Descriptor(NamedTuple):
    """An open file that bears the name of a database or of one of its sidecars."""

    number: str
    directory: str
    name: str
    """Of the database, also for a sidecar."""
    suffix: str
    """"", "-wal" or "-shm"."""
    deleted: bool
    identity: FileIdentity
    locked: bool
    """The process has SQLite's lasting lock on it: of the database, or of byte 128 of -shm."""


def list_pids(proc: str) -> list[str]:
    """The PIDs of this /proc, as text; raise OSError if there is none."""
    return [name for name in os.listdir(proc) if name.isdigit()]


def list_kernel_threads(proc: str) -> frozenset[str]:
    """The PIDs that need no look, because the kernel itself runs there: kthreadd's children."""
    stat = read_stat(proc, KTHREADD)
    if stat is None or not stat.kernel_thread:
        return frozenset()
    try:
        with open(f"{proc}/{KTHREADD}/task/{KTHREADD}/children", "rb") as stream:
            return frozenset(stream.read().decode().split())
    except OSError:
        return frozenset()


def parse_stat(line: bytes) -> ProcessStat | None:
    """A line of /proc/PID/stat; the program's name in it may hold blanks and brackets."""
    fields = line.rpartition(b")")[2].split()
    try:
        return ProcessStat(
            state=fields[0].decode(),
            parent=int(fields[1]),
            flags=int(fields[6]),
            start_ticks=int(fields[19]),
            start_stack=int(fields[25]),
        )
    except (IndexError, ValueError):
        return None


def read_stat(proc: str, pid: int) -> ProcessStat | None:
    """None if there is no such process, or it is hidden from us."""
    try:
        descriptor = os.open(f"{proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return parse_stat(os.read(descriptor, _SMALL_BYTES))
    except OSError:
        return None
    finally:
        os.close(descriptor)


def split_link(link: str, names: Collection[str]) -> tuple[str, str, str, bool] | None:
    """(directory, database name, suffix, deleted) of a descriptor's link; None if not one of ours.

    SQLite's names are fixed, so the text of a link finds every holder, in containers too.
    """
    path = link.removesuffix(_DELETED)
    directory, slash, name = path.rpartition("/")
    suffix = name[-4:] if name.endswith(_SIDECARS) else ""
    base = name.removesuffix(suffix)
    if not slash or base not in names:
        return None
    return directory or "/", base, suffix, path != link


def has_database_open(proc: str, pid: str, names: Collection[str]) -> bool:
    """Whether a process has a file of such a name open: the quick look that most do not pass.

    Raise PermissionError if its descriptors may not be seen, OSError if it is gone.
    """
    folder = f"{proc}/{pid}/fd"
    for number in os.listdir(folder):
        if number in _STANDARD:
            continue
        try:
            link = os.readlink(f"{folder}/{number}")
        except FileNotFoundError:
            continue
        if ".db" in link and split_link(link, names) is not None:
            return True
    return False


class PinnedProcess:
    """One process, held by its folder in /proc.

    All that is read through it is of the same process: if it ends and its PID comes round, reading
    fails instead of telling of a stranger.
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

    def stat(self) -> ProcessStat | None:
        return parse_stat(self._read("stat", _SMALL_BYTES))

    def user_and_namespace_pid(self) -> tuple[int, int]:
        """Its effective uid, and its PID in its own PID namespace."""
        uid, innermost = -1, self.pid
        for line in self._read("status", _SMALL_BYTES).splitlines():
            if line.startswith(b"Uid:"):
                uid = int(line.split()[2])
            elif line.startswith(b"NSpid:"):
                innermost = int(line.split()[-1])
        return uid, innermost

    def command_line(self) -> bytes | None:
        """None if it is longer than any that we would trust ourselves to read."""
        content = self._read("cmdline", _LINE_BYTES_MAX)
        return content if len(content) < _LINE_BYTES_MAX else None

    def environment(self) -> bytes:
        """As it was when the program began; later changes do not show."""
        return self._read("environ", _LINE_BYTES_MAX)

    def descriptors(self, names: Collection[str]) -> list[Descriptor]:
        """Its open files of such names."""
        found = (self._describe(number, names) for number in self._numbers())
        return [descriptor for descriptor in found if descriptor is not None]

    def descriptors_of(self, inode: int) -> list[str]:
        """The numbers of its descriptors on files with this inode."""
        return [number for number in self._numbers() if self._inode(number) == inode]

    def locks(self, number: str) -> list[LockEntry]:
        """The locks that this process took through one of its descriptors.

        Unlike /proc/locks this needs no inode to match, which overlayfs may show differently, and
        is read in one piece. A lock shows at the descriptor by which it was taken, at no other.
        """
        lines = self._read(f"fdinfo/{number}", _LINE_BYTES_MAX).splitlines()
        entries = (parse_lock(line[5:]) for line in lines if line.startswith(b"lock:"))
        return [entry for entry in entries if entry is not None]

    def children(self) -> list[int]:
        """The processes it started; raise FileNotFoundError where the kernel does not list them."""
        lists = [
            self._read(f"task/{name}/children", _LINE_BYTES_MAX) for name in self._list("task")
        ]
        return [int(pid) for pids in lists for pid in pids.split()]

    def _numbers(self) -> list[str]:
        return [number for number in self._list("fd") if number not in _STANDARD]

    def _describe(self, number: str, names: Collection[str]) -> Descriptor | None:
        try:
            parts = split_link(os.readlink(f"fd/{number}", dir_fd=self._folder), names)
            if parts is None:
                return None
            found = os.stat(f"fd/{number}", dir_fd=self._folder)
            locks = self.locks(number)
        except FileNotFoundError:
            return None
        directory, name, suffix, deleted = parts
        locked = any(lock.of_shm if suffix == "-shm" else lock.of_database for lock in locks)
        identity = FileIdentity(found.st_dev, found.st_ino)
        return Descriptor(number, directory, name, suffix, deleted, identity, locked)

    def _inode(self, number: str) -> int | None:
        try:
            return os.stat(f"fd/{number}", dir_fd=self._folder).st_ino
        except FileNotFoundError:
            return None

    def _list(self, path: str) -> list[str]:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        folder = os.open(path, flags, dir_fd=self._folder)
        try:
            return os.listdir(folder)
        finally:
            os.close(folder)

    def _read(self, path: str, limit: int) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        try:
            content = b""
            while len(content) < limit and (chunk := os.read(descriptor, _CHUNK_BYTES)):
                content += chunk
            return content
        finally:
            os.close(descriptor)
