"""Upkeep by the agent: once a day, in a home that no process uses."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.real.agent import Agent, agent
from tests.real.waiting import wait_until
from tests.support.evidence import puppet
from tests.support.running_agent import scanned_again
from tests.support.small_homes import small_home

ALLOWED = "scan: {interval: 1s}\nprune: {mode: enforce, interval: 300ms, upkeep: {vacuum: true}}\n"


def wasteful_home(path: Path) -> Path:
    """Make a cold home whose database file is mostly unused pages."""
    home = small_home(path)
    with closing(sqlite3.connect(home / "state.db")) as connection:
        connection.execute("CREATE TABLE padding (content BLOB)")
        connection.execute("INSERT INTO padding VALUES (zeroblob(4194304))")
        connection.execute("DELETE FROM padding")
        connection.commit()
    return home


def file_bytes(home: Path) -> int:
    return (home / "state.db").stat().st_size


def sessions(home: Path) -> list[str]:
    with closing(sqlite3.connect(f"file:{home / 'state.db'}?mode=ro", uri=True)) as connection:
        return [name for (name,) in connection.execute("SELECT id FROM sessions ORDER BY id")]


def upkeep_lines(running: Agent) -> list[str]:
    return [line for line in running.log().splitlines() if "work=vacuum" in line]


def test_an_unused_home_is_vacuumed_once(tmp_path: Path) -> None:
    home = wasteful_home(tmp_path / "home")
    before, known = file_bytes(home), sessions(home)
    with agent(tmp_path, [home], configuration=ALLOWED) as running:
        wait_until(lambda: upkeep_lines(running), "the agent did upkeep")
        wait_until(lambda: file_bytes(home) < before / 2, "the file shrank")
        scanned_again(running, "default")
        [line] = upkeep_lines(running)
    assert "upkeep not done" not in line
    assert sessions(home) == known


def test_a_home_in_use_is_left_alone_until_it_is_not(tmp_path: Path) -> None:
    home = wasteful_home(tmp_path / "home")
    before = file_bytes(home)
    with puppet() as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        with agent(tmp_path, [home], configuration=ALLOWED) as running:
            scanned_again(running, "default")
            assert (upkeep_lines(running), file_bytes(home)) == ([], before)
            process.do("connection.close()")
            wait_until(lambda: file_bytes(home) < before / 2, "the file shrank")
