"""Removes shadow repositories from before 0.13, and the archives that Hermes moved them into.

The whole folder is renamed into the trash. Git is not run in it, so its hooks and configuration
have no effect.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from typing import Any, Final

from exporter.evidence.statx import is_mount_root
from exporter.hermes.prunable_names import is_prunable_repo
from exporter.pruner.apply.git_activity import is_fresh_lock, is_lock, refuse_if_git_works_in
from exporter.pruner.apply.home_folder import (
    SkipError,
    refuse_changed,
    refuse_foreign_file,
    stat_in,
)
from exporter.pruner.apply.move import MoveRemover
from exporter.pruner.expected import ExpectedFolder
from exporter.runs.folder import DIRECTORY
from exporter.runs.models import RecordedAction

_MOST_ENTRIES: Final = 1_000_000
"""The most entries that are checked; the rest is moved unchecked, and links are not followed."""
_MOST_LEVELS: Final = 64


class RepositoryRemover(MoveRemover):
    """Takes folders of one home that are a legacy repository, or an archive of such."""

    _what = "folder"

    def __init__(
        self,
        home: str,
        owner: int,
        *,
        proc: str = "/proc",
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(home, owner)
        self._proc = proc
        self._clock = clock

    def _is_never_taken(self, path: bytes) -> bool:
        return not is_prunable_repo(path)

    def _check_before(self, expected: dict[str, Any], folder: int, name: bytes) -> None:
        self._check_after(expected, folder, name)
        repo = os.open(name, DIRECTORY, dir_fd=folder)
        try:
            found = os.fstat(repo)
            refuse_changed(expected, ExpectedFolder.of(found))
            if is_mount_root(repo):
                raise SkipError("it is mounted from elsewhere")
            _TreeCheck(self._place.owner, found.st_dev, self._clock()).check(repo)
            refuse_if_git_works_in(repo, self._place.owner, self._proc)
        finally:
            os.close(repo)

    def _check_after(self, expected: dict[str, Any], folder: int, name: bytes) -> None:
        found = stat_in(folder, name)
        refuse_foreign_file(found, self._place.owner, os.fstat(folder).st_dev)
        if not stat.S_ISDIR(found.st_mode):
            raise SkipError("it is no folder")
        refuse_changed(expected, ExpectedFolder.of(found))

    def _delete(self, action: RecordedAction, folder: int, name: bytes) -> None:
        del action, folder, name
        raise SkipError("only certain garbage is deleted without the trash")


class _TreeCheck:
    """Checks everything below a folder, without following links."""

    def __init__(self, owner: int, device: int, now: float) -> None:
        self._owner = owner
        self._device = device
        self._now = now
        self._left = _MOST_ENTRIES

    def check(self, folder: int, level: int = 0) -> None:
        """Raise if anything in it is another user's, mounted, or a lock that git may hold."""
        if level > _MOST_LEVELS:
            raise SkipError(f"it has folders more than {_MOST_LEVELS} levels deep")
        with os.scandir(folder) as entries:
            for entry in entries:
                if self._left <= 0:
                    return
                self._left -= 1
                self._check_entry(entry, folder, level)

    def _check_entry(self, entry: os.DirEntry[str], folder: int, level: int) -> None:
        found = entry.stat(follow_symlinks=False)
        if found.st_uid != self._owner:
            raise SkipError(f"something in it belongs to uid {found.st_uid}")
        if found.st_dev != self._device:
            raise SkipError("something is mounted in it")
        if is_lock(os.fsencode(entry.name)) and is_fresh_lock(found, self._now):
            raise SkipError(f"git has a lock in it ({ascii(entry.name)[1:-1]})")
        if not stat.S_ISDIR(found.st_mode):
            return
        below = os.open(entry.name, DIRECTORY, dir_fd=folder)
        try:
            if is_mount_root(below):
                raise SkipError("something is mounted in it")
            self.check(below, level + 1)
        finally:
            os.close(below)
