"""Cron jobs of a real Hermes: `hermes cron create`, and `cron tick`, which runs what is due."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
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
    _make_due(home / "cron" / "jobs.json")
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


def _make_due(file: Path) -> None:
    """Not long ago, or Hermes skips it as missed."""
    known = json.loads(file.read_text())
    (job,) = known["jobs"]
    job["next_run_at"] = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    file.write_text(json.dumps(known))


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
