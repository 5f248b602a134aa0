"""The sizes of a store's projects, which git measures with two processes."""

from __future__ import annotations

import os
from pathlib import Path

from tests.real.command import run_json
from tests.support.disk_homes import add_project, git, make_store
from tests.support.small_homes import small_home

_PROJECTS = 30
"""More than one process measures alone."""
_NAMES = [f"{number:016x}" for number in range(_PROJECTS)]


def add_snapshot(store: Path, name: str, size: int) -> int:
    """Give a project one snapshot of a file of this size; return what git says that it takes."""
    place, file = {"GIT_DIR": str(store)}, store / "new"
    file.write_bytes(os.urandom(size))
    blob = git(store, "hash-object", "-w", str(file), **place).strip()
    file.unlink()
    index = {"GIT_INDEX_FILE": str(store / "indexes" / name)}
    git(store, "update-index", "--add", "--cacheinfo", f"100644,{blob},file", **place, **index)
    tree = git(store, "write-tree", **place, **index).strip()
    commit = git(store, "commit-tree", tree, "-m", name, **place).strip()
    git(store, "update-ref", f"refs/hermes/{name}", commit, **place)
    add_project(store, name, store, 1.0)
    return int(git(store, "rev-list", "--disk-usage", "--objects", commit, **place))


def test_each_project_of_many_has_the_size_that_git_says(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    store = make_store(home / "checkpoints" / "store", [])
    expected = {name: add_snapshot(store, name, 1000 * n) for n, name in enumerate(_NAMES, 1)}
    planned = run_json(
        "prune", "--policy", "stale_checkpoints", "--home", home, "--state-dir", tmp_path / "state"
    )
    found = {each["target"]: each["bytes"] for each in planned["plan"]["actions"]}
    assert found == expected
