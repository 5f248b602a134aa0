"""Which remover takes what; sessions are deleted many at a time, by `delete_sessions`."""

from __future__ import annotations

from exporter.errors import HomeError
from exporter.pruner.apply.files import FileEffect
from exporter.pruner.apply.purge import PurgeEffect
from exporter.pruner.apply.remover import Effect
from exporter.pruner.apply.repositories import RepoEffect
from exporter.pruner.apply.store_projects import ProjectEffect
from exporter.pruner.models import Act
from exporter.runs.folder import RunFolder
from exporter.runs.models import Action
from exporter.runs.trash import RunTrash
from exporter.writing.target import Target


def effects_on(target: Target, folder: RunFolder) -> dict[Act, Effect]:
    """The removers of a home for everything but sessions."""
    return {
        Act.PURGE_TRASH: PurgeEffect(folder),
        Act.DELETE_FILE: FileEffect(target.home, target.owner),
        Act.DELETE_REPO: RepoEffect(
            target.home, target.owner, proc=target.proc, clock=target.clock
        ),
        Act.DELETE_PROJECT: ProjectEffect(
            target.home, target.owner, proc=target.proc, clock=target.clock
        ),
    }


def take(effect: Effect, action: Action, trash: RunTrash | None) -> str:
    """Take one action; '' or why it was left alone."""
    try:
        return effect.take(action, trash)
    except HomeError as error:
        return str(error)
