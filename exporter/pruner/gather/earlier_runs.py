"""Reads what a plan must know about earlier runs.

That is: their trash, sessions that were reaped, deleted or restored, what automatic runs took in
the last 24 hours, and bytes that wait for a `git gc`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgspec import Struct

from exporter.config.prune import ThresholdName
from exporter.errors import HomeError
from exporter.evidence.openers import KnownOpeners
from exporter.pruner.decide.caps import WINDOW_SECONDS
from exporter.pruner.decide.inventory import InventorySession, TakenRecently, TrashedRun
from exporter.pruner.decide.stores import Amount, Store, store_of
from exporter.pruner.decide.trash_wait import why_not_purged
from exporter.pruner.models import ITEMS_MAX, Act, PruneMemory
from exporter.runs.folder import RunFolder, run_folder
from exporter.runs.journal import RunJournal, journal_of
from exporter.runs.models import ENDS, RunKind
from exporter.runs.remove_tree import measure_tree
from exporter.runs.trash import holds_rows, trash_folder, trash_of
from exporter.writing.target import Target

if TYPE_CHECKING:
    from exporter.pruner.gather.inventory_reader import InventoryRequest


class EarlierRuns(Struct, frozen=True):
    """What the journal and the trash of a home say."""

    trash: tuple[TrashedRun, ...] = ()
    restored: frozenset[str] = frozenset()
    reaped_at: dict[str, float] = {}
    unrecorded_reaps: dict[str, float] = {}
    """Sessions with our end reason that no journal lists, and when they were first seen."""
    deleted: dict[str, float] = {}
    """When runs deleted sessions that no undo has restored."""
    unsettled: frozenset[str] = frozenset()
    """Sessions that an unfinished run was about to delete."""
    given_back: frozenset[str] = frozenset()
    """Everything that an undo has ever restored."""
    projects: tuple[tuple[float, int], ...] = ()
    """When each project was taken from the store, and its bytes."""
    taken_recently: TakenRecently = TakenRecently()
    """What automatic runs took in the last 24 hours."""
    purged_bytes: int = 0
    """Trash that was emptied since the filesystem came under pressure."""
    unreadable: tuple[str, ...] = ()


def read_runs(
    home: str, request: InventoryRequest, sessions: Sequence[InventorySession], now: float
) -> EarlierRuns:
    """Read the journal. If it exists and cannot be read, everything is protected."""
    try:
        with journal_of(home, request.owner) as runs:
            if runs is None:
                reaped_at, unrecorded_reaps = _reaped(None, sessions, request, now)
                return EarlierRuns(reaped_at=reaped_at, unrecorded_reaps=unrecorded_reaps)
            reaped_at, unrecorded_reaps = _reaped(runs, sessions, request, now)
            return EarlierRuns(
                trash=tuple(_trash(home, request, runs)),
                restored=frozenset(runs.restored_since(now - request.undone_seconds)),
                reaped_at=reaped_at,
                unrecorded_reaps=unrecorded_reaps,
                deleted=runs.done_at(Act.DELETE_SESSION.value),
                unsettled=frozenset(runs.unsettled(Act.DELETE_SESSION.value)),
                given_back=frozenset(runs.restored()),
                projects=tuple(
                    (each.settled_at or 0.0, each.action.bytes)
                    for each in runs.done_actions(Act.DELETE_PROJECT.value)
                ),
                taken_recently=_taken_recently(runs, now - WINDOW_SECONDS),
                purged_bytes=_purged_bytes(runs, request.memory),
            )
    except (HomeError, OSError):
        return EarlierRuns(
            unrecorded_reaps=dict(request.memory.unrecorded_reaps), unreadable=("run_journal",)
        )


def _reaped(
    runs: RunJournal | None,
    sessions: Sequence[InventorySession],
    request: InventoryRequest,
    now: float,
) -> tuple[dict[str, float], dict[str, float]]:
    """Return when sessions were reaped, and when unrecorded reaps were first seen.

    A recorded reap counts whatever its end reason: the setting may have changed since.
    """
    noted: dict[tuple[str, float | None], float] = {}
    if runs is not None and sessions:
        for each in runs.done_actions(*ENDS):
            key = (each.action.target, each.after.get("ended_at"))
            noted.setdefault(key, each.settled_at or now)
    reaped_at: dict[str, float] = {}
    unrecorded_reaps: dict[str, float] = {}
    for session in sessions:
        when = noted.get((session.id, session.ended_at))
        if when is None and session.end_reason != request.end_reason:
            continue
        if when is None:
            when = min(request.memory.unrecorded_reaps.get(session.id, now), now)
            if len(unrecorded_reaps) < ITEMS_MAX:
                unrecorded_reaps[session.id] = when
        reaped_at[session.id] = when
    return reaped_at, unrecorded_reaps


def _purged_bytes(runs: RunJournal, memory: PruneMemory) -> int:
    known = memory.thresholds.get(ThresholdName.DISK_USED.value)
    if known is None or known.pressing_since is None:
        return 0
    return runs.done_bytes_since(Act.PURGE_TRASH.value, known.pressing_since)


def _taken_recently(runs: RunJournal, since: float) -> TakenRecently:
    items = size = 0
    stores: dict[Store, Amount] = {}
    first_at: float | None = None
    for taken in runs.taken_automatically(RunKind.PRUNE, since):
        if taken.frees_now or taken.action not in set(Act):
            continue  # emptied trash, or what an emergency freed at once
        items += 1
        size += taken.bytes
        first_at = taken.at if first_at is None else min(first_at, taken.at)
        store = store_of(Act(taken.action), taken.target)
        if store is not None:
            amount = 1 if store is Store.SESSIONS else taken.bytes
            stores[store] = stores.get(store, Amount()).plus(Amount(1, amount))
    return TakenRecently(items, size, stores, first_at)


def _rows_bytes(folder: RunFolder, run: str) -> int:
    """Return what the rows of sessions take in the trash of a run."""
    with trash_of(folder, run) as trash:
        if trash is None:
            return 0
        return sum(
            measure_tree(trash.descriptor, os.fsencode(name))
            for name in os.listdir(trash.descriptor)
            if holds_rows(name)
        )


def _trash(home: str, request: InventoryRequest, journal: RunJournal) -> list[TrashedRun]:
    """Return what finished runs left in the trash. Trash that no journal lists is left alone."""
    known = {run.id: run for run in journal.list_runs() if run.finished_at is not None}
    openers = KnownOpeners.of_holders(request.facts.holders)
    target = Target(home, request.owner, openers)
    found: list[TrashedRun] = []
    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(home, request.owner))
        trash = stack.enter_context(trash_folder(folder)) if folder is not None else None
        for name in sorted(os.listdir(trash)) if trash is not None else ():
            run = known.get(name)
            if trash is None or run is None:
                continue
            until = run.undoable_until
            taken_at = run.finished_at or run.started_at
            found.append(
                TrashedRun(
                    run=run.id,
                    allocated_bytes=measure_tree(trash, name.encode()),
                    waiting_bytes=_rows_bytes(folder, name)
                    if folder is not None and why_not_purged(target, journal, name)
                    else 0,
                    taken_at=taken_at,
                    kept_until=taken_at + request.trash_keep_seconds if until is None else until,
                )
            )
    return found
