"""The remover of each kind of action, except sessions: `delete_sessions` deletes those."""

from __future__ import annotations

from exporter.errors import HomeError
from exporter.pruner.apply.files import FileRemover
from exporter.pruner.apply.purge import PurgeRemover
from exporter.pruner.apply.remover import Remover
from exporter.pruner.apply.repositories import RepositoryRemover
from exporter.pruner.apply.store_projects import ProjectRemover
from exporter.pruner.models import Act
from exporter.runs.folder import RunFolder
from exporter.runs.models import ActionFailure, RecordedAction
from exporter.runs.trash import RunTrash
from exporter.writing.target import Target


def removers_for(target: Target, folder: RunFolder) -> dict[Act, Remover]:
    """Return the removers of a home, for everything except sessions."""
    return {
        Act.PURGE_TRASH: PurgeRemover(folder),
        Act.DELETE_FILE: FileRemover(target.home, target.owner),
        Act.DELETE_REPO: RepositoryRemover(
            target.home, target.owner, proc=target.proc, clock=target.clock
        ),
        Act.DELETE_PROJECT: ProjectRemover(
            target.home, target.owner, proc=target.proc, clock=target.clock
        ),
    }


def take(remover: Remover, action: RecordedAction, trash: RunTrash | None) -> str:
    """Take one target; return why it was skipped, or ''."""
    try:
        return remover.take(action, trash)
    except HomeError as error:
        return ActionFailure(error)
