"""The transcripts and request dumps of a home, each with the session that it is of."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import structs

from exporter.hermes.paths import SESSIONS
from exporter.hermes.session_files import FileOwners, is_surely_hermes, kind_of
from exporter.pruner.decide.inventory import SessionFile

FILES_MAX: Final = 100_000
"""As many are looked at one by one; of a folder with more, the rest is only counted."""
_BLOCK_BYTES: Final = 512
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def list_files(home: str, owner: int) -> tuple[list[SessionFile], int]:
    """The files that Hermes keeps for sessions, and the bytes of all of them.

    Whose each is, is not known yet. A sessions/ that is a link, or another user's, has none.
    """
    try:
        folder = os.open(os.path.join(os.fsencode(home), SESSIONS), _DIRECTORY)
    except OSError:
        return [], 0
    try:
        if os.fstat(folder).st_uid != owner:
            return [], 0
        return _list(folder, owner)
    finally:
        os.close(folder)


def owners_of(files: Sequence[SessionFile], owners: FileOwners) -> dict[str, str]:
    """The session of each file that has one, by the name of the file."""
    return {
        file.name: session_id for file in files if (session_id := owners.of(file.name)) is not None
    }


def with_owners(files: Sequence[SessionFile], owned: Mapping[str, str]) -> Iterator[SessionFile]:
    """The files with the sessions that they are of."""
    for file in files:
        session_id = owned.get(file.name)
        if session_id is None:
            yield file
        else:
            yield structs.replace(file, session_id=session_id, is_surely_hermes=True)


def _list(folder: int, owner: int) -> tuple[list[SessionFile], int]:
    files: list[SessionFile] = []
    seen: set[int] = set()
    size = 0
    for name, found in _entries(folder):
        kind = kind_of(name)
        if kind is None:
            continue
        allocated = found.st_blocks * _BLOCK_BYTES
        if found.st_nlink == 1 or found.st_ino not in seen:
            size += allocated
        if found.st_nlink > 1:
            seen.add(found.st_ino)
        if len(files) >= FILES_MAX:
            continue
        files.append(
            SessionFile(
                name=name,
                kind=kind,
                allocated_bytes=allocated,
                modified_at=found.st_mtime,
                session_id=None,
                is_surely_hermes=is_surely_hermes(name),
                is_own=is_own_file(found, owner),
                inode=found.st_ino,
                size=found.st_size,
                mtime_ns=found.st_mtime_ns,
            )
        )
    return files, size


def _entries(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    """Names that are text, with what they are; links are not followed, folders left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                entry.name.encode()
                found = entry.stat(follow_symlinks=False)
            except (OSError, UnicodeEncodeError):
                continue  # gone, or a name that Hermes cannot have given
            if not stat.S_ISDIR(found.st_mode):
                yield entry.name, found


def is_own_file(found: os.stat_result, owner: int) -> bool:
    """A regular file of the home's owner without another name."""
    return stat.S_ISREG(found.st_mode) and found.st_uid == owner and found.st_nlink == 1
