"""Undo gives back exactly what a reap took, and tells what is no longer as it was left."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from exporter.evidence.openers import KnownOpeners
from exporter.hermes.database import leave_wal_in_place
from exporter.reaper.reopen import undo
from exporter.runs.folder import RunBusyError, RunError
from exporter.runs.journal import running
from exporter.runs.models import RunKind, RunOutcome
from exporter.snapshot import Hold
from exporter.workers.home import WorkerHome
from exporter.workers.protocol import ScanRequest, SessionsPage
from exporter.writing.write_checks import WriteError, WriteTrouble
from tests.real.hermes import NEWEST, python_for
from tests.support.home_scans import read_request
from tests.support.reaping import (
    GATEWAY,
    dump,
    hermes_process,
    history,
    leaky_home,
    open_sessions,
    planned,
    reap,
    target_of,
)

LEAKED = tuple(f"20260101_08000{number}_aaaaaa" for number in range(5))
DAY = 86400.0


@pytest.fixture(scope="module", params=["0.16.0", "0.18.2", "0.19.0"])
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undo")
    return leaky_home(python_for(request.param), folder / "home", LEAKED)


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


def test_undo_after_reap_leaves_every_row_exactly_as_it_was(home: Path) -> None:
    before = dump(home)
    run = reap(home).run
    assert run is not None
    assert open_sessions(home) == set()
    undone = undo(run, target_of(home))
    assert (sorted(undone.done), undone.skipped) == (sorted(LEAKED), ())
    assert dump(home) == before


def test_only_rows_that_are_as_the_run_left_them_are_given_back(home: Path) -> None:
    run = reap(home).run or ""
    with hermes_process(python_for(NEWEST), home, *GATEWAY) as hermes:
        hermes.ask("resume", session=LEAKED[0])
        hermes.ask("resume", session=LEAKED[1])
        hermes.ask("end", session=LEAKED[1])
        hermes.ask("forget", session=LEAKED[2])
        hermes.ask("append", session=LEAKED[3])
        before = hermes.ask("show", session=LEAKED[1])
        undone = undo(run, target_of(home, KnownOpeners((hermes.pid,))))
        assert sorted(undone.done) == sorted(LEAKED[3:])
        assert {each.target: each.why for each in undone.skipped} == {
            LEAKED[0]: "Hermes has opened it again itself",
            LEAKED[1]: "it has ended again since: cli_close",
            LEAKED[2]: "it is gone",
        }
        assert hermes.ask("show", session=LEAKED[1]) == before
        assert hermes.ask("show", session=LEAKED[3])["ended_at"] is None


def test_what_hermes_does_while_an_undo_waits_for_the_write_lock_wins(home: Path) -> None:
    """The rows were looked at before, and were all as the run had left them."""
    run = reap(home).run or ""
    blocker = apsw.Connection(str(home / "state.db"))
    leave_wal_in_place(blocker)
    with hermes_process(python_for(NEWEST), home, *GATEWAY) as hermes:

        def wait(seconds: float) -> None:
            if blocker.in_transaction:
                blocker.execute("ROLLBACK")
                hermes.ask("resume", session=LEAKED[0])
                hermes.ask("end", session=LEAKED[0])

        blocker.execute("BEGIN IMMEDIATE")
        undone = undo(run, target_of(home, KnownOpeners((hermes.pid,)), sleep=wait))
        assert sorted(undone.done) == sorted(LEAKED[1:])
        assert [(each.target, each.why) for each in undone.skipped] == [
            (LEAKED[0], "it has ended again since: cli_close")
        ]
        assert hermes.ask("show", session=LEAKED[0])["end_reason"] == "cli_close"
    blocker.close()


def test_what_was_given_back_is_not_given_back_again(home: Path) -> None:
    run = reap(home).run or ""
    first = undo(run, target_of(home))
    again = undo(run, target_of(home))
    assert again.done == ()
    assert {each.target for each in again.skipped} == set(first.done)
    assert all("given back already" in each.why for each in again.skipped)
    assert [each.kind for each in history(home)] == [RunKind.UNDO, RunKind.REAP]


def test_restored_sessions_are_held_for_as_long_as_they_are_to_be_kept(home: Path) -> None:
    undo(reap(home).run or "", target_of(home))
    request = structs.replace(read_request(home, home.stat().st_uid), undone_seconds=DAY)
    assert holds(home, request, time.time()) == {each: [Hold.RESTORED] for each in LEAKED}
    assert holds(home, request, time.time() + 2 * DAY) == {each: [] for each in LEAKED}


def test_what_a_stopped_undo_may_have_given_back_is_held_before_that_is_settled(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = reap(home).run or ""

    def fails(*_: object) -> None:
        raise RunError("the run journal cannot be written: made up")

    monkeypatch.setattr("exporter.runs.journal.RunJournal.settle", fails)
    assert undo(run, target_of(home)).outcome is RunOutcome.UNKNOWN
    request = structs.replace(read_request(home, home.stat().st_uid), undone_seconds=DAY)
    assert holds(home, request, time.time()) == {each: [Hold.RESTORED] for each in LEAKED}


def holds(home: Path, request: ScanRequest, now: float) -> dict[str, list[Hold]]:
    """What a scan at that moment finds to speak for the open sessions."""
    pages = [
        part
        for part in WorkerHome(str(home), clock=lambda: now).read(request)
        if isinstance(part, SessionsPage)
    ]
    return {each.session.id: list(each.session.holds) for page in pages for each in page.items}


def test_a_run_that_is_unknown_or_no_reap_is_refused(home: Path) -> None:
    with pytest.raises(RunError, match="there is no run 20260101T000000-abcd"):
        undo("20260101T000000-abcd", target_of(home))
    undo(reap(home).run or "", target_of(home))
    with pytest.raises(RunError, match="is no reap but one of kind undo"):
        undo(history(home)[0].id, target_of(home))


def test_undo_waits_for_no_other_run(home: Path) -> None:
    run = reap(home).run or ""
    with running(str(home), 0, "reap"), pytest.raises(RunBusyError, match="reap by process"):
        undo(run, target_of(home))
    assert open_sessions(home) == set()


def test_beside_a_holder_that_lost_its_lock_nothing_is_given_back(home: Path) -> None:
    run = reap(home).run or ""
    with hermes_process(python_for(NEWEST), home, *GATEWAY) as hermes:
        _, place = planned(home)
        hermes.ask("lose_database_lock")
        with pytest.raises(WriteError) as refused:
            undo(run, place)
        assert refused.value.why is WriteTrouble.LOCK_LOST
        assert hermes.ask("show", session=LEAKED[0])["end_reason"] == "reaped"
