"""Reaching names below a home without being led anywhere else.

Every folder on the way is opened by itself, below the one before, and never through a link. It has
to be the home owner's and on the home's own filesystem, not mounted there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from exporter.evidence.statx import is_mount_root
from exporter.pruner.expected import ExpectedOnDisk, as_keys

DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SkipError(Exception):
    """Something is not as it was planned, or not as it has to be; the message says what."""


class MissingError(SkipError):
    """There is nothing of that name."""


@dataclass(frozen=True, slots=True)
class HomeFolder:
    """A home, and whose it is."""

    home: str
    owner: int

    @contextmanager
    def folder(self, path: bytes, *, create: bool = False) -> Iterator[int]:
        """The descriptor of a folder below the home; `b""` is the home.

        With `create` missing ones are made, as the owner's alone.
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
    """The folder and the name of something below a home."""
    folder, _, name = path.rpartition(b"/")
    return folder, name


def stat_in(folder: int, name: bytes) -> os.stat_result:
    """What is there under a name, links not followed; raise MissingError if there is nothing."""
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
    """Raise unless this belongs to the home's owner and lies on its filesystem."""
    if stat.S_ISLNK(found.st_mode):
        raise SkipError("it is a symlink")
    if found.st_uid != owner:
        raise SkipError(f"it belongs to uid {found.st_uid}, not to the home's owner")
    if found.st_dev != device:
        raise SkipError("it is mounted from elsewhere")


def refuse_changed(planned: Mapping[str, Any], found: ExpectedOnDisk) -> None:
    """Raise unless this is what the plan was made from."""
    for key, value in as_keys(found).items():
        if key not in planned:
            raise SkipError(f"the plan does not say what its {key} was")
        if planned[key] != value:
            raise SkipError("it has changed since it was planned")


def sync_folders(*folders: int) -> None:
    """So that a power cut does not bring a name back; what was renamed is whole either way."""
    for folder in folders:
        try:
            os.fsync(folder)
        except OSError:
            pass  # some filesystems cannot; a rename is all or nothing even so


def move_error(error: OSError) -> str:
    """A failed system call as a reason."""
    if error.errno == errno.EXDEV:
        return "the trash is on another filesystem"
    return f"cannot move it: {error.strerror}"


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
