"""Removes files: transcripts, request dumps, leftovers of a killed git, files of policies."""

from __future__ import annotations

import os
import stat
from typing import Any

from exporter.evidence.statx import is_mount_root
from exporter.hermes.prunable_names import is_denied, is_temporary_object
from exporter.pruner.apply.home_folder import (
    SkipError,
    refuse_changed,
    refuse_foreign_file,
    stat_in,
    sync_folders,
)
from exporter.pruner.apply.move import MoveRemover
from exporter.pruner.expected import ExpectedFile
from exporter.runs.models import RecordedAction


class FileRemover(MoveRemover):
    """Takes regular files of one home that have one hard link."""

    _what = "file"

    def _is_never_taken(self, path: bytes) -> bool:
        return is_denied(path)

    def _check_before(self, expected: dict[str, Any], folder: int, name: bytes) -> None:
        found = stat_in(folder, name)
        refuse_foreign_file(found, self._place.owner, os.fstat(folder).st_dev)
        if not stat.S_ISREG(found.st_mode):
            raise SkipError("it is no regular file")
        if found.st_nlink != 1:
            raise SkipError("it has other names elsewhere (hard links)")
        if is_mount_root(folder, name):
            raise SkipError("it is mounted from elsewhere")
        refuse_changed(expected, ExpectedFile.of(found))

    _check_after = _check_before

    def _delete(self, action: RecordedAction, folder: int, name: bytes) -> None:
        # A transcript or dump may be the last copy: even an emergency does not delete it.
        if not is_temporary_object(os.fsencode(action.action.target)):
            raise SkipError("only certain garbage is deleted without the trash")
        os.unlink(name, dir_fd=folder)
        sync_folders(folder)
