"""In words, what of a home cannot be seen: JSON and metrics name it by one word."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_WORDS: Final = {
    "permissions": "open files of other users' processes",
    "hidepid": "other users' processes (hidepid)",
    "pid_namespace": "processes outside this PID namespace",
    "no_proc": "processes (no /proc)",
    "unreadable": "a process that could not be examined",
    "overlay": "processes that use the home through an overlay mount",
    "limited": "all open files of a user who has too many",
    "open_sessions": "its open sessions one by one: there are too many",
    "platform": "locks and other users' files, on this system",
    "network_fs": "other hosts that use this network filesystem",
    "unknown_fs": "other machines that may write this filesystem",
    "clock": "ages, because the clock was set",
    "leases": "runtime/active_sessions.json, which cannot be understood",
    "routing": "which chats lead to a session",
    "run_journal": "what earlier runs did: the run journal cannot be read",
    "processes": "which processes have it open",
    "database": "its database",
}


def blind_in_words(reasons: Iterable[str]) -> str:
    """Return what cannot be seen of a home."""
    return "; ".join(_WORDS.get(each, each.replace("_", " ")) for each in reasons)
