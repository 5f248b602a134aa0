"""How many sessions automatic reaping ends in an hour: few at first, then twice as many."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.evidence.models import HomeEvidence
from exporter.evidence.openers import KnownOpeners
from exporter.reaper.plan import JudgedHome, ReapLimits, ReapRequest, plan_reap
from exporter.reaper.reap import reap as reap_home
from exporter.reaper.reopen import undo
from exporter.reaper.slow_start import FIRST_HOUR, SlowStart, slow_start
from exporter.runs.journal import journal_of, running
from exporter.runs.models import (
    END_SESSION,
    Action,
    ActionState,
    Outcome,
    Reaps,
    RecordedAction,
    Reopening,
    Reversal,
    RunKind,
    RunOutcome,
    Settled,
)
from exporter.runs.summary import RunReader
from exporter.writing.target import Target
from tests.support.reaping import REASON, judge, open_sessions, target_of
from tests.support.small_homes import small_home

BEGAN = 1_800_000_000.0
HOUR = 3600.0
NOBODY = HomeEvidence(holders=(), gateway=None, blind=(), sees_locks=True)


def limit(
    reaps: Sequence[tuple[float, int]],
    reopened: Sequence[tuple[float, bool]] = (),
    *,
    hours: float,
    max_per_minute: int = 60,
) -> tuple[int, int]:
    """Return what may be ended in that hour, and what is left of it; times are hours."""
    now = BEGAN + hours * HOUR
    found = slow_start(
        [Reaps(BEGAN + at * HOUR, sessions) for at, sessions in reaps],
        [Reopening(BEGAN + at * HOUR, wrong) for at, wrong in reopened],
        now,
    ).at(now, max_per_minute)
    return found.sessions, found.left


def test_a_home_begins_with_ten_in_an_hour() -> None:
    assert limit([], hours=0) == (10, 10)
    assert limit([(0, 4)], hours=0.5) == (10, 6)
    assert limit([(0, 4), (0.4, 6)], hours=0.99) == (10, 0)


def test_each_hour_with_reaps_doubles_it() -> None:
    assert limit([(0, 10)], hours=1) == (20, 20)
    assert limit([(0, 10), (1.2, 5)], hours=2) == (20, 15)
    assert limit([(0, 10), (1.2, 5)], hours=2.2) == (40, 40)


def test_hours_without_reaps_double_nothing() -> None:
    assert limit([], hours=100) == (10, 10)
    assert limit([(0, 1)], hours=100) == (20, 20)


def test_an_hour_begins_with_its_first_reap() -> None:
    """By the clock on the wall, the limits of two hours could be used up within a minute."""
    assert limit([(0.99, 10)], hours=1.01) == (10, 0)


def test_max_per_minute_is_the_end_of_it() -> None:
    hours = [(float(hour), 1) for hour in range(12)]
    assert limit(hours, hours=12) == (3600, 3600)
    assert limit(hours, hours=12, max_per_minute=1) == (60, 60)
    assert limit([(float(hour), 1) for hour in range(3000)], hours=3000) == (3600, 3600)


def test_an_hour_in_which_something_was_reopened_does_not_double_it() -> None:
    assert limit([(0, 10)], [(0.5, False)], hours=1) == (10, 10)
    assert limit([(0, 10), (1, 10)], [(0.5, False)], hours=2) == (20, 20)
    # What shows late counts as well, until the next hour begins.
    assert limit([(0, 10), (5, 10)], [(3, False)], hours=6) == (20, 20)


def test_a_wrong_proof_starts_it_anew() -> None:
    hours = [(float(hour), 10) for hour in range(5)]
    assert limit(hours, hours=5) == (320, 320)
    assert limit(hours, [(4.5, True)], hours=6) == (10, 10)
    assert limit([*hours, (7.0, 3)], [(4.5, True)], hours=7.5) == (10, 7)


def test_a_clock_that_was_ahead_makes_no_hour_that_never_ends() -> None:
    assert limit([(0, 10), (9000, 7)], hours=1) == (20, 20)
    assert limit([(0, 10), (1, 5), (9000, 7)], hours=1.5) == (20, 15)
    assert limit([(0, 10)], [(9000, True)], hours=1) == (20, 20)


def test_a_clock_that_is_set_back_allows_no_more_in_the_hour() -> None:
    assert limit([(0.5, 10)], hours=0.1) == (10, 0)
    assert limit([(0, 10), (1.2, 15)], hours=1.1) == (20, 5)
    assert limit([(0.5, 10)], [(0.6, False)], hours=1.55) == (10, 10)
    # The hour ends once, by whichever time its reaps were noted.
    assert limit([(0.5, 10)], hours=1.5) == (20, 20)


moments = st.floats(0, 40)


@given(
    st.lists(st.tuples(moments, st.integers(1, 400)), max_size=30),
    st.lists(st.tuples(moments, st.booleans()), max_size=5),
    moments,
    st.integers(1, 60),
)
def test_it_is_always_between_none_and_the_maximum(
    reaps: list[tuple[float, int]],
    reopened: list[tuple[float, bool]],
    hours: float,
    max_per_minute: int,
) -> None:
    allowed, left = limit(reaps, reopened, hours=hours, max_per_minute=max_per_minute)
    assert 0 <= left <= allowed <= 60 * max_per_minute
    assert allowed == 60 * max_per_minute or allowed % FIRST_HOUR == 0


# From the journal


class Clock:
    """A wall clock that a test moves."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class Nothing:
    """No reaped session was used again."""

    suspects: frozenset[str] | None = frozenset()

    def healed(self) -> None: ...


def progress(home: Path, clock: Clock) -> SlowStart:
    known = RunReader(str(home)).read(home.stat().st_uid)
    return slow_start(known.automatic_reaps, known.reopenings, clock())


def reap(home: Path, clock: Clock, *, by_hand: bool = False) -> Outcome:
    """Do what the agent does after a scan, or a person by hand.

    On a machine where no process has the database open, and on which no transaction takes long:
    so whatever else runs here, all that a plan has is ended.
    """
    judged, found = judge(home, clock, NOBODY)
    left = progress(home, clock).at(clock(), 60).left
    plan = plan_reap(
        JudgedHome(str(home), judged, ReapLimits(), left_in_this_hour=left),
        clock(),
        by_hand=by_hand,
    )
    openers = KnownOpeners.of(found)
    order = ReapRequest(
        str(home), home.stat().st_uid, plan, by_hand, openers=openers, end_reason=REASON
    )
    target = target_of(home, openers, clock=clock, monotonic=lambda: 0.0)
    outcome = reap_home(order, target, Nothing())
    assert (outcome.outcome, outcome.why, outcome.skipped) == (RunOutcome.DONE, "", ())
    return outcome


def test_a_backlog_of_900_is_gone_in_a_night(tmp_path: Path) -> None:
    home, clock = small_home(tmp_path / "home", 900), Clock()
    began, by_hour = clock.now, dict[int, int]()
    while open_sessions(home):
        done = len(reap(home, clock).done)
        hour = int((clock.now - began) // HOUR)
        by_hour[hour] = by_hour.get(hour, 0) + done
        assert hour < 8, by_hour
        clock.now += 60 if done else HOUR - (clock.now - began) % HOUR + 1
    assert list(by_hour.values()) == [10, 20, 40, 80, 160, 320, 270]


def test_what_a_person_reaps_neither_counts_nor_doubles(tmp_path: Path) -> None:
    home, clock = small_home(tmp_path / "home", 30), Clock()
    assert len(reap(home, clock, by_hand=True).done) == 30
    clock.now += 2 * HOUR
    assert progress(home, clock).at(clock(), 60).left == FIRST_HOUR


def test_what_a_person_takes_back_doubles_nothing(tmp_path: Path) -> None:
    home, clock = small_home(tmp_path / "home", 12), Clock()
    run = reap(home, clock).run
    clock.now += 60
    assert len(undo(run or "", Target(str(home), os.geteuid(), clock=clock)).done) == 10
    clock.now += HOUR
    assert progress(home, clock).at(clock(), 60).sessions == FIRST_HOUR


def heal(home: Path, clock: Clock, *, proof: str) -> None:
    """Note that an automatic reap was wrong, as healing does."""
    with running(str(home), home.stat().st_uid, "heal", clock) as runs:
        ending = Action(END_SESSION, "a", "dead", {"source": "cli"})
        reaped = runs.begin(RunKind.REAP, [RecordedAction(ending, after={"proof": proof})])
        runs.settle(reaped, [Settled(0, ActionState.DONE)])
        runs.finish(reaped, RunOutcome.DONE)
        again = Action("reopen_session", "a", "", {"mistake": True})
        healed = runs.begin(RunKind.HEAL, [RecordedAction(again, reverses=Reversal(reaped, 0))])
        runs.settle(healed, [Settled(0, ActionState.DONE)])
        runs.finish(healed, RunOutcome.DONE)


@pytest.mark.parametrize(("proof", "sessions"), [("presumed", 20), ("proven", 10)])
def test_what_healing_noted_is_read_from_the_journal(
    tmp_path: Path, proof: str, sessions: int
) -> None:
    """A presumption that was wrong only keeps the limit where it is."""
    home, clock = small_home(tmp_path / "home", 12), Clock()
    reap(home, clock)
    clock.now += HOUR
    heal(home, clock, proof=proof)
    clock.now += HOUR + 1
    assert progress(home, clock).at(clock(), 60).sessions == sessions


def test_a_stop_by_volume_of_version_0_1_holds_no_more(tmp_path: Path) -> None:
    home, clock = small_home(tmp_path / "home", 3), Clock()
    with running(str(home), home.stat().st_uid, "test", clock) as runs:
        runs.trip("91 sessions would be ended in one pass, more than 50")
    (home / ".hermes-exporter" / "breaker.open").unlink()  # 0.1 noted it in the journal alone
    with journal_of(str(home), home.stat().st_uid) as journal:
        assert journal is not None
        assert journal.tripped() is None
    assert len(reap(home, clock).done) == 3
    with running(str(home), home.stat().st_uid, "test", clock) as runs:
        runs.trip("a proof was wrong")
        assert runs.tripped() == "a proof was wrong"
