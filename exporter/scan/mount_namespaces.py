"""Check if a working directory is gone for the processes of a home too, not only for the agent.

A Hermes in a container has its own mounts: its working directory need not exist on the host. So a
path is looked up as those processes see it, through /proc/PID/root, with one process for each mount
namespace and root. This runs only in a worker, which may hang without harm.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from exporter.evidence.procfs import read_stat
from exporter.scan.workdirs import mount_points

_PATH: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class Process(Struct, frozen=True):
    """A process that uses the home."""

    pid: int
    start_ticks: int


class MountNamespaces:
    """The mount namespaces and roots of the processes of one home, without our own."""

    def __init__(self, processes: Iterable[Process], proc: str = "/proc") -> None:
        self._proc = proc
        self._known = True
        """True if every process could be read."""
        self._roots: dict[tuple[str, int, int], Process] = {}
        own = self._root("self")
        for process in processes:
            root = self._root(str(process.pid))
            if root is None or own is None or not self._is_alive(process):
                # It ended since it was seen, or we may not read it: what it sees is unknown.
                self._known = False
            elif root != own:
                self._roots.setdefault(root, process)

    @property
    def any_other(self) -> bool:
        return bool(self._roots)

    def is_gone(self, path: bytes) -> bool:
        """True if nothing is at this path in any of them; False if that is unknown."""
        return self._known and all(
            self._is_gone_for(process, path) and self._is_alive(process)
            for process in self._roots.values()
        )

    def _root(self, pid: str) -> tuple[str, int, int] | None:
        """Return what identifies a view of the filesystem: a process may also be in a chroot."""
        try:
            namespace = os.readlink(f"{self._proc}/{pid}/ns/mnt")
            found = os.stat(f"{self._proc}/{pid}/root")
        except OSError:
            return None
        return namespace, found.st_dev, found.st_ino

    def _is_alive(self, process: Process) -> bool:
        """True if the PID still belongs to this process."""
        found = read_stat(self._proc, process.pid)
        return found is not None and not found.dead and found.start_ticks == process.start_ticks

    def _is_gone_for(self, process: Process, path: bytes) -> bool:
        folder = f"{self._proc}/{process.pid}"
        # A dead server of a network mount would hang the worker: such a path is not looked up.
        points = mount_points(f"{folder}/mountinfo")
        remote = tuple(point for point, is_remote in points.items() if is_remote and point != b"/")
        if not points or (path + b"/").startswith(remote):
            return False
        try:
            opened = os.open(f"{folder}/root", _PATH)
        except OSError:
            return False
        return _is_gone_below(opened, [each for each in path.split(b"/") if each])


def _is_gone_below(folder: int, names: list[bytes]) -> bool:
    """Walk down name by name, and close `folder`; True if a name is missing.

    No link is followed: an absolute one would lead into our own filesystem. Behind a link, or
    behind a folder that may not be entered, the path may exist.
    """
    try:
        for name in names:
            try:
                below = os.open(name, _PATH | os.O_NOFOLLOW, dir_fd=folder)
            except FileNotFoundError:
                return True
            except OSError:
                return False
            os.close(folder)
            folder = below
        return False
    finally:
        os.close(folder)
