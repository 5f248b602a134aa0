"""Linux's /proc: its processes, and parsers for the lines that describe them."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CHUNK_BYTES: Final = 64 * 1024
READ_MAX: Final = 1024 * 1024
"""The limit for files that a process can make as long as it likes."""
_DELETED: Final = " (deleted)"
STANDARD_DESCRIPTORS: Final = frozenset({"0", "1", "2"})
"""SQLite never keeps a file at these, and most processes have nothing else open."""
_KERNEL_THREAD: Final = 0x00200000
_FORKED: Final = 0x00000040
"""PF_FORKNOEXEC: set by fork, cleared by exec."""
KTHREADD: Final = 2
"""The parent of the kernel's own threads, in the namespace that shows them."""
_GENERATIONS_MAX: Final = 64
_SIDECARS: Final = ("-wal", "-shm")

GONE: Final = (FileNotFoundError, ProcessLookupError)
"""ENOENT and ESRCH: a process has ended, or closed a descriptor.

No other error means that: ENOMEM, EMFILE, EIO, ENOSYS or EPERM may hide a living process.
"""


class ProcessStat(NamedTuple):
    """The fields of /proc/PID/stat that matter here."""

    state: str
    parent: int
    flags: int
    start_ticks: int
    start_stack: int
    """Random at every exec and copied by fork: equal values mean the same program image."""
    threads: int = 1

    @property
    def dead(self) -> bool:
        """True for a zombie: it holds nothing and only waits for its parent.

        A process whose first thread has ended looks the same, but its other threads go on.
        """
        return self.state in "ZX" and self.threads <= 1

    @property
    def forked(self) -> bool:
        """True if it began as a copy of its parent: what it has in memory may be older than it."""
        return bool(self.flags & _FORKED)

    @property
    def kernel_thread(self) -> bool:
        return bool(self.flags & _KERNEL_THREAD)


def read_file(path: str, folder: int | None = None, *, at_most: int = 1) -> bytes:
    """Read a file of /proc, below an open folder if one is given; raise OSError.

    The kernel gives most files in one piece, which one call reads. Those that it gives in several
    are read until their end, or until there are `at_most` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        content = os.read(descriptor, _CHUNK_BYTES)
        while 0 < len(content) < at_most and (chunk := os.read(descriptor, _CHUNK_BYTES)):
            content += chunk
        return content
    finally:
        os.close(descriptor)


def numbers_of(content: bytes, name: bytes) -> list[int]:
    """Return the numbers in the line `NAME: 1 2 3` of a file of /proc; empty if there is none.

    The first line is never meant. In it a process gives its own name, which may hold `\\rUid: 0`;
    the kernel escapes only a newline there.
    """
    line = content.partition(b"\n" + name + b":")[2].partition(b"\n")[0]
    return [int(number) for number in line.split()]


def list_pids(proc: str) -> list[str]:
    """Return the PIDs of this /proc, as text; raise OSError if there is no /proc."""
    return [name for name in os.listdir(proc) if name.isdigit()]


def own_pid(proc: str) -> int:
    """Return the PID that this process has in this /proc; a container may have the host's /proc."""
    try:
        return int(os.readlink(f"{proc}/self"))
    except (OSError, ValueError):
        return os.getpid()


def list_kernel_threads(proc: str) -> frozenset[str]:
    """Return the PIDs to skip: kthreadd's children, the kernel's threads and short helpers."""
    try:
        stat = read_stat(proc, KTHREADD)
        if stat is None or not stat.kernel_thread:
            return frozenset()
        children = read_file(f"{proc}/{KTHREADD}/task/{KTHREADD}/children", at_most=READ_MAX)
        return frozenset(children.decode().split())
    except OSError:
        return frozenset()  # then no process is skipped


def parse_stat(line: bytes) -> ProcessStat | None:
    """Parse a line of /proc/PID/stat; the program's name in it may hold blanks and brackets."""
    fields = line.rpartition(b")")[2].split()
    try:
        return ProcessStat(
            state=fields[0].decode(),
            parent=int(fields[1]),
            flags=int(fields[6]),
            start_ticks=int(fields[19]),
            start_stack=int(fields[25]),
            threads=int(fields[17]),
        )
    except (IndexError, ValueError):
        return None


def read_stat(proc: str, pid: int) -> ProcessStat | None:
    """Return the stat; None if there is no such process; raise OSError if that is not known."""
    try:
        return parse_stat(read_file(f"{proc}/{pid}/stat"))
    except GONE:
        return None


def read_real_uid(proc: str, pid: int) -> int:
    """Return the user that started a process, also a setuid one; raise OSError if it is gone."""
    uids = numbers_of(read_file(f"{proc}/{pid}/status"), b"Uid")
    return uids[0] if uids else 0


def ancestors(proc: str, stat: ProcessStat) -> Iterator[tuple[int, ProcessStat]]:
    """Yield the parent of a process, its parent, and so on, as far as /proc shows them."""
    for _ in range(_GENERATIONS_MAX):
        pid = stat.parent
        try:
            found = read_stat(proc, pid)
        except OSError:
            return
        if found is None:
            return
        yield pid, found
        stat = found


def split_link(link: str, names: Collection[str]) -> tuple[str, str, str, bool] | None:
    """Return (directory, database name, suffix, deleted) of a descriptor's link, or None.

    None if the link has no wanted name. SQLite's names are fixed, so the text of a link finds every
    holder, in containers too.
    """
    path = link.removesuffix(_DELETED)
    directory, slash, name = path.rpartition("/")
    suffix = name[-4:] if name.endswith(_SIDECARS) else ""
    base = name.removesuffix(suffix)
    if not slash or base not in names:
        return None
    return directory or "/", base, suffix, path != link


def find_descriptors(
    proc: str, pid: int, names: Collection[str], at_most: int
) -> tuple[list[str], int]:
    """Return the descriptors of a process with such a name, and how many were read.

    A quick filter that few processes pass. If a process has more than `at_most`, the count is one
    higher. Raise PermissionError if its descriptors may not be read, OSError if it is gone.
    """
    found, count = [], 0
    folder = os.open(f"{proc}/{pid}/fd", FOLDER)
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in STANDARD_DESCRIPTORS:
                    continue
                count += 1
                if count > at_most:
                    break
                try:
                    link = os.readlink(entry.name, dir_fd=folder)
                except OSError as error:
                    # A path too long for readlink is no home's, and any user can open one.
                    if error.errno in {errno.ENOENT, errno.ENAMETOOLONG}:
                        continue
                    raise
                if (".db" in link or ".lock" in link) and split_link(link, names) is not None:
                    found.append(entry.name)
    finally:
        os.close(folder)
    return found, count
