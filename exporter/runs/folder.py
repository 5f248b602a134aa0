"""`.hermes-exporter/` in a home: the folder of its run lock, its run journal and its trash.

It is in the home so that a root service and a user's command share one lock and one history. It is
made when a run first needs it, belongs to the home's owner, and is never reached through a symlink.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from exporter.errors import HomeError

NAME: Final = ".hermes-exporter"
_LOCK: Final = "run.lock"
_NOTE_BYTES: Final = 200
_LOCK_SECONDS: Final = (0.02, 0.05, 0.1)
"""Pauses between attempts to get the lock. A reader holds it for microseconds, a run for long."""
_NOTHING_DONE: Final = "; nothing was done"
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How folders of a home are opened: never through a link."""


class RunError(HomeError):
    """A run could not be made, found or recorded; the message says what was left alone."""


def cause_of(error: Exception) -> str:
    """Return the message of such an error for a report, in which nothing was to be done."""
    return str(error).removesuffix(_NOTHING_DONE)


class RunBusyError(RunError):
    """Another run is under way in the same home."""


class RunFullError(RunError):
    """There is no space to record a run: something must be deleted first."""


class JournalDamagedError(RunError):
    """A part of the journal cannot be read, or holds something that no run writes."""


class JournalMendedError(RunError):
    """The journal was damaged, and its readable part has replaced it."""


class RunFolder:
    """The folder of one home, held open: names below it cannot be redirected."""

    def __init__(self, path: str, descriptor: int, owner: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self._owner = owner

    def file(self, name: str, *, create: bool = False) -> str | None:
        """Return the path of a file in the folder; None if it does not exist.

        Raise RunError if it is a link, not a regular file, or not the owner's.
        """
        path = os.path.join(self.path, name)
        try:
            found = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            if not create:
                return None
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o600, dir_fd=self.descriptor))
            return path
        if not stat.S_ISREG(found.st_mode) or found.st_uid != self._owner:
            raise RunError(f"{path} is not a file of the home's owner; left untouched")
        return path


@contextmanager
def run_folder(home: str, owner: int, *, create: bool = False) -> Iterator[RunFolder | None]:
    """Yield the home's folder; None if it does not exist and `create` is false.

    Raise RunError if it is a symlink, belongs to another user or is open to others.
    """
    if os.geteuid() != owner:
        raise RunError(f"only the owner of {home} (uid {owner}) acts on it; nothing was done")
    path = os.path.join(home, NAME)
    try:
        descriptor = _open(home, owner, create=create)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise RunError(
                f"{path} is a symlink or no folder, and what runs keep must be in its home; "
                "nothing was done"
            ) from error
        raise unusable(path, error) from error
    if descriptor is None:
        yield None
        return
    try:
        found = os.fstat(descriptor)
        if found.st_uid != owner or found.st_mode & 0o022:
            raise RunError(
                f"{path} belongs to uid {found.st_uid}, mode {found.st_mode & 0o777:o}; it must be "
                f"the home owner's (uid {owner}) and writable by no other user; nothing was done"
            )
        yield RunFolder(path, descriptor, owner)
    finally:
        os.close(descriptor)


def unusable(path: str, error: OSError) -> RunError:
    """Return the error to raise if something in the folder cannot be made or opened."""
    kind = RunFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else RunError
    return kind(f"cannot use {path}: {error.strerror}; nothing was done")


def _open(home: str, owner: int, *, create: bool) -> int | None:
    above = os.open(home, DIRECTORY)
    try:
        if os.fstat(above).st_uid != owner:
            raise RunError(f"{home} does not belong to uid {owner}; nothing was done")
        try:
            return os.open(NAME, DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            if not create:
                return None
        try:
            os.mkdir(NAME, 0o700, dir_fd=above)
        except FileExistsError:
            pass  # another run was quicker; the caller checks the owner
        return os.open(NAME, DIRECTORY, dir_fd=above)
    finally:
        os.close(above)


@contextmanager
def run_lock(folder: RunFolder, purpose: str) -> Iterator[None]:
    """Hold the run lock of a home. Raise RunBusyError, which names the other run, if it is held."""
    path = os.path.join(folder.path, _LOCK)
    try:
        folder.file(_LOCK)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(_LOCK, flags, 0o600, dir_fd=folder.descriptor)
    except OSError as error:
        raise unusable(path, error) from error
    try:
        try:
            _lock(descriptor)
        except BlockingIOError as error:
            other = os.pread(descriptor, _NOTE_BYTES, 0).decode(errors="replace").strip()
            raise RunBusyError(
                f"another run is under way in {os.path.dirname(folder.path)}"
                f" ({other or 'just begun'}); nothing was done"
            ) from error
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{purpose} by process {os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # a full disk: the lock works without the name in it
        os.utime(descriptor)  # `run_began_at` reads this time
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    for seconds in _LOCK_SECONDS:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(seconds)
        else:
            return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def run_began_at(folder: RunFolder) -> float | None:
    """Return when the run in progress began; None if there is none.

    A run in the journal that is not finished, and is older than that, was killed.
    """
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(_LOCK, flags, dir_fd=folder.descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(os.path.join(folder.path, _LOCK), error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.fstat(descriptor).st_mtime
    finally:
        os.close(descriptor)
    return None
