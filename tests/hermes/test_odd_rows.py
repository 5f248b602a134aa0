"""One row that Hermes cannot have written harms no other row, and is itself never acted on."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from exporter.agent.session_list import session_row
from exporter.reaper.models import Verdict
from exporter.scan.database import StateReader
from exporter.snapshot import Trouble
from exporter.workers.home import WorkerHome
from tests.real.hermes import NEWEST, VERSIONS, python_for
from tests.real.holders import holder
from tests.support.home_scans import Scan, scan, sql
from tests.support.prune_plans import read_inventory

BAD = "CAST(x'61ff62' AS TEXT)"
ODD = {
    "not UTF-8": BAD,
    "blob": "x'00ff'",
    "blob of text": "x'636c69'",
    "integer": "5",
    "negative": "-5",
    "largest": "9223372036854775807",
    "infinite": "9e999",
    "minus infinite": "-9e999",
    "enormous": "1e308",
    "beyond clocks": "1e18",
    "text": "'garbage'",
    "empty": "''",
    "long": "hex(zeroblob(50000))",
    "nul": "'cli' || char(0) || 'x'",
    "nul first": "char(0) || 'x'",
    "half a character": "CAST(x'eda080' AS TEXT)",
    "deep": "replace(hex(zeroblob(4000)), '0', '[')",
    "null": "NULL",
}
READ = (
    "sessions",
    "messages",
    "session_model_usage",
    "gateway_routing",
    "gateway_heartbeats",
    "session_turn_leases",
    "compression_locks",
    "async_delegations",
    "telegram_dm_topic_bindings",
    "state_meta",
    "schema_version",
)
"""Every table that a scan reads."""


@pytest.fixture(scope="module", params=(VERSIONS[0], NEWEST))
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sessions of a real release: `a` will be broken; `b` is open and `e` has ended beside it."""
    home = tmp_path_factory.mktemp("template") / "home"
    home.mkdir(mode=0o700)
    with holder(python_for(request.param), home) as hermes:
        for session in ("a", "b", "e"):
            hermes.ask("create", session=session, source="cli")
            hermes.ask("append", session=session, count=3)
        hermes.ask("end", session="e")
    return home


def _columns(database: sqlite3.Connection, table: str) -> dict[str, str]:
    return dict(database.execute("SELECT name, type FROM pragma_table_info(?)", (table,)))


def _victims(database: sqlite3.Connection, table: str) -> dict[str, int]:
    """Insert a row for each column, each in a session of its own; return rowids by column."""
    columns = _columns(database, table)
    victims: dict[str, int] = {}
    for number, column in enumerate(columns):
        session = f"{table}-{number}"
        if table in ("sessions", "messages"):
            _copy(database, "sessions", "id", session)
            _copy(database, "messages", "session_id", session)
        else:
            _insert(database, table, columns, session)
        found = database.execute(f"SELECT MAX(rowid) FROM {table}").fetchone()
        victims[column] = found[0]
    return victims


def _copy(database: sqlite3.Connection, table: str, key: str, session: str) -> None:
    rest = ", ".join(name for name in _columns(database, table) if name not in (key, "id"))
    database.execute(
        f"INSERT INTO {table} ({key}, {rest}) SELECT ?, {rest} FROM {table} WHERE {key} = 'a'",
        (session,),
    )


def _insert(
    database: sqlite3.Connection, table: str, columns: dict[str, str], session: str
) -> None:
    values = {name: 1 if kind in ("INTEGER", "REAL") else session for name, kind in columns.items()}
    if table == "gateway_routing":
        values["entry_json"] = f'{{"session_id": "{session}"}}'
    if table == "state_meta":
        values["key"] = f"goal:{session}"
    marks = ", ".join("?" * len(values))
    database.execute(
        f"INSERT OR IGNORE INTO {table} ({', '.join(values)}) VALUES ({marks})",
        tuple(values.values()),
    )


def _break(home: Path, tables: tuple[str, ...], value: str) -> tuple[int, int]:
    """Put the value into each column, in a row of its own.

    Return how many rows were broken, and how many sessions there are. A column is left out if the
    schema itself rejects the value.
    """
    broken = 0
    with closing(sqlite3.connect(home / "state.db", isolation_level=None)) as database:
        for table in tables:
            for column, rowid in _victims(database, table).items():
                try:
                    database.execute(
                        f"UPDATE {table} SET {column} = {value} WHERE rowid = ?", (rowid,)
                    )
                    broken += 1
                except (sqlite3.IntegrityError, sqlite3.OperationalError):
                    continue
        (sessions,) = database.execute("SELECT COUNT(*) FROM sessions").fetchone()
    return broken, sessions


def _neighbours(found: Scan) -> dict[str, object]:
    return {session.id: session for session in found.sessions if session.id == "b"}


TABLES = {"sessions": READ[:1], "messages": READ[1:2], "others": READ[2:]}


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


@pytest.mark.parametrize("tables", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_an_odd_value_in_any_column_changes_no_figure_of_other_sessions(
    home: Path, tables: tuple[str, ...], value: str
) -> None:
    whole = _neighbours(scan(WorkerHome(str(home)), home))
    assert whole
    broken, rows = _break(home, tables, value)
    assert broken
    found = scan(WorkerHome(str(home)), home)
    assert found.snapshot.trouble is Trouble.NONE, found.snapshot.detail
    assert _neighbours(found) == whole
    sessions = sum(sum(each.buckets) for each in found.summary.messages)
    assert sessions + found.summary.unreadable == rows
    for session in found.sessions:
        row = session_row("home", session, Verdict.UNKNOWN, [])
        assert row["started_at"] != 0
        assert row["last_activity_at"] != 0
    assert found.summary.open_oldest_started_at != 0
    stock = read_inventory(home).inventory
    assert "database" not in stock.safeguards.unreadable
    by_id = {session.id: session for session in stock.sessions}
    assert by_id["b"].clocks_sane
    assert by_id["e"].clocks_sane


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_an_incremental_read_sees_new_messages_despite_an_odd_value(home: Path, value: str) -> None:
    # With the largest number as its id, SQLite has no id left for another message.
    _break(home, READ[: 1 if value == ODD["largest"] else 2], value)
    reader = StateReader(str(home), always_whole_sessions=0)
    list(reader.update(0, lambda: None))
    sql(
        home,
        "INSERT INTO messages (session_id, role, content, timestamp) "
        f"VALUES ('b', 'user', 'x', 2e9), ({BAD}, 'user', 'x', 2e9);",
    )
    list(reader.update(reader.watermark, lambda: None))
    assert reader.table.open["b"].rows == 4


@pytest.mark.parametrize("column", ["source", "model", "parent_session_id", "handoff_state"])
def test_a_row_with_text_that_is_not_utf8_is_counted_and_protected(home: Path, column: str) -> None:
    sql(home, f"UPDATE sessions SET {column} = {BAD} WHERE id = 'a';")
    found = {session.id: session for session in scan(WorkerHome(str(home)), home).sessions}
    assert not found["a"].clocks_sane
    assert found["b"].clocks_sane
    sql(home, "UPDATE sessions SET ended_at = 2e9, end_reason = 'cli_close' WHERE id = 'a';")
    stock = {session.id: session for session in read_inventory(home).inventory.sessions}
    assert not stock["a"].clocks_sane
    assert stock["e"].clocks_sane


@pytest.mark.parametrize(
    "session",
    [BAD, "x'61'", "'b' || char(0)", "hex(zeroblob(300))"],
    ids=["not UTF-8", "blob", "nul", "long"],
)
def test_a_session_with_an_unusable_id_is_counted_as_unreadable_and_hides_no_other(
    home: Path, session: str
) -> None:
    sql(
        home,
        f"UPDATE sessions SET id = {session} WHERE id = 'a';"
        "INSERT INTO sessions (id, source, started_at) "
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 400) "
        "SELECT char(0x10ffff) || i, 'cli', 1.8e9 FROM n;",
    )
    found = scan(WorkerHome(str(home)), home)
    assert found.summary.unreadable == 1
    assert len(found.sessions) == 401, "all that sort behind it, and `b`"
    assert len(read_inventory(home).inventory.sessions) == 402


@pytest.mark.parametrize("value", ["'garbage'", "x'ff'", "-1", "1e18", "9e999", "0", BAD])
def test_a_session_with_an_invalid_start_time_is_protected(home: Path, value: str) -> None:
    sql(home, f"UPDATE sessions SET started_at = {value} WHERE id = 'a';")
    found = scan(WorkerHome(str(home)), home)
    (broken,) = (session for session in found.sessions if session.id == "a")
    (whole,) = (session for session in found.sessions if session.id == "b")
    assert not broken.clocks_sane
    assert session_row("home", broken, Verdict.UNKNOWN, [])["started_at"] is None
    assert found.summary.open_oldest_started_at == whole.started_at
