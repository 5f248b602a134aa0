"""Deleted sessions in the trash: exact rows to restore, and Hermes's own export format to read.

- They are written, compressed and synced before anything is deleted, many to a file.
- A file gets its name when it is complete, so the unfinished file of a killed run is never read.
- The rows of each session are a gzip member, so a damaged byte affects one session, not the file.
  A member of older versions may have several sessions.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from exporter.runs.trash import RunTrash
from exporter.writing.session_export import export_line
from exporter.writing.stored_session import StoredSession

_ROWS: Final = re.compile(r"sessions-([0-9]{6})\.rows\.gz")
_LEVEL: Final = 1
_GZIP: Final = 16 + zlib.MAX_WBITS
_MEMBER: Final = bytes.fromhex("1f8b080000000000")
"""First bytes of a member: no name, no time. They may occur inside one too; the CRC decides."""
_PIECE_BYTES: Final = 1 << 16
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class TrashedSession(Struct, frozen=True, array_like=True):
    """A session in the trash, with the number of the action that took it."""

    number: int
    stored: StoredSession


def write_sessions(trash: RunTrash, sessions: Sequence[TrashedSession]) -> int:
    """Write sessions to the trash and sync; return the number of bytes.

    Raise OSError if this fails: then nothing may be deleted.
    """
    name = f"sessions-{_last(trash) + 1:06}"
    exported = b"".join(export_line(each.stored) for each in sessions)
    size = _write(trash, f"{name}.jsonl.gz", _packed(exported))
    rows = b"".join(_packed(msgspec.msgpack.encode([each])) for each in sessions)
    size += _write(trash, f"{name}.rows.gz", rows)
    os.fsync(trash.descriptor)
    return size


def _last(trash: RunTrash) -> int:
    return max((number for number, _ in _files(trash)), default=0)


def _files(trash: RunTrash) -> list[tuple[int, str]]:
    matches = map(_ROWS.fullmatch, os.listdir(trash.descriptor))
    return sorted((int(match[1]), match[0]) for match in matches if match)


def _packed(content: bytes) -> bytes:
    """A gzip member."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(content) + packer.flush()


def _write(trash: RunTrash, name: str, compressed: bytes) -> int:
    unfinished = f"{name}.unfinished"
    descriptor = os.open(unfinished, _CREATE, 0o600, dir_fd=trash.descriptor)
    with open(descriptor, "wb") as file:
        file.write(compressed)
        file.flush()
        os.fsync(descriptor)
    os.rename(unfinished, name, src_dir_fd=trash.descriptor, dst_dir_fd=trash.descriptor)
    return len(compressed)


class TrashedFile(Struct, frozen=True):
    """The readable part of a file of sessions."""

    sessions: list[TrashedSession]
    damage: str = ""
    """What cannot be read of it, if anything."""


def read_sessions(trash: RunTrash, *, newest_only: bool = False) -> Iterator[list[TrashedSession]]:
    """Yield the readable sessions of a run, file by file, the newest file first.

    A session may be in several files if it was not deleted at first: the newest one counts.
    """
    for each in _kept_files(trash, newest_only=newest_only):
        yield each.sessions


class Overview(Struct, frozen=True):
    """Which sessions the trash of a run has, without their rows."""

    sessions: dict[int, tuple[object, tuple[int, ...]]] = {}
    """When each began, and its first and last message, if any; by the number of its action."""
    damage: str = ""
    """The first part that cannot be read, if there is one."""


def overview(trash: RunTrash) -> Overview:
    """Return which sessions can be read, and what is damaged."""
    sessions: dict[int, tuple[object, tuple[int, ...]]] = {}
    damage = ""
    for file in _kept_files(trash):
        damage = damage or file.damage
        for kept in file.sessions:
            messages = kept.stored.message_ids()
            ends = (min(messages), max(messages)) if messages else ()
            sessions.setdefault(kept.number, (kept.stored.began_at, ends))
    return Overview(sessions, damage)


def why_missing(trash: RunTrash) -> str:
    """Return why a session that this run took is not in its trash."""
    damage = overview(trash).damage
    return f"its rows are damaged: {damage}" if damage else "it is not in the trash"


def _kept_files(trash: RunTrash, *, newest_only: bool = False) -> Iterator[TrashedFile]:
    files = _files(trash)[::-1]
    for _, name in files[:1] if newest_only else files:
        path = os.path.join(trash.path, name)
        try:
            with open(os.open(name, _READ, dir_fd=trash.descriptor), "rb") as file:
                yield _read(file.read(), path)
        except OSError as error:
            yield TrashedFile([], f"cannot read {path}: {error.strerror}")


def _read(content: bytes, path: str) -> TrashedFile:
    sessions: list[TrashedSession] = []
    damage = "" if content else f"{path} is empty"
    for member in _members(content):
        try:
            sessions += msgspec.msgpack.decode(member or b"", type=list[TrashedSession])
        except msgspec.MsgspecError:
            damage = f"not all of {path} can be unpacked"
    return TrashedFile(sessions, damage)


def _members(content: bytes) -> Iterator[bytes | None]:
    """Yield the gzip members of a file, decompressed; None for a damaged one."""
    start = 0
    while 0 <= start < len(content):
        member, end = _unpack(content, start)
        yield member
        # Skip the rest of a damaged member, up to where the next may begin.
        start = end if member is not None else content.find(_MEMBER, start + 1)


def _unpack(content: bytes, start: int) -> tuple[bytes | None, int]:
    """Return the member that starts here, and its end; None if it is damaged."""
    unpacker, parts, at = zlib.decompressobj(_GZIP), [], start
    try:
        while not unpacker.eof and at < len(content):
            parts.append(unpacker.decompress(content[at : at + _PIECE_BYTES]))
            at += _PIECE_BYTES
    except zlib.error:
        return None, start
    if not unpacker.eof:
        return None, start  # cut short
    return b"".join(parts), min(at, len(content)) - len(unpacker.unused_data)
