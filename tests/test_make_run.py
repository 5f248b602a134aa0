"""`make run`: what it found, what it refused and why, and where to look."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.real.agent import agent
from tests.real.hermes import REPOSITORY
from tests.real.waiting import wait_until
from tests.support.small_homes import small_home


def said_by(folder: Path, home: Path, words: Sequence[str]) -> str:
    """What it says until the agent listens; it is stopped then."""
    log = folder / "run.log"
    command = ["scripts/run.sh", "--web.listen-address", "127.0.0.1:0"]
    command += ["--state-dir", str(folder / "state"), *words]
    environment = {**os.environ, "HOME": str(folder), "HERMES_HOME": str(home)}
    with (
        log.open("w") as output,
        subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            wait_until(
                lambda: "msg=listening" in log.read_text() or process.poll() is not None,
                "it listens",
            )
            process.send_signal(signal.SIGTERM)
            process.wait(150)
        finally:
            process.kill()
    return log.read_text()


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """A home that others can write to, which is not watched unless it is named."""
    home = small_home(tmp_path / "home")
    home.chmod(0o777)
    return home


def test_a_home_that_is_refused_is_told_with_the_way_to_have_it_all_the_same(
    tmp_path: Path, open_to_all: Path
) -> None:
    said = said_by(tmp_path, open_to_all, [])
    (refusal,) = [line for line in said.splitlines() if f"found {open_to_all}, " in line]
    assert "refused it: " in refusal
    assert "writable by others" in refusal
    assert refusal.endswith(f'make run ARGS="--home {open_to_all}"')
    assert "found no Hermes home" not in said
    assert "another port: make run ARGS='--web.listen-address 127.0.0.1:PORT'" in said


def test_a_second_one_does_not_take_the_demo_of_the_first_for_homes_of_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory() as short:  # the name of a socket has at most 107 bytes
        at = f"{short}/agent.sock"
        with agent(tmp_path, [small_home(tmp_path / "demo")], f"--agent.socket={at}"):
            monkeypatch.setenv("HERMES_EXPORTER_AGENT_SOCKET", at)
            (tmp_path / "second").mkdir()
            said = said_by(tmp_path / "second", tmp_path / "none", [])
    assert "found no Hermes home on this host; serving a demo home" in said


def test_a_home_that_is_named_is_served(tmp_path: Path, open_to_all: Path) -> None:
    said = said_by(tmp_path, open_to_all, ["--home", str(open_to_all)])
    assert "msg=listening" in said
    assert "demo" not in said
    assert "refused" not in said
    (line,) = [each for each in said.splitlines() if "in another terminal: " in each]
    command = line.partition("in another terminal: ")[2]
    shown = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert str(open_to_all) in shown.stdout, "the line can be pasted anywhere"
