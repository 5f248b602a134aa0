"""Lists the files that policies gather for themselves (`Policy.gather`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from exporter.pruner.apply.home_folder import HomeFolder, SkipError
from exporter.pruner.decide.inventory import HomeFile
from exporter.pruner.decide.policies import POLICIES
from exporter.pruner.decide.policy import FilesIn
from exporter.pruner.gather.session_files import is_own_file
from exporter.runs.folder import DIRECTORY

ENTRIES_MAX: Final = 100_000
"""Limit on names read for one policy. Later files are found after earlier ones are gone."""
_LEVELS_MAX: Final = 8
_BLOCK_BYTES: Final = 512


def list_policy_files(home: str, owner: int) -> dict[str, tuple[HomeFile, ...]]:
    """Return the files by policy.

    A folder that is missing, a link, mounted or another user's has none.
    """
    return {
        name: tuple(_Listing(policy.gather, owner).files(home))
        for name, policy in POLICIES.items()
        if policy.gather is not None
    }


class _Listing:
    """One walk through the folder of one policy."""

    def __init__(self, wanted: FilesIn, owner: int) -> None:
        self._wanted = wanted
        self._owner = owner
        self._entries_left = ENTRIES_MAX

    def files(self, home: str) -> Iterator[HomeFile]:
        try:
            with HomeFolder(home, self._owner).folder(self._wanted.folder) as folder:
                yield from self._below(folder, self._wanted.folder, level=1)
        except (SkipError, OSError):
            return

    def _below(self, folder: int, path: bytes, level: int) -> Iterator[HomeFile]:
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries_left -= 1
                if self._entries_left < 0:
                    return
                name = path + b"/" + os.fsencode(entry.name)
                try:
                    if entry.is_dir(follow_symlinks=False):
                        yield from self._enter(folder, entry.name, name, level)
                    elif self._wanted.has(name):
                        found = entry.stat(follow_symlinks=False)
                        yield home_file(name.decode(), found, self._owner)
                except (OSError, UnicodeDecodeError):
                    continue  # gone, closed to us, or a name that is no text

    def _enter(self, above: int, name: str, path: bytes, level: int) -> Iterator[HomeFile]:
        """Enter a folder of the owner's on the same filesystem, never through a link."""
        if level >= _LEVELS_MAX:
            return
        folder = os.open(name, DIRECTORY, dir_fd=above)
        try:
            found = os.fstat(folder)
            if found.st_uid == self._owner and found.st_dev == os.fstat(above).st_dev:
                yield from self._below(folder, path, level + 1)
        finally:
            os.close(folder)


def home_file(path: str, found: os.stat_result, owner: int) -> HomeFile:
    """Return a file that belongs to no session, as it is now."""
    return HomeFile(
        path=path,
        allocated_bytes=found.st_blocks * _BLOCK_BYTES,
        modified_at=found.st_mtime,
        is_own=is_own_file(found, owner),
        inode=found.st_ino,
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
    )
