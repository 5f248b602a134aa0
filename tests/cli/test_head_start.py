"""A command that will scan says so and starts its fork server before the program is loaded."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from exporter.cli import head_start
from exporter.config.paths import SOCKET_VARIABLE
from tests.real.command import PROGRAM
from tests.real.hermes import REPOSITORY
from tests.real.terminal import terminal
from tests.real.waiting import wait_until


@pytest.mark.parametrize(
    ("line", "scans"),
    [
        ("status", True),
        ("status --no-agent", True),
        ("sessions --home /x --json", True),
        ("reap --yes", True),
        ("status --watch", False),
        ("status --help", False),
        ("status --agent.socket /x", False),
        ("status --agent.socket=/x --no-agent", True),
        ("serve", False),
        ("textfile x.prom", False),
        ("--version", False),
        ("", False),
    ],
)
def test_commands_that_will_scan_are_known_by_their_words(
    line: str, scans: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SOCKET_VARIABLE, "/nowhere/agent.sock")
    assert head_start._will_scan(line.split()) is scans


@pytest.mark.parametrize(
    ("line", "scans"),
    [
        ("status", False),
        ("status --no-agent", True),
        ("prune --state-dir=/x", True),
        ("prune --config.file /x", True),
    ],
)
def test_where_an_agent_may_answer_it_is_asked_first(
    line: str, scans: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "agent.sock").touch()
    monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "agent.sock"))
    assert head_start._will_scan(line.split()) is scans


def test_a_mistake_is_said_as_if_nothing_had_begun(tmp_path: Path) -> None:
    command = [*PROGRAM, "status", "--bogus", "--no-agent"]
    with terminal(command, dict(os.environ), REPOSITORY) as screen:
        assert screen.process.wait(timeout=120) == 2
        screen.wait_for_end()
    before, _, shown = screen.raw.rpartition("\r\x1b[K")
    assert before.startswith("\r\x1b[Kscanning...")
    assert shown.startswith("hermes-exporter: unknown option '--bogus'")


def test_a_server_that_was_not_needed_ends_with_the_command() -> None:
    command = [*PROGRAM, "status", "--bogus", "--no-agent"]
    with subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL) as process:
        assert process.wait(timeout=120) == 2
    wait_until(lambda: not servers_of(process.pid), "its fork server has ended")


def servers_of(pid: int) -> list[bytes]:
    """Return the command lines of the fork servers that a process has started."""
    found: list[bytes] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"fork_server\0%d\0" % pid in line:
            found.append(line)
    return found
