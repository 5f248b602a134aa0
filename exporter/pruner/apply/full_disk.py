"""The first run ever in a home whose disk is full already.

There is no folder for the journal yet, no lock and no reserve, and no space to make them. Then half
packs that a killed git left are deleted before anything is noted, one by one, until there is enough
space. No transcript, dump or repository is: without a trash it could not be restored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from exporter.pruner.apply.files import FileRemover
from exporter.pruner.models import Act, PruneAction
from exporter.runs.folder import RunFullError
from exporter.runs.models import Frees, RecordedAction

OpenJournal = Callable[[], AbstractContextManager[object]]


def remove_garbage_first(
    home: str, owner: int, actions: Sequence[RecordedAction], opening: OpenJournal
) -> list[int]:
    """Make room for `opening`, the journal of the home; return the numbers of what was deleted.

    The caller notes them as done. Raise RunFullError if there is not enough garbage.
    """
    taken: list[int] = []
    remover = FileRemover(home, owner)
    waiting = [number for number, each in enumerate(actions) if _may_go(each.action)]
    while True:
        try:
            with opening():
                return taken
        except RunFullError:
            if not waiting:
                raise
        number = waiting.pop(0)
        if not remover.take(actions[number], None):
            taken.append(number)


def _may_go(action: PruneAction) -> bool:
    """A file that is no half pack is refused by the remover itself."""
    return (
        action.kind == Act.DELETE_FILE
        and action.frees is Frees.NOW
        and "session" not in action.expected
    )
