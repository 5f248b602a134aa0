"""The sentences that explain a verdict, for `explain` and for the page of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from exporter.config.settings import REAPABLE_SOURCES

MEANING: Final = {
    "live": "A process is running it, or was a moment ago.",
    "held": "It is not running, but a chat or a handoff will return to it.",
    "dead": "No process is running it, and none will ever end it.",
    "exempt": "Sessions of its source are never reaped.",
    "unknown": "Not enough is known to call it dead, so it is left alone.",
}
_GIVEN_BACK: Final = "It is not running, but an undo gave it back, so it stays open for a while."
_RULES: Final = {
    "no_sign_of_life": "there is no sign of life",
    "not_held": "nothing will return to it",
    "source": "sessions of its source are reaped",
    "all_visible": "every process that could run it can be seen",
    "idle_long_enough": "it is idle for as long as the processes here ask for",
    "confirmed": "several scans agree",
}
_CHANGE: Final = {
    "source": "naming its source under reaper.sources",
    "not_held": "the end of what holds it",
    "all_visible": "what `hermes-exporter check` says to grant",
    "idle_long_enough": "the end of that process, or so much more time without a message",
    "confirmed": "another scan",
}
_PASSES: Final = frozenset({"activity", "heartbeat", "backend", "turn_lease"})
"""Signs of life that pass by themselves; any other is a process that names the session."""
_NEVER: Final = "nothing, for sessions of this source are never reaped"


def meaning(found: Mapping[str, Any]) -> str:
    """Return what the verdict means for the session that `explain --json` prints."""
    return _GIVEN_BACK if _is_held_by_undo(found) else MEANING[found["verdict"]]


def _is_held_by_undo(found: Mapping[str, Any]) -> bool:
    """True if it is held, and for no other reason than that an undo gave it back."""
    holds = {each["kind"] for each in found["evidence"] if each["says"] == "held"}
    return found["verdict"] == "held" and holds == {"restored"}


def rule_sentence(rule: Mapping[str, Any]) -> str:
    """Return one of the rules that `explain --json` prints as a sentence."""
    return f"{_RULES.get(rule['rule'], rule['rule'])}: {rule['why']}"


def what_would_change(found: Mapping[str, Any]) -> str:
    """Return what would change the verdict on the session that `explain --json` prints."""
    missing = [rule["rule"] for rule in found["rules"] if not rule["holds"]]
    if not missing:
        return "a message, a process that could run it, or a chat that leads to it"
    if "source" in missing and found["source"] not in REAPABLE_SOURCES:
        return _NEVER
    if _is_held_by_undo(found):
        return "the end of that time, or `reap --include-undone`"
    others = [name for name in missing if name != "confirmed"]
    change = {**_CHANGE, "no_sign_of_life": _end_of_life(found)}
    return "; ".join(change.get(name, name) for name in others or missing)


def _end_of_life(found: Mapping[str, Any]) -> str:
    signs = {each["kind"] for each in found["evidence"] if each["says"] == "live"}
    ends = ["the end of the process that names it"] if signs - _PASSES else []
    return " and ".join([*ends, "time without activity"] if signs & _PASSES or not ends else ends)
