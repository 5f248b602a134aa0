"""Open folders below a home without leaving it.

Each folder of a path is opened relative to the one above, never through a link. It must belong to
the home's owner, be on the home's filesystem, and not be a mount point.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from exporter.errors import HomeError
from exporter.evidence.statx import is_mount_root
from exporter.pruner.expected import ExpectedOnDisk, as_keys
from exporter.runs.folder import DIRECTORY
from exporter.runs.models import ActionFailure


class SkipError(Exception):
    """A target is not as planned, or must not be taken; the message says why."""


class MissingError(SkipError):
    """There is nothing of that name."""


@dataclass(frozen=True, slots=True)
class HomeFolder:
    """A home and its owner."""

    home: str
    owner: int

    @contextmanager
    def folder(self, path: bytes, *, create: bool = False) -> Iterator[int]:
        """Yield the descriptor of a folder below the home; `b""` is the home itself.

        With `create`, make missing folders, with access for the owner only.
        """
        opened: list[int] = []
        try:
            opened.append(_open(self.home.encode(errors="surrogateescape"), None))
            device = self._check(opened[-1], b"", None)
            for part in path.split(b"/") if path else ():
                opened.append(_enter(opened[-1], part, create=create))
                self._check(opened[-1], part, device)
            yield opened[-1]
        finally:
            for descriptor in reversed(opened):
                os.close(descriptor)

    def _check(self, descriptor: int, name: bytes, device: int | None) -> int:
        found = os.fstat(descriptor)
        if found.st_uid != self.owner:
            raise SkipError(f"{_shown(name)} belongs to uid {found.st_uid}")
        if device is not None and (found.st_dev != device or is_mount_root(descriptor)):
            raise SkipError(f"{_shown(name)} is mounted from elsewhere")
        return found.st_dev


def split(path: bytes) -> tuple[bytes, bytes]:
    """Return the folder and the name of a path below a home."""
    folder, _, name = path.rpartition(b"/")
    return folder, name


def stat_in(folder: int, name: bytes) -> os.stat_result:
    """Return the stat of a name, without following links; raise MissingError if it is missing."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError as error:
        raise MissingError("it is gone already") from error


def exists_in(folder: int, name: bytes) -> bool:
    try:
        stat_in(folder, name)
    except MissingError:
        return False
    return True


def refuse_foreign_file(found: os.stat_result, owner: int, device: int) -> None:
    """Raise SkipError unless this belongs to the home's owner and is on its filesystem."""
    if stat.S_ISLNK(found.st_mode):
        raise SkipError("it is a symlink")
    if found.st_uid != owner:
        raise SkipError(f"it belongs to uid {found.st_uid}, not to the home's owner")
    if found.st_dev != device:
        raise SkipError("it is mounted from elsewhere")


def refuse_changed(planned: Mapping[str, Any], found: ExpectedOnDisk) -> None:
    """Raise SkipError unless this is as it was planned."""
    for key, value in as_keys(found).items():
        if key not in planned:
            raise SkipError(f"the plan does not say what its {key} was")
        if planned[key] != value:
            raise SkipError("it has changed since it was planned")


def sync_folders(*folders: int) -> None:
    """Sync folders, so that a power cut does not undo a rename; the rename is atomic either way."""
    for folder in folders:
        try:
            os.fsync(folder)
        except OSError:
            pass  # some filesystems cannot; the rename is atomic even so


def why_not_moved(error: SkipError | HomeError | OSError) -> str:
    """Return why a target was left alone, or, as an ActionFailure, what failed."""
    if isinstance(error, SkipError):
        return str(error)
    if isinstance(error, HomeError):
        return ActionFailure(error)
    if error.errno == errno.EXDEV:
        return ActionFailure("the trash is on another filesystem")
    return ActionFailure(f"cannot move it: {error.strerror}")


def _enter(above: int, part: bytes, *, create: bool) -> int:
    if part in (b"", b".", b"..") or b"\0" in part:
        raise SkipError("its path leads out of the home")
    try:
        return _open(part, above)
    except MissingError:
        if not create:
            raise
    try:
        os.mkdir(part, 0o700, dir_fd=above)
    except FileExistsError:
        pass
    return _open(part, above)


def _open(name: bytes, above: int | None) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=above)
    except FileNotFoundError as error:
        raise MissingError(f"{_shown(name)} is gone") from error
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise SkipError(f"{_shown(name)} is a symlink or no folder") from error
        raise


def _shown(name: bytes) -> str:
    return ascii(os.fsdecode(os.path.basename(name)))[1:-1] if name else "the home"
