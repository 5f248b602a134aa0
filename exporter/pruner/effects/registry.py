"""Which effect takes what; sessions are taken many at a time, by `sessions`."""

from __future__ import annotations

import os

from exporter.errors import HomeError
from exporter.pruner.effects.effect import Effect
from exporter.pruner.effects.files import FileEffect
from exporter.pruner.effects.projects import ProjectEffect
from exporter.pruner.effects.repos import RepoEffect
from exporter.pruner.removal import measure_tree, remove_tree
from exporter.pruner.trash import TrashRun, is_run, trash_folder
from exporter.pruner.words import Act
from exporter.reaper.site import Site
from exporter.runs import Action
from exporter.runs.folder import RunFolder


class PurgeEffect:
    """Empties the trash of earlier runs, for good."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def take(self, action: Action, trash: TrashRun | None) -> str:
        del trash
        run = action.intent.target
        if not is_run(run):
            return "it is no id of a run"
        with trash_folder(self._folder) as above:
            if above is None:
                return ""
            problems = remove_tree(above, run.encode()).problems
        return f"not all of it could be deleted: {problems[0]}"[:300] if problems else ""

    def taken(self, action: Action, trash: TrashRun | None) -> bool:
        """A trash that is half empty is of no use: what was begun is brought to its end."""
        return not self.take(action, trash)

    def give_back(self, action: Action, trash: TrashRun) -> str:
        del action, trash
        return "what was purged is gone for good"

    def runs_with_trash(self) -> dict[str, int]:
        """Every run that has trash, and how many bytes of disk that takes."""
        with trash_folder(self._folder) as above:
            if above is None:
                return {}
            return {
                name: measure_tree(above, name.encode())
                for name in sorted(os.listdir(above))
                if is_run(name)
            }


def effects_on(site: Site, folder: RunFolder) -> dict[Act, Effect]:
    """The effects on a home for everything but sessions."""
    return {
        Act.PURGE_TRASH: PurgeEffect(folder),
        Act.DELETE_FILE: FileEffect(site.home, site.owner),
        Act.DELETE_REPO: RepoEffect(site.home, site.owner, proc=site.proc, clock=site.clock),
        Act.DELETE_PROJECT: ProjectEffect(site.home, site.owner, proc=site.proc, clock=site.clock),
    }


def take(effect: Effect, action: Action, trash: TrashRun | None) -> str:
    """Take one action; '' or why it was left alone."""
    try:
        return effect.take(action, trash)
    except HomeError as error:
        return str(error)[:300]
