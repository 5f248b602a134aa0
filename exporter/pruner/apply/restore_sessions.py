"""Giving back sessions: their rows with the ids they had, found by search as before.

A session comes back in one transaction, so that Hermes sees all of it or nothing. Nearly all the
time goes into the text index. So messages are put there first, slice by slice, where no search
shows them without their rows; those follow, of many sessions at a time. Nothing that Hermes has
written since is ever overwritten: where it has gone on with a session, or given out the ids of its
messages again, the past is merged in (`exporter.pruner.apply.merge_sessions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import apsw

from exporter.errors import DatabaseError
from exporter.hermes.schema import probe_schema
from exporter.pruner.apply.delete_sessions import CACHE_KIBIBYTES, Settle
from exporter.pruner.apply.merge_sessions import SessionMerge
from exporter.pruner.apply.session_trash import kept_sessions, why_not_kept
from exporter.runs.models import Action, ActionState, Settlement
from exporter.runs.trash import TrashRun
from exporter.writing.batch_size import Pace
from exporter.writing.connection import LOCK_LIMIT_SECONDS, Writer, without_triggers
from exporter.writing.index_upkeep import (
    ALONE_AFTER,
    ATTEMPTS,
    checkpoint,
    in_slices,
    index_again,
    read_patiently,
    rest,
)
from exporter.writing.search_index import (
    SearchIndex,
    not_in_index,
    numbers_are_taken,
    probe_search_index,
    put_in_again,
    strays_among,
    take_numbers,
    take_out_strays,
    weights,
)
from exporter.writing.session_merge import is_back, needs_merge
from exporter.writing.session_rows import (
    Layout,
    Misfit,
    SessionParts,
    exists,
    probe_layout,
    restore_session,
)
from exporter.writing.target import Target

_LOOKED_AT: Final = 200
"""So many sessions at most come back in one transaction."""


class SessionReturn:
    """Gives back the sessions of one run."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._pace = Pace(target.lock_budget_seconds)
        self._rows = Pace(target.lock_budget_seconds)
        """The same for rows alone, without the text index."""
        self._merging = SessionMerge(target, self._pace)
        self._attempts: Counter[int] = Counter()
        self._weights: dict[str, int] = {}
        self._indexed: set[str] = set()
        """Sessions whose messages are in the text index already."""
        self._longest_hold_seconds = 0.0

    @property
    def longest_hold_seconds(self) -> float:
        return max(self._longest_hold_seconds, self._merging.longest_hold_seconds)

    def give_back(self, returning: Mapping[int, Action], trash: TrashRun, settle: Settle) -> str:
        """Give back sessions, by the numbers of the actions that took them; settle each.

        Return what stopped it, if anything did. Raise DatabaseError if what became of the last
        ones cannot be told: they stay open.
        """
        waiting = dict(returning)
        try:
            for file in kept_sessions(trash):
                # In reverse: what was deleted last comes back first, parents before children.
                found = [
                    (waiting.pop(kept.number), kept.parts)
                    for kept in reversed(file)
                    if kept.number in waiting
                ]
                coming = {each.intent.target for each in waiting.values()}
                self._give_back_file(found, coming, settle, trash)
        except DatabaseError as error:
            settle(what_came_back(self._target, list(waiting.values()), trash, str(error)))
            return str(error)
        if waiting:
            settle(_skip(list(waiting.values()), why_not_kept(trash)))
        return ""

    def _give_back_file(
        self,
        found: Sequence[tuple[Action, SessionParts]],
        coming: set[str],
        settle: Settle,
        trash: TrashRun,
    ) -> None:
        settled: list[Settlement] = []
        waiting = list(found)
        try:
            if waiting:
                with self._target.writing() as writer:
                    writer.connection.pragma("cache_size", -CACHE_KIBIBYTES)
                    layout = probe_layout(writer.connection)
                    while waiting:
                        some = self._give_back_some(writer, layout, waiting, coming)
                        settled += some
                        waiting = waiting[len(some) :]
                    checkpoint(self._target, writer)
        except DatabaseError as error:
            left = [action for action, _ in waiting]
            settle([*settled, *what_came_back(self._target, left, trash, str(error))])
            raise
        settle(settled)

    def _give_back_some(
        self,
        writer: Writer,
        layout: Layout,
        waiting: Sequence[tuple[Action, SessionParts]],
        coming: set[str],
    ) -> list[Settlement]:
        """The first of these, in one transaction; what became of those that were dealt with."""
        coming = coming | {action.intent.target for action, _ in waiting}
        if needs_merge(writer.connection, waiting[0][1]):
            return [self._merge(writer, layout, *waiting[0], coming)]
        pace = self._rows if layout.index.known else self._pace
        work = [self._weight(parts) for _, parts in waiting[:_LOOKED_AT]]
        action, parts = waiting[0]
        alone = self._attempts[action.number] >= ALONE_AFTER
        batch = waiting[: 1 if alone else pace.fitting(work)]
        fresh = [not needs_merge(writer.connection, parts) for _, parts in batch]
        batch = batch[: fresh.index(False) if False in fresh else None]
        try:
            if layout.index.known:
                return self._restore_indexed(writer, layout, batch, coming)
            return self._restore(writer, layout, batch, coming, pace)
        except apsw.InterruptError:
            self._longest_hold_seconds = max(self._longest_hold_seconds, writer.held_seconds)
            pace.was_too_long(sum(work[: len(batch)]), LOCK_LIMIT_SECONDS)
            self._indexed -= {each.id for _, each in batch}  # perhaps no more, then it takes long
            self._attempts[action.number] += 1
            self._target.sleep(self._attempts[action.number] * self._target.pause_seconds)
            if len(batch) > 1 or self._attempts[action.number] < ATTEMPTS:
                return []
            count = len(parts.messages.rows)
            why = f"its {count} messages cannot be put back in one short transaction"
            self._take_strays(writer, layout.index, [parts])
            return _skip([action], why)

    def _merge(
        self,
        writer: Writer,
        layout: Layout,
        action: Action,
        parts: SessionParts,
        coming: set[str],
    ) -> Settlement:
        try:
            note = self._merging.merge(writer, layout, parts, coming)
        except Misfit as reason:
            return Settlement(action.number, ActionState.SKIPPED, str(reason)[:300])
        return Settlement(action.number, ActionState.DONE, note)

    def _weight(self, parts: SessionParts) -> int:
        """How much there is to do for the text index; reckoned once."""
        if parts.id not in self._weights:
            self._weights[parts.id] = sum(weights(parts.messages).values())
        return self._weights[parts.id]

    def _restore_indexed(
        self,
        writer: Writer,
        layout: Layout,
        batch: Sequence[tuple[Action, SessionParts]],
        coming: set[str],
    ) -> list[Settlement]:
        new = [
            parts
            for _, parts in batch
            if parts.id not in self._indexed and not exists(writer.connection, parts.id)
        ]
        self._take_numbers(writer, [number for parts in new for number in parts.message_ids()])
        held = index_again(self._target, writer, self._pace, layout.index, new)
        self._longest_hold_seconds = max(self._longest_hold_seconds, held)
        self._indexed |= {parts.id for parts in new}
        # The text index has the messages already, so the triggers must not put them in again.
        with without_triggers(writer):
            settled = self._restore(writer, layout, batch, coming, self._rows)
        done = {each.number for each in settled if each.state is ActionState.DONE}
        dealt = batch[: len(settled) or 1]
        left = [parts for action, parts in dealt if action.number not in done]
        self._take_strays(writer, layout.index, left)
        return settled

    def _take_numbers(self, writer: Writer, message_ids: Sequence[int]) -> None:
        highest = max(message_ids, default=0)
        if highest and not numbers_are_taken(writer.connection, highest):
            writer.new_openers()
            with writer.transaction():
                take_numbers(writer.connection, highest)
            rest(self._target, writer.held_seconds)

    def _restore(
        self,
        writer: Writer,
        layout: Layout,
        batch: Sequence[tuple[Action, SessionParts]],
        coming: set[str],
        pace: Pace,
    ) -> list[Settlement]:
        settled: list[Settlement] = []
        weight = 0
        writer.new_openers()  # whoever came may stay; but nobody may have lost its locks
        with writer.transaction() as transaction:
            for action, parts in batch:
                if settled and transaction.is_due:
                    break
                if needs_merge(writer.connection, parts):
                    break  # Hermes has begun it anew since
                settled.append(_restored(writer, layout, action, parts, coming))
                weight += 1 + self._weight(parts)
            seconds = transaction.seconds
        self._longest_hold_seconds = max(self._longest_hold_seconds, writer.held_seconds)
        pace.took(weight, seconds)
        rest(self._target, writer.held_seconds)
        return settled

    def _take_strays(
        self, writer: Writer, index: SearchIndex, sessions: Sequence[SessionParts]
    ) -> None:
        """Take out of the text index what is there, if perhaps only in part, of these."""
        for parts in sessions:
            self._indexed.discard(parts.id)
            take_strays(self._target, writer, self._pace, index, parts, parts.message_ids())


def _restored(
    writer: Writer, layout: Layout, action: Action, parts: SessionParts, coming: set[str]
) -> Settlement:
    try:
        note = restore_session(writer.connection, layout, parts, coming)
    except Misfit as reason:
        return Settlement(action.number, ActionState.SKIPPED, str(reason)[:300])
    if layout.index.known:
        # Hermes may have made the index anew since they were put there.
        lost = not_in_index(writer.connection, layout.index, parts.id)
        put_in_again(writer.connection, layout.index, parts.messages, lost, parts.cut)
    return Settlement(action.number, ActionState.DONE, note)


def _skip(actions: Sequence[Action], why: str) -> list[Settlement]:
    return [Settlement(each.number, ActionState.SKIPPED, why[:300]) for each in actions]


def take_strays(
    target: Target,
    writer: Writer,
    pace: Pace,
    index: SearchIndex,
    parts: SessionParts,
    message_ids: Sequence[int],
) -> None:
    """Take messages out of the text index that were put there and have no rows."""

    def take(connection: apsw.Connection, message_id: int) -> None:
        take_out_strays(connection, index, [message_id], parts.cut)

    in_slices(target, writer, pace, index, weights(parts.messages), message_ids, take)


# Undos that were killed, and transactions of which nobody knows whether they were committed


def what_came_back(
    target: Target, actions: Sequence[Action], trash: TrashRun | None, otherwise: str
) -> list[Settlement]:
    """Which of these sessions are back; what is left in the index without its rows goes.

    One that is there only in part, or that Hermes has begun anew, is not: it is merged the next
    time. Raise DatabaseError if the database cannot be read or written now.
    """
    if not actions:
        return []
    targets = {each.intent.target for each in actions}
    suspects = _in_trash(trash, targets)

    def look(connection: apsw.Connection) -> set[str]:
        layout = probe_layout(connection)
        return {
            session_id
            for session_id in targets
            if (
                is_back(connection, layout, suspects[session_id])
                if session_id in suspects
                else exists(connection, session_id)
            )
        }

    there = read_patiently(target, look)
    # Also of those that are there: Hermes may have begun one anew.
    _clear_index(target, list(suspects.values()))
    return [
        Settlement(each.number, ActionState.DONE)
        if each.intent.target in there
        else Settlement(each.number, ActionState.SKIPPED, otherwise[:300])
        for each in actions
    ]


def _in_trash(trash: TrashRun | None, targets: set[str]) -> dict[str, SessionParts]:
    """Those of these that the trash has; of several copies the newest."""
    if trash is None:
        return {}
    found: dict[str, SessionParts] = {}
    for file in kept_sessions(trash):
        for kept in file:
            if kept.parts.id in targets:
                found.setdefault(kept.parts.id, kept.parts)
    return found


def _clear_index(target: Target, suspects: Sequence[SessionParts]) -> None:
    if not suspects:
        return

    def strays(connection: apsw.Connection) -> list[list[int]]:
        index = probe_search_index(connection, probe_schema(connection))
        return [strays_among(connection, index, parts.message_ids()) for parts in suspects]

    found = read_patiently(target, strays)
    if any(found):
        with target.writing() as writer:
            index, pace = probe_layout(writer.connection).index, Pace(target.lock_budget_seconds)
            for parts, message_ids in zip(suspects, found, strict=True):
                take_strays(target, writer, pace, index, parts, message_ids)
