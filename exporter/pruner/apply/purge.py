"""Delete the trash of runs: after its keep time, for space, or because a person asked for it.

The trash of a run is first renamed, so that no undo takes half of it for the whole. After a kill in
between, the next purge deletes what was renamed; what still has its name is whole, and can be
undone. Rows of sessions that a process may still have in memory stay; the rest of their run goes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

from exporter.pruner.apply.home_folder import exists_in, sync_folders
from exporter.runs.folder import RunFolder
from exporter.runs.models import ActionFailure, RecordedAction
from exporter.runs.remove_tree import measure_tree, remove_tree
from exporter.runs.trash import RunTrash, holds_rows, is_run_id, trash_folder, trash_of

_MARKED: Final = "purging-"


class PurgeRemover:
    """Empties the trash of earlier runs; see `exporter.pruner.apply.remover`."""

    def __init__(self, folder: RunFolder, why_not: Callable[[str], str] = lambda _: "") -> None:
        self._folder = folder
        self._why_not = why_not
        """Returns why the trash of a run must be kept; '' if it may be deleted."""
        self.freed_bytes = 0
        """What it has freed on disk."""

    def take(self, action: RecordedAction, trash: RunTrash | None) -> str:
        del trash
        run = action.action.target
        if not is_run_id(run):
            return "it is no id of a run"
        if why := self._why_not(run):
            return self._remove_all_but_rows(run, why)
        with trash_folder(self._folder) as above:
            if above is None:
                return ""
            self._remove_marked(above)  # what a killed purge left is no problem of this run
            _mark_for_removal(above, run)
            problems = self._remove(above, _MARKED + run)
            problems += self._remove(above, run)  # if it could not be renamed
            sync_folders(above)
        return _not_deleted(problems)

    def _remove_all_but_rows(self, run: str, why: str) -> str:
        """Empty what can wait for no process: the rows suffice to give a session its past back."""
        with trash_of(self._folder, run) as trash:
            names = os.listdir(trash.descriptor) if trash is not None else []
            others = [name for name in names if not holds_rows(name)]
            if trash is None or not others:
                return why
            problems: list[str] = []
            for name in others:
                problems += self._remove(trash.descriptor, name)
            sync_folders(trash.descriptor)
        return _not_deleted(problems)

    def was_taken(self, action: RecordedAction, trash: RunTrash | None) -> bool:
        """Finish what a killed purge had begun; True if the trash is gone."""
        del trash
        with trash_folder(self._folder) as above:
            if above is None:
                return True
            self._remove_marked(above)
            return not exists_in(above, action.action.target.encode())

    def restore(self, action: RecordedAction, trash: RunTrash) -> str:
        del action, trash
        return "what was purged is gone for good"

    def runs_with_trash(self) -> dict[str, int]:
        """Return the runs that have trash, and the bytes of each on disk."""
        with trash_folder(self._folder) as above:
            if above is None:
                return {}
            return {
                name: measure_tree(above, name.encode())
                for name in sorted(os.listdir(above))
                if is_run_id(name)
            }

    def _remove_marked(self, above: int) -> None:
        """Delete what killed purges have renamed."""
        for name in os.listdir(above):
            if name.startswith(_MARKED):
                self._remove(above, name)

    def _remove(self, above: int, name: str) -> list[str]:
        removed = remove_tree(above, os.fsencode(name))
        self.freed_bytes += removed.freed_bytes
        return removed.problems


def _not_deleted(problems: Sequence[str]) -> str:
    return ActionFailure(f"not all of it could be deleted: {problems[0]}") if problems else ""


def _mark_for_removal(above: int, run: str) -> None:
    try:
        os.rename(run, _MARKED + run, src_dir_fd=above, dst_dir_fd=above)
        sync_folders(above)
    except OSError:
        pass  # it is gone, or there is no space even for a longer name
