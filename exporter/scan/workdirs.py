"""Whether working directories are still there, asked so that the answer can be trusted.

They lie outside the home. One on a network mount is not looked at: a dead server would hang the
scan, and an automounter would mount it.
"""

from __future__ import annotations

import os
import re
from typing import Final

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
_ASK_AGAIN_SECONDS: Final = 300.0
_MANY: Final = 256


class Workdirs:
    """Answers for one home; mounts are known for a minute, many answers kept for five."""

    def __init__(self, home: str, mountinfo: str = "/proc/self/mountinfo") -> None:
        self._home = os.fsencode(home)
        self._mountinfo = mountinfo
        self._remote: tuple[bytes, ...] = ()
        self._answers: dict[bytes, bool] = {}
        self._refreshed_at = self._asked_at = float("-inf")
        self.revision = 0
        """Moves when answers are no longer believed."""

    def refresh(self, monotonic: float) -> None:
        """Learn what is mounted, if that is not known well enough."""
        if monotonic - self._refreshed_at >= _REFRESH_SECONDS:
            self._refreshed_at = monotonic
            before, self._remote = self._remote, remote_mounts(self._home, self._mountinfo)
            if before != self._remote or monotonic - self._asked_at >= _ASK_AGAIN_SECONDS:
                self._asked_at = monotonic
                self._answers.clear()
                self.revision += 1

    def remembers(self) -> bool:
        """Whether there are so many answers that they are kept."""
        return len(self._answers) > _MANY

    def is_missing(self, path: bytes | None) -> bool:
        """Whether nothing is at this path although its parent folder is there.

        Everything else (no parent, so perhaps no disk; no permission; a mount that is not asked)
        says that it may still exist.
        """
        if path is None:
            return False
        answer = self._answers.get(path)
        if answer is None or len(self._answers) <= _MANY:
            answer = self._answers[path] = self._ask(path)
        return answer

    def _ask(self, path: bytes) -> bool:
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
    """Mount points, with a slash at the end, of network mounts.

    Without the root's and the home's own: if those hang, so does everything.
    """
    points = mount_points(mountinfo)
    own = max((point for point in points if (home + b"/").startswith(point)), default=b"/")
    return tuple(point for point, remote in points.items() if remote and point not in (b"/", own))


def mount_points(mountinfo: str) -> dict[bytes, bool]:
    """All mount points, with a slash at the end, and whether any mount there is a network's."""
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
