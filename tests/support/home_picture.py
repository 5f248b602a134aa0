"""A home as other programs see it: every row, file, ref and object, to be compared entry by entry.

Nothing of the home is opened but to copy it, so that no picture leaves a trace.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

OURS = ".hermes-exporter"
WORDS = ("word1", "word2", "picture", "message")
"""What is searched for."""
_LONG = 200
_SEARCHED = ("messages_fts", "messages_fts_trigram")
_TABLES = """
    SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'
       AND name NOT LIKE 'messages_fts%_data' AND name NOT LIKE 'messages_fts%_idx'
"""
"""Left out is how FTS5 has cut its index into segments."""
_STORE = "checkpoints/store"

Picture = dict[str, str]
"""What is there, by its kind and name."""
Change = dict[str, str | None]
"""What something gives back; None stands for what is not there then."""


def picture(home: Path) -> Picture:
    """All there is in a home but what is ours."""
    return {**dict(_rows(home)), **dict(_files(home)), **dict(_refs(home / _STORE))}


def change(before: Picture, after: Picture) -> Change:
    """What leads from `after` back to `before`."""
    names = sorted({*before, *after})
    return {name: before.get(name) for name in names if before.get(name) != after.get(name)}


def changed(now: Picture, by: Change) -> Picture:
    """A picture after a change."""
    found = {**now, **by}
    return {name: value for name, value in found.items() if value is not None}


def _rows(home: Path) -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        for file in home.glob("state.db*"):
            if file.name in ("state.db", "state.db-wal"):
                shutil.copy(file, folder)
        with closing(sqlite3.connect(Path(folder) / "state.db")) as connection:
            for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master"):
                yield f"{kind} {name}", _short(sql or "")
            for (table,) in connection.execute(_TABLES).fetchall():
                yield from _table(connection, table)
            yield from _found(connection)


def _table(connection: sqlite3.Connection, table: str) -> Iterator[tuple[str, str]]:
    """Every value exactly as it is stored: a number, a text and bytes are quoted differently."""
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    quoted = ", ".join(f'quote("{column[1]}")' for column in columns)
    keys = " || ' ' || ".join(f'quote("{column[1]}")' for column in columns if column[5])
    try:
        rows = connection.execute(f"SELECT rowid, {quoted} FROM {table}").fetchall()
    except sqlite3.OperationalError:  # a table without rowids
        rows = connection.execute(f"SELECT {keys}, {quoted} FROM {table}").fetchall()
    for key, *values in rows:
        yield f"row {table} {key}", " ".join(map(_short, values))


def _found(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    for table in _SEARCHED:
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
        for word in WORDS:
            query = f"SELECT rowid FROM {table} WHERE {table} MATCH ?"
            for (row,) in connection.execute(query, (word,)):
                yield f"found {word} in {table} at {row}", ""


def _files(home: Path) -> Iterator[tuple[str, str]]:
    """Modes, times and contents; times of folders only where a folder is taken as a whole."""
    for folder, folders, names in os.walk(home):
        place = os.path.relpath(folder, home)
        folders[:] = [name for name in folders if _is_shown(os.path.normpath(f"{place}/{name}"))]
        seen = os.lstat(folder)
        is_repo = place.startswith("checkpoints/") and not place.startswith(_STORE)
        yield f"folder {place}", f"{seen.st_mode:o} {seen.st_mtime_ns if is_repo else ''}"
        for name in names:
            path = os.path.normpath(f"{place}/{name}")
            if not path.startswith("state.db"):
                yield f"file {path}", _file(home / path)


def _is_shown(folder: str) -> bool:
    return folder not in (OURS, f"{_STORE}/objects")


def _file(path: Path) -> str:
    seen = path.lstat()
    content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
    return f"{seen.st_mode:o} {seen.st_mtime_ns} {hashlib.sha256(content).hexdigest()}"


def _refs(store: Path) -> Iterator[tuple[str, str]]:
    """The refs of the store and all that they lead to: the name of an object is its content."""
    if not store.exists():
        return
    for line in _git(store, ["for-each-ref", "--format=%(refname) %(objectname)"]):
        name, commit = line.split()
        yield f"ref {name}", commit
    objects = "".join(f"{line}\n" for line in _git(store, ["rev-list", "--objects", "--all"]))
    named = "".join(f"{line.split()[0]}\n" for line in objects.splitlines())
    for line in _git(store, ["cat-file", "--batch-check"], named):
        name, kind = line.split(maxsplit=1)
        yield f"object {name}", kind
    _git(store, ["fsck", "--full", "--strict", "--no-dangling"])


def _git(store: Path, words: Sequence[str], told: str = "") -> list[str]:
    done = subprocess.run(
        ["git", f"--git-dir={store}", *words],
        input=told,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()


def _short(value: str) -> str:
    if len(value) <= _LONG:
        return value
    return f"{len(value)} characters {hashlib.sha256(value.encode()).hexdigest()}"
