"""A real Hermes that prunes or writes when told to; see `inside/keeper.py`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.real.hermes import NEWEST, python_for


class Keeper:
    """The other end of `inside/keeper.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._hear()

    def ask(self, do: str, **arguments: Any) -> Any:
        assert self._process.stdin
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._hear()

    def _hear(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Hermes ended with status {self._process.wait()}")
        return json.loads(line)


@contextmanager
def keeping(home: Path) -> Iterator[Keeper]:
    """A Hermes of the newest release with this home's database open."""
    hermes = python_for(NEWEST)
    with subprocess.Popen(
        [str(hermes.python), "-m", "benchmarks.inside.keeper"],
        env=hermes.environment(home),
        cwd=home.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Keeper(process)
