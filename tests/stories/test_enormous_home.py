"""A home with more sessions than a worker may have memory for is counted, and never judged."""

from __future__ import annotations

import os
import re
from pathlib import Path

import psutil
import pytest

from tests.real.agent import Agent, Metrics, agent
from tests.support.home_scans import sql
from tests.support.running_agent import (
    Scraper,
    children,
    complaints,
    configuration,
    scanned_again,
    when,
    when_up,
)
from tests.support.small_homes import small_home

OLD_SESSIONS = """
WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n LIMIT {number})
INSERT INTO sessions (id, source, started_at, ended_at, end_reason)
SELECT printf('20250101_%06d_%06x', i % 1000000, i), 'cli', 1735700000.0 + i,
  CASE WHEN i % {ended_of} THEN 1735800000.0 + i END,
  CASE WHEN i % {ended_of} THEN 'cli_close' END FROM n;
"""
CHUNK = 100_000
QUICK = "reaper: {min_idle: 60s, confirmations: 1, interval: 1s}\n"


def enormous(path: Path, sessions: int, *, ended_of: int = 1) -> Path:
    """Make a home with so many old sessions; of each `ended_of` one is open."""
    home = small_home(path, sessions=0)
    for first in range(1, sessions + 1, CHUNK):
        number = min(CHUNK, sessions + 1 - first)
        sql(home, OLD_SESSIONS.format(first=first, number=number, ended_of=ended_of))
    return home


def verdicts(metrics: Metrics, home: str) -> dict[str, float]:
    found = metrics.by("hermes_sessions_open_by_verdict", "verdict", home=home)
    return {verdict: value for (verdict,), value in found.items() if value}


def limited(metrics: Metrics) -> float:
    return metrics.value("hermes_exporter_limited", limit="open_sessions_per_home")


def plans_blocked(metrics: Metrics) -> set[str]:
    found = metrics.by("hermes_prune_blocked", "home", "reason")
    return {home for (home, why), value in found.items() if value and why == "too_many_sessions"}


def test_a_home_above_the_limit_is_counted_and_not_judged(tmp_path: Path) -> None:
    homes = {name: enormous(tmp_path / name, 40) for name in ("large", "small")}
    sql(homes["small"], "DELETE FROM sessions WHERE rowid > 25;")
    limits = "limits: {open_sessions_per_home: 30, sessions_per_home: 30}\n"
    with agent(tmp_path, configuration=configuration(homes, QUICK + limits)) as running:
        metrics = when(
            running, lambda seen: verdicts(seen, "small") == {"dead": 25}, "the small one is judged"
        )
        assert limited(metrics) == 1
        assert metrics.value("hermes_sessions_open", home="large", source="cli") == 40
        assert verdicts(metrics, "large") == {"unknown": 30}
        blind = metrics.by("hermes_exporter_blind", "home", "reason")
        assert {key: value for key, value in blind.items() if value} == {
            ("large", "open_sessions"): 1
        }
        when(running, lambda seen: plans_blocked(seen) == {"large"}, "no prune is planned there")
        sql(homes["large"], "UPDATE sessions SET ended_at = 1, end_reason = 'x' WHERE rowid > 20;")
        metrics = when(
            running, lambda seen: verdicts(seen, "large") == {"dead": 20}, "then it is judged whole"
        )
        assert limited(metrics) == 0


def largest(running: Agent) -> int:
    """Return the most anonymous memory in MB that a worker or one of its children has now."""
    sizes = [0]
    for worker in children(running):
        for process in (worker, *worker.children()):
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except FileNotFoundError:
                continue
            sizes += [
                int(kilobytes) // 1024 for kilobytes in re.findall(r"RssAnon:\s+(\d+)", status)
            ]
    return max(sizes)


@pytest.mark.full
@pytest.mark.parametrize(
    ("sessions", "ended_of"),
    [(400_000, 1), (1_000_000, 1_000)],
    ids=["400,000 open sessions", "a million sessions"],
)
def test_enormous_homes_stay_within_the_limits_of_the_unit(
    sessions: int, ended_of: int, tmp_path: Path
) -> None:
    """No worker dies, at most 300 MB are used, and the neighbour is scanned as ever."""
    homes = {
        "enormous": enormous(tmp_path / "enormous", sessions, ended_of=ended_of),
        "neighbour": small_home(tmp_path / "neighbour"),
    }
    as_in_the_unit = ("prlimit", f"--data={384 << 20}")
    with (
        agent(
            tmp_path, configuration=configuration(homes), wrapper=as_in_the_unit, ready=False
        ) as running,
        Scraper(running) as scraper,
    ):
        peak = 0

        def is_counted(metrics: Metrics) -> bool:
            nonlocal peak
            peak = max(peak, largest(running))
            found = metrics.by("hermes_sessions_open", "home")
            return found.get(("enormous",)) == sessions // ended_of

        when_up(running, "neighbour")
        when(running, is_counted, "it is counted")
        workers = {psutil.Process(child.pid).pid for child in children(running)}
        for _ in range(5):
            metrics = scanned_again(running, "neighbour")
            assert is_counted(metrics)
        assert complaints(running, "enormous") == complaints(running, "neighbour") == []
        assert workers <= {child.pid for child in children(running)}, "none died"
        assert limited(metrics) == (sessions // ended_of > 150_000)
        assert 0 < peak <= 300
        assert scraper.failures == []
    assert os.path.getsize(homes["enormous"] / "state.db") > 10 << 20
