"""A process that forks others, which act on a home and may be killed at any moment."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.hermes import REPOSITORY
from tests.support.kill_times import Instants

_CREW = """
import os, signal, sys
for line in sys.stdin:
    child = os.fork()
    if not child:
        act(*line.split())
        os._exit(0)
    print("begun", flush=True)
    if sys.stdin.readline() == "kill\\n":
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Crew:
    """A process that forks others, which act on a home and may be killed meanwhile."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def work(self, home: Path, what: str, beside: int = 0) -> None:
        """Do it until it ends."""
        assert self._ask(f"{home} {what} {beside}") == "begun"
        assert self._ask("wait") == "0"

    def work_and_die(self, instants: Instants, home: Path, what: str, beside: int) -> bool:
        """Start it and kill it at a random moment; True if it was killed before its end."""
        assert self._ask(f"{home} {what} {beside}") == "begun"
        time.sleep(instants.draw())
        ended = self._ask("kill")
        assert ended in ("0", "-9")
        instants.heed(killed=ended == "-9")
        return ended == "-9"

    def work_and_die_at(self, step: int, home: Path, what: str) -> bool:
        """Do it with this step as its last, if `act` counts steps; True if it was killed there."""
        assert self._ask(f"{home} {what} {step}") == "begun"
        ended = self._ask("wait")
        assert ended in ("0", "-9")
        return ended == "-9"

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def crew_that(act: str) -> Iterator[Crew]:
    """Start a process whose children do what `act` says: Python with `act(home, what, beside)`."""
    with subprocess.Popen(
        [sys.executable, "-c", act + _CREW],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    ) as process:
        yield Crew(process)
        assert process.stdin is not None
        process.stdin.close()
