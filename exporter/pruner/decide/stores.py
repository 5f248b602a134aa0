"""The stores of a home: `prune.caps.share` limits what part of each goes in 24 hours."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct

from exporter.hermes.paths import SESSIONS
from exporter.pruner.models import Act

_SESSIONS_FOLDER: Final = SESSIONS.decode() + "/"


class Store(StrEnum):
    SESSIONS = "sessions"
    TRANSCRIPTS = "transcripts"
    CHECKPOINTS = "checkpoints"


class Amount(Struct, frozen=True):
    """Some items of a store."""

    items: int = 0
    amount: int = 0
    """In the unit of its share: sessions by their number, files and checkpoints in bytes."""

    def plus(self, more: Amount) -> Amount:
        return Amount(self.items + more.items, self.amount + more.amount)


def store_of(action: Act, target: str) -> Store | None:
    """Return the store that an action takes from; None for files that belong to none."""
    if action is Act.DELETE_SESSION:
        return Store.SESSIONS
    if action in (Act.DELETE_REPO, Act.DELETE_PROJECT):
        return Store.CHECKPOINTS
    if action is Act.DELETE_FILE and target.startswith(_SESSIONS_FOLDER):
        return Store.TRANSCRIPTS
    return None
