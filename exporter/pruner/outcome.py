"""What became of a prune, an undo or a purge."""

from __future__ import annotations

from msgspec import Struct

from exporter.pruner.models import Frees, Target
from exporter.runs.models import RunOutcome
from exporter.snapshot import Bytes, Text, Word


class LeftAlone(Struct, frozen=True):
    """A target that was left alone, and why."""

    target: Target
    why: Text


class Outcome(Struct, frozen=True):
    """What became of a plan."""

    run: Word | None
    """None if nothing was begun."""
    outcome: RunOutcome
    done: tuple[Target, ...] = ()
    skipped: tuple[LeftAlone, ...] = ()
    why: Text = ""
    """What stopped it, if anything did."""
    freed: dict[Frees, Bytes] = {}
    """Bytes of what was done, by when they come free."""
    kept_bytes: Bytes = 0
    """What the deleted sessions take in the trash."""
    longest_hold_seconds: float = 0.0
    """For how long at most the write lock of state.db was held at a time."""


class Returned(Struct, frozen=True):
    """What became of an undo."""

    run: str
    """The run that was undone."""
    restored: tuple[Target, ...]
    failed: tuple[LeftAlone, ...]
    why: Text = ""
    """What stopped it, if anything did."""
    notes: tuple[LeftAlone, ...] = ()
    """What was given back, but could not be quite as it was."""
    longest_hold_seconds: float = 0.0
    is_known: bool = True
    """False if what was given back could not be noted or seen."""
