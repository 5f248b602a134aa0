"""In words, why bytes above the low watermark of a threshold stay."""

from __future__ import annotations

from typing import Final

_WHY: Final = {
    "trash": "they wait in the trash, until its keep time is over or `purge` empties it",
    "trash_in_use": "they are in the trash, and a running process may need them",
    "upkeep": "only `git gc` frees them (prune.upkeep.gc, or Hermes itself)",
    "caps": "automatic runs may not take more in 24 hours (prune.caps)",
    "other_homes": "other homes on this filesystem have to give them",
    "cooldown": "a run was made a moment ago, and the next one waits (prune.cooldown)",
    "no_help": "the last run did not lower it, so the next one waits for a day",
    "protected": "they are in use, pinned, among the newest, or otherwise protected",
    "age": "they are not old enough for their policies",
    "no_space": "there is no room for copies in the trash",
    "no_policy": "no policy takes what is there",
}


def why_unreachable(reason: str) -> str:
    """Return the reason of an `Unreachable` as the end of a sentence."""
    return _WHY.get(reason, reason.replace("_", " "))
