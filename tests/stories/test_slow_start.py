"""Slow start: an agent in enforce mode ends every dead session by itself, a few at first."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from exporter.demo.home import make
from exporter.runs.folder import NAME
from exporter.runs.journal_file import FILE
from tests.real.command import run
from tests.real.waiting import wait_until
from tests.support.small_homes import small_home
from tests.support.verdicts import HOME, Watch, watching


def dead(watch: Watch) -> int:
    by_verdict = watch.agent.metrics().by(
        "hermes_sessions_open_by_verdict", "source", "verdict", home=HOME
    )
    return int(sum(count for (_, verdict), count in by_verdict.items() if verdict == "dead"))


def reaped(watch: Watch) -> int:
    return int(
        sum(
            watch.agent.metrics()
            .by("hermes_reaper_reaped_total", "source", "proof", home=HOME)
            .values()
        )
    )


def an_hour_passes(home: Path) -> None:
    """Move all that the journal has noted an hour and a minute back."""
    path = home / NAME / FILE
    with closing(sqlite3.connect(path, timeout=60)) as journal, journal:
        journal.execute("UPDATE actions SET settled_at = settled_at - 3660")


def test_an_agent_ends_every_dead_session_of_the_demo_home_within_hours(tmp_path: Path) -> None:
    """An hour passes for its run journal whenever the agent waits for the next one."""
    home = Path(make(str(tmp_path / "demo"), now=time.time()))
    by_hour: list[int] = []
    with watching(tmp_path / "agent", home, reaper="mode: enforce") as watch:
        wait_until(lambda: reaped(watch) == 10, "ten sessions are reaped")
        watch.scans(2)
        all_of_them = 10 + dead(watch)
        options = ("--home", home, "--config.file", tmp_path / "agent" / "hermes-exporter.yml")
        assert (
            f"{all_of_them - 10} wait for slow start: 10 in this hour"
            in run("status", *options, "--state-dir", tmp_path / "state").stdout
        )
        for hour in range(1, 9):
            before = reaped(watch)
            by_hour.append(before - sum(by_hour))
            if before == all_of_them:
                break
            an_hour_passes(home)
            expected = min(all_of_them, before + 10 * 2**hour)
            wait_until(lambda: reaped(watch) == expected, f"{expected} are reaped")  # noqa: B023
            watch.scans(2)
        assert not watch.breaker_is_open()
        assert watch.reopened() == 0
    assert by_hour == [10, 20, 40, all_of_them - 70]
    assert all_of_them > 70


def test_a_plan_by_hand_says_what_the_agent_leaves_for_later(tmp_path: Path) -> None:
    """By hand all are ended at once."""
    home = small_home(tmp_path / "home", 12)
    settings = tmp_path / "config.yml"
    settings.write_text("reaper: {mode: enforce}\n")
    options = ("--home", home, "--config.file", settings, "--state-dir", tmp_path / "state")
    done = run("reap", *options)
    assert "12 sessions would be ended" in done.stdout
    assert "the agent ends them by itself; 2 wait for slow start: 10 in this hour" in done.stderr
    settings.write_text("reaper: {mode: observe}\n")
    assert "slow start" not in run("reap", *options).stderr
