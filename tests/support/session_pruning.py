"""Homes with old sessions, plans to delete them, and functions to compare before and after."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from exporter.evidence.openers import KnownOpeners
from exporter.hermes.schema import probe_schema
from exporter.hermes.session_state import SessionStateReader
from exporter.pruner.apply.execute import execute
from exporter.pruner.beside import ProcessesAtPrune
from exporter.pruner.models import Act, PruneAction, PrunePlan
from exporter.runs.models import Frees, Outcome
from exporter.writing.target import Target
from tests.real.hermes import Hermes
from tests.real.holders import Holder, obedient_process
from tests.support.evidence import evidence
from tests.support.reaping import target_of

KEEP_SECONDS = 3600.0


@contextmanager
def prunable_process(
    hermes: Hermes, home: Path, *arguments: str, module: str = "hold_prunable"
) -> Iterator[Holder]:
    """Run a process of this release with the database open; see `inside/hold_prunable.py`."""
    program = home.parent / f"{home.name}-{module}" / "hermes"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"from tests.real.inside.{module} import main\n\nmain()\n")
    command = [str(hermes.python), str(program), *arguments]
    with obedient_process(command, hermes, home) as running:
        yield running


def planned(
    home: Path, sessions: Sequence[str], groups: Mapping[str, int] | None = None
) -> PrunePlan:
    """Return a plan to delete exactly these sessions in their current state, in this order."""
    found = {}
    with target_of(home).reading() as connection:
        reader = SessionStateReader(probe_schema(connection))
        found = reader.read(connection, list(sessions))
    actions = tuple(
        PruneAction(
            kind=Act.DELETE_SESSION,
            policy="old_sessions",
            target=session,
            reason="it is old",
            bytes=1000,
            frees=Frees.AFTER_UPKEEP,
            group=(groups or {}).get(session, 0),
            expected=found[session].expected,
        )
        for session in sessions
    )
    return PrunePlan(home="home", hash="a-plan", actions=actions)


def prune(
    home: Path,
    plan: PrunePlan,
    place: Target | None = None,
    processes_at_prune: ProcessesAtPrune | None = None,
) -> Outcome:
    """Execute a plan, beside the processes that have the database open now."""
    site = place or beside_all(home)
    return execute(plan, site, keep_seconds=KEEP_SECONDS, processes_at_prune=processes_at_prune)


def beside_all(home: Path, **changes: Any) -> Target:
    """Return a target that knows every process with the database open."""
    return target_of(home, KnownOpeners.of(evidence(home)), **changes)


_DUMP = """
import json, sqlite3, sys
connection = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
connection.text_factory = bytes
tables = [row[0].decode() for row in connection.execute(
    "SELECT name FROM sqlite_master WHERE type = 'table' "
    "AND name NOT LIKE 'messages_fts%_data' AND name NOT LIKE 'messages_fts%_idx' "
    "AND sql NOT LIKE '%VIRTUAL%' ORDER BY name")]
def show(name, rows):
    print(json.dumps(name))
    for row in rows:
        print(json.dumps(
            [value.decode() if isinstance(value, bytes) else value for value in row]))
for table in tables:
    names = [row[1].decode() for row in connection.execute(f"PRAGMA table_info({table})")]
    columns = ", ".join(f"typeof({name}), hex(CAST({name} AS BLOB))" for name in names)
    try:
        rows = connection.execute(f"SELECT rowid, {columns} FROM {table} ORDER BY rowid")
    except sqlite3.OperationalError:
        rows = connection.execute(f"SELECT 0, {columns} FROM {table} ORDER BY 2, 3")
    show(table, rows)
for word in sys.argv[2:]:
    for table in ("messages_fts", "messages_fts_trigram"):
        query = f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid"
        show(f"{word} in {table}", connection.execute(query, (word,)))
"""


def dump_into(file: Path, home: Path, *words: str) -> Path:
    """Write every value of every table exactly as stored, and where each word is found.

    Only the segments of the FTS5 index are left out. Another process and library does it, so it
    leaves no trace here. Never use it beside a holder that lost its locks.
    """
    command = [sys.executable, "-c", _DUMP, str(home / "state.db"), *words]
    with file.open("w") as output:
        subprocess.run(command, stdout=output, check=True)
    return file


def dump_all(home: Path, *words: str) -> dict[str, Any]:
    """Return the same, by table and by word, in memory."""
    found: dict[str, Any] = {}
    rows: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        for line in dump_into(Path(folder) / "dump", home, *words).read_text().splitlines():
            each = json.loads(line)
            if isinstance(each, str):
                rows = found[each] = []
            else:
                rows.append(each)
    return found


def grow_old(home: Path, days: int) -> None:
    """Move every timestamp back, as if the home had not been used for so long."""
    seconds = days * 86400
    with sqlite3.connect(home / "state.db") as connection:
        connection.execute(f"UPDATE messages SET timestamp = timestamp - {seconds}")
        connection.execute(
            f"UPDATE sessions SET started_at = started_at - {seconds}, "
            f"ended_at = ended_at - {seconds}"
        )
    connection.close()
    for project in home.glob("checkpoints/store/projects/*.json"):
        touch_project(project, seconds)
    for path in home.rglob("*"):
        turn_back(path, seconds)


def touch_project(project: Path, seconds: float) -> None:
    """Move the times that the store has of a project back."""
    known = json.loads(project.read_text())
    for clock in ("created_at", "last_touch"):
        known[clock] -= seconds
    project.write_text(json.dumps(known))


def turn_back(path: Path, seconds: float) -> None:
    """Move the times of a file back."""
    found = path.lstat()
    times = (found.st_atime - seconds, found.st_mtime - seconds)
    os.utime(path, times, follow_symlinks=False)
