"""Find out if working directories still exist, in a way that can be trusted.

They are outside the home. A directory on a network mount is not looked up: a dead server would hang
the scan, and an automounter would mount it.
"""

from __future__ import annotations

import os
import re
from typing import Final

from msgspec import Struct

_REMOTE_KINDS: Final = (
    b"9p",
    b"afs",
    b"autofs",
    b"beegfs",
    b"ceph",
    b"cifs",
    b"davfs",
    b"fuse",
    b"gluster",
    b"gpfs",
    b"lustre",
    b"ncpfs",
    b"nfs",
    b"smb",
    b"virtiofs",
)
_OCTAL = re.compile(rb"\\([0-7]{3})")
_REFRESH_SECONDS: Final = 60.0
_ANSWER_SECONDS: Final = 300.0
_MANY: Final = 256


class Workdirs:
    """Answers for one home. Mounts are read once a minute; many answers are kept five minutes."""

    def __init__(self, home: str, mountinfo: str = "/proc/self/mountinfo") -> None:
        self._home = os.fsencode(home)
        self._mountinfo = mountinfo
        self._remote: tuple[bytes, ...] = ()
        self._answers: dict[bytes, bool] = {}
        self._refreshed_at = self._answers_since = float("-inf")
        self.revision = 0
        """Changes when answers are no longer valid."""

    def refresh(self, monotonic: float) -> None:
        """Read the mounts again, if the last reading is too old."""
        if monotonic - self._refreshed_at >= _REFRESH_SECONDS:
            self._refreshed_at = monotonic
            before, self._remote = self._remote, remote_mounts(self._home, self._mountinfo)
            if before != self._remote or monotonic - self._answers_since >= _ANSWER_SECONDS:
                self._answers_since = monotonic
                self._answers.clear()
                self.revision += 1

    def remembers(self) -> bool:
        """True if there are many answers: only then are they kept."""
        return len(self._answers) > _MANY

    def is_missing(self, path: bytes | None) -> bool:
        """True if nothing is at this path although its parent folder exists.

        In all other cases it may still exist: no parent (perhaps no disk), no permission, or a
        mount that is not looked up.
        """
        if path is None:
            return False
        answer = self._answers.get(path)
        if answer is None or len(self._answers) <= _MANY:
            answer = self._answers[path] = self._look_up(path)
        return answer

    def _look_up(self, path: bytes) -> bool:
        if self._remote and (path + b"/").startswith(self._remote):
            return False
        if os.access(path, os.F_OK):
            return False
        try:
            os.lstat(path)
        except FileNotFoundError:
            return os.path.isdir(os.path.dirname(path))
        except OSError:
            return False
        return False


def remote_mounts(home: bytes, mountinfo: str) -> tuple[bytes, ...]:
    """Return the mount points of network mounts, with a slash at the end.

    Without the root and the home's own mount: if those hang, everything hangs.
    """
    points = mount_points(mountinfo)
    own = max((point for point in points if (home + b"/").startswith(point)), default=b"/")
    return tuple(point for point, remote in points.items() if remote and point not in (b"/", own))


def mount_points(mountinfo: str) -> dict[bytes, bool]:
    """Return all mount points, with a slash at the end; True for those with a network mount."""
    points: dict[bytes, bool] = {}
    try:
        with open(mountinfo, "rb") as lines:
            for line in lines:
                before, _, after = line.partition(b" - ")
                point = _OCTAL.sub(lambda match: bytes([int(match[1], 8)]), before.split(b" ")[4])
                point = point.rstrip(b"/") + b"/"
                points[point] = points.get(point, False) or after.startswith(_REMOTE_KINDS)
    except (OSError, IndexError):
        return {}
    return points


_FSTAB_BYTES: Final = 1024 * 1024


class MissingWorkdir(Struct, frozen=True):
    """A working directory that is gone; None stands for one that exists, or may exist."""

    since: float
    """It is missing at least since then."""


class MissingWorkdirs:
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
        self._parents: dict[bytes, float | None] = {}

    def refresh(self, monotonic: float) -> None:
        """Read what is mounted and what should be mounted."""
        self._parents.clear()
        self._workdirs.refresh(monotonic)
        mounted = set(mount_points(self._mountinfo))
        self._unmounted = tuple(each for each in _fstab_points(self._fstab) if each not in mounted)

    def is_there(self, workdir: bytes | None) -> bool:
        """True if it certainly exists."""
        return workdir is not None and os.access(workdir, os.F_OK)

    def is_folder_of_its_disk(self, workdir: bytes) -> bool:
        """True if its parent folder is on the same filesystem: then only a removal makes it vanish.

        The root of a mount vanishes with the mount, for example with a disk that is pulled out.
        """
        try:
            above = os.stat(os.path.dirname(workdir.rstrip(b"/")))
            return os.stat(workdir).st_dev == above.st_dev
        except OSError:
            return False

    def of(self, workdir: bytes | None) -> MissingWorkdir | None:
        """Return since when this directory is gone; None unless it is gone permanently."""
        if workdir is None or not self._workdirs.is_missing(workdir):
            return None
        path = workdir.rstrip(b"/")
        parent = os.path.dirname(path)
        if parent in (b"", b"/") or (path + b"/").startswith(self._unmounted):
            return None
        if os.path.lexists(path):  # an answer may be some minutes old
            return None
        if parent not in self._parents:  # many working directories have the same
            self._parents[parent] = _changed_unless_empty(parent)
        changed = self._parents[parent]
        return None if changed is None else MissingWorkdir(changed)


def _changed_unless_empty(folder: bytes) -> float | None:
    """Return when a folder last changed; None if it has no entry, or cannot be read."""
    try:
        changed = os.stat(folder).st_ctime
        with os.scandir(folder) as entries:
            return changed if next(entries, None) is not None else None
    except OSError:
        return None


def _fstab_points(fstab: str) -> list[bytes]:
    """Return the mount points named by the administrator, with a slash at the end."""
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
