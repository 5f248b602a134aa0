"""The trash of a home: `.hermes-exporter/trash/<run>/`, on the same filesystem as the home."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from exporter.runs.folder import RunFolder

NAME: Final = "trash"
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TrashRun:
    """What one run took, held open: names below it cannot be redirected."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor


@contextmanager
def trash_of(folder: RunFolder, run: str, *, create: bool = False) -> Iterator[TrashRun | None]:
    """The trash of one run; None if there is none and it is not to be made."""
    opened: list[int] = []
    try:
        above = folder.descriptor
        for name in (NAME, run):
            if create:
                try:
                    os.mkdir(name, 0o700, dir_fd=above)
                except FileExistsError:
                    pass
            try:
                above = os.open(name, _DIRECTORY, dir_fd=above)
            except FileNotFoundError:
                yield None
                return
            opened.append(above)
        yield TrashRun(os.path.join(folder.path, NAME, run), above)
    finally:
        for descriptor in opened:
            os.close(descriptor)
