"""Homes with checkpoints made by a real release."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from git import Repo

from exporter.pruner.apply.store_projects import ProjectRemover
from exporter.runs.models import RecordedAction
from tests.real.hermes import Hermes
from tests.support.disk_homes import git
from tests.support.removers import picture, planned_project


class Checkpoints:
    """A home with projects whose snapshots were made by a real release."""

    def __init__(self, hermes: Hermes, home: Path, work: Path | None = None) -> None:
        self.hermes = hermes
        self.home = home
        self.work = work or home.parent / "work"
        self.store = home / "checkpoints/store"
        self.remover = ProjectRemover(str(home), os.geteuid())
        home.mkdir(mode=0o700, exist_ok=True)

    def folder(self, project: str) -> str:
        return str(self.work / project)

    def name(self, project: str) -> str:
        return hashlib.sha256(self.folder(project).encode()).hexdigest()[:16]

    def ref(self, project: str) -> str:
        return f"refs/hermes/{self.name(project)}"

    def ask(self, **request: Any) -> Any:
        return self.hermes.run("snapshot", self.home, **request)

    def snapshot(self, *projects: str, turns: int = 3, **more: Any) -> Any:
        return self.ask(snapshot=[[self.folder(each), turns] for each in projects], **more)

    def snapshots(self, project: str) -> list[str]:
        listed = self.ask(list=[self.folder(project)])["snapshots"]
        return list(listed[self.folder(project)])

    def planned(self, project: str, number: int = 0) -> RecordedAction:
        return planned_project(self.home, self.name(project), number)

    def refs(self) -> dict[str, str]:
        """Return the refs as GitPython reads them."""
        with Repo(self.store) as repo:
            return {each.path: each.commit.hexsha for each in repo.references}

    def own_files(self, project: str = "") -> dict[str, Any]:
        """Return the files of this project, or of all projects; also refs that have a file."""
        return {
            path: seen
            for path, seen in picture(self.store).items()
            if path.startswith(("projects/", "indexes/", "refs/hermes/"))
            and (not project or self.name(project) in path)
        }

    def fsck(self) -> str:
        return git(self.store, "fsck", "--strict", "--connectivity-only", GIT_DIR=str(self.store))
