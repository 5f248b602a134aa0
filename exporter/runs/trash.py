"""The trash of a home: `.hermes-exporter/backups/trash/<run>/`, on the home's own filesystem.

Hermes's own backup leaves out every folder called `backups`, at any depth. So the trash is in one,
and no backup contains what was pruned.

Each thing that a run took is named there by the number of its action, so that no two names clash.
The journal says where it came from: the target of that action.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from exporter.runs.folder import DIRECTORY, RunError, RunFolder
from exporter.runs.models import RecordedAction

PATH: Final = ("backups", "trash")
"""Below the folder of the run journal."""
KEEP_ANEW_SECONDS: Final = 72 * 3600.0
"""How long a run can be undone whose own keep time is not known any more."""
_RUN: Final = re.compile(r"[0-9]{8}T[0-9]{6}-[0-9a-f]{4,16}")
_ROWS: Final = re.compile(r"sessions-[0-9]{6}\.(rows|jsonl)\.gz")
_NAME_BYTES: Final = 200


class RunTrash:
    """What one run took, held open: names below it cannot be redirected."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor


def is_run_id(name: str) -> bool:
    """True if this has the form of a run's id, so that it may be a folder's name."""
    return _RUN.fullmatch(name) is not None


def holds_rows(name: str) -> bool:
    """True for a file of sessions in the trash of a run: its rows, or their export."""
    return _ROWS.fullmatch(name) is not None


def name_in_trash(action: RecordedAction) -> bytes:
    """Its name in the trash of its run; a person can tell what it is."""
    name = os.fsencode(os.path.basename(action.action.target))
    return b"%06d-%s" % (action.number, name[:_NAME_BYTES])


def is_name_cut(name: str) -> bool:
    """True if a name in the trash may not be all of the name that it had."""
    return len(os.fsencode(name)) >= _NAME_BYTES


def runs_in_trash(folder: RunFolder) -> list[str]:
    """Return the ids of the runs that have trash."""
    with trash_folder(folder) as trash:
        names = [] if trash is None else sorted(os.listdir(trash))
    return [name for name in names if is_run_id(name)]


@contextmanager
def trash_folder(folder: RunFolder) -> Iterator[int | None]:
    """The folder with the trash of all runs; None if there is none."""
    with _opened(folder, PATH, create=False) as descriptor:
        yield descriptor


@contextmanager
def trash_of(folder: RunFolder, run: str, *, create: bool = False) -> Iterator[RunTrash | None]:
    """The trash of one run; None if there is none and it is not to be made."""
    if not is_run_id(run):
        raise RunError(f"{run!r} is no id of a run; nothing was done")
    with _opened(folder, (*PATH, run), create=create) as descriptor:
        if descriptor is None:
            yield None
        else:
            yield RunTrash(os.path.join(folder.path, *PATH, run), descriptor)


@contextmanager
def _opened(folder: RunFolder, names: tuple[str, ...], *, create: bool) -> Iterator[int | None]:
    above, opened = folder.descriptor, list[int]()
    try:
        for name in names:
            try:
                above = _enter(above, name, create=create)
            except FileNotFoundError:
                yield None
                return
            except OSError as error:
                if create:
                    raise  # the caller tells what it could not write
                path = os.path.join(folder.path, *names[: len(opened) + 1])
                raise RunError(_why_closed(path, error)) from error
            opened.append(above)
        yield above
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _why_closed(path: str, error: OSError) -> str:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return f"{path} is a symlink or no folder, and the trash must be in its home"
    return f"cannot open {path} of the trash: {error.strerror}"


def _enter(above: int, name: str, *, create: bool) -> int:
    if create:
        try:
            os.mkdir(name, 0o700, dir_fd=above)
            os.fsync(above)
        except FileExistsError:
            pass
    return os.open(name, DIRECTORY, dir_fd=above)
