"""The file of the state store is private, has one agent, and is refused whole if it is damaged."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from pathlib import Path

import apsw
import pytest

from exporter.agent.state_file import StateLock, state_lock
from exporter.agent.state_store import StateStore
from exporter.errors import StateError, StateUsedError
from tests.real.agent import agent
from tests.real.waiting import wait_until
from tests.support.small_homes import small_home


def test_a_damaged_page_is_told_at_the_start(tmp_path: Path) -> None:
    opened = StateStore.open(str(tmp_path))
    for number in range(5000):
        opened.give_label(f"/home/{number}", str(number))
    opened.close()
    (file,) = tmp_path.glob("*.db")
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 4096] = b"\xff" * 4096
    file.write_bytes(content)
    with pytest.raises(StateError, match=rf"cannot use {file}: .*; move it away to start afresh"):
        StateStore.open(str(tmp_path))


def test_a_newer_state_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    StateStore.open(str(tmp_path)).close()
    connection = apsw.Connection(str(tmp_path / "agent.db"))
    connection.pragma("user_version", 99)
    connection.close()
    with pytest.raises(StateError, match=r"newer hermes-exporter.*--state-dir"):
        StateStore.open(str(tmp_path))


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "agent.db").write_bytes(b"this is not a database, and long enough to be one" * 30)
    before = (tmp_path / "agent.db").read_bytes()
    with pytest.raises(StateError, match=r"agent\.db"):
        StateStore.open(str(tmp_path))
    assert (tmp_path / "agent.db").read_bytes() == before


def test_a_state_directory_serves_one_agent(tmp_path: Path) -> None:
    with (
        state_lock(str(tmp_path)),
        pytest.raises(StateError, match="another hermes-exporter"),
        state_lock(str(tmp_path)),
    ):
        pass


def test_the_lock_of_a_directory_that_was_deleted_is_taken_again(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with state_lock(str(folder)) as first:
        first.take_again_if_gone()
        shutil.rmtree(folder)
        first.take_again_if_gone()
        with pytest.raises(StateError, match="another hermes-exporter"), state_lock(str(folder)):
            pass
        shutil.rmtree(folder)
        with (
            state_lock(str(folder)),
            pytest.raises(StateUsedError, match="another hermes-exporter"),
        ):
            first.take_again_if_gone()


def test_an_agent_whose_directory_another_has_taken_over_ends(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    with agent(tmp_path, [home]) as running:
        shutil.rmtree(tmp_path / "state")
        wait_until(lambda: (tmp_path / "state/agent.lock").exists(), "the lock is there again")
        wait_until(lambda: "it is written anew from memory" in running.log(), "it says so")
        # A new file of this name is what a second agent would make.
        running.process.send_signal(signal.SIGSTOP)
        shutil.rmtree(tmp_path / "state")
        other = StateLock(str(tmp_path / "state"))
        running.process.send_signal(signal.SIGCONT)
        assert running.process.wait(60) == 1
        assert "another hermes-exporter uses" in running.log()
        other.close()


def test_it_is_for_its_owner_alone_even_where_an_older_agent_made_it_for_all(
    tmp_path: Path,
) -> None:
    def modes() -> dict[str, int]:
        return {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

    private = {"agent.db": 0o600, "agent.db-wal": 0o600, "agent.db-shm": 0o600}
    usual = os.umask(0o022)
    try:
        opened = StateStore.open(str(tmp_path))
        assert modes() == private
        for file in tmp_path.iterdir():
            file.chmod(0o644)
        again = StateStore.open(str(tmp_path))
        assert modes() == private
    finally:
        os.umask(usual)
    again.close()
    opened.close()
