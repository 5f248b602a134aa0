"""Reading one shadow repository, whole or by trusting what git never changes in place.

Git replaces `index` in the repository's own folder with every snapshot, so that folder's times
tell whether to read it at all. Reading it again regardless, to find what they do not tell, is made
cheaper: only logs grow in place, all else git replaces. So while none of the folders without
subfolders changed, most of all `objects/xx`, the files in them need no look.
"""

from __future__ import annotations

import os
from typing import Final

from msgspec import Struct, structs

from exporter.hermes.checkpoints import is_repository, prefetch_workdir, read_workdir
from exporter.scan.disk.walk import (
    FolderStamp,
    FolderTotals,
    OutOfTimeError,
    ScanTime,
    TreeWalk,
    folder_stamp,
)

_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RepoReading(Struct, gc=False):
    """What one repository held when it was read."""

    seen: FolderStamp
    settled: bool
    rest: FolderTotals
    """All but what is in `leaves`; those folders themselves are counted here."""
    leaves: FolderTotals
    """What is in folders without subfolders, except those of logs."""
    leaves_changed: int
    """The sum of the change times of those folders; 0 if they are too young to be trusted."""
    workdir: bytes | None
    is_repository: bool


class RepoWalk:
    """The reading of one repository, which may take more than one scan."""

    def __init__(self, trusted: RepoReading | None) -> None:
        """With the leaves of `trusted`, if they are unchanged."""
        self.trusted = trusted
        self._leaves: dict[bytes, int] = {}
        self._begun: tuple[os.stat_result, ScanTime] | None = None
        self._rest: TreeWalk
        self._below: TreeWalk | None = None

    def resume(self, found: os.stat_result, moment: ScanTime) -> RepoReading:
        """Read on, inside the repository; raise OutOfTimeError if that is not enough.

        What is told of its age is as of the beginning: what changed since will show as moved.
        """
        if self._begun is None:
            self._begun = (found, moment)
            if self.trusted is None:
                prefetch_workdir(b"")
            self._rest = TreeWalk(
                [b""], moment.device, self._leaves, leafy=b"objects/", growing=b"logs/"
            )
        found, begun = self._begun
        if not self._rest.run(moment.is_over):
            raise OutOfTimeError
        rest = self._rest.tally
        rest.add_folder(found)
        settled = begun.is_settled(found.st_ctime_ns)
        changed = self._leaves_changed(begun)
        if self.trusted is not None and changed and changed == self.trusted.leaves_changed:
            return structs.replace(
                self.trusted, seen=folder_stamp(found), settled=settled, rest=rest
            )
        if self._below is None:
            self._below = TreeWalk(self._leaves, moment.device)
        if not self._below.run(moment.is_over):
            raise OutOfTimeError
        workdir = read_workdir(b"")
        return RepoReading(
            seen=folder_stamp(found),
            settled=settled,
            rest=rest,
            leaves=self._below.tally,
            leaves_changed=changed,
            workdir=workdir,
            is_repository=is_repository(b"", workdir),
        )

    def _leaves_changed(self, begun: ScanTime) -> int:
        if not self._leaves or not begun.is_settled(max(self._leaves.values())):
            return 0
        return sum(self._leaves.values())


def read_repo(path: bytes, moment: ScanTime, walk: RepoWalk) -> RepoReading | None:
    """Read the repository at `path`, or go on with it; None if it is gone.

    It is read from inside: short paths are a tenth cheaper, and a rename meanwhile does no harm.
    """
    try:
        descriptor = os.open(path, _OPEN)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _unreadable_repo(path)
    try:
        found = os.fstat(descriptor)
        if found.st_dev != moment.device:
            return None
        os.fchdir(descriptor)
    except OSError:
        return _unreadable_repo(path)
    finally:
        os.close(descriptor)
    try:
        return walk.resume(found, moment)
    finally:
        os.fchdir(moment.home)


def _unreadable_repo(path: bytes) -> RepoReading | None:
    """A repository that cannot be entered: its folder counts, and so does the fact."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    rest = FolderTotals(unreadable=1)
    rest.add_folder(found)
    return RepoReading(
        seen=folder_stamp(found),
        settled=False,
        rest=rest,
        leaves=FolderTotals(),
        leaves_changed=0,
        workdir=None,
        is_repository=False,
    )
