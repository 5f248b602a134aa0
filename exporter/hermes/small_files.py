"""Read Hermes's small files: never through a symlink, never a device, always with a size limit."""

from __future__ import annotations

import os
import stat
from typing import Any, Final

import msgspec

from exporter.errors import HomeError
from exporter.snapshot import FileIdentity

SMALL_FILE_BYTES: Final = 16 * 1024 * 1024


def file_identity(path: str) -> FileIdentity | None:
    """Return the identity of a file, or of a symlink itself; None if it cannot be told."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return FileIdentity(found.st_dev, found.st_ino)


def read_small(path: str, limit: int = SMALL_FILE_BYTES) -> bytes | None:
    """Return the bytes of a regular file, None if it does not exist; else raise HomeError."""
    try:
        # A user may have put a FIFO or a symlink here: never block on it, never follow it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return None
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise HomeError(f"cannot read {path}: not a regular file")
        if found.st_size > limit:
            raise HomeError(f"cannot read {path}: {found.st_size} bytes, more than {limit}")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            return stream.read(limit + 1)
    except OSError as error:
        raise HomeError(f"cannot read {path}: {error.strerror}") from error
    finally:
        os.close(descriptor)


def read_json(path: str, limit: int = SMALL_FILE_BYTES) -> Any | None:
    """The parsed file, None if there is none; raise HomeError if it is not JSON."""
    content = read_small(path, limit)
    if content is None:
        return None
    try:
        # Stricter than the standard library's parser: it rejects lone surrogates, which cannot be
        # shown on a page.
        return msgspec.json.decode(content)
    except (ValueError, RecursionError) as error:
        raise HomeError(f"cannot read {path}: not JSON") from error


def read_number(path: str) -> float | None:
    """Return the number that a file holds as text; None if there is no valid number."""
    try:
        content = read_small(path, 256)
    except HomeError:
        return None
    try:
        value = float((content or b"").decode().strip())
    except ValueError:
        return None
    return value if 0 < value < 1e11 else None
