"""The commands as users run them: `python -m exporter ...` to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.real.hermes import REPOSITORY

PROGRAM = (sys.executable, "-m", "exporter")
"""How this tree is run; another installation has an interpreter of its own."""


def run(
    *words: str | Path,
    environment: dict[str, str] | None = None,
    timeout_seconds: float = 300.0,
    program: Sequence[str] = PROGRAM,
) -> subprocess.CompletedProcess[str]:
    """Run a command; its output is a pipe, as in a script."""
    return subprocess.run(
        [*program, *words],
        cwd=REPOSITORY,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
    )


def run_json(*words: str | Path, timeout_seconds: float = 300.0) -> Any:
    """What a command that succeeds prints with --json."""
    done = run(*words, "--json", timeout_seconds=timeout_seconds)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refusal(*words: str | Path) -> tuple[int, str]:
    """The exit status of a command that fails, and the one line it fails with."""
    done = run(*words)
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
    return done.returncode, done.stderr.rstrip("\n")
