"""A state directory that hangs delays neither a scrape nor the end of the agent."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.agent import Agent, agent
from tests.real.frozen import FreezableFilesystem, freezable_filesystem, is_waiting_for_disk
from tests.real.waiting import wait_until
from tests.support.small_homes import small_home

_ANSWER_SECONDS = 20.0


@pytest.fixture
def state(tmp_path: Path) -> Iterator[FreezableFilesystem]:
    """Mount the agent's state directory as its own filesystem."""
    (tmp_path / "state").mkdir()
    with freezable_filesystem(tmp_path / "image", tmp_path / "state") as filesystem:
        yield filesystem


def write_a_message(home: Path, number: int) -> None:
    """Write something to count: a session without messages has used nothing."""
    name = f"20260102_{number % 1_000_000:06}_aaaaaa"
    script = (
        f"INSERT INTO sessions (id, source, started_at) VALUES ('{name}', 'cli', 1.0);"
        "INSERT INTO messages (session_id, role, content, timestamp) "
        f"VALUES ('{name}', 'user', 'hello', 2.0);"
    )
    subprocess.run(["sqlite3", home / "state.db", script], check=True)


def hang(running: Agent, state: FreezableFilesystem, home: Path) -> None:
    """Freeze it, and return when the agent waits for it."""
    state.freeze()
    write_a_message(home, time.monotonic_ns())
    wait_until(lambda: is_waiting_for_disk(running.pid), "the agent waits for its state")


def scrape(running: Agent) -> bytes:
    with urllib.request.urlopen(f"{running.url}/metrics", timeout=_ANSWER_SECONDS) as answer:
        return bytes(answer.read())


def test_metrics_are_answered_while_the_state_directory_hangs(
    tmp_path: Path, state: FreezableFilesystem
) -> None:
    home = small_home(tmp_path / "home")
    with agent(tmp_path, [home]) as running:
        for _ in range(3):
            hang(running, state, home)
            try:
                for _ in range(10):
                    assert b"hermes_home_up" in scrape(running)
            finally:
                state.thaw()
            running.next_scan()
        assert running.stop() == 0


def test_sigterm_ends_the_agent_while_the_state_directory_hangs(
    tmp_path: Path, state: FreezableFilesystem
) -> None:
    """All threads end except the one that the kernel holds; it ends when the filesystem answers."""
    home = small_home(tmp_path / "home")
    with agent(tmp_path, [home]) as running:
        hang(running, state, home)
        try:
            running.process.send_signal(signal.SIGTERM)
            wait_until(lambda: has_left(running), "the agent has left")
            assert "state directory" in running.log()
        finally:
            state.thaw()
        assert running.process.wait(60) == 0


def has_left(running: Agent) -> bool:
    """True if there is no port, no worker, and no thread except those that the kernel holds."""
    host, _, port = running.address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        status = Path(f"/proc/{running.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return status == "Z"
    return False
