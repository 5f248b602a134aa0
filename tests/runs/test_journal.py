"""The run journal and its folder: one run at a time, noted before and after, fit for use or not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from exporter.runs.folder import RunBusyError, RunError
from exporter.runs.journal import RunJournal, journal_of, journal_was_lost, running
from exporter.runs.models import (
    Action,
    ActionState,
    Evidence,
    RecordedAction,
    Reversal,
    RunKind,
    RunOutcome,
    Settled,
    SpeaksFor,
)
from exporter.runs.reserve import SIZE_BYTES, make_reserve
from tests.real.hermes import REPOSITORY
from tests.support.evidence import NOBODY

DONE, SKIPPED = ActionState.DONE, ActionState.SKIPPED


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


@contextmanager
def run_in(home: Path, at: float = 1_769_850_600.0) -> Iterator[RunJournal]:
    with running(str(home), os.getuid(), "reap", lambda: at) as runs:
        yield runs


@contextmanager
def reading(home: Path) -> Iterator[RunJournal | None]:
    with journal_of(str(home), os.getuid()) as runs:
        yield runs


def deletions(*targets: str, size: int = 0) -> list[RecordedAction]:
    return [
        RecordedAction(Action("delete", target, "old", {}, policy="old_sessions", bytes=size))
        for target in targets
    ]


def refused(home: Path) -> str:
    with pytest.raises(RunError) as error, run_in(home):
        raise AssertionError("it runs")
    return str(error.value)


# The journal


def test_a_run_has_a_readable_id_that_sorts_by_time(home: Path) -> None:
    ids = []
    for at in (1_769_850_600.0, 1_769_850_601.0, 1_800_000_000.0):
        with run_in(home, at) as runs:
            ids.append(runs.begin(RunKind.REAP, []))
    assert re.fullmatch("20260131T091000-[0-9a-f]{4}", ids[0])
    assert sorted(ids) == ids


def test_what_is_intended_is_there_before_anything_is_done(home: Path) -> None:
    ending = RecordedAction(
        Action(
            kind="end_session",
            target="a",
            reason="idle",
            expected={"rows": 4, "last_activity_at": 1769850600.123456},
            evidence=(Evidence("nobody", SpeaksFor.DEAD, "nobody"),),
        ),
        after={"ended_at": 1769850600.123456, "end_reason": "reaped"},
    )
    with run_in(home) as runs:
        run = runs.begin(RunKind.REAP, [ending], plan="abc", by_hand=True, undoable_seconds=60)
    with reading(home) as journal:
        assert journal is not None
        (action,) = journal.actions(run)
        assert (action.action, action.after) == (ending.action, ending.after)
        assert action.state is ActionState.INTENDED
        (unfinished,) = journal.unfinished_runs()
        assert (unfinished.plan, unfinished.by_hand, unfinished.outcome) == ("abc", True, None)
        assert unfinished.undoable_until == unfinished.started_at + 60


def test_history_counts_what_was_done(home: Path) -> None:
    with run_in(home) as runs:
        run = runs.begin(RunKind.PRUNE, deletions("a", "b", "c", size=100))
        runs.settle(run, [Settled(0, DONE), Settled(1, SKIPPED, "it moved")])
        runs.settle(run, [Settled(2, DONE)])
        runs.finish(run, RunOutcome.DONE)
    with reading(home) as journal:
        assert journal is not None
        (found,) = journal.list_runs()
        assert found.row("work") == {
            "run": run,
            "kind": "prune",
            "home": "work",
            "started_at": 1_769_850_600.0,
            "finished_at": 1_769_850_600.0,
            "outcome": "done",
            "actions": 2,
            "bytes": 200,
            "undoable_until": None,
        }
        assert [each.why for each in journal.actions(run)] == ["", "it moved", ""]
        assert journal.unfinished_runs() == []


def test_what_a_run_takes_back_is_undone_with_it(home: Path) -> None:
    with run_in(home) as runs:
        run = runs.begin(RunKind.PRUNE, deletions("a", "b"))
        runs.settle(run, [Settled(0, DONE), Settled(1, DONE)])
        runs.finish(run, RunOutcome.DONE)
        back = [
            RecordedAction(Action("restore", name, "", {}), reverses=Reversal(run, n))
            for n, name in enumerate("ab")
        ]
        undo = runs.begin(RunKind.UNDO, back)
        assert runs.restored_since(0) == {"a", "b"}  # perhaps, until it is settled
        runs.settle(undo, [Settled(0, DONE), Settled(1, SKIPPED, "gone")])
        assert [each.state for each in runs.actions(run)] == [ActionState.UNDONE, DONE]
        assert [each.action.target for each in runs.done_actions("delete")] == ["b"]
        assert runs.restored_since(0) == {"a"}
        assert runs.restored_since(1_769_850_601.0) == set()
        assert runs.find(run).actions == 2


def test_the_rate_of_actions_is_known_over_all_runs(home: Path) -> None:
    for at in (1000.0, 1050.0, 1100.0):
        with run_in(home, at) as runs:
            run = runs.begin(RunKind.PRUNE, deletions("a", "b"))
            runs.settle(run, [Settled(0, DONE), Settled(1, SKIPPED)])
    with run_in(home) as runs:
        assert runs.done_since("delete", 1040.0) == 2
        assert runs.done_since("other", 0.0) == 0


def test_the_breaker_stays_open_with_its_first_reason_until_it_is_closed(home: Path) -> None:
    with run_in(home, 10.0) as runs:
        assert runs.tripped() is None
        runs.trip("too many")
    with run_in(home, 20.0) as runs:
        runs.trip("something else")
        assert runs.tripped() == "too many"
        runs.close_breaker()
        assert runs.tripped() is None


def test_an_unknown_run_is_named(home: Path) -> None:
    with run_in(home) as runs, pytest.raises(RunError, match="no run 20200101T000000-0000"):
        runs.find("20200101T000000-0000")


def test_a_journal_of_a_newer_version_is_not_touched(home: Path) -> None:
    with run_in(home):
        pass
    journal = home / ".hermes-exporter" / "journal.db"
    connection = apsw.Connection(str(journal))
    connection.pragma("user_version", 99)
    connection.close()
    before = journal.read_bytes()
    assert "newer hermes-exporter" in refused(home)
    with pytest.raises(RunError, match="newer"), reading(home):
        pass
    assert journal.read_bytes() == before


def test_a_journal_that_is_none_is_said_to_be(home: Path) -> None:
    with run_in(home):
        pass
    (home / ".hermes-exporter" / "journal.db").write_bytes(b"nonsense " * 1000)
    assert "journal.db" in refused(home)


def test_history_can_be_read_while_a_run_is_under_way(home: Path) -> None:
    with run_in(home) as runs:
        run = runs.begin(RunKind.REAP, deletions("a"))
        with reading(home) as journal:
            assert journal is not None
            assert [each.id for each in journal.list_runs()] == [run]
        runs.finish(run, RunOutcome.DONE)


def test_a_run_that_was_killed_before_it_began_is_no_history(home: Path) -> None:
    with run_in(home):
        pass
    (home / ".hermes-exporter" / "journal.db").write_bytes(b"")
    with reading(home) as journal:
        assert journal is None
    with run_in(home) as runs:
        assert runs.list_runs() == []


# The folder


def test_reading_makes_no_folder(home: Path) -> None:
    with reading(home) as journal:
        assert journal is None
    assert list(home.iterdir()) == []


def test_the_folder_and_all_in_it_is_the_owners_alone(home: Path) -> None:
    with run_in(home):
        folder = home / ".hermes-exporter"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == {
            "run.lock": 0o600,
            "journal.db": 0o600,
            "journal.made": 0o600,
        }


def link_to_elsewhere(home: Path, elsewhere: Path) -> None:
    (home / ".hermes-exporter").symlink_to(elsewhere)


def a_file(home: Path, elsewhere: Path) -> None:
    (home / ".hermes-exporter").write_text("")


def of_another_user(home: Path, elsewhere: Path) -> None:
    (home / ".hermes-exporter").mkdir(mode=0o700)
    os.chown(home / ".hermes-exporter", NOBODY, NOBODY)


def writable_by_others(home: Path, elsewhere: Path) -> None:
    (home / ".hermes-exporter").mkdir()
    (home / ".hermes-exporter").chmod(0o777)


def journal_elsewhere(home: Path, elsewhere: Path) -> None:
    (home / ".hermes-exporter").mkdir(mode=0o700)
    (elsewhere / "journal.db").touch()
    (home / ".hermes-exporter" / "journal.db").symlink_to(elsewhere / "journal.db")


def lock_elsewhere(home: Path, elsewhere: Path) -> None:
    (home / ".hermes-exporter").mkdir(mode=0o700)
    (elsewhere / "run.lock").touch()
    (home / ".hermes-exporter" / "run.lock").symlink_to(elsewhere / "run.lock")


def journal_of_another_user(home: Path, elsewhere: Path) -> None:
    (home / ".hermes-exporter").mkdir(mode=0o700)
    (home / ".hermes-exporter" / "journal.db").touch()
    os.chown(home / ".hermes-exporter" / "journal.db", NOBODY, NOBODY)


def journal_is_a_pipe(home: Path, elsewhere: Path) -> None:
    (home / ".hermes-exporter").mkdir(mode=0o700)
    os.mkfifo(home / ".hermes-exporter" / "journal.db")


@pytest.mark.parametrize(
    "prepare",
    [
        link_to_elsewhere,
        a_file,
        of_another_user,
        writable_by_others,
        journal_elsewhere,
        lock_elsewhere,
        journal_of_another_user,
        journal_is_a_pipe,
    ],
)
def test_a_folder_that_is_not_the_owners_alone_is_refused(
    home: Path, tmp_path: Path, prepare: Callable[[Path, Path], None]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    prepare(home, elsewhere)
    before = {path: path.stat() for path in elsewhere.iterdir()}
    assert ".hermes-exporter" in refused(home)
    assert {path: path.stat() for path in elsewhere.iterdir()} == before


def test_a_home_that_is_a_link_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(home)
    assert "nothing was done" in refused(tmp_path / "link")
    assert list(home.iterdir()) == []


def test_nobody_but_the_owner_acts_on_a_home(home: Path) -> None:
    """Root would leave files that the owner cannot use."""
    os.chown(home, NOBODY, NOBODY)
    with pytest.raises(RunError, match="only the owner"), running(str(home), NOBODY, "reap"):
        pass
    assert "does not belong" in refused(home)
    assert list(home.iterdir()) == []


# What outlives a power cut, and a full disk


def test_what_was_noted_is_synced_with_its_folder(home: Path) -> None:
    with run_in(home) as runs:
        assert runs._connection.pragma("synchronous") == 3
        assert runs._connection.pragma("journal_mode") == "delete"


def test_a_run_by_hand_keeps_no_space(home: Path) -> None:
    with run_in(home):
        pass
    assert not (home / ".hermes-exporter/reserve").exists()


def test_a_reserve_is_let_go_of_on_a_full_disk_and_filled_again_where_there_is_plenty(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = home / ".hermes-exporter/reserve"
    free = 1 << 40
    monkeypatch.setattr("exporter.runs.reserve._free_bytes", lambda folder: free)
    with run_in(home) as runs:
        make_reserve(runs.folder)
    assert reserve.stat().st_blocks * 512 >= SIZE_BYTES
    free = 4096
    with run_in(home):
        assert reserve.stat().st_blocks == 0
    assert reserve.stat().st_blocks == 0
    free = 1 << 40
    with run_in(home):
        pass
    assert reserve.stat().st_blocks * 512 >= SIZE_BYTES


def test_a_lost_journal_is_told_by_its_mark_which_takes_no_space(home: Path) -> None:
    folder = home / ".hermes-exporter"
    assert not journal_was_lost(str(home), os.getuid())
    with run_in(home) as runs:
        assert runs.tripped() is None
    assert (folder / "journal.made").stat().st_blocks == 0
    assert not journal_was_lost(str(home), os.getuid())
    (folder / "journal.db").unlink()
    assert journal_was_lost(str(home), os.getuid())
    with run_in(home) as runs:
        assert "journal was lost" in str(runs.tripped())


def test_a_journal_lost_in_a_home_of_an_earlier_release_is_told_by_its_reserve(home: Path) -> None:
    folder = home / ".hermes-exporter"
    with run_in(home) as runs:
        make_reserve(runs.folder)
    (folder / "journal.made").unlink()
    (folder / "journal.db").unlink()
    assert journal_was_lost(str(home), os.getuid())
    with run_in(home) as runs:
        assert "journal was lost" in str(runs.tripped())


# The lock

_HOLD_LOCK = """
import os, sys
from exporter.runs.journal import running
with running(sys.argv[1], os.getuid(), "prune"):
    print("running", flush=True)
    sys.stdin.read()
"""


def test_one_run_per_home_across_processes_and_a_dead_one_is_no_obstacle(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD_LOCK, home],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "running\n"
        with pytest.raises(RunBusyError, match=f"prune by process {other.pid}"), run_in(home):
            pass
        other.kill()
        other.wait()
        with run_in(home) as runs:
            assert runs.list_runs() == []


def test_runs_of_different_homes_do_not_meet(home: Path, tmp_path: Path) -> None:
    other = shutil.copytree(home, tmp_path / "other")
    with run_in(home), run_in(other):
        pass
