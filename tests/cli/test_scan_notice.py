"""While a command scans, a person at a terminal sees that it does; a script sees nothing of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.real.command import PROGRAM, run
from tests.real.hermes import REPOSITORY
from tests.real.terminal import terminal
from tests.support.small_homes import small_home

_CLEAR = "\r\x1b[K"


@pytest.mark.parametrize("words", [("status",), ("prune", "--json")])
def test_a_scan_is_announced_first_and_leaves_no_trace(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    home = small_home(tmp_path / "home")
    where = ("--home", home, "--state-dir", tmp_path / "state")
    with terminal([*PROGRAM, *words, *where], dict(os.environ), REPOSITORY) as screen:
        screen.process.wait(timeout=120)
        screen.wait_for_end()
    assert screen.raw.startswith(f"{_CLEAR}scanning...")
    before, _, report = screen.raw.rpartition(_CLEAR)
    assert "scanning" in before
    assert "scanning" not in report
    assert len(report.splitlines()) > 3
    piped = run(*words, *where)
    assert "scanning" not in piped.stdout + piped.stderr
