"""The first run in a home on a disk that is already full.

There is no folder for the journal, no lock and no reserve yet, and no space for them. So
half-written packs that a killed git left are deleted before anything is noted, one by one, until
there is space. Transcripts, dumps and repositories are not: without a trash they could not be
restored.
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
    """Make room for the journal, which `opening` opens; return the numbers of what was deleted.

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
    """True for candidates; the remover itself refuses files that are not half-written packs."""
    return (
        action.kind == Act.DELETE_FILE
        and action.frees is Frees.NOW
        and "session" not in action.expected
    )
