"""The interface of removers, made so that a run can be killed at any moment.

A remover runs under the run lock, as the home's owner. The journal has the action before `take` is
called and gets its result afterwards. So after a kill `take` and `restore` may be called again, and
must find out themselves what is left to do.
"""

from __future__ import annotations

from typing import Protocol

from exporter.runs.models import RecordedAction
from exporter.runs.trash import RunTrash


class Remover(Protocol):
    """Takes and restores targets of one kind."""

    def take(self, action: RecordedAction, trash: RunTrash | None) -> str:
        """Take it if it is still as expected; return why it was skipped, or ''.

        Without a trash it is deleted: only certain garbage, in an emergency.
        """

    def was_taken(self, action: RecordedAction, trash: RunTrash | None) -> bool:
        """True if a killed run had taken it. Finishes or undoes what was half done."""

    def restore(self, action: RecordedAction, trash: RunTrash) -> str:
        """Restore it exactly as it was; return why not, or ''. Never overwrites newer data."""
