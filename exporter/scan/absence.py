"""Whether a working directory is gone for good, and since when at least.

That its path leads nowhere is not enough: its disk may not be mounted, or it may be a path of some
container (see `exporter.scan.mount_namespaces`). So the folder that held it must be there and hold
something else; a folder in `/` and one below a mount of fstab that is not mounted are never said to
be gone. Removing an entry changes the folder's ctime, which users cannot set: so it is missing at
least since then.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct

from exporter.scan.workdirs import Workdirs, mount_points

_FSTAB_BYTES: Final = 1024 * 1024


class Absence(Struct, frozen=True):
    """A working directory that is gone; None stands for one that is there, or may be."""

    since: float
    """It is missing at least since then."""


class Absences:
    """Answers for the working directories of one home."""

    def __init__(
        self,
        home: str,
        mountinfo: str = "/proc/self/mountinfo",
        fstab: str = "/etc/fstab",
    ) -> None:
        self._workdirs = Workdirs(home, mountinfo)
        self._mountinfo = mountinfo
        self._fstab = fstab
        self._unmounted: tuple[bytes, ...] = ()

    def refresh(self, monotonic: float) -> None:
        """Learn what is mounted and what should be."""
        self._workdirs.refresh(monotonic)
        mounted = set(mount_points(self._mountinfo))
        self._unmounted = tuple(each for each in _fstab_points(self._fstab) if each not in mounted)

    def is_there(self, workdir: bytes | None) -> bool:
        """Whether it surely exists."""
        return workdir is not None and os.access(workdir, os.F_OK)

    def is_folder_of_its_disk(self, workdir: bytes) -> bool:
        """Whether it lies in a folder of the same filesystem, so that it goes by removal alone.

        The root of a mount goes with the mount: a disk that is pulled out takes its folder along.
        """
        try:
            above = os.stat(os.path.dirname(workdir.rstrip(b"/")))
            return os.stat(workdir).st_dev == above.st_dev
        except OSError:
            return False

    def of(self, workdir: bytes | None) -> Absence | None:
        """Ask about one; None unless it is gone for good."""
        if workdir is None or not self._workdirs.is_missing(workdir):
            return None
        path = workdir.rstrip(b"/")
        parent = os.path.dirname(path)
        if parent in (b"", b"/") or (path + b"/").startswith(self._unmounted):
            return None
        if os.path.lexists(path):  # an answer may be some minutes old
            return None
        try:
            changed = os.stat(parent).st_ctime
            with os.scandir(parent) as entries:
                is_empty = next(entries, None) is None
        except OSError:
            return None
        return None if is_empty else Absence(changed)


def _fstab_points(fstab: str) -> list[bytes]:
    """Mount points, with a slash at the end, that the system's administrator has named."""
    try:
        with open(fstab, "rb") as file:
            lines = file.read(_FSTAB_BYTES).splitlines()
    except OSError:
        return []
    fields = [line.split() for line in lines if not line.lstrip().startswith(b"#")]
    return [
        found[1].replace(b"\\040", b" ").rstrip(b"/") + b"/"
        for found in fields
        if len(found) >= 2 and found[1].startswith(b"/") and found[1] != b"/"
    ]
