"""The reasons that the metrics of the pruner name by one word, in words."""

from __future__ import annotations

from typing import Final

from exporter.evidence.blind_spots import blind_in_words

RUN_FAILED: Final = "run_failed"
"""Nothing is pruned, because the agent's last run failed."""
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

_BLOCKED: Final = {
    RUN_FAILED: "the last run failed, as the log says; `prune --pressure --yes` tells why",
    "no_space": "there is no room for the compressed rows of a session",
    "too_many_orphans": "many transcripts lost their session at once; look what deleted them",
    "too_many_sessions": "there are more sessions than limits.sessions_per_home",
    "too_many_processes": "too many processes have the database open",
}


def why_unreachable(reason: str) -> str:
    """Return the reason of an `Unreachable` as the end of a sentence."""
    return _WHY.get(reason, reason.replace("_", " "))


def why_blocked(reason: str) -> str:
    """Return the reason of a `PruneReport` why nothing is pruned, as the end of a sentence."""
    return _BLOCKED.get(reason) or f"this cannot be seen: {blind_in_words([reason])}"
