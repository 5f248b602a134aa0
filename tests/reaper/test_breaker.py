"""What stops automatic reaping until a person has looked, and what counts as having looked."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from exporter.evidence.openers import KnownOpeners
from exporter.reaper.plan import Blocked, JudgedHome, ReapLimits, ReapPlan, ReapRequest, plan_reap
from exporter.reaper.reap import reap as reap_home
from exporter.reaper.reopen import undo
from exporter.runs.breaker import stop_if_journal_lost
from exporter.runs.journal import journal_of, running
from exporter.runs.models import Outcome
from exporter.writing.target import Target
from tests.real.hermes import NEWEST, python_for
from tests.support.evidence import evidence
from tests.support.home_scans import sql
from tests.support.reaping import (
    ONE_SHOT,
    REASON,
    hermes_process,
    judge,
    open_sessions,
    processes,
    target_of,
)
from tests.support.small_homes import small_home


class Verdicts:
    """The verdicts on a home as it is now, and whether its breaker is open."""

    def __init__(self, home: Path) -> None:
        self._home = home

    suspects = None

    def healed(self) -> None:
        """The next reap looks again."""

    def tripped(self) -> str:
        return tripped(self._home)

    def plan(self, only: tuple[str, ...], *, by_hand: bool) -> ReapPlan:
        judged, _ = judge(self._home)
        home = JudgedHome(
            str(self._home),
            judged,
            ReapLimits(),
            reaped_in_last_minute=0,
            tripped=self.tripped(),
        )
        plan = plan_reap(home, time.time(), by_hand=by_hand)
        wanted = tuple(each for each in plan.actions if not only or each.target in only)
        return structs.replace(plan, actions=wanted)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return small_home(tmp_path / "home")


def names(home: Path) -> list[str]:
    return sorted(open_sessions(home))


def reap(
    home: Path, *only: str, by_hand: bool = False, verdicts: Verdicts | None = None
) -> Outcome:
    seen = verdicts or Verdicts(home)
    order = ReapRequest(
        home=str(home),
        owner=home.stat().st_uid,
        plan=seen.plan(only, by_hand=by_hand),
        by_hand=by_hand,
        openers=KnownOpeners.of(evidence(home)),
        end_reason=REASON,
        processes=processes(home),
    )
    target = Target(order.home, order.owner, order.openers)
    return reap_home(order, target, seen)


def tripped(home: Path) -> str:
    with journal_of(str(home), home.stat().st_uid) as runs:
        return (runs.tripped() if runs is not None else None) or ""


def test_a_reap_by_hand_does_not_close_the_breaker_that_it_has_just_tripped_itself(
    home: Path,
) -> None:
    first, second, third = names(home)
    with hermes_process(python_for(NEWEST), home, *ONE_SHOT) as hermes:
        assert reap(home, first, second, by_hand=True).done == (first, second)
        hermes.ask("append", session=first)
        report = reap(home, third, by_hand=True)
    assert (report.reopened, report.done) == ((first,), (third,))
    assert "active after the reap" in tripped(home)
    assert reap(home).blocked == Blocked.TRIPPED
    reap(home, by_hand=True)
    assert not tripped(home)


def test_where_ends_are_ours_and_no_journal_knows_them_a_person_is_asked(home: Path) -> None:
    first, second, third = names(home)
    reap(home, first, second, by_hand=True)
    shutil.rmtree(home / ".hermes-exporter")
    for _ in range(2):
        report = reap(home)
        assert (report.blocked, report.done) == (Blocked.TRIPPED, ())
        assert "2 sessions ended as reaped by no run that is known" in report.why
    assert names(home) == [third]
    reap(home, "none", by_hand=True)
    assert reap(home).done == (third,)


def test_when_only_the_journal_was_lost_what_is_left_of_runs_tells(home: Path) -> None:
    """What an undo gave back bears no mark of ours: it must not be taken again unseen."""
    first = names(home)[0]
    run = reap(home, first, by_hand=True).run
    assert undo(run or "", target_of(home)).done == (first,)
    (home / ".hermes-exporter" / "journal.db").unlink()
    report = reap(home)
    assert (report.blocked, report.done) == (Blocked.TRIPPED, ())
    assert "journal was lost" in report.why


def test_a_journal_with_nothing_in_it_is_a_lost_one(home: Path) -> None:
    first = names(home)[0]
    run = reap(home, first, by_hand=True).run
    assert undo(run or "", target_of(home)).done == (first,)
    (home / ".hermes-exporter" / "journal.db").write_bytes(b"")
    report = reap(home)
    assert (report.blocked, report.done) == (Blocked.TRIPPED, ())
    assert "journal was lost" in report.why


def test_an_older_journal_that_comes_back_does_not_close_the_breaker(home: Path) -> None:
    """`hermes import` brings the journal of the time of the backup."""
    journal = home / ".hermes-exporter" / "journal.db"
    reap(home, names(home)[0], by_hand=True)
    older = journal.read_bytes()
    with running(str(home), home.stat().st_uid, "another") as runs:
        runs.trip("1 session active after a reap")
    journal.write_bytes(older)
    for _ in range(2):
        report = reap(home)
        assert (report.blocked, report.done) == (Blocked.TRIPPED, ())
    assert "an older run journal came back" in report.why
    assert len(names(home)) == 2
    reap(home, "none", by_hand=True)
    assert len(reap(home).done) == 2


def test_a_breaker_that_has_opened_since_the_home_was_read_stops_a_reap(home: Path) -> None:
    class Earlier(Verdicts):
        """As they were before anything opened it."""

        def tripped(self) -> str:
            return ""

    with running(str(home), home.stat().st_uid, "another") as runs:
        runs.trip("1 session active after a reap")
    assert Earlier(home).plan((), by_hand=False).actions
    report = reap(home, verdicts=Earlier(home))
    assert (report.blocked, report.done) == (Blocked.TRIPPED, ())
    assert len(names(home)) == 3


def test_ends_that_nobody_knows_are_counted_without_reading_for_long(tmp_path: Path) -> None:
    """A read transaction that lasts keeps Hermes from emptying its write-ahead log."""
    home = small_home(tmp_path / "home", 1_200)
    sql(home, f"UPDATE sessions SET ended_at = 1, end_reason = '{REASON}' WHERE rowid % 2;")
    readings: list[Target] = []

    class Watched(Target):
        @contextmanager
        def reading(self) -> Iterator[apsw.Connection]:
            readings.append(self)
            with Target.reading(self) as connection:
                yield connection

    why = stop_if_journal_lost(Watched(str(home), home.stat().st_uid), REASON)
    assert why.startswith("600 sessions ended as reaped")
    assert len(readings) > 2


def test_a_lost_journal_is_noticed_by_whatever_runs_next(home: Path) -> None:
    reap(home, names(home)[0], by_hand=True)
    (home / ".hermes-exporter" / "journal.db").unlink()
    with running(str(home), home.stat().st_uid, "prune"):
        pass
    assert "journal was lost" in tripped(home)


def test_a_home_that_was_never_reaped_needs_nobody(home: Path) -> None:
    with running(str(home), home.stat().st_uid, "prune"):
        pass
    assert len(reap(home).done) == 3
    assert not tripped(home)
