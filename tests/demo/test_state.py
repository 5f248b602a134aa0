"""The demo shows what an agent knows that has watched for days: every policy finds something."""

from __future__ import annotations

import dataclasses
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from exporter.config.prune import Policies
from exporter.demo.home import make
from exporter.demo.state import write_settings, write_state
from exporter.pruner.decide.policies import POLICIES
from exporter.text import format_size
from tests.real.command import run, run_json


@pytest.fixture
def where(tmp_path: Path) -> list[str | Path]:
    now = time.time()
    home = make(str(tmp_path), now=now)
    write_state(str(tmp_path / "state"), home, now=now)
    config = write_settings(str(tmp_path))
    return ["--home", home, "--state-dir", tmp_path / "state", "--config.file", config]


def test_every_policy_finds_something_and_sessions_are_dead(where: list[str | Path]) -> None:
    actions = run_json("prune", *where)["plan"]["actions"]
    assert {each["policy"] for each in actions} >= {
        field.name
        for field in dataclasses.fields(Policies)
        if POLICIES[field.name].gather is None  # its files are not in the demo
    }
    (status, _) = run_json("status", *where)["homes"]
    assert status["verdicts"]["dead"] > 50
    assert any(each["pressure"] for each in status["thresholds"])


def test_the_home_is_not_larger_after_its_first_prune_and_the_last_line_is_true(
    where: list[str | Path],
) -> None:
    home = Path(where[1])
    before = allocated(home)
    last = run("prune", "--yes", *where).stdout.splitlines()[-1]
    full = allocated(home)
    assert full <= before
    now, at_purge, after_upkeep = last.split("; ")
    assert now == f"{format_size(before - full)} came free now"
    assert at_purge.endswith(" when the trash is emptied, after 3d or by `purge`")
    assert after_upkeep.endswith(" by VACUUM or git gc.")
    purged = run("purge", "--yes", *where).stdout
    assert purged.endswith(f": {format_size(full - allocated(home))} came free.\n")
    assert full - allocated(home) >= float(at_purge.split()[0]) * (1 << 20)
    # Space in reserve is kept by an agent that enforces a home, not by a run of a person.
    assert not list(home.rglob(".hermes-exporter/reserve"))


def allocated(home: Path) -> int:
    """What `du -s` says of the home, its trash and journals included."""
    return int(subprocess.check_output(["du", "-s", "-B1", home], text=True).split()[0])


def test_the_commands_that_the_demo_prints_can_be_pasted(tmp_path: Path) -> None:
    command = "exec .venv/bin/hermes-exporter demo --web.listen-address 127.0.0.1:0"
    with subprocess.Popen(
        ["/bin/sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith("demo home: ")
            words = shlex.split(process.stdout.readline())
            shown = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        finally:
            process.terminate()
    assert "dead" in shown.stdout
    assert "reap" in shown.stdout
