"""Signs of life in the database, in the forms that releases give them."""

from __future__ import annotations

import apsw
import pytest

from exporter.hermes.heartbeats import LifeSigns, read_life_signs
from exporter.hermes.schema import probe_schema

SESSIONS = "CREATE TABLE sessions (id, source, started_at, ended_at);"
LEASES = "CREATE TABLE session_turn_leases (conversation_id, expires_at);"


def read(statements: str = "") -> LifeSigns:
    connection = apsw.Connection(":memory:")
    connection.execute(SESSIONS + statements)
    return read_life_signs(connection, probe_schema(connection))


def test_an_older_release_gives_no_signs() -> None:
    assert read() == LifeSigns(None, {})
    assert read("CREATE TABLE gateway_heartbeats (id);") == LifeSigns(None, {})
    assert read("CREATE TABLE session_turn_leases (conversation_id);") == LifeSigns(None, {})


@pytest.mark.parametrize("column", ["last_heartbeat", "last_heartbeat_at", "updated_at"])
def test_the_newest_heartbeat_of_all_backends_counts(column: str) -> None:
    table = f"CREATE TABLE gateway_heartbeats (id, {column});"
    assert read(table).backend_beat_at is None
    rows = "INSERT INTO gateway_heartbeats VALUES (1, 5.5), (2, 7), (3, NULL), (4, 'z'), (5, x'ff')"
    assert read(f"{table} {rows}").backend_beat_at == 7.0


def test_each_turn_under_way_has_the_end_of_its_lease() -> None:
    rows = "INSERT INTO session_turn_leases VALUES ('a', 5), ('b', 7.5), (NULL, 9), ('c', NULL)"
    assert read(f"{LEASES} {rows}").turns == {"a": 5.0, "b": 7.5}


def test_a_name_that_is_not_utf8_costs_no_other_turn() -> None:
    rows = "INSERT INTO session_turn_leases VALUES (CAST(x'ff' AS TEXT), 9), ('b', 7.5)"
    assert read(f"{LEASES} {rows}").turns == {"b": 7.5}
