"""What is fabricated is what the real Hermes 0.19.0 makes and can go on using."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import apsw
import pytest

from exporter.demo.database import write_kanban
from tests.real.hermes import Hermes, python_for
from tests.support.fabricate.database import MessageRow, SessionRow, StateDatabase

MAKE_EMPTY = """
import sys
from pathlib import Path
from hermes_cli import kanban_db
from hermes_state import SessionDB

SessionDB(Path(sys.argv[1]) / "state.db").close()
kanban_db.connect(Path(sys.argv[1]) / "kanban.db").close()
"""

GO_ON = """
import json, sys
from pathlib import Path
from hermes_state import SessionDB

database = SessionDB(Path(sys.argv[1]) / "state.db")
database.append_message("20250101_000000_abcdef", "assistant", content="a late marmoset")
print(json.dumps({
    "sessions": [row["id"] for row in database.list_sessions_rich()],
    "found": [len(database.search_messages(word)) for word in ("marmoset", "nosuchword")],
    "count": database.get_session("20250101_000000_abcdef")["message_count"],
}))
database.close()
"""


@pytest.fixture(scope="module")
def hermes() -> Hermes:
    return python_for("0.19.0")


def run_inside(hermes: Hermes, script: str, home: Path) -> str:
    done = subprocess.run(
        [str(hermes.python), "-c", script, str(home)],
        env=hermes.environment(home),
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def described(path: Path) -> dict[str, Any]:
    """Everything about a schema but the wording of its SQL."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    connection = apsw.Connection(f"file:{path}?immutable=1", flags=flags)

    def rows(sql: str, *values: str) -> list[Any]:
        return connection.execute(sql, values).fetchall()

    tables = [name for (name,) in rows("SELECT name FROM pragma_table_list ORDER BY name")]
    facts = {
        "columns": {name: rows("SELECT * FROM pragma_table_xinfo(?)", name) for name in tables},
        "references": {
            name: rows("SELECT * FROM pragma_foreign_key_list(?)", name) for name in tables
        },
        "indexes": rows(
            'SELECT t.name, i.name, "unique", origin, partial, x.seqno, x.name, x.desc'
            " FROM pragma_table_list AS t, pragma_index_list(t.name) AS i,"
            " pragma_index_xinfo(i.name) AS x ORDER BY 1, 2, 6"
        ),
        "triggers": rows(
            "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger' ORDER BY name"
        ),
        "page size": rows("PRAGMA page_size"),
        "vacuum": rows("PRAGMA auto_vacuum"),
    }
    connection.close()
    return facts


def test_databases_have_the_schema_that_hermes_makes(hermes: Hermes, tmp_path: Path) -> None:
    real, made = tmp_path / "real", tmp_path / "made"
    real.mkdir()
    made.mkdir()
    run_inside(hermes, MAKE_EMPTY, real)
    with StateDatabase(str(made / "state.db")):
        pass
    task = {"id": "t", "title": "title", "status": "ready", "created_at": 1}
    write_kanban(str(made / "kanban.db"), [task])
    assert described(made / "state.db") == described(real / "state.db")
    assert described(made / "kanban.db") == described(real / "kanban.db")


def test_hermes_goes_on_using_a_made_database(hermes: Hermes, tmp_path: Path) -> None:
    """It lists the sessions, appends to them, and finds old and new text."""
    home = tmp_path / "home"
    home.mkdir()
    session = SessionRow("20250101_000000_abcdef", "cli", 1.0, message_count=1)
    early = MessageRow(session.id, "user", "an early marmoset", 2.0)
    with StateDatabase(str(home / "state.db")) as database:
        database.add_session(session, [early])
    assert json.loads(run_inside(hermes, GO_ON, home)) == {
        "sessions": [session.id],
        "found": [2, 0],
        "count": 2,
    }


def test_a_made_database_is_whole_and_cleanly_closed(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    session = SessionRow("20250101_000000_abcdef", "cli", 1.0, message_count=1)
    with StateDatabase(str(path)) as database:
        database.add_session(session, [MessageRow(session.id, "user", "text", 2.0)])
    assert [file.name for file in tmp_path.iterdir()] == ["state.db"]
    connection = apsw.Connection(str(path))
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("integrity_check") == "ok"
    for table in ("messages_fts", "messages_fts_trigram"):
        connection.execute(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
        assert connection.execute(f"SELECT k FROM {table}_config").fetchall() == [("version",)]
    connection.close()
