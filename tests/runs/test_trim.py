"""A run that is long past loses its single actions; what is counted over all runs stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import apsw
import pytest

from exporter.reaper.slow_start import slow_start
from exporter.runs import trim
from exporter.runs.folder import JournalMendedError
from exporter.runs.journal import journal_of, running, running_on
from exporter.runs.models import (
    DELETE_SESSION,
    END_SESSION,
    PURGE_TRASH,
    REOPEN_SESSION,
    Action,
    ActionState,
    RecordedAction,
    Reversal,
    RunKind,
    RunOutcome,
    Settled,
)
from exporter.runs.summary import KnownRuns, RunReader
from exporter.writing.target import Target
from tests.real.command import run as command
from tests.real.command import run_json
from tests.real.hermes import REPOSITORY
from tests.support.small_homes import small_home

DAY = 86400.0
BEGAN = 1_700_000_000.0
NOW = BEGAN + 365 * DAY
THERE = "20260101_000001_aaaaaa"
"""A session of the home; all others are gone."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return small_home(tmp_path / "home")


def noted(
    home: Path,
    at: float,
    kind: RunKind,
    actions: Sequence[RecordedAction],
    *,
    skipped: Iterable[int] = (),
) -> str:
    """A finished run that began then."""
    with running(str(home), os.geteuid(), "test", lambda: at) as runs:
        run = runs.begin(kind, actions, undoable_seconds=3 * DAY)
        left = set(skipped)
        runs.settle(
            run,
            [
                Settled(n, ActionState.SKIPPED, "it is in use")
                if n in left
                else Settled(n, ActionState.DONE)
                for n in range(len(actions))
            ],
        )
        runs.finish(run, RunOutcome.DONE)
    return run


def ends(*sessions: str) -> list[RecordedAction]:
    return [
        RecordedAction(Action(END_SESSION, each, "dead", {"source": "cli"}), {"proof": "proven"})
        for each in sessions
    ]


def deletions(*sessions: str, size: int = 1000) -> list[RecordedAction]:
    return [
        RecordedAction(
            Action(DELETE_SESSION, each, "old", {}, policy="old_sessions", bytes=size),
            {"frees": "now"},
        )
        for each in sessions
    ]


def reopened(run: str, *sessions: str) -> list[RecordedAction]:
    return [
        RecordedAction(
            Action(REOPEN_SESSION, each, "in use", {"mistake": True}), reverses=Reversal(run, place)
        )
        for place, each in enumerate(sessions)
    ]


def much(home: Path) -> list[str]:
    """A journal with runs of every kind, an hour apart."""
    runs = []
    for hour in range(12):
        at = BEGAN + hour * 3700
        runs.append(noted(home, at, RunKind.REAP, ends(*(f"{hour}-{n}" for n in range(10)))))
    runs.append(
        noted(home, BEGAN + 1800, RunKind.HEAL, reopened(runs[0], *(f"0-{n}" for n in range(3))))
    )
    sessions = [f"1-{n}" for n in range(10)]
    runs.append(noted(home, BEGAN + DAY, RunKind.PRUNE, deletions(*sessions), skipped=[3]))
    return runs


def at(home: Path, now: float) -> Target:
    return Target(str(home), os.geteuid(), clock=lambda: now)


def trimmed(home: Path, now: float = NOW) -> None:
    """What every run does at its end."""
    with running_on(at(home, now), "test"):
        pass


def seen(home: Path) -> KnownRuns:
    return RunReader(str(home)).read(os.geteuid())


def lines(home: Path) -> int:
    with journal_of(str(home), os.geteuid()) as journal:
        assert journal is not None
        return sum(len(journal.actions(each.id)) for each in journal.list_runs())


def without_lines(known: KnownRuns) -> tuple[object, ...]:
    """What agent and commands are told, apart from how many actions are listed."""
    report = known.report
    last = [(each.row("home"), each.undone, each.label) for each in report.last]
    counts = (report.reaped, report.reopened, report.reborn, report.pruned, report.deleted)
    return (*counts, last, known.restored, known.ended, known.in_trash, known.kept_rows)


def test_old_actions_go_and_everything_that_is_counted_stays(home: Path) -> None:
    much(home)
    noted(home, NOW - 89 * DAY, RunKind.REAP, ends("young"))
    before = seen(home)
    assert lines(home) == 12 * 10 + 3 + 10 + 1
    trimmed(home)
    after = seen(home)
    assert lines(home) == 1
    report = after.report
    assert (report.reaped, report.reopened) == (before.report.reaped, before.report.reopened)
    assert (report.pruned, report.deleted) == (before.report.pruned, before.report.deleted)
    assert report.deleted[0].items == 9
    assert [each.row("home") for each in report.last] == [
        each.row("home") for each in before.report.last
    ]
    assert [each.label for each in report.last] == [each.label for each in before.report.last]
    assert after.ended == {"young"}


def test_the_slow_start_is_where_it_was(home: Path) -> None:
    much(home)
    before = seen(home)
    trimmed(home)
    after = seen(home)
    for now in (NOW, BEGAN + 6 * 3700):
        was = slow_start(before.automatic_reaps, before.reopenings, now)
        assert slow_start(after.automatic_reaps, after.reopenings, now).doublings == was.doublings
        assert was.doublings > 0


def test_it_is_done_in_parts_and_then_once_a_day(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trim, "_ACTIONS_MAX", 50)
    much(home)
    before = without_lines(seen(home))
    left = [lines(home)]
    for _ in range(3):
        trimmed(home)
        left.append(lines(home))
    assert left == [133, 83, 33, 0]
    assert without_lines(seen(home))[:5] == before[:5]
    noted(home, BEGAN + 2 * DAY, RunKind.REAP, ends("late"))
    trimmed(home, NOW + DAY / 2)
    assert lines(home) == 1
    trimmed(home, NOW + DAY)
    assert lines(home) == 0


def test_what_may_still_be_needed_stays(home: Path) -> None:
    with_session = noted(home, BEGAN, RunKind.REAP, ends(THERE, "gone", "in the trash"))
    with_trash = noted(home, BEGAN, RunKind.PRUNE, deletions("in the trash"))
    (home / ".hermes-exporter" / "backups" / "trash" / with_trash).mkdir(parents=True, mode=0o700)
    purge = noted(
        home, BEGAN, RunKind.PRUNE, [RecordedAction(Action(PURGE_TRASH, "run", "old", {}))]
    )
    undo = noted(home, BEGAN, RunKind.UNDO, reopened(purge, "given back"))
    with running(str(home), os.geteuid(), "test", lambda: BEGAN) as runs:
        killed = runs.begin(RunKind.PRUNE, deletions("not settled"))
    trimmed(home)
    with journal_of(str(home), os.geteuid()) as journal:
        assert journal is not None
        found = {
            each.id: [action.action.target for action in journal.actions(each.id)]
            for each in journal.list_runs()
        }
    assert found == {
        with_session: [THERE, "in the trash"],
        with_trash: ["in the trash"],
        undo: ["given back"],
        purge: ["run"],
        killed: ["not settled"],
    }
    assert seen(home).ended == {THERE, "in the trash"}


def test_nothing_goes_while_the_sessions_cannot_be_read(home: Path) -> None:
    much(home)
    (home / "state.db").rename(home / "away")
    trimmed(home)
    assert lines(home) == 133


_KILLED = """
import os, signal, sys
from exporter.runs import trim
from exporter.runs.journal import running_on
from exporter.writing.target import Target

steps = int(sys.argv[2])

def trace(cursor, statement, bindings):
    global steps
    steps -= 1
    if steps == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

began = trim._Trimmer._delete

def delete(self, chosen, *, is_last):
    self._connection.exec_trace = trace
    began(self, chosen, is_last=is_last)

trim._Trimmer._delete = delete
with running_on(Target(sys.argv[1], os.geteuid(), clock=lambda: float(sys.argv[3])), "test"):
    pass
"""


def test_killed_between_any_two_steps_it_leaves_the_journal_whole(home: Path) -> None:
    run = noted(home, BEGAN, RunKind.REAP, ends("a", "b"))
    noted(home, BEGAN + 60, RunKind.HEAL, reopened(run, "a"))
    noted(home, BEGAN + DAY, RunKind.PRUNE, deletions("b"))
    before = without_lines(seen(home))
    kills = 0
    while True:
        told = subprocess.run(
            [sys.executable, "-c", _KILLED, str(home), str(kills + 1), str(NOW)],
            cwd=REPOSITORY,
            check=False,
        )
        if told.returncode == 0:
            break
        assert told.returncode == -9
        kills += 1
        assert (lines(home), without_lines(seen(home))) == (4, before)
    assert kills > 10
    assert lines(home) == 0
    assert without_lines(seen(home))[:5] == before[:5]


def test_a_damaged_journal_keeps_what_is_left_of_the_past(home: Path) -> None:
    noted(home, BEGAN, RunKind.REAP, ends("gone", THERE, "also gone"))
    much(home)
    trimmed(home)
    before = without_lines(seen(home))
    with apsw.Connection(str(home / ".hermes-exporter" / "journal.db")) as connection:
        connection.execute(
            "INSERT INTO runs VALUES ('x', 'sabotage', '', 0, 0.0, 0.0, 'done', '', 0)"
        )
    with pytest.raises(JournalMendedError):
        find_damage(home)
    assert without_lines(seen(home)) == before
    assert lines(home) == 1


def find_damage(home: Path) -> None:
    with running(str(home), os.geteuid(), "test", lambda: NOW) as runs:
        runs.refuse_damage()


def test_the_journal_does_not_grow_for_ever(home: Path) -> None:
    file = home / ".hermes-exporter" / "journal.db"
    sizes = []
    for month in range(12):
        began = BEGAN + month * 30 * DAY
        for part in range(2):
            sessions = [f"{month}-{part}-{n}" for n in range(500)]
            noted(home, began + part, RunKind.PRUNE, deletions(*sessions))
        trimmed(home, began + 10)
        sizes.append(file.stat().st_size)
    assert max(sizes[6:]) < 1.1 * sizes[5]


def test_history_says_what_it_does_not_list_any_more(home: Path, tmp_path: Path) -> None:
    run = noted(home, BEGAN, RunKind.PRUNE, deletions("gone", THERE, size=5000))
    trimmed(home)
    where = ("--home", home, "--state-dir", tmp_path / "state")
    (row,) = run_json("history", run, *where)
    assert (row["actions"], row["bytes"], row["trimmed"]) == (2, 10000, 1)
    assert [each["target"] for each in row["items"]] == [THERE]
    shown = command("history", run, *where).stdout
    assert "1 item no longer listed: the run is older than 90 days" in shown
