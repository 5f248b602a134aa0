"""Lists the transcripts and request dumps of a home, each with its session."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import structs

from exporter.hermes.paths import SESSIONS
from exporter.hermes.session_files import FileOwners, is_surely_hermes, kind_of
from exporter.hermes.transcripts import LINES_SUFFIX, messages_in
from exporter.pruner.decide.inventory import InventorySession, SessionFile
from exporter.runs.folder import DIRECTORY
from exporter.snapshot import DiskKind

FILES_MAX: Final = 100_000
"""Limit on listed files. Beyond it only bytes are counted."""
_BLOCK_BYTES: Final = 512
_FEW_MESSAGES: Final = 1_000
_SAME_TIME_SECONDS: Final = 10.0


def list_files(home: str, owner: int) -> tuple[list[SessionFile], int]:
    """Return the files that Hermes keeps for sessions, still without owners, and their bytes.

    If sessions/ is a link or another user's, it has none.
    """
    try:
        folder = os.open(os.path.join(os.fsencode(home), SESSIONS), DIRECTORY)
    except OSError:
        return [], 0
    try:
        if os.fstat(folder).st_uid != owner:
            return [], 0
        return _list(folder, owner)
    finally:
        os.close(folder)


def owners_of(files: Sequence[SessionFile], owners: FileOwners) -> dict[str, str]:
    """Return the session of each file that has one, by the name of the file."""
    return {
        file.name: session_id for file in files if (session_id := owners.of(file.name)) is not None
    }


def with_owners(files: Sequence[SessionFile], owned: Mapping[str, str]) -> Iterator[SessionFile]:
    """Return the files, each with its session if it has one."""
    for file in files:
        session_id = owned.get(file.name)
        if session_id is None:
            yield file
        else:
            yield structs.replace(file, session_id=session_id, is_surely_hermes=True)


def mark_last_copies(
    home: str, files: Iterable[SessionFile], sessions: Iterable[InventorySession]
) -> Iterator[SessionFile]:
    """Yield the files; transcripts that may have more messages than the database are marked.

    Only of ended sessions with few messages: those are pruned because they have few.
    """
    few = {each.id: each for each in sessions if not each.is_open and each.size <= _FEW_MESSAGES}
    for file in files:
        session = few.get(file.session_id or "")
        if session is not None and file.is_own and _holds_more(home, file, session):
            yield structs.replace(file, holds_more=True)
        else:
            yield file


def _holds_more(home: str, file: SessionFile, session: InventorySession) -> bool:
    if file.kind is not DiskKind.TRANSCRIPTS:
        return False
    # Hermes writes both at the same time, so only a newer file is read. The lines of a gateway are
    # often older than the database, and have more.
    is_newer = file.modified_at > session.said_at + _SAME_TIME_SECONDS
    if not is_newer and not file.name.endswith(LINES_SUFFIX):
        return False
    messages = messages_in(home, file.name)
    return messages is None or messages > session.size


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
    """Yield names that are text, with their lstat; folders are left out."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                entry.name.encode()
                found = entry.stat(follow_symlinks=False)
            except (OSError, UnicodeEncodeError):
                continue  # it is gone, or Hermes cannot have named it
            if not stat.S_ISDIR(found.st_mode):
                yield entry.name, found


def is_own_file(found: os.stat_result, owner: int) -> bool:
    """True for a regular file of the home's owner that has no other hard link."""
    return stat.S_ISREG(found.st_mode) and found.st_uid == owner and found.st_nlink == 1
