"""Sessions that we ended or deleted, and that may be in use again; healing looks at them.

It is asked at every scan, so it only compares what the scan and the journal say. Healing then finds
out whether a session is in use and what it must get back: `exporter.reaper.reopen` for reaped
sessions, `exporter.pruner.apply.reborn` for pruned ones.
"""

from __future__ import annotations

from msgspec import structs

from exporter.runs.summary import KnownRuns
from exporter.scan.database import StateReader
from exporter.snapshot import SessionUsage, session_key


class UsedAgain:
    """What changed of such sessions since they were last healed."""

    def __init__(self) -> None:
        self.suspects: frozenset[str] | None = frozenset()
        """Sessions that we ended and that may have been used since; None: any of them."""
        self.knows_runs = True
        """False if the journal could not be read: healing must repair it, if it is damaged."""
        self._known_ended: frozenset[str] = frozenset()
        self._moved: set[str] | None = set()
        """Sessions that changed since the journal was last read; None: all."""
        self._rows_used = True
        """An emptied row, or a child of it, may have changed since the last healing."""
        self._in_trash: frozenset[str] = frozenset()
        self._keys_in_trash: frozenset[int] = frozenset()

    # Reaped sessions

    @property
    def to_heal(self) -> bool:
        return self.suspects is None or bool(self.suspects)

    def healed(self) -> None:
        self.suspects = frozenset()

    def update(
        self, moved: set[str] | None, state: StateReader, runs: KnownRuns, end_reason: str
    ) -> None:
        """Find sessions that we ended and that may be in use again: they or a child changed.

        One with our end reason that no journal lists was reaped too: the journal was lost, or is
        older than the database. It counts as reaped when it was first seen.
        """
        self._rows_used |= moved is None or not moved.isdisjoint(runs.in_trash)
        self._moved = None if moved is None or self._moved is None else self._moved | moved
        self.knows_runs = runs.readable
        if not runs.readable:
            self.suspects = None
            return  # remember the changes until it says what we ended
        ended, moved = runs.ended, self._moved
        self._moved = set()
        if moved is None:
            self.suspects = None if ended else frozenset()
        elif self.suspects is not None:
            # A session that the journal lists only now may have been used before.
            self.suspects |= (ended & moved) | (ended - self._known_ended)
            self.suspects |= {each for each in moved if state.table.has_ended_for(each, end_reason)}
        self._known_ended = ended

    # Pruned sessions

    def healed_prunes(self) -> None:
        self._rows_used = False

    def mark_reborn(self, usage: SessionUsage, runs: KnownRuns) -> SessionUsage:
        """Mark the usage of a session that exists again without its history: it is incomplete."""
        if runs.in_trash is not self._in_trash:
            self._in_trash = runs.in_trash
            self._keys_in_trash = frozenset(map(session_key, self._in_trash))
        return structs.replace(usage, reborn=True) if usage.key in self._keys_in_trash else usage

    def has_reborn(self, state: StateReader, runs: KnownRuns) -> bool:
        """True if there seems to be work for `exporter.pruner.apply.reborn`.

        A pruned session exists while its history is in the trash, its emptied row may have been
        used, or no process can need that row any more.
        """
        present = [each for each in runs.in_trash if each in state.table]
        emptied = [each for each in present if state.table.is_emptied(each)]
        if len(emptied) < len(present) or (emptied and self._rows_used):
            return True
        if not runs.kept_rows:
            return False
        from exporter.pruner.apply.emptied import rows_that_may_go  # only after such a prune

        return any(rows_that_may_go(runs.kept_rows, lambda: state.writes_turns_late))
