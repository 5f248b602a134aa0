"""The first run ever in a home whose disk is full already.

There is no folder for the journal yet, no lock and no reserve, and no space to make them. Half
packs that a killed git left then go before anything is noted, one by one, until they fit. No
transcript, dump or repository does: without a trash there is no way back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from exporter.pruner.apply.files import FileEffect
from exporter.pruner.models import Act
from exporter.runs.folder import RunFullError
from exporter.runs.models import Action, ActionState, Frees, Intent

Opening = Callable[[], AbstractContextManager[object]]


def garbage_first(home: str, owner: int, intents: Sequence[Intent], opening: Opening) -> list[int]:
    """Make room for `opening`, the journal of the home; return the numbers of what was taken.

    They are to be noted as done. Raise RunFullError if there is not enough garbage.
    """
    taken: list[int] = []
    effect = FileEffect(home, owner)
    waiting = [number for number, intent in enumerate(intents) if _may_go(intent)]
    while True:
        try:
            with opening():
                return taken
        except RunFullError:
            if not waiting:
                raise
        number = waiting.pop(0)
        action = Action("", number, intents[number], ActionState.INTENDED, "", None)
        if not effect.take(action, None):
            taken.append(number)


def _may_go(intent: Intent) -> bool:
    """Of a file that is no half pack the effect itself says no."""
    return (
        intent.action == Act.DELETE_FILE.value
        and intent.after.get("frees") == Frees.NOW.value
        and "session" not in intent.before
    )
