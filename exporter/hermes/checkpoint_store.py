"""Changes to the checkpoint store through git: refs, bundles, garbage collection.

Git is started by GitPython, as the caller, which must be the owner. The repository cannot change
how git runs; see `exporter.hermes.git`.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from exporter.hermes.git import GitFailedError, GitRefusedError, run_git, start_by_gitpython

WORK_SECONDS: Final = 300.0
"""Time for git to read or write the whole history of a project."""
GC_SECONDS: Final = 400.0
PRUNE_BEFORE: Final = "1.hour.ago"
"""Not `now`: that would delete objects that Hermes has just added and no ref names yet."""
_NO_REF: Final = ""
"""As the old value of a ref: there must be none yet."""
_SHA1_DIGITS: Final = 40
_REQUIRED_FOLDERS: Final = ("refs/heads", "branches")
"""Folders that gc removes if they are empty; without them git finds no repository."""
_git: Final = partial(run_git, start=start_by_gitpython)


def ref_name(project: str) -> str:
    return f"refs/hermes/{project}"


def read_tip(store: str, project: str) -> str | None:
    """Return the newest snapshot of a project; None if it has no ref."""
    ref = ref_name(project)
    form = "--format=%(refname) %(objectname) %(objecttype) %(symref)"
    # Not by GitPython: a scan worker that settles a killed run calls this too.
    for line in run_git(store, "for-each-ref", form, ref).decode().splitlines():
        name, tip, kind, symbolic = line.split(" ", 3)
        if name != ref:
            continue
        if kind != "commit" or symbolic:
            raise GitRefusedError(f"{ref} in {store} is not a plain ref of a snapshot")
        return tip
    return None


def is_complete(store: str, tip: str) -> bool:
    """True if all objects of this snapshot can be read."""
    try:
        _git(store, "rev-list", "--objects", "--quiet", tip, "--", timeout_seconds=WORK_SECONDS)
    except GitFailedError:
        return False
    return True


def is_built_on(store: str, tip: str, older: str) -> bool:
    """True if `older` is an ancestor of `tip`."""
    try:
        _git(store, "merge-base", "--is-ancestor", older, tip, timeout_seconds=WORK_SECONDS)
    except GitFailedError:
        return False
    return True


def write_bundle(store: str, project: str, bundle: str) -> None:
    """Write all snapshots of a project to one file."""
    _git(
        store,
        "bundle",
        "create",
        "--quiet",
        bundle,
        ref_name(project),
        timeout_seconds=WORK_SECONDS,
    )


def verify_bundle(bundle: str, scratch: str, tip: str) -> None:
    """Raise unless the bundle alone contains this snapshot completely.

    `scratch` is an empty folder for a test repository; the caller removes it.
    """
    kind = "sha1" if len(tip) == _SHA1_DIGITS else "sha256"
    _git(scratch, "init", "--quiet", "--bare", "--template=", default_hash=kind)
    take_bundle(scratch, bundle)
    if not is_complete(scratch, tip):
        raise GitFailedError(f"{bundle} does not contain all of {tip}")


def take_bundle(store: str, bundle: str) -> None:
    """Add the objects of a bundle to a repository, without a ref."""
    _git(store, "bundle", "unbundle", bundle, timeout_seconds=WORK_SECONDS)


def delete_ref(store: str, project: str, tip: str) -> None:
    """Delete the ref of a project; raise unless it still names `tip`."""
    _git(store, "update-ref", "--no-deref", "-d", ref_name(project), tip)


def create_ref(store: str, project: str, tip: str) -> None:
    """Create the ref of a project; raise if there is one already."""
    _git(store, "update-ref", "--no-deref", ref_name(project), tip, _NO_REF)


def collect_garbage(store: str) -> None:
    """Pack what is in use, and delete what has been unused for an hour.

    Raise GitFailedError if another gc runs or it takes too long.
    """
    try:
        _git(store, "gc", "--quiet", f"--prune={PRUNE_BEFORE}", timeout_seconds=GC_SECONDS)
    finally:
        for folder in _REQUIRED_FOLDERS:
            os.makedirs(os.path.join(store, folder), exist_ok=True)
