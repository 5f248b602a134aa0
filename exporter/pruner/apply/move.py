"""Remove a file or a folder by one rename into the trash.

A rename keeps bytes, modes and times, needs no space, and is atomic. What was moved is compared
with the plan again: if another process replaced it at the last moment, it is moved back.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

from exporter.pruner.apply.home_folder import (
    HomeFolder,
    MissingError,
    SkipError,
    exists_in,
    split,
    stat_in,
    sync_folders,
    why_not_moved,
)
from exporter.pruner.apply.rename import put_back, rename_no_replace
from exporter.pruner.decide.policies import POLICIES
from exporter.runs.models import RecordedAction
from exporter.runs.trash import RunTrash, name_in_trash


class MoveRemover(ABC):
    """A remover, see `exporter.pruner.apply.remover`; subclasses say what it may take."""

    _what: str
    """What it takes, for messages."""

    def __init__(self, home: str, owner: int) -> None:
        self._place = HomeFolder(home, owner)

    @abstractmethod
    def _is_never_taken(self, path: bytes) -> bool:
        """True if no policy may take something of this name."""

    @abstractmethod
    def _check_before(self, expected: dict[str, Any], folder: int, name: bytes) -> None:
        """Called before the move: raise SkipError unless it may be taken and is as planned."""

    @abstractmethod
    def _check_after(self, expected: dict[str, Any], folder: int, name: bytes) -> None:
        """Called after the move: raise SkipError unless it is as planned."""

    @abstractmethod
    def _delete(self, action: RecordedAction, folder: int, name: bytes) -> None:
        """Delete it without the trash; raise SkipError unless it is garbage for certain."""

    def take(self, action: RecordedAction, trash: RunTrash | None) -> str:
        path = os.fsencode(action.action.target)
        folder_path, name = split(path)
        try:
            self._refuse_name(action.action.policy, path)
            with self._place.folder(folder_path) as folder:
                self._check_before(action.action.expected, folder, name)
                if trash is None:
                    self._delete(action, folder, name)
                else:
                    self._move(action, folder, name, trash)
        except (SkipError, OSError) as error:
            return why_not_moved(error)
        return ""

    def was_taken(self, action: RecordedAction, trash: RunTrash | None) -> bool:
        if trash is None:
            return self._is_gone(action)
        kept = name_in_trash(action)
        if not exists_in(trash.descriptor, kept):
            return False
        try:
            self._check_after(action.action.expected, trash.descriptor, kept)
        except SkipError:
            # The run was killed before it noticed that it had moved something else.
            self.restore(action, trash)
            return exists_in(trash.descriptor, kept)
        sync_folders(trash.descriptor)
        return True

    def restore(self, action: RecordedAction, trash: RunTrash) -> str:
        folder_path, name = split(os.fsencode(action.action.target))
        kept = name_in_trash(action)
        try:
            if not exists_in(trash.descriptor, kept):
                # Restored before, or a power cut undid the rename.
                return "it is no longer in the trash" if self._is_gone(action) else ""
            with self._place.folder(folder_path, create=True) as folder:
                put_back(trash.descriptor, kept, folder, name)
                sync_folders(folder, trash.descriptor)
        except FileExistsError:
            return "there is a newer one in its place; the old one stays in the trash"
        except (SkipError, OSError) as error:
            return why_not_moved(error)
        return ""

    def _refuse_name(self, policy: str, path: bytes) -> None:
        """Raise unless this policy may take something of this name.

        The names come from this process's own code. A plan or journal only names the policy.
        """
        if self._is_never_taken(path):
            raise SkipError(f"no {self._what} of this name is ever taken")
        known = POLICIES.get(policy)
        if known is None:
            raise SkipError(f"this version has no policy {policy[:64]!a}")
        if not known.may_take(path):
            raise SkipError(f"policy {policy} takes no {self._what} of this name")

    def _move(self, action: RecordedAction, folder: int, name: bytes, trash: RunTrash) -> None:
        kept = name_in_trash(action)
        rename_no_replace(folder, name, trash.descriptor, kept)
        try:
            self._check_after(action.action.expected, trash.descriptor, kept)
        except SkipError:
            put_back(trash.descriptor, kept, folder, name)
            raise
        # One sync is enough: a filesystem commits both folders together. If a power cut brings the
        # name back, nothing is lost.
        sync_folders(trash.descriptor)

    def _is_gone(self, action: RecordedAction) -> bool:
        """True if it is no longer there, or another file has its name."""
        folder_path, name = split(os.fsencode(action.action.target))
        try:
            with self._place.folder(folder_path) as folder:
                found = stat_in(folder, name)
        except MissingError:
            return True
        return found.st_ino != action.action.expected.get("inode")
