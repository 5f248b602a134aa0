"""Deleted sessions in the trash: exact rows to give back, and Hermes's own export to read.

They are written before anything is deleted, many to a file, compressed and on disk for good. A
file has its name only when it is whole: what a killed run was about to write is never mistaken for
something that it took.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from exporter.hermes.deleting import SessionParts
from exporter.hermes.exporting import export_line
from exporter.pruner.trash import TrashRun
from exporter.runs import RunError

_ROWS: Final = re.compile(r"sessions-([0-9]{6})\.rows\.gz")
_LEVEL: Final = 1
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Kept(Struct, frozen=True, array_like=True):
    """A session in the trash, with the number of the action that took it."""

    number: int
    parts: SessionParts


def keep(trash: TrashRun, sessions: Sequence[Kept]) -> int:
    """Write sessions to the trash, durably; return how many bytes that took.

    Raise OSError if that is not possible: then nothing may be deleted.
    """
    name = f"sessions-{_last(trash) + 1:06}"
    exported = b"".join(export_line(each.parts) for each in sessions)
    size = _write(trash, f"{name}.jsonl.gz", exported)
    size += _write(trash, f"{name}.rows.gz", msgspec.msgpack.encode(list(sessions)))
    os.fsync(trash.descriptor)
    return size


def _last(trash: TrashRun) -> int:
    return max((number for number, _ in _files(trash)), default=0)


def _files(trash: TrashRun) -> list[tuple[int, str]]:
    matches = map(_ROWS.fullmatch, os.listdir(trash.descriptor))
    return sorted((int(match[1]), match[0]) for match in matches if match)


def _write(trash: TrashRun, name: str, content: bytes) -> int:
    compressed = gzip.compress(content, _LEVEL, mtime=0)
    unfinished = f"{name}.unfinished"
    descriptor = os.open(unfinished, _CREATE, 0o600, dir_fd=trash.descriptor)
    with open(descriptor, "wb") as file:
        file.write(compressed)
        file.flush()
        os.fsync(descriptor)
    os.rename(unfinished, name, src_dir_fd=trash.descriptor, dst_dir_fd=trash.descriptor)
    return len(compressed)


def kept_sessions(trash: TrashRun, *, newest_only: bool = False) -> Iterator[list[Kept]]:
    """The sessions of a run, file by file, the newest file first.

    A session may be in several, if it was not taken at first: the newest is the one that counts.
    Raise RunError if a file is damaged.
    """
    files = _files(trash)[::-1]
    for _, name in files[:1] if newest_only else files:
        path = os.path.join(trash.path, name)
        try:
            with open(os.open(name, _READ, dir_fd=trash.descriptor), "rb") as file:
                content = gzip.decompress(file.read())
            yield msgspec.msgpack.decode(content, type=list[Kept])
        except (OSError, EOFError, zlib.error, msgspec.MsgspecError) as error:
            raise RunError(f"cannot read {path}: {error}; nothing was given back") from error
