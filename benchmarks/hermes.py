"""A real Hermes process that holds a home's state.db open and writes on request."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.hermes import NEWEST, python_for


class ProgramChannel:
    """Requests to a program of `inside/` and its answers; its first answer says it is ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.receive()

    def send(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Hermes ended with status {self._process.wait()}")
        return json.loads(line)


@contextmanager
def channel_to(program: str, home: Path) -> Iterator[ProgramChannel]:
    """Run a program of `inside/` with the newest release; it exits cleanly when the block ends."""
    hermes = python_for(NEWEST)
    with subprocess.Popen(
        [str(hermes.python), "-m", f"benchmarks.inside.{program}"],
        env=hermes.environment(home),
        cwd=home.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield ProgramChannel(process)


class HermesProcess:
    """A Hermes of the newest release that has the home's database open."""

    def __init__(self, line: ProgramChannel) -> None:
        self._line = line

    def append(
        self, messages: int, sessions: int, *, pause_seconds: float = 0.0, optimize: bool = False
    ) -> list[float]:
        """Append messages, in turn to each of the newest sessions; return the seconds of each."""
        self.begin_appending(messages, sessions, pause_seconds=pause_seconds, optimize=optimize)
        return self.appended()

    def begin_appending(
        self, messages: int, sessions: int, *, pause_seconds: float = 0.0, optimize: bool = False
    ) -> None:
        """The same without waiting; `appended` returns the times."""
        self._line.send(
            {
                "messages": messages,
                "sessions": sessions,
                "pause_seconds": pause_seconds,
                "optimize": optimize,
            }
        )

    def appended(self) -> list[float]:
        return [float(latency) for latency in self._line.receive()]


@contextmanager
def holding(home: Path) -> Iterator[HermesProcess]:
    """Let a Hermes hold this home's database; it closes it cleanly when the block ends."""
    with channel_to("writer", home) as line:
        yield HermesProcess(line)
