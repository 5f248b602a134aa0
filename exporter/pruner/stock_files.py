"""The transcripts and request dumps of a home, each with the session that it is of."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from exporter.evidence.statx import born_at
from exporter.hermes.paths import SESSIONS
from exporter.hermes.session_files import Owners, is_surely_hermes, kind_of
from exporter.pruner.inventory import SessionFile

FILES_MAX: Final = 100_000
"""As many are looked at one by one; of a folder with more, the rest is only counted."""
_BLOCK_BYTES: Final = 512
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def take_files(
    home: str, owner: int, session_ids: Iterable[str]
) -> tuple[tuple[SessionFile, ...], int]:
    """The files that Hermes keeps for sessions, and the bytes of all of them.

    A sessions/ that is a link, or somebody else's, has none.
    """
    try:
        folder = os.open(os.path.join(os.fsencode(home), SESSIONS), _DIRECTORY)
    except OSError:
        return (), 0
    try:
        if os.fstat(folder).st_uid != owner:
            return (), 0
        return _take(folder, owner, Owners(session_ids))
    finally:
        os.close(folder)


def _take(folder: int, owner: int, owners: Owners) -> tuple[tuple[SessionFile, ...], int]:
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
        session_id = owners.of(name)
        surely = session_id is not None or is_surely_hermes(name)
        files.append(
            SessionFile(
                name=name,
                kind=kind,
                allocated_bytes=allocated,
                modified_at=found.st_mtime,
                session_id=session_id,
                is_surely_hermes=surely,
                is_own=is_own_file(found, owner),
                born_at=born_at(folder, name.encode()) if surely and not session_id else None,
                inode=found.st_ino,
                size=found.st_size,
                mtime_ns=found.st_mtime_ns,
            )
        )
    return tuple(files), size


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
