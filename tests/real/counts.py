"""Counts made by other programs than ours: sqlite3, du, find and git."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

_BACKUP = """
import sqlite3, sys
source = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
target = sqlite3.connect(sys.argv[2])
source.backup(target)
target.execute("PRAGMA journal_mode=DELETE")
target.close()
source.close()
"""


class Database:
    """A private copy of a home's state.db, asked through the sqlite3 program.

    A cold database is copied as a file. A hot one is backed up through a read-only connection of
    another process; never do that beside a holder that lost its locks.
    """

    def __init__(self, database: Path, folder: Path) -> None:
        self.copy = folder / "independent-copy.db"
        self.copy.unlink(missing_ok=True)
        if database.with_name(f"{database.name}-wal").exists():
            command = [sys.executable, "-c", _BACKUP, str(database), str(self.copy)]
            subprocess.run(command, check=True, timeout=120)
        else:
            shutil.copyfile(database, self.copy)

    def rows(self, sql: str) -> list[Row]:
        # immutable: the copy of a cold database is in WAL mode and has no log to look for.
        answer = _run("sqlite3", "-json", "-readonly", f"file:{self.copy}?immutable=1", sql)
        rows: list[Row] = json.loads(answer or "[]")
        return rows

    def value(self, sql: str) -> Any:
        (row,) = self.rows(sql)
        (value,) = row.values()
        return value

    def columns(self, table: str) -> set[str]:
        return {row["name"] for row in self.rows(f"SELECT name FROM pragma_table_info('{table}')")}


def allocated_bytes(*paths: Path) -> int:
    """What du says these take together, hard links once."""
    found = [str(path) for path in paths if os.path.lexists(path)]
    if not found:
        return 0
    lines = _run("du", "--summarize", "--total", "--block-size=1", *found).splitlines()
    return int(lines[-1].split()[0])


def files_below(path: Path) -> int:
    """How many names find sees that are not folders'."""
    return len(_run("find", str(path), "!", "-type", "d", "-printf", "x"))


def inventory(home: Path) -> dict[str, tuple[object, ...]]:
    """All that a reader must leave as it is: names, inodes, owners, sizes, times and contents.

    Only the times and contents of `-shm` files are left out, which every SQLite reader may move.
    """
    found: dict[str, tuple[object, ...]] = {}
    for folder, _, names in os.walk(home):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            seen = path.lstat()
            entry: tuple[object, ...] = (seen.st_ino, seen.st_uid, seen.st_gid, seen.st_mode)
            if path.is_file() and not path.is_symlink() and not path.name.endswith("-shm"):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                entry += (seen.st_size, seen.st_mtime_ns, content)
            found[str(path)] = entry
    return found


def git_objects(repository: Path) -> dict[str, int]:
    """`git count-objects -v`: loose and packed objects and their sizes in KiB."""
    lines = _git(repository, "count-objects", "-v").splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def git_refs(repository: Path, below: str = "refs/hermes") -> list[str]:
    return _git(repository, "for-each-ref", "--format=%(refname)", below).split()


def cumulative(values: Iterable[float], bounds: Iterable[float]) -> dict[float, int]:
    """The buckets of a Prometheus histogram: how many values are at most each bound."""
    values = list(values)
    return {bound: sum(value <= bound for value in values) for bound in (*bounds, math.inf)}


def _git(repository: Path, *arguments: str) -> str:
    return _run("git", f"--git-dir={repository}", *arguments)


def _run(*command: str) -> str:
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=120
    ).stdout.strip()
