"""A real Hermes beside us: it holds a home's state.db open and writes when told to."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.hermes import NEWEST, python_for


class HermesProcess:
    """A Hermes of the newest release that has the home's database open."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._hear()

    def append(
        self, messages: int, sessions: int, *, pause_seconds: float = 0.0, optimize: bool = False
    ) -> list[float]:
        """Append messages, in turn to each of the newest sessions; the seconds each took."""
        self.begin_appending(messages, sessions, pause_seconds=pause_seconds, optimize=optimize)
        return self.appended()

    def begin_appending(
        self, messages: int, sessions: int, *, pause_seconds: float = 0.0, optimize: bool = False
    ) -> None:
        """The same without waiting; `appended` gives the times."""
        order = {
            "messages": messages,
            "sessions": sessions,
            "pause_seconds": pause_seconds,
            "optimize": optimize,
        }
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def appended(self) -> list[float]:
        return [float(latency) for latency in self._hear()]

    def _hear(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Hermes ended with status {self._process.wait()}")
        return json.loads(line)


@contextmanager
def holding(home: Path) -> Iterator[HermesProcess]:
    """Have a Hermes hold this home's database; it closes it cleanly when the block ends."""
    hermes = python_for(NEWEST)
    with subprocess.Popen(
        [str(hermes.python), "-m", "benchmarks.inside.writer"],
        env=hermes.environment(home),
        cwd=home.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield HermesProcess(process)
