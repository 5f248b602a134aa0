"""Taking sessions: written to the trash first, then deleted in transactions that nobody feels.

What the plan was made from is compared again under the write lock. A unit, which is a session or a
group of them, is deleted in one transaction, so that Hermes sees all of it or nothing. One that
would not fit into the budget is first taken out of the text index, slice by slice; should it come
to life meanwhile, it is put back there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final, TypeVar

import apsw

from exporter.errors import DatabaseError
from exporter.hermes.schema import probe_schema
from exporter.pruner.apply.recheck import Gone, Inspection
from exporter.pruner.apply.session_trash import Kept, Overview, keep, kept_sessions, overview
from exporter.runs.models import Action, ActionState, Settlement
from exporter.runs.take_actions import CalledOffError
from exporter.runs.trash import TrashRun
from exporter.writing.batch_size import Pace
from exporter.writing.connection import LOCK_LIMIT_SECONDS, Writer, without_triggers
from exporter.writing.index_upkeep import (
    ALONE_AFTER,
    ATTEMPTS,
    checkpoint,
    index_again,
    merge_what_is_due,
    read_patiently,
    rest,
    until_due,
)
from exporter.writing.search_index import Cut, not_in_index, probe_search_index, take_out, weights
from exporter.writing.session_rows import (
    SessionParts,
    delete_session,
    exists,
    has_begun_at,
    probe_layout,
    read_session,
)
from exporter.writing.target import Target

Unit = tuple[Action, ...]
"""Sessions that go together, children first."""
Settle = Callable[[Sequence[Settlement]], None]
Answer = TypeVar("Answer")

CACHE_KIBIBYTES: Final = 32 * 1024
_CHUNK_MESSAGES: Final = 2_000
_CHUNK_SESSIONS: Final = 200
_CHUNK_BYTES: Final = 16 << 20
_PATIENCE_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
"""How long to wait, each time that something is not clear, before the rest is given up."""


class _Prepared:
    """A unit that has been read, and is in the trash."""

    def __init__(self, unit: Unit, parts: Sequence[SessionParts]) -> None:
        self.unit = unit
        self.parts = parts
        self.work = {k: v for each in parts for k, v in weights(each.messages).items()}
        self.message_ids = list(self.work)
        self.out_of_index: list[int] = []
        """Of its messages those that have left the text index ahead of the rest."""
        self.attempts = 0
        self.cut = _cut(parts)

    @property
    def weight(self) -> int:
        """How much there is to do to take it out of the text index."""
        return sum(self.work.values())


class SessionEffect:
    """Takes the sessions of one run."""

    def __init__(self, target: Target) -> None:
        self._target = target
        """Sessions that living processes are known to be on, and so on no other."""
        self._pace = Pace(target.lock_budget_seconds)
        self._gone = Gone()
        self.longest_hold_seconds = 0.0
        self.kept_bytes = 0

    def take(self, units: Sequence[Unit], trash: TrashRun, settle: Settle) -> str:
        """Take these units, and settle each; return what stopped it, if anything did.

        Raise DatabaseError if what became of the last ones cannot be told: they stay open.
        """
        waiting = list(units)
        while waiting:
            chunk = waiting[: _chunk_length(waiting)]
            settled: list[Settlement] = []
            try:
                self._take_chunk(chunk, trash, settled)
            except CalledOffError as reason:
                settle([*settled, *_skip(_unsettled(waiting, settled), str(reason))])
                return ""
            except (DatabaseError, OSError) as error:
                why = _said(error)
                left = _unsettled(waiting, settled)
                settle([*settled, *what_happened(self._target, left, trash, why)])
                return why
            settle(settled)
            waiting = waiting[len(chunk) :]
        return ""

    def _take_chunk(
        self, chunk: Sequence[Unit], trash: TrashRun, settled: list[Settlement]
    ) -> None:
        with self._target.writing() as writer:
            writer.connection.pragma("cache_size", -CACHE_KIBIBYTES)
            inspection = Inspection(self._target, self._gone, writer)
            prepared = _read(inspection, chunk, settled)
            if prepared:
                self.kept_bytes += keep(trash, [kept for each in prepared for kept in _kept(each)])
            while prepared:
                prepared = prepared[self._take_some(inspection, prepared, settled) :]
            checkpoint(self._target, writer)

    def _take_some(
        self, inspection: Inspection, prepared: Sequence[_Prepared], settled: list[Settlement]
    ) -> int:
        """Take the first of these in one transaction; return how many were dealt with."""
        first = prepared[0]
        alone = first.attempts >= ALONE_AFTER
        batch = prepared[: 1 if alone else self._pace.fitting([each.weight for each in prepared])]
        if not self._pace.fits(first.weight):
            why = self._take_out_of_index(inspection, first)
            if why:
                settled += _skip(first.unit, why)
                return 1
        try:
            results = self._patiently(inspection, lambda: self._delete(inspection, batch))
        except apsw.InterruptError:
            return self._too_long(inspection, batch, settled)
        except BaseException:
            self._index_again(inspection, first)
            raise
        for each, why in zip(batch, results, strict=False):
            if why:
                self._index_again(inspection, each)
                settled += _skip(each.unit, why)
            else:
                for parts in each.parts:
                    self._gone.add(parts)
                settled += [Settlement(action.number, ActionState.DONE) for action in each.unit]
        return len(results)

    def _delete(self, inspection: Inspection, batch: Sequence[_Prepared]) -> list[str]:
        """Delete what fits of these; for each that was looked at '' or why it was left alone."""
        writer = inspection.writer
        results: list[str] = []
        weight, seconds = 0, 0.0
        # What has left the text index need not be taken out of it by the triggers again.
        thin = len(batch[0].out_of_index) == len(batch[0].message_ids) > 0
        inspection.check_openers()
        with (
            without_triggers(writer) if thin else nullcontext(),
            writer.transaction() as transaction,
        ):
            inspection.look_again()
            looked = transaction.seconds
            for each in batch[:1] if thin else batch:
                if results and transaction.is_due:
                    break
                why = inspection.why_not_exactly(each.unit, each.parts)
                if not why:
                    for parts in each.parts:
                        delete_session(writer.connection, inspection.layout, parts)
                    weight += 0 if thin else each.weight + 1
                results.append(why)
            seconds = transaction.seconds - looked
        self._held(writer, weight, seconds)
        return results

    def _too_long(
        self, inspection: Inspection, batch: Sequence[_Prepared], settled: list[Settlement]
    ) -> int:
        """It was taken back whole. The machine may be slow just now, or it is a huge one."""
        first = batch[0]
        if not first.out_of_index:
            self._pace.was_too_long(sum(each.weight for each in batch), LOCK_LIMIT_SECONDS)
        self._note_hold(inspection.writer)
        first.attempts += 1
        self._target.sleep(first.attempts * self._target.pause_seconds)
        self._merge_what_is_due(inspection)
        if len(batch) > 1 or first.attempts < ATTEMPTS:
            return 0
        self._index_again(inspection, first)
        why = f"its {len(first.message_ids)} messages cannot be deleted in one short transaction"
        settled += _skip(first.unit, why)
        return 1

    def _take_out_of_index(self, inspection: Inspection, each: _Prepared) -> str:
        """Take a large unit out of the text index in slices; '' or why it was left alone."""
        if not inspection.layout.index.known:
            return ""
        why, attempts = "", 0
        try:
            while not why and len(each.out_of_index) < len(each.message_ids):
                left = each.message_ids[len(each.out_of_index) :]
                part = left[: self._pace.fitting([each.work[number] for number in left])]
                try:
                    why = self._patiently(inspection, partial(self._slice, inspection, each, part))
                except apsw.InterruptError:
                    attempts += 1
                    if attempts == ATTEMPTS:
                        why = "its messages cannot be taken out of the text index in time"
                    weight = sum(each.work[number] for number in part)
                    self._pace.was_too_long(weight, LOCK_LIMIT_SECONDS)
                    self._note_hold(inspection.writer)
                    self._target.sleep(attempts * self._target.pause_seconds)
                    self._merge_what_is_due(inspection)
        except BaseException:
            self._index_again(inspection, each)
            raise
        if why:
            self._index_again(inspection, each)
        return why

    def _slice(self, inspection: Inspection, each: _Prepared, part: Sequence[int]) -> str:
        writer = inspection.writer

        def take_one_out(message_id: int) -> None:
            take_out(writer.connection, inspection.layout.index, [message_id], each.cut)

        inspection.check_openers()
        with writer.transaction() as transaction:
            inspection.look_again()
            why = inspection.why_not(each.unit)
            looked = transaction.seconds
            done = 0 if why else until_due(transaction, part, take_one_out)
            seconds = transaction.seconds - looked
        if not why:
            each.out_of_index += part[:done]
            self._held(writer, sum(each.work[number] for number in part[:done]), seconds)
        return why

    def _index_again(self, inspection: Inspection, each: _Prepared) -> None:
        """Have a session found again that stays after all."""
        index_again(
            self._target,
            inspection.writer,
            self._pace,
            inspection.layout.index,
            each.parts,
            set(each.out_of_index),
        )
        each.out_of_index = []

    def _merge_what_is_due(self, inspection: Inspection) -> None:
        held = merge_what_is_due(self._target, inspection.writer, inspection.layout.index)
        self.longest_hold_seconds = max(self.longest_hold_seconds, held)

    def _patiently(self, inspection: Inspection, step: Callable[[], Answer]) -> Answer:
        """Make a step, again if it was called off: what is not clear now may be soon."""
        for seconds in _PATIENCE_SECONDS:
            try:
                return step()
            except CalledOffError:
                self._target.sleep(seconds)
                inspection.refresh()
        return step()

    def _held(self, writer: Writer, weight: int, seconds: float) -> None:
        """Learn from the last transaction, and give Hermes its turn."""
        self._note_hold(writer)
        self._pace.took(weight, seconds)
        rest(self._target, writer.held_seconds)

    def _note_hold(self, writer: Writer) -> None:
        self.longest_hold_seconds = max(self.longest_hold_seconds, writer.held_seconds)


def _chunk_length(units: Sequence[Unit]) -> int:
    """How many units to write to the trash at a time; at least one."""
    sessions = messages = size = 0
    for length, unit in enumerate(units):
        sessions += len(unit)
        messages += sum(int(action.intent.before.get("rows") or 0) for action in unit)
        size += sum(action.intent.bytes for action in unit)
        if length and (
            sessions > _CHUNK_SESSIONS or messages > _CHUNK_MESSAGES or size > _CHUNK_BYTES
        ):
            return length
    return len(units)


def _read(
    inspection: Inspection, chunk: Sequence[Unit], settled: list[Settlement]
) -> list[_Prepared]:
    """Those that are still as planned, with all their rows."""
    prepared: list[_Prepared] = []
    connection = inspection.writer.connection
    connection.execute("BEGIN")
    inspection.remember()
    for unit in chunk:
        why = inspection.why_not(unit)
        if why:
            settled += _skip(unit, why)
            continue
        found = [read_session(connection, inspection.layout, each.intent.target) for each in unit]
        prepared.append(_Prepared(unit, [parts for parts in found if parts is not None]))
    connection.execute("COMMIT")
    return prepared


def _kept(each: _Prepared) -> list[Kept]:
    return [Kept(action.number, parts) for action, parts in zip(each.unit, each.parts, strict=True)]


def _cut(parts: Sequence[SessionParts]) -> Cut:
    """Of several sessions, the messages that the text index holds only in part."""
    cut: Cut = {}
    for each in parts:
        for table, message_ids in each.cut.items():
            cut.setdefault(table, []).extend(message_ids)
    return cut


def _skip(actions: Sequence[Action], why: str) -> list[Settlement]:
    return [Settlement(each.number, ActionState.SKIPPED, why[:300]) for each in actions]


def _unsettled(units: Sequence[Unit], settled: Sequence[Settlement]) -> list[Action]:
    known = {each.number for each in settled}
    return [each for unit in units for each in unit if each.number not in known]


def _said(error: DatabaseError | OSError) -> str:
    if isinstance(error, OSError):
        return f"cannot write the trash: {error.strerror}; nothing more was deleted"
    return str(error)


# Runs that were killed, and transactions of which nobody knows whether they were committed


def what_happened(
    target: Target, actions: Sequence[Action], trash: TrashRun | None, otherwise: str
) -> list[Settlement]:
    """Which of these sessions have been taken: those that are in the trash, and nowhere else.

    Those that stay get back their place in the text index. Raise DatabaseError if the database
    cannot be read or written now.
    """
    if not actions:
        return []
    kept = overview(trash) if trash is not None else Overview()

    def stays(connection: apsw.Connection, action: Action) -> bool:
        session_id = action.intent.target
        if action.number not in kept.began_at:
            return exists(connection, session_id)
        # One that Hermes has begun anew was taken: its past is in the trash alone.
        return has_begun_at(connection, session_id, kept.began_at[action.number])

    there = read_patiently(
        target,
        lambda connection: {each.intent.target for each in actions if stays(connection, each)},
    )
    _mend_index(target, there, trash)
    settled: list[Settlement] = []
    for each in actions:
        if each.intent.target in there:
            settled += _skip([each], otherwise)
        # What cannot be read may hold any of those that are gone: an undo names each.
        elif each.number in kept.began_at or kept.damage:
            settled.append(Settlement(each.number, ActionState.DONE))
        else:
            settled += _skip([each], "it is gone")
    return settled


def _mend_index(target: Target, there: set[str], trash: TrashRun | None) -> None:
    """Only sessions of the newest file can have been in the middle of leaving the index."""
    newest = next(kept_sessions(trash, newest_only=True), []) if trash is not None else []
    suspects = [each.parts for each in newest if each.parts.id in there]
    if not suspects:
        return

    def lacking(connection: apsw.Connection) -> list[list[int]]:
        index = probe_search_index(connection, probe_schema(connection))
        return [not_in_index(connection, index, parts.id) for parts in suspects]

    found = read_patiently(target, lacking)
    if any(found):
        with target.writing() as writer:
            index = probe_layout(writer.connection).index
            lost = {message_id for message_ids in found for message_id in message_ids}
            index_again(target, writer, Pace(target.lock_budget_seconds), index, suspects, lost)
