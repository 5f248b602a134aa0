"""Kanban boards: where they are, and which tasks name a worker process."""

from __future__ import annotations

from pathlib import Path

import apsw

from exporter.hermes.kanban import board_names, read_claims
from exporter.snapshot import KanbanClaim

TASKS = "CREATE TABLE tasks (status, worker_pid, claim_lock, started_at);"


def claims(statements: str) -> list[KanbanClaim]:
    connection = apsw.Connection(":memory:")
    connection.execute(statements)
    return read_claims(connection)


def test_the_first_board_and_further_ones_are_found(tmp_path: Path) -> None:
    assert board_names(str(tmp_path)) == []
    (tmp_path / "kanban.db").touch()
    for slug in ("b", "a", "without"):
        (tmp_path / "kanban" / "boards" / slug).mkdir(parents=True)
    for slug in ("b", "a"):
        (tmp_path / "kanban" / "boards" / slug / "kanban.db").touch()
    assert board_names(str(tmp_path)) == [
        "kanban.db",
        "kanban/boards/a/kanban.db",
        "kanban/boards/b/kanban.db",
    ]


def test_the_number_of_boards_is_limited(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / "kanban" / "boards" / f"{number:02}").mkdir(parents=True)
        (tmp_path / "kanban" / "boards" / f"{number:02}" / "kanban.db").touch()
    assert len(board_names(str(tmp_path))) == 16


def test_only_running_tasks_that_name_a_process_are_claims() -> None:
    found = claims(
        f"{TASKS} INSERT INTO tasks VALUES ('running', 7, 'host:with:colons:7', 5.0),"
        "('running', NULL, 'host:8', 5.0), ('done', 9, 'host:9', 5.0);"
    )
    assert found == [KanbanClaim(pid=7, host="host:with:colons", started_at=5.0)]


def test_values_that_cannot_be_are_left_out_or_limited() -> None:
    found = claims(
        f"{TASKS} INSERT INTO tasks VALUES ('running', 0, '', 1), ('running', -1, '', 1),"
        "('running', 1 << 31, '', 1), ('running', 7, NULL, -1), ('running', 8, 'h:8', 1e300);"
    )
    assert found == [
        KanbanClaim(pid=7, host="", started_at=0.0),
        KanbanClaim(pid=8, host="h", started_at=1e11),
    ]


def test_text_that_is_not_utf8_costs_no_other_claim() -> None:
    found = claims(
        f"{TASKS} INSERT INTO tasks VALUES ('running', 7, CAST(x'ff3a37' AS TEXT), 1.0),"
        "('running', 8, 'h:8', 1.0);"
    )
    assert [claim.pid for claim in found] == [8]


def test_a_board_of_an_older_release_has_fewer_columns() -> None:
    found = claims(
        "CREATE TABLE tasks (status, worker_pid); INSERT INTO tasks VALUES ('running', 7);"
    )
    assert found == [KanbanClaim(pid=7, host="", started_at=0.0)]
    assert claims("CREATE TABLE tasks (status);") == []
    assert claims("CREATE TABLE other (status);") == []
