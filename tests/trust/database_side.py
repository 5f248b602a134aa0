"""The database side of Hermes processes that the test makes up: a real connection, really killed.

One program serves one home. It has the database open while any made-up process has. It runs apart
from the test, because two SQLite libraries in one process would drop each other's locks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = r"""
import json, sqlite3, sys
path = sys.argv[1]
connection = None
def columns(table):
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
def connect():
    global connection
    if connection is None:
        connection = sqlite3.connect(path, timeout=20, isolation_level=None)
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("SELECT COUNT(*) FROM sessions").fetchone()
def close():
    global connection
    if connection is not None:
        connection.close()
        connection = None
def run(statements):
    results = []
    connection.execute("BEGIN IMMEDIATE")
    for sql, values in statements:
        if isinstance(values, dict):  # a row: columns that this schema lacks are left out
            row = {k: v for k, v in values.items() if k in columns(sql)}
            names = ", ".join(row)
            marks = ", ".join("?" for _ in row)
            sql, values = f"INSERT INTO {sql} ({names}) VALUES ({marks})", list(row.values())
        found = connection.execute(sql, values)
        results.append(found.fetchall() or found.rowcount)
    connection.execute("COMMIT")
    return results
def has(table, column):
    return column in columns(table)
def copy(to):
    target = sqlite3.connect(to)
    connection.backup(target)
    target.close()
for line in sys.stdin:
    name, arguments = json.loads(line)
    try:
        answer = {"done": globals()[name](*arguments)}
    except Exception as error:
        if connection is not None and connection.in_transaction:
            connection.execute("ROLLBACK")
        answer = {"failed": repr(error)}
    print(json.dumps(answer), flush=True)
"""


class DatabaseSide:
    """All made-up processes of one home, as the database sees them."""

    def __init__(self, home: Path) -> None:
        self._path = home / "state.db"
        self._process: subprocess.Popen[str] | None = None
        self.is_open = False

    def call(self, name: str, *arguments: Any) -> Any:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", PROGRAM, str(self._path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the database side of {self._path} has ended"
        answer = json.loads(line)
        assert "failed" not in answer, answer
        return answer["done"]

    def connect(self) -> None:
        if not self.is_open:
            self.call("connect")
            self.is_open = True

    def close(self) -> None:
        """The last process leaves as SQLite wants it: the WAL goes into the database."""
        if self.is_open:
            self.call("close")
            self.is_open = False

    def kill(self) -> None:
        """The last process is killed: the WAL stays."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process = None
        self.is_open = False

    def run(self, *statements: tuple[str, Any]) -> list[Any]:
        """Execute statements in one transaction; the values of an INSERT may be a dict."""
        found: list[Any] = self.call("run", statements)
        return found
