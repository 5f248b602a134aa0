"""A home that cannot be written stays so for days: the log says it once, not at every scan."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.real.agent import agent
from tests.real.waiting import wait_until
from tests.support.old_sessions import old_sessions

SETTINGS = """
scan: {interval: 1s}
reaper: {private_homes: true}
prune: {mode: enforce, interval: 1s, cooldown: 1s, thresholds: {empty_sessions: {high: 2, low: 1}}}
"""


def test_an_agent_that_may_prune_a_read_only_home_says_once_that_it_cannot(tmp_path: Path) -> None:
    home = old_sessions(tmp_path / "home", 30, messages=0)
    subprocess.run(["mount", "--bind", home, home], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", home], check=True)
        with agent(tmp_path, [home], configuration=SETTINGS) as running:
            wait_until(lambda: "Read-only file system" in running.log(), "it says what is wrong")
            for _ in range(3):
                running.next_scan()
            told = [line for line in running.log().splitlines() if "level=info" not in line]
        assert len(told) == 1, told
    finally:
        subprocess.run(["umount", home], check=True)
