"""A host whose clock has been wrong ever since it was switched on."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from exporter.evidence.models import ProcessFacts
from exporter.reaper.models import Verdict
from exporter.reaper.plan import JudgedHome, plan_reap
from exporter.reaper.reap import execute
from exporter.reaper.verdict import Context, WatchedSession, decide
from exporter.snapshot import OpenSession
from tests.real.hermes import NEWEST, python_for
from tests.reaper.test_verdict import NOW, RULES, all_facts, session, sessions, verdict
from tests.support.reaping import dump, hermes_process, judge, target_of
from tests.support.small_homes import small_home

YEAR = 365 * 86400.0


def behind() -> float:
    return time.time() - 10 * YEAR


def ahead() -> float:
    return time.time() + 10 * YEAR


def verdicts(home: Path, now: float) -> set[Verdict]:
    judged, _ = judge(home, lambda: now)
    return {each.verdict for each in judged}


def test_where_the_clock_is_behind_whatever_was_written_before_is_protected(tmp_path: Path) -> None:
    """All that a right clock wrote lies in the future, however long ago it was."""
    home = small_home(tmp_path / "home")
    assert verdicts(home, time.time()) == {Verdict.DEAD}
    assert verdicts(home, behind()) == {Verdict.UNKNOWN}
    judged, _ = judge(home)
    plan = plan_reap(JudgedHome("home", judged), behind(), by_hand=True)
    assert plan.actions == ()


def test_a_clock_that_falls_behind_after_the_plan_protects_too(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    judged, _ = judge(home)
    plan = plan_reap(JudgedHome("home", judged), time.time(), by_hand=True)
    outcome = execute(plan, target_of(home, clock=behind), end_reason="reaped")
    assert outcome.done == ()
    assert {row["ended_at"] for row in dump(home).values()} == {"NULL"}


def test_where_the_clock_is_ahead_nothing_dies_of_looking_idle(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    with hermes_process(python_for(NEWEST), home):
        assert verdicts(home, ahead()) == {Verdict.UNKNOWN}
    assert verdicts(home, ahead()) == {Verdict.DEAD}


@given(sessions, all_facts, st.floats(0, 100 * YEAR))
def test_however_late_it_is_only_what_looked_alive_by_its_clocks_alone_can_die_of_it(
    one: OpenSession, seen: ProcessFacts, late: float
) -> None:
    """Whatever else spoke for a session speaks for it at any time."""
    idle_for_long = session(
        one.id,
        source=one.source,
        idle=2 * RULES.min_idle_seconds,
        age=max(NOW - one.started_at, 2 * RULES.min_idle_seconds),
        holds=one.holds,
        sane=one.clocks_sane,
    )
    if verdict(idle_for_long, seen) is not Verdict.DEAD:
        later = decide(WatchedSession(idle_for_long), Context(seen, RULES, NOW + late))
        assert later.verdict is not Verdict.DEAD
