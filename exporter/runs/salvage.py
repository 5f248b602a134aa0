"""Replace a damaged run journal by its readable part.

A damaged page or a changed byte must cost only the actions that were stored there. Tables are read
from both ends up to the damage. An action that cannot be decoded, or is missing between others, is
replaced by an entry that says so, so that an undo names it. The damaged file is kept.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from types import NoneType
from typing import Any, Final

import apsw
import msgspec

from exporter.runs.folder import RunError, RunFolder
from exporter.runs.journal_file import FILE, TRIMMED_SCHEMA, opened, prepare, transaction
from exporter.runs.models import FINISH_ROW, UNREADABLE, ActionState, RunKind, RunOutcome
from exporter.runs.trash import KEEP_ANEW_SECONDS, runs_in_trash

DAMAGED: Final = f"{FILE}.damaged"
_NEW: Final = f"{FILE}.new"
_WHY: Final = "its entry in the run journal was damaged"
_RUN: Final = 9
_ACTION: Final = 15
_TRIMMED_RUN: Final = 6
"""How many columns the tables have."""


def is_damaged(connection: apsw.Connection) -> bool:
    """True if not all of a journal can be read; reads all of it."""
    try:
        whole = connection.pragma("quick_check") == "ok"
        runs = connection.execute("SELECT * FROM runs").fetchall()
        actions = connection.execute("SELECT * FROM actions")
        return not (whole and all(map(_is_run, runs)) and all(map(_is_action, actions)))
    except (apsw.CorruptError, apsw.NotADBError):
        return True


def salvage(folder: RunFolder, clock: Callable[[], float] = time.time) -> None:
    """Put a new journal in the place of a damaged one; under the run lock, with no connection."""
    _unlink(folder, _NEW)
    path = folder.file(_NEW, create=True) or ""
    with opened(path) as connection:
        prepare(connection, path)
        with transaction(connection):
            _fill(connection, os.path.join(folder.path, FILE), clock(), _trashed(folder))
    _unlink(folder, DAMAGED)
    place = folder.descriptor
    os.link(FILE, DAMAGED, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
    # SQLite would roll back any file of the journal's name with this.
    _unlink(folder, f"{FILE}-journal")
    os.rename(_NEW, FILE, src_dir_fd=place, dst_dir_fd=place)
    os.fsync(place)


def _trashed(folder: RunFolder) -> list[str]:
    try:
        return runs_in_trash(folder)
    except RunError:
        return []  # the trash cannot be opened: nothing can be restored from it


def _unlink(folder: RunFolder, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder.descriptor)
    except FileNotFoundError:
        pass


def _fill(connection: apsw.Connection, damaged: str, now: float, trashed: Sequence[str]) -> None:
    with closing(apsw.Connection(damaged, flags=apsw.SQLITE_OPEN_READONLY)) as source:
        runs = {row[0]: row for row in _rows(source, "SELECT * FROM runs ORDER BY id")}
        noted = {run for (run,) in _rows(source, "SELECT DISTINCT run FROM actions ORDER BY run")}
        past = _rows(source, "SELECT * FROM trimmed_runs ORDER BY run")
        trimmed = {row[0] for row in past}
        for run in sorted({*runs, *noted}, key=str):
            row = runs.get(run)
            actions = list(_actions(source, run, has_gaps=run in trimmed))
            if row is None or not _is_run(row):
                row = _run_of(run, actions, now, has_trash=run in trashed)
            if row is not None:
                _insert(connection, "runs", _RUN, [row])
                _insert(connection, "actions", _ACTION, actions)
        strangers = _rows(source, "SELECT * FROM strangers ORDER BY target, mark")
        totals = _rows(source, "SELECT * FROM trimmed ORDER BY totals")
    if past:
        connection.execute(TRIMMED_SCHEMA)
        _insert(connection, "trimmed_runs", _TRIMMED_RUN, past)
        _insert(connection, "trimmed", 1, totals)
    _insert(connection, "strangers", 3, strangers)
    why = "the run journal was damaged, and some of what it protected is not known any more"
    connection.execute("INSERT INTO breaker VALUES (?, ?)", (now, why))


def _insert(
    connection: apsw.Connection, table: str, columns: int, rows: Sequence[Sequence[Any]]
) -> None:
    places = ", ".join("?" * columns)
    into = f"INSERT OR IGNORE INTO {table} VALUES ({places})"  # noqa: S608 - names of ours
    connection.executemany(into, rows)


def _rows(source: apsw.Connection, query: str, *values: Any) -> list[Sequence[Any]]:
    """Return the rows of a query, read from both ends up to the damage."""
    found: list[list[Sequence[Any]]] = []
    for order in (query, f"{query} DESC"):
        found.append([])
        try:
            found[-1].extend(source.execute(order, values))
        except apsw.Error:
            continue
        return found[-1] if order is query else found[-1][::-1]
    forward, backward = found
    return [*forward, *(row for row in reversed(backward) if row not in forward)]


def _actions(source: apsw.Connection, run: str, *, has_gaps: bool) -> Iterator[Sequence[Any]]:
    """The actions of a run; in place of what cannot be read there is something that says so.

    With `has_gaps` some of them are long past and were trimmed.
    """
    rows = _rows(source, "SELECT * FROM actions WHERE run = ? ORDER BY number", run)
    found = {row[1]: row for row in rows if isinstance(row[1], int)}
    for number in range(max(found, default=-1) + 1):
        row = found.get(number)
        if row is not None and _is_action(row):
            yield row
        elif row is not None or not has_gaps:
            yield _unreadable(run, number, row)


def _unreadable(run: str, number: int, row: Sequence[Any] | None) -> Sequence[Any]:
    target = row[4] if row is not None and isinstance(row[4], str) else f"action {number}"
    skipped = ActionState.SKIPPED.value
    empty = ("{}", "{}", "[]", None, None)
    return (run, number, UNREADABLE, "", target, "", 0, *empty, skipped, _WHY, None)


def _run_of(
    run: object, actions: Sequence[Sequence[Any]], now: float, *, has_trash: bool
) -> Sequence[Any] | None:
    """Return a run of which only the actions are left; None if its kind is not known either.

    What it has in the trash can be restored, and is needed if Hermes goes on with a session of it.
    """
    names = {row[2] for row in actions} - {UNREADABLE}
    if not isinstance(run, str) or not names:
        return None
    kind = RunKind.PRUNE if any(name.startswith(("delete_", "purge_")) for name in names) else None
    kind = kind or (RunKind.HEAL if FINISH_ROW in names else None)
    kind = kind or (RunKind.REAP if "end_session" in names else RunKind.UNDO)
    left_open = any(row[12] == ActionState.INTENDED.value for row in actions)
    outcome = None if left_open else RunOutcome.PARTIAL.value
    finished_at = None if left_open else now
    until = now + KEEP_ANEW_SECONDS if has_trash or kind is RunKind.REAP else None
    return (run, kind.value, "", 0, now, finished_at, outcome, "its entry was damaged", until)


def _is_run(row: Sequence[Any]) -> bool:
    """True if a run wrote this."""
    try:
        RunKind(row[1])
        _ = row[6] is None or RunOutcome(row[6])
        texts, times = (row[0], row[2], row[7]), (row[5], row[8])
        known = _are((str,), texts) and isinstance(row[3], int) and isinstance(row[4], float)
        return known and _are((float, NoneType), times)
    except ValueError:
        return False


def _is_action(row: Sequence[Any]) -> bool:
    try:
        ActionState(row[12])
        before, after, evidence = (msgspec.json.decode(each) for each in row[7:10])
    except (ValueError, TypeError, msgspec.MsgspecError):
        return False
    values = isinstance(before, dict) and isinstance(after, dict) and isinstance(evidence, list)
    group = after.get("group") if values else None
    return (
        values
        and isinstance(group, int | None)
        and _are((str,), (*row[2:6], row[13]))
        and _are((int,), (row[1], row[6]))
        and isinstance(row[10], str | None)
        and isinstance(row[11], int | None)
        and isinstance(row[14], float | None)
    )


def _are(types: tuple[type, ...], values: Sequence[Any]) -> bool:
    return all(isinstance(each, types) for each in values)
