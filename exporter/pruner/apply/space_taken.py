"""What a run itself takes on disk at once, in the bytes that `du -s` of the home counts.

The rows of deleted sessions go to the trash and leave their pages in state.db, snapshots of a
project become a bundle, and the journal grows. What a rename moved into the trash is as large there
as it was before, so it is not counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from exporter.hermes.paths import STORE
from exporter.pruner.apply.store_projects import BUNDLE, RECORD
from exporter.runs.folder import NAME
from exporter.runs.trash import PATH, holds_rows
from exporter.writing.target import Target


def bytes_of_runs(target: Target, run: str = "") -> int:
    """Return the allocated bytes of the database, the store's refs, the journal, and what this run
    has written to the trash.
    """
    return sum(map(_allocated_bytes, _written(target, run)))


def _written(target: Target, run: str) -> Iterator[str]:
    for ending in ("", "-wal", "-shm"):
        yield target.database + ending
    store = os.path.join(target.home, os.fsdecode(STORE))
    yield os.path.join(store, "packed-refs")
    for above, folders, files in os.walk(os.path.join(store, "refs")):
        yield from (os.path.join(above, name) for name in (*folders, *files))
    folder = os.path.join(target.home, NAME)
    yield folder
    for name in _names(folder):
        yield os.path.join(folder, name)
    trash = os.path.join(folder, *PATH)
    yield trash
    if run:
        yield os.path.join(trash, run)
        yield from _written_to_trash(os.path.join(trash, run))


def _written_to_trash(trash: str) -> Iterator[str]:
    for name in _names(trash):
        path = os.path.join(trash, name)
        if holds_rows(name):
            yield path
        elif os.path.lexists(os.path.join(path, RECORD)):  # a project
            yield from (path, os.path.join(path, RECORD), os.path.join(path, BUNDLE))


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _allocated_bytes(path: str) -> int:
    try:
        return os.lstat(path).st_blocks * 512
    except OSError:
        return 0
