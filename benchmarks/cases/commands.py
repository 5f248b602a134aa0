"""Commands at a prompt, beside an agent and without one, against `hermes sessions stats`."""

from __future__ import annotations

import os
import pty
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import agent, homes, peers
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import Timings, alternate, timed
from tests.real.hermes import NEWEST, REPOSITORY, python_for

_PEER = "hermes sessions stats"
_ALONE = {"sessions": 2.0, "reap": 2.0, "status": 5.0}
_PAUSES = {"reap": 2.0}
"""The pause between two confirmations is not counted."""


def run(setting: Setting) -> Iterator[Line]:
    home = homes.home(setting.scale)
    python = peers.ours()
    with (
        tempfile.TemporaryDirectory(prefix="hx-") as folder,
        agent.running(home, interval="15s", python=python, socket=f"{folder}/agent") as started,
    ):
        started.wait_until_ready()
        started.wait_for_scans(2)
        for command in ("status", "sessions"):
            beside = [command, "--agent.socket", f"{folder}/agent"]
            yield ratio_line(
                f"{command} beside an agent", _PEER, _against(home, python, beside, setting), 0.5
            )
    with tempfile.TemporaryDirectory(prefix="hx-") as folder:
        where = ["--home", str(home), "--state-dir", folder, "--no-agent"]
        for command, limit in _ALONE.items():
            pause = _PAUSES.get(command, 0.0)
            rounds = _against(home, python, [command, *where], setting, pause)
            yield ratio_line(f"{command} without an agent", _PEER, rounds, limit)
        fresh = _against(home, python, ["status", "--fresh", *where], setting)
        yield ratio_line(
            "status without an agent, the first of a home (--fresh)",
            _PEER,
            fresh,
            _ALONE["status"],
            f"`du -s` of the checkpoints alone takes {_du(home):.2f} s",
        )
        shown = alternate(
            lambda: _first_line(python, ["status", *where]),
            lambda: timed(lambda: subprocess.run([python, "-c", "pass"], check=True)),
            setting.rounds,
        )
    yield ratio_line("first line of status without an agent", "python -c pass", shown, 4.0)


def _du(home: Path) -> float:
    command = ["du", "-s", str(home / "checkpoints")]
    return timed(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))


def _against(
    home: Path, python: Path, words: Sequence[str], setting: Setting, pause: float = 0.0
) -> Timings:
    hermes = python_for(NEWEST)
    stats = [str(hermes.python), str(hermes.program), "sessions", "stats"]
    theirs = hermes.environment(home)
    return alternate(
        lambda: _timed([str(python), "-m", "exporter", *words], _ours()) - pause,
        lambda: _timed(stats, theirs),
        setting.rounds,
    )


def _ours() -> dict[str, str]:
    """Return the environment in which this tree is run, whatever the Python has installed."""
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def _timed(command: Sequence[str], environment: dict[str, str]) -> float:
    def work() -> None:
        done = subprocess.run(
            command, env=environment, cwd="/", capture_output=True, text=True, check=False
        )
        if done.returncode not in (0, 3):  # 3: something cannot be seen here, as in a container
            raise RuntimeError(f"{command}: {done.stderr[-300:]}")

    return timed(work)


def _first_line(python: Path, words: Sequence[str]) -> float:
    """Return the seconds until a person at a terminal sees something."""
    screen, inside = pty.openpty()
    try:
        with subprocess.Popen(
            [str(python), "-m", "exporter", *words],
            env={**_ours(), "TERM": "xterm-256color"},
            cwd="/",
            stdin=inside,
            stdout=inside,
            stderr=inside,
        ) as process:
            try:
                return timed(lambda: os.read(screen, 1))
            finally:
                process.kill()
    finally:
        os.close(inside)
        os.close(screen)
