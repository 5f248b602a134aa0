"""Upkeep of a home that no process uses: VACUUM of its database, `git gc` of its checkpoint store.

Both are off by default. The caller has evidence that no process uses the home. This module checks
again right before, and VACUUM also while it runs. Nothing is deleted that a user could want back,
so there is no journal entry, no trash and no undo.
"""

from __future__ import annotations

import os
import time
from typing import Final

from exporter.errors import HomeError
from exporter.evidence.openers import KnownOpeners
from exporter.hermes import checkpoint_store as git_store
from exporter.hermes.database import database_path
from exporter.hermes.git import refuse_unfit_repository
from exporter.hermes.paths import STORE
from exporter.hermes.sqlite_locks import probe_shm
from exporter.pruner.apply.git_activity import is_fresh_lock, is_lock, refuse_if_git_works_in
from exporter.pruner.apply.home_folder import HomeFolder, MissingError, SkipError
from exporter.pruner.requests import UpkeepDone, UpkeepRequest
from exporter.runs.folder import DIRECTORY, RunError, run_folder, run_lock
from exporter.runs.remove_tree import measure_tree
from exporter.snapshot import LockAnswer
from exporter.writing.idle_wal import is_open_elsewhere
from exporter.writing.vacuum import FreeBytes, free_bytes_in, vacuum

_LOCK_FOLDERS: Final = ("", "indexes", "refs", "refs/hermes", "refs/heads", "objects/pack")


def run_upkeep(request: UpkeepRequest) -> list[UpkeepDone]:
    """Do what is asked, under the home's run lock; raise RunBusyError if a run is under way."""
    done: list[UpkeepDone] = []
    if not (request.vacuum or request.gc):
        return []
    with run_folder(request.home, request.owner, create=True) as folder:
        if folder is None:
            raise RunError(f"{request.home} has no folder for runs; nothing was done")
        with run_lock(folder, "upkeep"):
            if request.vacuum:
                done.append(
                    vacuum_database(
                        request.home, request.owner, request.openers, quiet=request.quiet
                    )
                )
            if request.gc:
                done.append(collect_garbage(request.home, request.owner, quiet=request.quiet))
    return done


def vacuum_database(
    home: str,
    owner: int,
    openers: KnownOpeners,
    *,
    quiet: bool,
    free_bytes: FreeBytes = free_bytes_in,
) -> UpkeepDone:
    """Give the pages that deletions left unused back to the filesystem, if no process has it open.

    `quiet` is the caller's evidence, by `is_quiet` of a survey made just now.
    Only for a process without a connection to it.
    """
    path = database_path(home)
    why = _not_quiet(path, owner, openers, quiet=quiet)
    if why:
        return UpkeepDone("vacuum", why)
    try:
        figures = vacuum(
            path,
            owner=owner,
            openers=openers,
            is_wanted=lambda: is_open_elsewhere(path),
            free_bytes=free_bytes,
        )
    except HomeError as error:
        return UpkeepDone("vacuum", str(error)[:300])
    return UpkeepDone("vacuum", "", figures.before_bytes, figures.after_bytes)


def collect_garbage(
    home: str,
    owner: int,
    *,
    quiet: bool,
    free_bytes: FreeBytes = free_bytes_in,
) -> UpkeepDone:
    """Run `git gc`: delete what no snapshot has used for an hour, if no process uses the store."""
    if not quiet:
        return UpkeepDone("gc", "the home is in use, or this is not known")
    if os.geteuid() != owner:
        return UpkeepDone("gc", "git runs only as the home's owner")
    store = os.path.join(home, os.fsdecode(STORE))
    try:
        with HomeFolder(home, owner).folder(STORE) as folder:
            _refuse_locks(folder, time.time())
            refuse_if_git_works_in(folder, owner)
            refuse_unfit_repository(store)
            before = measure_tree(folder, b".")
            free = free_bytes(store)
            if free < before:
                raise SkipError(f"git gc needs {before} bytes free, and there are {free}")
            git_store.collect_garbage(store)
            after = measure_tree(folder, b".")
    except MissingError:
        return UpkeepDone("gc", "there is no checkpoint store")
    except (SkipError, HomeError) as reason:
        return UpkeepDone("gc", str(reason)[:300])
    except OSError as error:
        return UpkeepDone("gc", f"cannot work in {store}: {error.strerror}")
    return UpkeepDone("gc", "", before, after)


def _not_quiet(path: str, owner: int, openers: KnownOpeners, *, quiet: bool) -> str:
    if not quiet or openers.pids or openers.lockless:
        return "the database is in use, or this is not known"
    if os.geteuid() != owner:
        return "only the home's owner may do this"
    if os.path.lexists(path + "-shm") and probe_shm(path + "-shm") is not LockAnswer.FREE:
        return "another process has the database open"
    return ""


def _refuse_locks(store: int, now: float) -> None:
    for name in _LOCK_FOLDERS:
        try:
            entries = list(_entries(store, name))
        except FileNotFoundError:
            continue
        for entry, found in entries:
            if is_lock(entry) and is_fresh_lock(found, now):
                raise SkipError(f"git has a lock in the store ({ascii(entry)[2:-1]})")


def _entries(store: int, name: str) -> list[tuple[bytes, os.stat_result]]:
    folder = os.open(name or ".", DIRECTORY, dir_fd=store)
    try:
        with os.scandir(folder) as entries:
            return [(os.fsencode(each.name), each.stat(follow_symlinks=False)) for each in entries]
    finally:
        os.close(folder)
