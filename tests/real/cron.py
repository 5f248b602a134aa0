"""Cron jobs of a real Hermes: `hermes cron create`, and `cron tick`, which runs what is due."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.cli import ask, user_environment
from tests.real.hermes import Hermes
from tests.real.stub_model import StubModel
from tests.real.terminal import PATIENCE_SECONDS
from tests.real.waiting import wait_until


@contextmanager
def cron_job(
    hermes: Hermes, home: Path, model: StubModel, line: str
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A job that asks this and hangs, in mid-run: the process that runs it, and its session."""
    _run(hermes, home, "create", "every 24h", line, "--name", "job")
    (job,) = json.loads((home / "cron" / "jobs.json").read_text())["jobs"]
    _run(hermes, home, "run", job["id"])
    with subprocess.Popen(
        [hermes.python, hermes.program, "cron", "tick"],
        env=user_environment(hermes, home),
        cwd=home.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            # Hermes puts words of its own around the line.
            wait_until(
                lambda: any(line in each for each in model.half_answered),
                "the job runs",
                PATIENCE_SECONDS,
            )
            (row,) = ask(home, "SELECT id FROM sessions WHERE source = 'cron'")
            yield process, str(row["id"])
        finally:
            process.kill()


def _run(hermes: Hermes, home: Path, *arguments: str) -> None:
    done = subprocess.run(
        [hermes.python, hermes.program, "cron", *arguments],
        env=user_environment(hermes, home),
        cwd=home.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
