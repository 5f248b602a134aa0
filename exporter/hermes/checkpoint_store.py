"""What is done to the checkpoint store through git: refs, bundles of them, and collecting garbage.

Git runs as `exporter.hermes.git` says: as the caller, who has to be the owner, and with nothing
that the repository or its user brings along. It is started by GitPython.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from exporter.hermes.git import GitFailedError, GitRefusedError, run_git, start_by_gitpython

WORK_SECONDS: Final = 300.0
"""For git to read or write the whole history of a project."""
GC_SECONDS: Final = 400.0
PRUNE_BEFORE: Final = "1.hour.ago"
"""Never now: what Hermes has added to an index, but no ref knows yet, would be destroyed."""
_NEVER: Final = "0" * 40
_MADE_AGAIN: Final = ("refs/heads", "branches")
"""Folders that gc removes when they are empty, and without which git knows no repository."""
_git: Final = partial(run_git, start=start_by_gitpython)


def ref_name(project: str) -> str:
    return f"refs/hermes/{project}"


def read_tip(store: str, project: str) -> str | None:
    """The newest snapshot of a project; None if no ref knows one."""
    ref = ref_name(project)
    form = "--format=%(refname) %(objectname) %(objecttype) %(symref)"
    # Not by GitPython: a scan worker that settles a killed run asks this too.
    for line in run_git(store, "for-each-ref", form, ref).decode().splitlines():
        name, tip, kind, symbolic = line.split(" ", 3)
        if name != ref:
            continue
        if kind != "commit" or symbolic:
            raise GitRefusedError(f"{ref} in {store} is no plain ref of a snapshot")
        return tip
    return None


def is_complete(store: str, tip: str) -> bool:
    """Whether everything that this snapshot is made of can be read."""
    try:
        _git(store, "rev-list", "--objects", "--quiet", tip, "--", timeout_seconds=WORK_SECONDS)
    except GitFailedError:
        return False
    return True


def is_built_on(store: str, tip: str, older: str) -> bool:
    """Whether one snapshot has the other among those before it."""
    try:
        _git(store, "merge-base", "--is-ancestor", older, tip, timeout_seconds=WORK_SECONDS)
    except GitFailedError:
        return False
    return True


def write_bundle(store: str, project: str, bundle: str) -> None:
    """All snapshots of a project in one file."""
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
    """Raise unless an empty repository has this snapshot whole, once it is given the bundle.

    `scratch` is an empty folder; it is left full.
    """
    _git(scratch, "init", "--quiet", "--bare", "--template=")
    take_bundle(scratch, bundle)
    if not is_complete(scratch, tip):
        raise GitFailedError(f"{bundle} does not hold all of {tip}")


def take_bundle(store: str, bundle: str) -> None:
    """Put the objects of a bundle into a repository; no ref is made."""
    _git(store, "bundle", "unbundle", bundle, timeout_seconds=WORK_SECONDS)


def delete_ref(store: str, project: str, tip: str) -> None:
    """Forget the snapshots of a project, if `tip` still is the newest; raise otherwise."""
    _git(store, "update-ref", "--no-deref", "-d", ref_name(project), tip)


def create_ref(store: str, project: str, tip: str) -> None:
    """Know the snapshots of a project again; raise if there is a ref already."""
    _git(store, "update-ref", "--no-deref", ref_name(project), tip, _NEVER)


def collect_garbage(store: str) -> None:
    """Pack what is in use and drop what has been out of use for an hour.

    Raise GitFailedError if another gc is under way or it takes too long.
    """
    try:
        _git(store, "gc", "--quiet", f"--prune={PRUNE_BEFORE}", timeout_seconds=GC_SECONDS)
    finally:
        for folder in _MADE_AGAIN:
            os.makedirs(os.path.join(store, folder), exist_ok=True)
