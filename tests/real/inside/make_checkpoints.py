"""Checkpoints in both layouts: the shared store of today and the repositories of before 0.13."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tools.checkpoint_manager import CheckpointManager  # type: ignore[import-not-found]


def make_checkpoints(home: Path, projects: Path) -> dict[str, Any]:
    """Four old repositories of which two are migrated, then three projects in the store.

    In each layout one working directory is gone. Return the expected number of projects by
    layout and state; the migrated ones are an archive, not projects.
    """
    checkpoints = home / "checkpoints"
    for name in ("archived-1", "archived-2"):
        legacy_repository(checkpoints, _project(projects, name))
    manager = CheckpointManager(enabled=True)
    gone = []
    for name in ("store-1", "store-2", "store-gone"):
        project = _project(projects, name)
        for turn in range(3):
            (project / "notes.txt").write_text(f"turn {turn} of {name}\n")
            manager.new_turn()
            if not manager.ensure_checkpoint(str(project), f"turn {turn}"):
                raise SystemExit(f"no checkpoint was taken of {project}")
        gone += [project] if name.endswith("gone") else []
    # Written by an old Hermes after the migration: two releases may share a home.
    for name in ("legacy-1", "legacy-gone"):
        project = _project(projects, name)
        legacy_repository(checkpoints, project)
        gone += [project] if name.endswith("gone") else []
    for project in gone:
        shutil.rmtree(project)
    return {
        "store": {"active": 2, "orphan": 1},
        "legacy": {"active": 1, "orphan": 1},
        "store_refs": 3,
    }


def _project(projects: Path, name: str) -> Path:
    project = projects / name
    project.mkdir(parents=True)
    (project / "notes.txt").write_text(f"notes of {name}\n")
    (project / "data.bin").write_bytes(hashlib.sha256(name.encode()).digest() * 500)
    return project


def legacy_repository(checkpoints: Path, project: Path) -> None:
    """One git directory per project, named by the hash of its path, with a marker file."""
    name = hashlib.sha256(str(project.resolve()).encode()).hexdigest()[:16]
    repository = checkpoints / name
    repository.mkdir(parents=True)
    environment = {
        **os.environ,
        "GIT_DIR": str(repository),
        "GIT_WORK_TREE": str(project),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    for command in (
        ["init", "--quiet"],
        ["config", "user.email", "hermes@local"],
        ["config", "user.name", "Hermes Checkpoint"],
        ["add", "--all"],
        ["commit", "--quiet", "--message", "snapshot"],
    ):
        subprocess.run(["git", *command], env=environment, cwd=project, check=True)
    (repository / "info" / "exclude").write_text("node_modules/\n.env\n")
    (repository / "HERMES_WORKDIR").write_text(f"{project.resolve()}\n")
