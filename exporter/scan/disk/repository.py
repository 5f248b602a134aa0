"""Read one shadow repository, completely, or with trust in what git never changes in place.

Git replaces `index` in the repository's own folder at every snapshot, so the times of that folder
show if a reading is needed. A check for changes that these times do not show reads less: only logs
grow in place, git replaces all other files. So while no folder without subfolders changed (most are
`objects/xx`), the files in these folders are not checked.
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

_63_BITS: Final = 2**63 - 1
_OPEN: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RepoReading(Struct, array_like=True, gc=False):
    """What one repository held when it was read."""

    seen: FolderStamp
    settled: bool
    rest: FolderTotals
    """Everything outside `leaves`, including the leaf folders themselves."""
    leaves: FolderTotals
    """The contents of folders without subfolders, except those of logs."""
    leaves_changed: int
    """The sum of the change times of those folders; 0 if they are too young to be trusted."""
    workdir: bytes | None
    is_repository: bool

    def total(self) -> FolderTotals:
        total = FolderTotals()
        total.add(self.rest)
        total.add(self.leaves)
        return total


class KeptRepo(Struct, array_like=True, frozen=True, gc=False):
    """The reading of a repository that an earlier process made, and when."""

    path: bytes
    read_at: float
    reading: RepoReading


class KeptRepos(Struct, array_like=True, frozen=True):
    """What an earlier process knew of the repositories of a home."""

    home: tuple[int, int]
    """Device and inode of the home."""
    taken_at: float
    repos: list[KeptRepo]


class RepoWalk:
    """The reading of one repository, which may take more than one scan."""

    def __init__(self, trusted: RepoReading | None) -> None:
        """Reuse the leaves of `trusted`, if they are unchanged."""
        self.trusted = trusted
        self._leaves: dict[bytes, int] = {}
        self._begun: tuple[os.stat_result, ScanTime] | None = None
        self._rest: TreeWalk
        self._below: TreeWalk | None = None

    def resume(self, found: os.stat_result, moment: ScanTime) -> RepoReading:
        """Continue to read, inside the repository; raise OutOfTimeError if the time is up.

        The stamp is that of the start: a change since then shows as a change at the next scan.
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
        return sum(self._leaves.values()) & _63_BITS


def read_repo(path: bytes, moment: ScanTime, walk: RepoWalk) -> RepoReading | None:
    """Read the repository at `path`, or continue to; None if it is gone.

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
    """Return the reading of a repository that cannot be entered: its folder, and one unreadable."""
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
