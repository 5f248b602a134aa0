"""The short forms of the campaign; `make trust` runs the long ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.real.hermes import REPOSITORY

SEED = 4100
STEPS = 2000
REAL_SEED = 10
REAL_STEPS = 60


def run_stage(stage: str, seed: int, steps: int) -> str:
    """Run a stage in a process of its own: it replaces the clocks; return what it prints."""
    command = [sys.executable, "-m", f"tests.trust.{stage}", "--seed", str(seed)]
    done = subprocess.run(
        [*command, "--steps", str(steps)], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.timeout(900)
def test_nothing_is_harmed_or_lost_whatever_happens_to_made_up_processes() -> None:
    said = run_stage("fast", SEED, STEPS)
    assert f'"steps": {STEPS}' in said


@pytest.mark.timeout(1200)
def test_nothing_is_harmed_or_lost_whatever_real_processes_do() -> None:
    said = run_stage("real", REAL_SEED, REAL_STEPS)
    assert f'"steps": {REAL_STEPS}' in said
