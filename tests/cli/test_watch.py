"""`status --watch` on a real terminal: drawn again, ended by a key, the terminal as it was."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.agent import agent
from tests.real.command import PROGRAM, run
from tests.real.hermes import REPOSITORY
from tests.real.terminal import terminal
from tests.support.running_agent import configuration, when_up
from tests.support.small_homes import small_home, write_sessions

_ON, _OFF = "\x1b[?1049h", "\x1b[?1049l"


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="hx-"))  # short: the name of a socket has 107 bytes
    yield made
    shutil.rmtree(made)


def watching(*words: str | Path) -> list[str | Path]:
    return [*PROGRAM, "status", "--watch", *words]


@pytest.mark.parametrize(
    "how",
    [
        "q",
        pytest.param("ctrl-c", marks=pytest.mark.full),
        pytest.param("terminated", marks=pytest.mark.full),
    ],
)
def test_it_is_drawn_again_and_leaves_the_terminal_as_it_was(folder: Path, how: str) -> None:
    home = small_home(folder / "home")
    with agent(
        folder, (), f"--agent.socket={folder}/s", configuration=configuration({"home": home})
    ) as started:
        when_up(started, "home")
        command = watching("--agent.socket", folder / "s")
        with terminal(command, dict(os.environ), REPOSITORY) as screen:
            before = screen.modes()
            screen.wait_for("as the agent saw it", times=2)
            screen.wait_for("3 open, 0 ended")
            assert screen.modes() != before  # keys are not shown
            (home / "state.db").unlink()
            write_sessions(home / "state.db", 7)
            screen.wait_for("7 open, 0 ended")
            screen.wait_for("▁")  # how it moved since the watch began
            if how == "q":
                screen.press("q")
            elif how == "ctrl-c":
                screen.process.send_signal(signal.SIGINT)
            else:
                screen.process.send_signal(signal.SIGTERM)
            assert screen.process.wait(timeout=60) == 0
            assert screen.modes() == before
            assert screen.raw.count(_ON) == screen.raw.count(_OFF) == 1
            assert screen.raw.rindex(_OFF) > screen.raw.rindex("7 open")


def test_without_an_agent_it_scans_again(folder: Path) -> None:
    home = small_home(folder / "home")
    command = watching("--home", home, "--state-dir", folder / "state")
    with terminal(command, dict(os.environ), REPOSITORY) as screen:
        screen.wait_for("3 open, 0 ended")
        (home / "state.db").unlink()
        write_sessions(home / "state.db", 7)
        screen.wait_for("7 open, 0 ended")
        screen.press("q")
        assert screen.process.wait(timeout=60) == 0


def test_without_a_terminal_it_says_so() -> None:
    for more, said in ((), "this is none"), (("--json",), "leave out --json"):
        done = run("status", "--watch", *more)
        assert (done.returncode, said in done.stderr, done.stdout) == (2, True, "")
