"""Replace a damaged run journal by its readable part.

A damaged page or a changed byte must cost only the actions that were stored there. Tables are read
from both ends up to the damage. An action that cannot be decoded, or is missing between others, is
replaced by an entry that says so, so that an undo names it. The damaged file is kept.

It is judged and read in a copy in memory, where nothing but damage can fail: no lock, no full disk
and no bad sector make a whole journal look damaged. That takes memory of twice the journal's size,
and no more: the memory of a worker is limited.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import apsw

from exporter.runs.folder import RunError, RunFolder, unusable
from exporter.runs.journal_file import (
    FILE,
    SQL_DAMAGE,
    TRIMMED_SCHEMA,
    VERSIONS,
    opened,
    prepare,
    transaction,
)
from exporter.runs.journal_rows import DAMAGE, ROWS, checked
from exporter.runs.models import FINISH_ROW, UNREADABLE, ActionState, RunKind, RunOutcome
from exporter.runs.trash import KEEP_ANEW_SECONDS, runs_in_trash

DAMAGED: Final = f"{FILE}.damaged"
_NEW: Final = f"{FILE}.new"
_WHY: Final = "its entry in the run journal was damaged"
_NUMBERS_MAX: Final = 10_000_000
"""A larger number of an action is a changed byte. Each missing number below gets an entry."""
_PAST: Final = ("trimmed", "trimmed_runs")
"""The tables that only a trimmed journal has."""
_TABLES: Final = "SELECT name, sql FROM sqlite_schema"
_RENAMED: Final = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name != tbl_name"
_LENGTH: Final = slice(28, 40)
"""How many pages there are, and which are free; zeros stand for as many as the file has."""


def is_damaged(connection: apsw.Connection) -> bool:
    """True if not all of a journal can be read as a run wrote it; reads all of it."""
    try:
        tables = dict(connection.execute(_TABLES))
        return not (
            _is_ours(tables)
            and connection.pragma("user_version") in VERSIONS
            and connection.pragma("integrity_check") == "ok"
            and connection.pragma("foreign_key_check") is None
            and not connection.execute(_RENAMED).get
            and all(
                checked(row, ROWS[name])
                for name in ROWS.keys() & tables.keys()
                for row in connection.execute(f"SELECT * FROM {name}")  # noqa: S608 - ours
            )
        )
    except (*SQL_DAMAGE, *DAMAGE):
        return True


def _is_ours(tables: dict[str, str]) -> bool:
    """True if what we use is as we make it; a newer version may have added to that."""
    with closing(_template()) as template:
        return all(
            tables.get(name) == sql or (name in _PAST and name not in tables)
            for name, sql in template.execute(_TABLES)
        )


def salvage(folder: RunFolder, clock: Callable[[], float] = time.time) -> bool:
    """Put a new journal in the place of a damaged one; False if it is not damaged.

    Call it under the run lock, without a connection: to close the file would free its locks.
    """
    damaged = _content(folder)
    with closing(_in_memory(damaged)) as source:
        # The byte that makes SQLite refuse to write is found by nothing else.
        if not (is_damaged(source) or source.readonly("main")):
            return False
    _unlink(folder, _NEW)
    path = folder.file(_NEW, create=True) or ""
    with opened(path) as connection:
        prepare(connection, path)
        with closing(_repaired(damaged)) as source, transaction(connection):
            _fill(connection, source, clock(), _trashed(folder))
    _unlink(folder, DAMAGED)
    place = folder.descriptor
    os.link(FILE, DAMAGED, src_dir_fd=place, dst_dir_fd=place, follow_symlinks=False)
    # SQLite would roll back any file of the journal's name with this.
    _unlink(folder, f"{FILE}-journal")
    os.rename(_NEW, FILE, src_dir_fd=place, dst_dir_fd=place)
    os.fsync(place)
    return True


def _trashed(folder: RunFolder) -> list[str]:
    try:
        return runs_in_trash(folder)
    except RunError:
        return []  # the trash cannot be opened: nothing can be restored from it


def _content(folder: RunFolder) -> bytearray:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(FILE, flags, dir_fd=folder.descriptor), "rb") as file:
            content = bytearray(os.fstat(file.fileno()).st_size)
            file.readinto(content)
            return content
    except OSError as error:
        raise unusable(os.path.join(folder.path, FILE), error) from error


def _template() -> apsw.Connection:
    """A journal in memory with all tables, on the pages where `prepare` puts them in a file."""
    connection = apsw.Connection(":memory:")
    prepare(connection, FILE)
    connection.execute(TRIMMED_SCHEMA)
    return connection


def _in_memory(content: bytearray) -> apsw.Connection:
    """Return a connection to a copy."""
    connection = apsw.Connection(":memory:")
    connection.deserialize("main", content)
    return connection


def _repaired(content: bytearray) -> apsw.Connection:
    """A copy whose first page, which has SQLite's header and the tables' names, is as it must be.

    A byte in it could make all of the journal unreadable. `content` gets that page, too.
    """
    with closing(_template()) as template:
        pages = bytearray(template.serialize("main"))
        size = template.pragma("page_size")
    with closing(_in_memory(content)) as damaged:
        damaged.execute("PRAGMA writable_schema=ON")  # else a damaged table hides the others
        rows = _rows(damaged, "SELECT tbl_name, name, rootpage FROM sqlite_schema ORDER BY rowid")
    pages_of = {name: page for *names, page in rows for name in names}
    pages[_LENGTH] = bytes(12)
    content[:size] = pages[:size]
    connection = _in_memory(content)
    connection.execute("PRAGMA writable_schema=ON")
    for name in _PAST:  # these were added later, on any page
        if name in pages_of:
            moved = "UPDATE sqlite_schema SET rootpage = ? WHERE name = ?"
            connection.execute(moved, (pages_of[name], name))
        else:
            connection.execute("DELETE FROM sqlite_schema WHERE name = ?", (name,))
    connection.execute("PRAGMA writable_schema=RESET")
    return connection


def _unlink(folder: RunFolder, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder.descriptor)
    except FileNotFoundError:
        pass


def _fill(
    connection: apsw.Connection, source: apsw.Connection, now: float, trashed: Sequence[str]
) -> None:
    runs = {row[0]: row for row in _rows(source, "SELECT * FROM runs ORDER BY id")}
    noted = {run for (run,) in _rows(source, "SELECT DISTINCT run FROM actions ORDER BY run")}
    past = _good(source, "trimmed_runs", "run")
    trimmed = {row[0] for row in past}
    for run in sorted({*runs, *noted}, key=str):
        row = runs.get(run)
        actions = list(_actions(source, run, has_gaps=run in trimmed))
        if run in trashed and run not in trimmed and _none_is_known(actions):
            continue  # the trash knows more: from there the run is noted again
        if row is None or not _is_good("runs", row):
            row = _run_of(run, actions, now, has_trash=run in trashed)
        if row is not None and _is_good("runs", row):
            _insert(connection, "runs", [row])
            _insert(connection, "actions", actions)
    totals = _good(source, "trimmed", "totals")
    if past or totals:
        connection.execute(TRIMMED_SCHEMA)
        _insert(connection, "trimmed_runs", past)
        _insert(connection, "trimmed", totals[:1])
    _insert(connection, "strangers", _good(source, "strangers", "target, mark"))
    why = "the run journal was damaged, and some of what it protected is not known any more"
    connection.execute("INSERT INTO breaker VALUES (?, ?)", (now, why))


def _none_is_known(actions: Sequence[Sequence[Any]]) -> bool:
    return all(row[2] == UNREADABLE for row in actions)


def _insert(connection: apsw.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    if not rows:
        return
    places = ", ".join("?" * len(rows[0]))
    into = f"INSERT OR IGNORE INTO {table} VALUES ({places})"  # noqa: S608 - names of ours
    connection.executemany(into, rows)


def _good(source: apsw.Connection, table: str, order: str) -> list[Sequence[Any]]:
    """Return the rows of a table that a run wrote; none if there is no such table."""
    found = _rows(source, f"SELECT * FROM {table} ORDER BY {order}")  # noqa: S608 - ours
    return [row for row in found if _is_good(table, row)]


def _is_good(table: str, row: Sequence[Any]) -> bool:
    try:
        return bool(checked(row, ROWS[table]))
    except DAMAGE:
        return False


def _rows(source: apsw.Connection, query: str, *values: Any) -> list[Sequence[Any]]:
    """Return the rows of a query, read from both ends up to the damage."""
    found: list[list[Sequence[Any]]] = []
    for order in (query, f"{query} DESC"):
        found.append([])
        try:
            found[-1].extend(source.execute(order, values))
        except (apsw.Error, UnicodeDecodeError):
            continue
        return found[-1] if order is query else found[-1][::-1]
    forward, backward = found
    known = set(forward)  # of a run of 50,000 actions each row must not be compared with each
    return [*forward, *(row for row in reversed(backward) if row not in known)]


def _actions(source: apsw.Connection, run: str, *, has_gaps: bool) -> Iterator[Sequence[Any]]:
    """The actions of a run; in place of what cannot be read there is something that says so.

    With `has_gaps` some of them are long past and were trimmed.
    """
    rows = _rows(source, "SELECT * FROM actions WHERE run = ? ORDER BY number", run)
    found = {row[1]: row for row in rows if row[1] in range(_NUMBERS_MAX)}
    for number in range(max(found, default=-1) + 1):
        row = found.get(number)
        if row is not None and _is_good("actions", row):
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
