"""After a downgrade: an agent that finds the state of a newer one leaves it alone and says so."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from exporter.agent.state_file import STATE_VERSION
from tests.real.agent import agent
from tests.real.command import refusal

NEWER = STATE_VERSION + 1


@pytest.fixture
def newer_state(tmp_path: Path) -> Path:
    """A state directory that an agent has really used, marked as a later version would."""
    with agent(tmp_path, [tmp_path]):
        pass
    file = tmp_path / "state" / "agent.db"
    connection = apsw.Connection(str(file))
    connection.pragma("user_version", NEWER)
    connection.close()
    return file


@pytest.mark.parametrize("command", [["serve"], ["textfile", "metrics.prom"]])
def test_an_older_agent_refuses_a_newer_state_directory(
    newer_state: Path, tmp_path: Path, command: list[str]
) -> None:
    before = newer_state.read_bytes()
    status, line = refusal(*command, "--home", tmp_path, "--state-dir", newer_state.parent)
    assert status == 1
    assert line == (
        f"hermes-exporter: {newer_state} was written by a newer hermes-exporter "
        f"(state version {NEWER}, this one knows {STATE_VERSION}); "
        "upgrade, or choose another --state-dir"
    )
    assert newer_state.read_bytes() == before
