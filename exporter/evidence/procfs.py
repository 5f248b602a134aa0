"""Linux's /proc: its processes, and the lines that describe them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

_SMALL_BYTES: Final = 16 * 1024
_DELETED: Final = " (deleted)"
STANDARD: Final = frozenset({"0", "1", "2"})
"""SQLite never keeps a file at these, and most processes have nothing else open."""
_KERNEL_THREAD: Final = 0x00200000
KTHREADD: Final = 2
"""Where the kernel's own threads come from, in the namespace that shows them."""
_GENERATIONS_MAX: Final = 64
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


def list_pids(proc: str) -> list[str]:
    """The PIDs of this /proc, as text; raise OSError if there is none."""
    return [name for name in os.listdir(proc) if name.isdigit()]


def list_kernel_threads(proc: str) -> frozenset[str]:
    """The PIDs that need no look: kthreadd's children, the kernel's threads and short helpers."""
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


def ancestors(proc: str, stat: ProcessStat) -> Iterator[tuple[int, ProcessStat]]:
    """The parent of a process, its parent, and so on."""
    for _ in range(_GENERATIONS_MAX):
        pid = stat.parent
        found = read_stat(proc, pid)
        if found is None:
            return
        yield pid, found
        stat = found


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


_MATCHES_MAX: Final = 256


def find_descriptors(proc: str, pid: str, names: Collection[str]) -> list[str]:
    """The descriptors of a process that bear such a name: the quick look, which few pass.

    Raise PermissionError if its descriptors may not be seen, OSError if it is gone.
    """
    folder = f"{proc}/{pid}/fd"
    found = []
    for number in os.listdir(folder):
        if number in STANDARD:
            continue
        try:
            link = os.readlink(f"{folder}/{number}")
        except FileNotFoundError:
            continue
        if (".db" in link or ".lock" in link) and split_link(link, names) is not None:
            found.append(number)
        if len(found) >= _MATCHES_MAX:
            break  # no Hermes has so many; somebody wants the survey to take long
    return found
