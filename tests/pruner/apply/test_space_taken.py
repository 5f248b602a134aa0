"""What a run says came free, and by how much it grew the home, is what `du -s` says."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from exporter.demo.home import make
from exporter.demo.state import write_settings, write_state
from exporter.text import format_size
from tests.real.command import run, run_json

POLICIES = ("request_dumps", "orphan_checkpoints", "stale_checkpoints", "old_sessions")


def used(home: Path) -> int:
    return int(subprocess.check_output(["du", "-s", "-B1", home], text=True).split()[0])


@pytest.fixture
def where(tmp_path: Path) -> list[str | Path]:
    now = time.time()
    home = make(str(tmp_path), now=now)
    write_state(str(tmp_path / "state"), home, now=now)
    config = write_settings(str(tmp_path))
    place: list[str | Path] = ["--home", home, "--state-dir", tmp_path / "state"]
    place += ["--config.file", config]
    # Empties the WAL that a killed gateway left, so that the next run has nothing to free at once.
    run("prune", "--policy", "empty_sessions", "--yes", *place)
    return place


@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_that_only_grows_the_home_says_by_how_much(
    where: list[str | Path], policy: str
) -> None:
    home = Path(where[1])
    before = used(home)
    last = run("prune", "--policy", policy, "--yes", *where).stdout.splitlines()[-1]
    grown = used(home) - before
    assert grown > 0
    expected = f"Nothing came free now: the home takes {format_size(grown)} more for now (what "
    assert last.startswith(expected)


def test_a_purge_says_what_came_free(where: list[str | Path]) -> None:
    home = Path(where[1])
    runs = [run_json("prune", "--policy", each, "--yes", *where)["run"] for each in POLICIES]
    for each in runs:
        before = used(home)
        said = re.search(r": (.*) came free\.$", run("purge", each, "--yes", *where).stdout)
        assert said is not None
        assert said[1] == format_size(before - used(home))
