"""Taking files: transcripts, request dumps, and what a killed git has left behind.

A file is renamed into the trash, which keeps its bytes, mode and times, needs no space and is whole
or not at all. Then it is looked at again: had somebody put another thing in its place at the very
last moment, that is put back.
"""

from __future__ import annotations

import os
import stat
from typing import Any, Final

from exporter.evidence.statx import is_mount_root
from exporter.hermes.prunable import is_prunable_file, is_temporary_object
from exporter.pruner.effects.marks import refuse_other_file
from exporter.pruner.effects.places import (
    GoneError,
    LeftAloneError,
    Place,
    is_there,
    make_durable,
    refuse_stranger,
    said,
    split,
    stat_in,
)
from exporter.pruner.effects.rename import put_back, rename_new
from exporter.pruner.trash import TrashRun, name_in_trash
from exporter.pruner.words import Policy
from exporter.runs import Action

_GARBAGE: Final = (Policy.ORPHAN_FILES.value,)
"""Policies whose files belong to nothing any more, so that they may go without the trash."""


class FileEffect:
    """Takes files of one home; see `exporter.pruner.effects.effect`."""

    def __init__(self, home: str, owner: int) -> None:
        self._place = Place(home, owner)

    def take(self, action: Action, trash: TrashRun | None) -> str:
        path = os.fsencode(action.intent.target)
        folder_path, name = split(path)
        try:
            if not is_prunable_file(path):
                raise LeftAloneError("no file of this name is ever taken")
            with self._place.folder(folder_path) as folder:
                self._refuse(action.intent.before, folder, name)
                if trash is None:
                    self._delete(action, folder, name)
                else:
                    self._move(action, folder, name, trash)
        except LeftAloneError as reason:
            return str(reason)
        except OSError as error:
            return said(error)
        return ""

    def taken(self, action: Action, trash: TrashRun | None) -> bool:
        folder_path, name = split(os.fsencode(action.intent.target))
        if trash is None:
            return self._is_gone(action, folder_path, name)
        kept = name_in_trash(action)
        if not is_there(trash.descriptor, kept):
            return False
        try:
            self._refuse(action.intent.before, trash.descriptor, kept)
        except LeftAloneError:
            # Killed before it could see that it had moved something else.
            self.give_back(action, trash)
            return is_there(trash.descriptor, kept)
        make_durable(trash.descriptor)
        return True

    def give_back(self, action: Action, trash: TrashRun) -> str:
        folder_path, name = split(os.fsencode(action.intent.target))
        kept = name_in_trash(action)
        try:
            if not is_there(trash.descriptor, kept):
                if not self._is_gone(action, folder_path, name):
                    return ""  # given back before, or never gone
                return "it is no longer in the trash"
            self._put_back(folder_path, name, trash, kept)
        except FileExistsError:
            return "there is a newer file in its place; the old one stays in the trash"
        except LeftAloneError as reason:
            return str(reason)
        except OSError as error:
            return said(error)
        return ""

    def _refuse(self, expected: dict[str, Any], folder: int, name: bytes) -> None:
        """Raise unless the file may be taken and is the one that was planned."""
        found = stat_in(folder, name)
        refuse_stranger(found, self._place.owner, os.fstat(folder).st_dev)
        if not stat.S_ISREG(found.st_mode):
            raise LeftAloneError("it is no regular file")
        if found.st_nlink != 1:
            raise LeftAloneError("it has other names elsewhere (hard links)")
        if is_mount_root(folder, name):
            raise LeftAloneError("it is mounted from elsewhere")
        refuse_other_file(expected, found)

    def _delete(self, action: Action, folder: int, name: bytes) -> None:
        path = os.fsencode(action.intent.target)
        if action.intent.policy not in _GARBAGE and not is_temporary_object(path):
            raise LeftAloneError("only what is surely garbage may go without the trash")
        os.unlink(name, dir_fd=folder)
        make_durable(folder)

    def _move(self, action: Action, folder: int, name: bytes, trash: TrashRun) -> None:
        kept = name_in_trash(action)
        rename_new(folder, name, trash.descriptor, kept)
        try:
            self._refuse(action.intent.before, trash.descriptor, kept)
        except LeftAloneError:
            put_back(trash.descriptor, kept, folder, name)
            raise
        make_durable(trash.descriptor, folder)

    def _put_back(self, folder_path: bytes, name: bytes, trash: TrashRun, kept: bytes) -> None:
        with self._place.folder(folder_path, create=True) as folder:
            put_back(trash.descriptor, kept, folder, name)
            make_durable(folder, trash.descriptor)

    def _is_gone(self, action: Action, folder_path: bytes, name: bytes) -> bool:
        """Whether the file that was meant is no longer there; another in its place is not it."""
        try:
            with self._place.folder(folder_path) as folder:
                found = stat_in(folder, name)
        except GoneError:
            return True
        return found.st_ino != action.intent.before.get("inode")
