"""Whatever a database holds: the scan ends, its answer fits the protocol, and it is true.

Hermes writes none of this. But its users own the file, some of them share a host with others, and
disks fail.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from exporter.snapshot import MESSAGE_BUCKETS, Hold, Trouble
from exporter.workers import protocol
from exporter.workers.home import WorkerHome
from tests.real.hermes import NEWEST, python_for
from tests.real.holders import holder
from tests.support.home_scans import Scan, counted, scan, sql, through_frame, trace

MESSAGE = "INSERT INTO messages (session_id, role, content, timestamp) VALUES "
SESSION = "INSERT INTO sessions (id, source, started_at) VALUES "


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("template") / "home"
    home.mkdir(mode=0o700)
    with holder(python_for(NEWEST), home) as hermes:
        hermes.ask("create", session="a", source="cli")
        hermes.ask("append", session="a", count=3)
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


def scan_after(home: Path, statements: str) -> Scan:
    """Put something strange into the database, and scan it twice: completely, and unchanged."""
    sql(home, statements)
    before = trace(home)
    reader = WorkerHome(str(home))
    first = scan(reader, home)
    scan(reader, home, watermark=first.snapshot.message_watermark, quiet=True)
    assert trace(home) == before
    return first


# Schemas

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"


def test_a_view_in_place_of_the_sessions_is_not_asked(home: Path) -> None:
    found = scan_after(
        home,
        "DROP TABLE sessions; CREATE VIEW sessions AS "
        f"{ENDLESS} i AS id, 'cli' AS source, 1.0 AS started_at, NULL AS ended_at FROM n;",
    )
    assert found.snapshot.trouble is Trouble.NO_SESSIONS_TABLE


def test_a_view_in_place_of_the_messages_is_not_asked(home: Path) -> None:
    found = scan_after(
        home,
        "DROP TABLE messages; CREATE VIEW messages AS "
        f"{ENDLESS} i AS id, 'a' AS session_id, 1.0 AS timestamp, 'user' AS role FROM n;",
    )
    assert found.snapshot.trouble is Trouble.NONE
    assert counted(found.summary.messages) == {"cli": (1, 0)}


def test_triggers_and_views_that_never_end_do_no_harm(home: Path) -> None:
    found = scan_after(
        home,
        "CREATE TRIGGER t AFTER UPDATE ON sessions BEGIN DELETE FROM messages; END;"
        f"CREATE VIEW v AS {ENDLESS} * FROM n;"
        "CREATE INDEX i ON messages (abs(length(content)));",
    )
    assert counted(found.summary.messages) == {"cli": (1, 3)}


@pytest.mark.parametrize("made_by", ["no_such_module(x)", "fts5(x, tokenize = ''no_such'')"])
def test_extensions_that_we_do_not_have_are_not_needed(home: Path, made_by: str) -> None:
    found = scan_after(
        home,
        "CREATE VIRTUAL TABLE f USING fts5(x); PRAGMA writable_schema=ON; UPDATE sqlite_schema "
        f"SET sql = 'CREATE VIRTUAL TABLE f USING {made_by}' WHERE name = 'f';",
    )
    assert counted(found.summary.messages) == {"cli": (1, 3)}


def test_sessions_in_another_form_of_table_are_not_hermes_s(home: Path) -> None:
    found = scan_after(
        home,
        "DROP TABLE sessions; CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, "
        "started_at REAL, ended_at REAL) WITHOUT ROWID;",
    )
    assert found.snapshot.trouble is Trouble.NO_SESSIONS_TABLE


def test_a_newer_schema_with_tables_and_columns_we_do_not_know_is_read(home: Path) -> None:
    found = scan_after(
        home,
        "ALTER TABLE sessions ADD COLUMN last_activity_at REAL;"
        "ALTER TABLE sessions ADD COLUMN last_heartbeat_at REAL;"
        "ALTER TABLE sessions ADD COLUMN pinned INTEGER DEFAULT 0;"
        "ALTER TABLE sessions ADD COLUMN hidden INTEGER DEFAULT 0;"
        "ALTER TABLE messages ADD COLUMN mood TEXT DEFAULT 'good';"
        "CREATE TABLE gateway_heartbeats (gateway TEXT PRIMARY KEY, beat_at REAL);"
        "INSERT INTO gateway_heartbeats VALUES ('g', 1.0);"
        "CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, text TEXT);"
        "UPDATE sessions SET last_activity_at = 4e9, last_heartbeat_at = 5e9, pinned = 1;"
        "UPDATE schema_version SET version = 30;",
    )
    (session,) = found.sessions
    assert session.last_activity_at == 5e9, "the newest of every clock there is"
    assert session.last_heartbeat_at == 5e9
    assert session.holds == [Hold.PINNED]
    assert counted(found.summary.messages) == {"cli": (1, 3)}
    assert found.snapshot.health is not None
    assert found.snapshot.health.schema_version == 30


def test_a_schema_with_hardly_any_column_still_tells_what_it_can(home: Path) -> None:
    found = scan_after(
        home,
        "DROP TABLE sessions; DROP TABLE messages; DROP TABLE session_model_usage;"
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, started_at REAL, ended_at REAL);"
        "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, timestamp REAL);"
        "INSERT INTO sessions VALUES ('a', 'cli', 1000.0, NULL), ('b', 'cli', 1000.0, 1500.0);"
        "INSERT INTO messages VALUES (1, 'a', 2000.0), (2, 'a', 3000.0), (3, 'b', 1600.0);",
    )
    assert found.snapshot.trouble is Trouble.NONE
    assert counted(found.summary.messages) == {"cli": (2, 3)}
    assert found.summary.written_after_end == {"": 1}
    (session,) = found.sessions
    assert (session.messages, session.last_activity_at) == (2, 3000.0)
    assert all(usage.models == [] for usage in found.usage)


# Values

STRANGE = {
    "text": "'many'",
    "number in a text": "'12'",
    "blob": "x'ff00'",
    "null": "NULL",
    "negative": "-5",
    "huge": "9223372036854775807",
    "infinite": "9e999",
    "minus infinite": "-9e999",
    "fraction": "0.5",
}
NUMBERS = (
    "started_at, tool_call_count, api_call_count, input_tokens, output_tokens, "
    "cache_read_tokens, cache_write_tokens, reasoning_tokens, estimated_cost_usd, actual_cost_usd"
)


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
def test_numbers_of_any_kind_become_numbers_that_can_be_shown(home: Path, value: str) -> None:
    """`started_at` may not be NULL: Hermes's own schema refuses that."""
    numbers = [column.strip() for column in NUMBERS.split(",")]
    changes = ", ".join(f"{column} = {value}" for column in numbers[1 if value == "NULL" else 0 :])
    found = scan_after(
        home,
        f"UPDATE sessions SET {changes}, message_count = {value};"
        "INSERT INTO session_model_usage (session_id, model, input_tokens) "
        f"VALUES ('a', 'm', COALESCE({value}, 0));",
    )
    assert found.snapshot.trouble is Trouble.NONE, found.snapshot.detail
    assert counted(found.summary.messages) == {"cli": (1, 3)}
    (usage,) = found.usage
    assert usage.rows == 3
    assert usage.tool_calls >= 0
    assert all(model.input >= 0 and model.estimated_usd >= 0 for model in usage.models)


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE)
def test_a_strange_clock_protects_its_session_or_is_a_moment(home: Path, value: str) -> None:
    value = "''" if value == "NULL" else value
    found = scan_after(
        home,
        f"UPDATE sessions SET started_at = {value}; UPDATE messages SET timestamp = {value};"
        f"{SESSION} ('b', 'cli', 1.0); UPDATE sessions SET ended_at = {value} WHERE id = 'b';",
    )
    assert found.snapshot.trouble is Trouble.NONE, found.snapshot.detail
    (session,) = found.sessions
    assert 0.0 <= session.last_activity_at <= 1e11
    plausible = value in ("0.5", "'12'")
    assert session.clocks_sane == plausible
    assert sum(found.summary.open_idle_buckets) == plausible, "what is not known is left out"
    assert found.summary.open_idle_sum_seconds >= 0


def test_counts_that_overflow_when_they_are_added_up_are_capped(home: Path) -> None:
    rows = ", ".join(
        f"('a', 'm', '{number}', 9223372036854775807, 1e300)" for number in range(1500)
    )
    found = scan_after(
        home,
        "INSERT INTO session_model_usage "
        f"(session_id, model, task, input_tokens, estimated_cost_usd) VALUES {rows};",
    )
    (usage,) = found.usage
    (model,) = usage.models
    assert 0 < model.input < 2**63, "the journal could not keep it"


# Names


@pytest.mark.parametrize(
    "session",
    ["x'00ff'", "x'61'", "'" + "i" * 600 + "'", "'a' || char(0) || 'b'", "NULL", "''", "'*'"],
    ids=["bytes", "bytes that look like text", "long", "nul", "null", "empty", "glob"],
)
def test_a_session_of_any_name_is_counted_and_ends_the_pass(home: Path, session: str) -> None:
    found = scan_after(
        home,
        f"{SESSION} ({session}, 'cli', 1000.0), ('z', 'cli', 1000.0);"
        f"{MESSAGE} ('z', 'user', '', 1);",
    )
    assert found.snapshot.trouble is Trouble.NONE, found.snapshot.detail
    (histogram,) = found.summary.messages
    assert histogram.sum == 4
    assert sum(histogram.buckets) in (2, 3)


def test_more_strange_names_than_a_pass_reads_at_once_do_not_keep_it_going(home: Path) -> None:
    """They sort after all others, and the place to continue cannot be expressed."""
    found = scan_after(
        home,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000) "
        f"{SESSION.replace('VALUES', '')} SELECT CAST('a' || i AS BLOB), 'cli', 1.0 FROM n;",
    )
    assert found.snapshot.trouble is Trouble.NONE, found.snapshot.detail


def test_ids_as_long_as_clients_may_choose_fit_the_wire(home: Path) -> None:
    found = scan_after(
        home,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1200) "
        f"{SESSION.replace('VALUES', '')} "
        "SELECT i || replace(hex(zeroblob(250)), '0', char(0x1f600)), 'api_server', 1.0 FROM n;",
    )
    assert len(found.sessions) == 1201


def test_thousands_of_sources_and_reasons_lose_no_session(home: Path) -> None:
    found = scan_after(
        home,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 4000) "
        "INSERT INTO sessions (id, source, started_at, ended_at, end_reason) "
        "SELECT 's' || i, 'source ' || i, 1.0, iif(i % 2, 2.0, NULL), iif(i % 2, 'r' || i, NULL) "
        "FROM n;"
        f"{MESSAGE.replace('VALUES', '')} SELECT id, 'user', '', 9.0 FROM sessions;",
    )
    summary = found.summary
    assert sum(summary.open_by_source.values()) == 2001
    assert sum(ended.sessions for ended in summary.ended) == 2000
    assert sum(summary.written_after_end.values()) == 2000
    assert sum(each.sum for each in summary.messages) == 4004
    assert sum(sum(each.buckets) for each in summary.messages) == 4001
    assert all(len(each.buckets) == len(MESSAGE_BUCKETS) + 1 for each in summary.messages)


# Text that is not UTF-8

BAD = "CAST(x'61ff62' AS TEXT)"


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE messages SET content = {BAD};",
        f"UPDATE messages SET tool_calls = {BAD};",
        f"UPDATE sessions SET title = {BAD}, system_prompt = {BAD}, model_config = {BAD};",
        f"UPDATE messages SET content = {BAD}, compacted = 1, active = 0 WHERE id = 1;",
    ],
    ids=["content", "tool calls", "what nobody reads", "compacted"],
)
def test_what_was_said_may_be_any_bytes(home: Path, statement: str) -> None:
    sql(home, statement)
    reader = WorkerHome(str(home))
    first = scan(reader, home)
    assert first.snapshot.trouble is Trouble.NONE, first.snapshot.detail
    sql(home, f"{MESSAGE} ('a', 'user', {BAD}, 2.0);")
    found = scan(reader, home, watermark=first.snapshot.message_watermark)
    assert found.snapshot.trouble is Trouble.NONE, found.snapshot.detail
    assert [usage.rows for usage in found.usage] == [4]


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE sessions SET source = {BAD};",
        f"UPDATE sessions SET end_reason = {BAD}, ended_at = 2.0;",
        f"{SESSION} ({BAD}, 'cli', 1.0);",
        f"UPDATE sessions SET model = {BAD}, input_tokens = 5;",
        f"UPDATE messages SET role = 'tool', tool_name = {BAD};",
        f"INSERT INTO compression_locks VALUES ({BAD}, 'h', 1.0, 9e9);",
    ],
    ids=["source", "end reason", "id", "model", "tool name", "compression lock"],
)
def test_names_that_are_no_text_cost_no_other_row_its_figures(home: Path, statement: str) -> None:
    """Hermes cannot read such a row either."""
    found = scan_after(home, f"{statement} {SESSION} ('z', 'cli', 1000.0);")
    assert found.snapshot.trouble is Trouble.NONE, found.snapshot.detail
    assert "z" in [session.id for session in found.sessions]


# Hermes's other files

HALF = '"\\ud800"'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("sessions/sessions.json", f'{{"k": {{"session_id": {HALF}}}}}'),
        ("runtime/active_sessions.json", f'{{"entries": [{{"session_id": {HALF}, "pid": 1}}]}}'),
        ("gateway_state.json", f'{{"gateway_state": {HALF}, "pid": 1}}'),
    ],
)
def test_half_characters_in_a_file_make_that_file_unreadable_and_nothing_else(
    home: Path, name: str, content: str
) -> None:
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).write_text(content)
    found = scan(WorkerHome(str(home)), home)
    protocol.PROBE.decode_reply(through_frame(protocol.DONE, found.look))
    assert found.snapshot.trouble is Trouble.NONE
    assert found.snapshot.routing_readable == ("sessions.json" not in name or "active" in name)
    assert found.look.leases_readable == ("active" not in name)


def test_a_compaction_of_what_is_no_text_is_counted_too(home: Path) -> None:
    reader = WorkerHome(str(home))
    sql(home, f"UPDATE messages SET content = {BAD};")
    first = scan(reader, home)
    sql(
        home,
        "UPDATE messages SET active = 0, compacted = 1;"
        f"{MESSAGE} ('a', 'user', 'so far', 2.0), ('a', 'user', {BAD}, 3.0);",
    )
    found = scan(reader, home, watermark=first.snapshot.message_watermark)
    assert [(usage.rows, usage.copied) for usage in found.usage] == [(5, 1)]
