"""A home in which all private text is a canary: a word that must appear nowhere else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from tests.real.hermes import NEWEST
from tests.real.homes import make_home

_CANARY = re.compile(r"Canary-\d{4}-Z")
_PLAIN_COLUMNS = {("messages", "role"), ("messages", "session_id"), ("sessions", "id")}
"""What identifies a session, and the speaker's role: without these there is nothing to show."""

_HOLDER = """
import os, sqlite3, subprocess, sys
connection = sqlite3.connect(os.path.join(os.environ["HERMES_HOME"], "state.db"))
connection.execute("PRAGMA journal_mode=WAL")
connection.execute("SELECT COUNT(*) FROM sessions").fetchone()
child = subprocess.Popen(["sleep", "600"])
print(flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


class Cage:
    """Makes canaries, and remembers where each was put."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}

    def canary(self, place: str) -> str:
        name = f"Canary-{len(self.places):04}-Z"
        self.places[name] = place
        return f"{name} sings"

    def escaped(self, text: str) -> set[str]:
        """Return where the canaries in this text were put."""
        return {self.places[name] for name in _CANARY.findall(text)}


def salted_home(folder: Path, cage: Cage) -> Path:
    """Return a home made by Hermes, with its database and files full of canaries."""
    home = make_home(NEWEST, folder).path
    for database in (home / "state.db", *home.rglob("kanban.db")):
        _salt_database(database, cage)
    _add_sessions_of_clients(home / "state.db", cage)
    for file in home.rglob("*.json"):
        _salt_json(file, cage)
    for file in home.rglob("HERMES_WORKDIR"):
        file.write_text(f"/srv/{cage.canary('HERMES_WORKDIR')}/project\n")
    _add_files(home, cage)
    return home


def _salt_database(database: Path, cage: Cage) -> None:
    """Put a canary into every text column of every table, each into its own row."""
    connection = apsw.Connection(str(database))
    connection.execute("PRAGMA foreign_keys=OFF")
    tables = connection.execute(
        "SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main' "
        "AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    for (table,) in tables:
        rows = [row for (row,) in connection.execute(f'SELECT rowid FROM "{table}" LIMIT 50')]
        columns = connection.execute(
            "SELECT name FROM pragma_table_info(?) WHERE upper(type) LIKE '%TEXT%'", (table,)
        ).fetchall()
        for number, (column,) in enumerate(columns):
            if rows and (table, column) not in _PLAIN_COLUMNS:
                row = rows[number % len(rows)]
                _salt_field(connection, str(table), str(column), row, cage)
    connection.close()


def _salt_field(connection: apsw.Connection, table: str, column: str, row: int, cage: Cage) -> None:
    before = connection.execute(f'SELECT "{column}" FROM "{table}" WHERE rowid = ?', (row,)).get
    connection.execute(
        f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?',
        (_salted_text(before, f"{table}.{column}", cage), row),
    )


def _salted_text(before: Any, place: str, cage: Cage) -> str:
    """Return text with canaries; JSON stays valid JSON."""
    try:
        value = json.loads(before)
    except (TypeError, ValueError):
        return cage.canary(place)
    return json.dumps(_salted(value, place, cage))


def _salted(value: Any, place: str, cage: Cage) -> Any:
    if isinstance(value, list):
        return [_salted(each, place, cage) for each in value]
    if isinstance(value, dict):
        inside = {key: _salted(each, f"{place}.{key}", cage) for key, each in value.items()}
        if "workdir" in inside:
            inside["workdir"] = f"/srv/{cage.canary(f'{place}.workdir')}"
        return {**inside, "_note": cage.canary(place)}
    return value


def _salt_json(file: Path, cage: Cage) -> None:
    try:
        value = json.loads(file.read_text())
    except ValueError:
        return
    file.write_text(json.dumps(_salted(value, file.name, cage)))


def _add_sessions_of_clients(database: Path, cage: Cage) -> None:
    """Add open and ended sessions, with free text wherever an API accepts it."""
    connection = apsw.Connection(str(database))
    for ended in (None, time.time()):
        name = cage.canary("session id")
        connection.execute(
            "INSERT INTO sessions (id, source, model, started_at, ended_at, end_reason, "
            "input_tokens, title, cwd, user_id, system_prompt) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
            (
                *(name, cage.canary("source"), cage.canary("model"), time.time() - 86400, ended),
                *(cage.canary("end reason") if ended else None, 5, cage.canary("title")),
                *(cage.canary("cwd"), cage.canary("user id"), cage.canary("system prompt")),
            ),
        )
        connection.execute(
            "INSERT INTO messages (session_id, role, content, tool_name, timestamp) "
            "VALUES (?, ?, ?, ?, ?)",
            (name, "tool", cage.canary("content"), cage.canary("tool name"), time.time() - 80000),
        )
    connection.close()


def _add_files(home: Path, cage: Cage) -> None:
    for name in (".env", "SOUL.md", "memories/MEMORY.md", "logs/agent.log", "profiles/p/.env"):
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"SECRET={cage.canary(name)}\n")
    for config in (home / "config.yaml", home / "profiles" / "p" / "config.yaml"):
        config.write_text(f"model: {{api_key: '{cage.canary('config.yaml')}'}}\nmax_messages: [\n")
    for place in ("sessions", "cache", "cron", "checkpoints", "logs", "kanban/boards"):
        folder = home / place
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{cage.canary(f'file name in {place}')}.json").write_text(cage.canary(place))
        (folder / cage.canary(f"folder name in {place}")).mkdir()


@contextmanager
def secretive_holder(home: Path, folder: Path, cage: Cage) -> Iterator[None]:
    """Run a `hermes` with the database open, and canaries in its arguments and environment."""
    program = folder / "bin" / "hermes"
    program.parent.mkdir()
    program.write_text(_HOLDER)
    command = [sys.executable, str(program), "chat", "-q", cage.canary("prompt")]
    command += ["--resume", cage.canary("title in arguments"), cage.canary("argument")]
    environment = {
        "HERMES_HOME": str(home),
        "HERMES_SESSION_ID": cage.canary("session in the environment"),
        "OPENAI_API_KEY": f"sk-{cage.canary('key')}",
        "PATH": os.environ["PATH"],
    }
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(90)
