"""From the command to the first ready answer, against importing what any such tool imports."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import agent
from benchmarks.line import Line, Setting, ratio_line
from benchmarks.measure import alternate, timed

_IMPORTS = [sys.executable, "-c", "import prometheus_client, psutil, git, yaml"]


def run(setting: Setting) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        rounds = alternate(
            lambda: _start(Path(folder)),
            lambda: timed(lambda: subprocess.run(_IMPORTS, check=True)),
            setting.rounds,
        )
    yield ratio_line("start to ready, empty home", "python -c import …", rounds, 4.0)


def _start(home: Path) -> float:
    """Return the seconds until it is ready; stopping does not count."""
    ready = agent.running(home, interval="15s")

    def start() -> None:
        ready.__enter__().wait_until_ready()

    try:
        return timed(start)
    finally:
        ready.__exit__(None, None, None)
