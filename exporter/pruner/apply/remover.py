"""What the taking of one action has to offer, so that a run can be killed at any instant.

An effect is called under the run lock by the home's owner. The journal holds the intent before
`take` is called and learns what became of it afterwards, so `take`, `restore` and `purge` may be
repeated after a kill and must then find out by looking what is left to be done.
"""

from __future__ import annotations

from typing import Protocol

from exporter.runs.models import RecordedAction
from exporter.runs.trash import RunTrash


class Remover(Protocol):
    """Takes, and gives back, actions of one kind."""

    def take(self, action: RecordedAction, trash: RunTrash | None) -> str:
        """Take it if everything expected still holds; return '' or why it was left alone.

        Without a trash it is gone for good: only for what is provably garbage, in an emergency.
        """

    def was_taken(self, action: RecordedAction, trash: RunTrash | None) -> bool:
        """Whether a run that was killed had taken it; what was half done is finished or undone."""

    def restore(self, action: RecordedAction, trash: RunTrash) -> str:
        """Put it back exactly as it was; return '' or why not. Never overwrite what is newer."""
