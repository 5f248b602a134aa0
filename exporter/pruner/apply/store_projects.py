"""Removes projects of the checkpoint store: their snapshots as a bundle, then their ref and files.

The bundle is in the trash, outside of `checkpoints/`. If a ref of ours kept the snapshots in the
store, the store would stay above Hermes's size cap, and Hermes would delete snapshots of live
projects.

In the trash a project is a folder: `about.json`, `snapshots.bundle`, and its files by kind.

1. The folder gets its name when the bundle is verified.
2. The ref is deleted.
3. The files are moved.

After a kill, the folder shows which step was reached.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from exporter.errors import HomeError
from exporter.hermes import checkpoint_store as git_store
from exporter.hermes.git import GitFailedError, refuse_unfit_repository
from exporter.hermes.paths import STORE
from exporter.hermes.prunable_names import is_prunable_project, project_files, project_locks
from exporter.hermes.small_files import read_small
from exporter.pruner.apply.git_activity import is_fresh_lock, refuse_if_git_works_in
from exporter.pruner.apply.home_folder import (
    HomeFolder,
    MissingError,
    SkipError,
    exists_in,
    refuse_changed,
    refuse_foreign_file,
    split,
    stat_in,
    sync_folders,
    why_not_moved,
)
from exporter.pruner.apply.rename import put_back, rename_no_replace
from exporter.pruner.expected import ExpectedProject
from exporter.runs.folder import DIRECTORY
from exporter.runs.models import RecordedAction
from exporter.runs.remove_tree import remove_tree
from exporter.runs.trash import RunTrash, name_in_trash

RECORD: Final = "about.json"
BUNDLE: Final = "snapshots.bundle"
_SCRATCH: Final = "scratch"
_PART: Final = b".part"
_ABOUT_BYTES: Final = 4096
_GIT_WAIT_SECONDS: Final = 5.0
_CHECK_SECONDS: Final = 0.02
_QUIET_CHECKS: Final = 2


class _ProjectRecord(Struct, frozen=True):
    """What is needed to restore a project, by us or by a person."""

    project: str
    tip: Annotated[str, Meta(pattern="^[0-9a-f]{40,64}$")] | None
    """Its newest snapshot; None if it had none. Damaged digits may still be valid UTF-8."""
    ref_mtime_ns: int | None = None
    """Of the file of the ref, if it has its own: git may pack many refs into one file."""


class _DamagedError(SkipError):
    """The record of a project in the trash cannot be read."""


class ProjectRemover:
    """Takes projects of one home's store; see `exporter.pruner.apply.remover`.

    `was_taken` may raise HomeError if git does not say what happened to a project.
    """

    def __init__(
        self,
        home: str,
        owner: int,
        *,
        proc: str = "/proc",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._place = HomeFolder(home, owner)
        self._store = os.path.join(home, os.fsdecode(STORE))
        self._proc = proc
        self._clock = clock

    def take(self, action: RecordedAction, trash: RunTrash | None) -> str:
        project = action.action.target
        try:
            if not is_prunable_project(os.fsencode(project)):
                raise SkipError("no project has such a name")
            if trash is None:
                raise SkipError("only certain garbage is deleted without the trash")
            self._refuse_if_busy(project)
            tip = git_store.read_tip(self._store, project)
            if tip is None and not self._present(project):
                raise MissingError("it is gone already")
            self._refuse_if_changed(action)
            self._pack(action, tip, trash)
            try:
                self._refuse_if_busy(project)
                self._refuse_if_changed(action)
                self._delete_ref(project, tip)
            except (SkipError, HomeError, OSError):
                remove_tree(trash.descriptor, name_in_trash(action))
                raise
            self._move_files(action, trash)
        except (SkipError, HomeError, OSError) as error:
            return why_not_moved(error)
        return ""

    def was_taken(self, action: RecordedAction, trash: RunTrash | None) -> bool:
        if trash is None:
            return False
        kept = name_in_trash(action)
        try:
            # Git outlives a killed run, and may still execute its last command.
            self._wait_for_git(_QUIET_CHECKS)
        except MissingError:
            return exists_in(trash.descriptor, kept)  # the whole store is gone
        except SkipError as reason:
            raise HomeError(f"{self._store}: {reason}; checked again later") from reason
        remove_tree(trash.descriptor, kept + _PART)
        try:
            about = _read_about(trash, kept)
        except _DamagedError:
            # The bundle may be the last copy, so it stays. The ref shows which step was reached.
            return git_store.read_tip(self._store, action.action.target) is None
        if about is None:
            return False
        if not self._is_ref_deleted(about, trash, kept):
            remove_tree(trash.descriptor, kept)
            return False
        self._move_files(action, trash)
        return True

    def restore(self, action: RecordedAction, trash: RunTrash) -> str:
        kept = name_in_trash(action)
        project = action.action.target
        try:
            about = _read_about(trash, kept)
            if about is None:
                raise SkipError("it is no longer in the trash")
            self._refuse_if_busy(project)
            self._refuse_if_newer(about, trash, kept)
            if about.tip is not None:
                self._restore_tip(about.tip, project, os.path.join(trash.path, os.fsdecode(kept)))
                self._restore_ref_time(about)
            self._put_files_back(project, trash, kept)
            with _folder(trash.descriptor, kept) as folder:
                remove_tree(folder, BUNDLE.encode())
        except FileExistsError:
            return "Hermes has written it anew; the old one stays in the trash"
        except (SkipError, HomeError, OSError) as error:
            return why_not_moved(error)
        return ""

    # Checks

    def _wait_for_git(self, checks: int = 1) -> None:
        """Return after this many checks in a row without a running git; raise if it stays."""
        quiet, give_up_at = 0, time.monotonic() + _GIT_WAIT_SECONDS
        while True:
            try:
                with self._place.folder(STORE) as store:
                    refuse_if_git_works_in(store, self._place.owner, self._proc)
                quiet += 1
            except MissingError:
                raise
            except SkipError:
                quiet = 0
                if time.monotonic() > give_up_at:
                    raise
            if quiet == checks:
                return
            time.sleep(_CHECK_SECONDS)

    def _refuse_if_busy(self, project: str) -> None:
        """Raise unless this is a plain store of the owner in which no git runs."""
        if os.geteuid() != self._place.owner:
            raise SkipError("git runs only as the home's owner")
        with self._place.folder(STORE) as store:
            for lock in project_locks(project):
                try:
                    found = os.stat(lock, dir_fd=store, follow_symlinks=False)
                except FileNotFoundError:
                    continue
                if is_fresh_lock(found, self._clock()):
                    raise SkipError(f"git has a lock in the store ({os.path.basename(lock)})")
        self._wait_for_git()
        refuse_unfit_repository(self._store)

    def _refuse_if_changed(self, action: RecordedAction) -> None:
        project = action.action.target
        refuse_changed(action.action.expected, ExpectedProject.of(self._store, project))
        for path in self._present(project):
            folder_path, name = split(path)
            with self._place.folder(folder_path) as folder:
                self._refuse_unfit_file(folder, name)

    def _refuse_unfit_file(self, folder: int, name: bytes) -> None:
        found = stat_in(folder, name)
        refuse_foreign_file(found, self._place.owner, os.fstat(folder).st_dev)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise SkipError("its files are not what Hermes writes")

    def _present(self, project: str) -> list[bytes]:
        """Return its files that exist, by their path below the home."""
        paths = [STORE + b"/" + os.fsencode(file) for file in project_files(project)]
        return [path for path in paths if self._stat(path) is not None]

    def _stat(self, path: bytes) -> os.stat_result | None:
        folder_path, name = split(path)
        try:
            with self._place.folder(folder_path) as folder:
                return stat_in(folder, name)
        except MissingError:
            return None

    # Take

    def _pack(self, action: RecordedAction, tip: str | None, trash: RunTrash) -> None:
        """Make the folder in the trash, verified and synced, under its final name."""
        kept = name_in_trash(action)
        part = kept + _PART
        remove_tree(trash.descriptor, part)
        if exists_in(trash.descriptor, kept):
            raise SkipError("it is in the trash already")
        os.mkdir(part, 0o700, dir_fd=trash.descriptor)
        try:
            with _folder(trash.descriptor, part) as folder:
                place = os.path.join(trash.path, os.fsdecode(part))
                about = _ProjectRecord(
                    action.action.target, tip, self._ref_time(action.action.target)
                )
                _write(folder, RECORD, msgspec.json.encode(about))
                if tip is not None:
                    self._bundle(action.action.target, tip, folder, place)
                os.fsync(folder)
            rename_no_replace(trash.descriptor, part, trash.descriptor, kept)
        except BaseException:
            remove_tree(trash.descriptor, part)
            raise
        sync_folders(trash.descriptor)

    def _bundle(self, project: str, tip: str, folder: int, place: str) -> None:
        bundle, scratch = os.path.join(place, BUNDLE), os.path.join(place, _SCRATCH)
        git_store.write_bundle(self._store, project, bundle)
        os.mkdir(_SCRATCH, 0o700, dir_fd=folder)
        git_store.verify_bundle(bundle, scratch, tip)
        remove_tree(folder, _SCRATCH.encode())
        descriptor = os.open(BUNDLE, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _delete_ref(self, project: str, tip: str | None) -> None:
        """Delete the ref, if it still names the same snapshot.

        From here on the project counts as taken. If Hermes makes a snapshot now, it starts a new
        history, and undo says so.
        """
        if tip is None:
            return
        try:
            git_store.delete_ref(self._store, project, tip)
        except GitFailedError:
            if git_store.read_tip(self._store, project) is not None:
                raise

    def _move_files(self, action: RecordedAction, trash: RunTrash) -> None:
        """Move the files that are as planned; files that Hermes has written since stay."""
        project = action.action.target
        expected = dict(_kinds(project, action.action.expected))
        with _folder(trash.descriptor, name_in_trash(action)) as target:
            for path in self._present(project):
                folder_path, name = split(path)
                kind = _kind(path)
                with self._place.folder(folder_path) as folder:
                    if _identity(stat_in(folder, name)) != expected[kind]:
                        continue
                    rename_no_replace(folder, name, target, kind)
                    if _identity(stat_in(target, kind)) != expected[kind]:
                        put_back(target, kind, folder, name)
                    sync_folders(target, folder)

    def _is_ref_deleted(self, about: _ProjectRecord, trash: RunTrash, kept: bytes) -> bool:
        """True if a killed run had deleted the ref, so that the rest must be finished."""
        tip = git_store.read_tip(self._store, about.project)
        if about.tip is None:
            with _folder(trash.descriptor, kept) as folder:
                return any(exists_in(folder, kind) for kind, _ in _kinds(about.project, {}))
        if tip is None:
            return True
        return tip != about.tip and not git_store.is_built_on(self._store, tip, about.tip)

    # Restore

    def _refuse_if_newer(self, about: _ProjectRecord, trash: RunTrash, kept: bytes) -> None:
        tip = git_store.read_tip(self._store, about.project)
        if tip is not None and tip != about.tip:
            raise SkipError("Hermes has made new snapshots of it; the old stay in the trash")
        with _folder(trash.descriptor, kept) as folder:
            for path in self._present(about.project):
                if exists_in(folder, _kind(path)):
                    raise SkipError("Hermes has written it anew; the old stays in the trash")

    def _restore_tip(self, tip: str, project: str, place: str) -> None:
        """Create the ref again, with all objects that it needs.

        A gc of Hermes may delete objects before the ref exists, so check once more afterwards.
        """
        bundle = os.path.join(place, BUNDLE)
        if not git_store.is_complete(self._store, tip):
            git_store.take_bundle(self._store, bundle)
        if git_store.read_tip(self._store, project) is None:
            git_store.create_ref(self._store, project, tip)
        if not git_store.is_complete(self._store, tip):
            git_store.take_bundle(self._store, bundle)
        if not git_store.is_complete(self._store, tip):
            git_store.delete_ref(self._store, project, tip)
            raise SkipError("its snapshots could not be put back; they stay in the trash")

    def _ref_time(self, project: str) -> int | None:
        found = self._stat(_ref_file(project))
        return found.st_mtime_ns if found is not None and stat.S_ISREG(found.st_mode) else None

    def _restore_ref_time(self, about: _ProjectRecord) -> None:
        if about.ref_mtime_ns is None or self._ref_time(about.project) is None:
            return
        folder_path, name = split(_ref_file(about.project))
        times = (about.ref_mtime_ns, about.ref_mtime_ns)
        with self._place.folder(folder_path) as folder:
            os.utime(name, ns=times, dir_fd=folder, follow_symlinks=False)

    def _put_files_back(self, project: str, trash: RunTrash, kept: bytes) -> None:
        with _folder(trash.descriptor, kept) as source:
            for file in project_files(project):
                path = STORE + b"/" + os.fsencode(file)
                folder_path, name = split(path)
                if not exists_in(source, _kind(path)):
                    continue
                with self._place.folder(folder_path, create=True) as folder:
                    put_back(source, _kind(path), folder, name)
                    sync_folders(folder, source)


def _ref_file(project: str) -> bytes:
    return STORE + b"/" + git_store.ref_name(project).encode()


@contextmanager
def _folder(above: int, name: bytes) -> Iterator[int]:
    descriptor = os.open(name, DIRECTORY, dir_fd=above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _kind(path: bytes) -> bytes:
    """Return the name of a project's file in its folder in the trash."""
    return path.split(b"/")[-2]


def _identity(found: os.stat_result) -> dict[str, Any]:
    return {"inode": found.st_ino, "mtime_ns": found.st_mtime_ns}


def _kinds(project: str, expected: dict[str, Any]) -> list[tuple[bytes, dict[str, Any]]]:
    """Return what the plan expects of each of its files, by kind."""
    kinds = [os.path.dirname(file) for file in project_files(project)]
    return [
        (
            kind.encode(),
            {key: expected.get(f"{kind}_{key}") for key in ("inode", "mtime_ns")},
        )
        for kind in kinds
    ]


def _write(folder: int, name: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_about(trash: RunTrash, kept: bytes) -> _ProjectRecord | None:
    """Return the record of a project in the trash; None if it is not there."""
    if not exists_in(trash.descriptor, kept):
        return None
    path = os.path.join(trash.path, os.fsdecode(kept), RECORD)
    try:
        return msgspec.json.decode(read_small(path, _ABOUT_BYTES) or b"", type=_ProjectRecord)
    except (HomeError, ValueError, msgspec.MsgspecError) as error:
        raise _DamagedError(f"{path} is damaged; what is beside it stays in the trash") from error
