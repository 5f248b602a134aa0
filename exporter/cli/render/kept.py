"""What a plan keeps, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from exporter.runs.models import ProtectedCount
from exporter.text import format_count

_ONE_AND_MANY: Final[dict[str, tuple[str, str]]] = {
    "open": ("open session", "open sessions"),
    "newest": ("among the newest sessions", "among the newest sessions"),
    "pinned": ("pinned session", "pinned sessions"),
    "archived": ("archived session", "archived sessions"),
    "kept_source": ("session of a kept source", "sessions of kept sources"),
    "titled": ("titled session", "titled sessions"),
    "held": ("session that something will return to", "sessions that something will return to"),
    "routed": ("session of a chat", "sessions of chats"),
    "leased": ("session of a running turn", "sessions of running turns"),
    "reaped": ("reaped not long ago", "reaped not long ago"),
    "restored": ("given back by an undo", "given back by an undo"),
    "possible_host": ("possibly in use by a process", "possibly in use by a process"),
    "clocks": ("without trustworthy times", "without trustworthy times"),
    "unfit_id": ("with an id that Hermes does not make", "with ids that Hermes does not make"),
    "emptied": ("emptied, and waiting for a process", "emptied, and waiting for a process"),
    "delegates": ("session with delegated tasks", "sessions with delegated tasks"),
    "lineage": ("part of a kept conversation", "parts of kept conversations"),
    "open_parent": ("task of an open session", "tasks of open sessions"),
    "open_child": ("parent of an open session", "parents of open sessions"),
    "hermes_prunes": ("that Hermes prunes itself", "that Hermes prunes itself"),
    "newest_file": ("newest file of its folder", "newest files of their folders"),
    "not_own": ("of another owner", "of another owner"),
    "unfinished_run": ("of a run that is not settled", "of runs that are not settled"),
    "last_copy": ("transcript that may be the last copy", "transcripts that may be last copies"),
    "trash": ("run whose trash is still kept", "runs whose trash is still kept"),
}


def kept_in_words(kept: Sequence[ProtectedCount]) -> str:
    """Return `13 delegated tasks, 5 among the newest sessions`, the most first."""
    return ", ".join(
        _phrase(each.rule, each.items)
        for each in sorted(kept, key=lambda each: (-each.items, each.rule))
    )


def _phrase(rule: str, items: int) -> str:
    one, many = _ONE_AND_MANY.get(rule, (rule.replace("_", " "),) * 2)
    return f"{format_count(items)} {one if items == 1 else many}"
