"""What a home's run journal tells the agent, whichever process wrote it."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from exporter.runs.folder import RunError
from exporter.runs.journal import journal_of, running
from exporter.runs.models import Action, ActionState, RecordedAction, RunKind, RunOutcome, Settled
from exporter.runs.summary import KnownRuns, ReapCount, RunReader

_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Of a home in which one session was reaped, and was given back."""
    with running(str(tmp_path), os.geteuid(), "test") as runs:
        for kind in (RunKind.REAP, RunKind.UNDO):
            ending = RecordedAction(Action("end_session", "a", "dead", {"source": "cli"}))
            run = runs.begin(kind, [ending])
            runs.settle(run, [Settled(0, ActionState.DONE)])
            runs.finish(run, RunOutcome.DONE)
        runs.trip("something was wrong")
    return tmp_path / ".hermes-exporter" / "journal.db"


def read(journal: Path) -> KnownRuns:
    return RunReader(str(journal.parent.parent)).read(os.geteuid())


@contextmanager
def in_use(journal: Path) -> Iterator[None]:
    with subprocess.Popen(
        [sys.executable, "-c", _LOCK, journal], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield
        process.communicate()


def test_what_cannot_be_read_is_not_zero(journal: Path) -> None:
    assert read(journal).report.reaped == [ReapCount("cli", "proven", 2)]
    with in_use(journal):
        found = read(journal)
    assert not found.readable
    assert not found.report.readable
    assert read(journal).report.readable


def test_a_write_within_the_same_tick_of_the_clock_is_seen(journal: Path, tmp_path: Path) -> None:
    reader = RunReader(str(tmp_path))
    before = journal.stat()
    assert reader.read(os.geteuid()).report.tripped is not None
    with running(str(tmp_path), os.geteuid(), "test") as runs:
        runs.close_breaker()
    os.utime(journal, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert journal.stat().st_size == before.st_size
    assert reader.read(os.geteuid()).report.tripped is None


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE runs SET kind = 'sabotage'",
        "UPDATE runs SET started_at = 'long ago'",
        "UPDATE runs SET why = printf('%2000000s', '')",
        "UPDATE runs SET outcome = 'splendid', kind = 'prune'",
        "UPDATE actions SET settled_at = 'never'",
        "UPDATE actions SET before = 'no json'",
        "UPDATE actions SET bytes = -1e300",
        "UPDATE breaker SET why = printf('%2000000s', '')",
        "UPDATE breaker SET why = x'00'",
    ],
)
def test_a_journal_that_nobody_could_have_written_is_none(journal: Path, lie: str) -> None:
    with closing(sqlite3.connect(journal)) as connection, connection:
        connection.execute(lie)
    assert not read(journal).readable


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE runs SET kind = 'sabotage'",
        "UPDATE actions SET state = 'splendid'",
        "UPDATE actions SET before = 'no json'",
    ],
)
def test_who_acts_on_such_a_journal_is_told_so(journal: Path, lie: str) -> None:
    with closing(sqlite3.connect(journal)) as connection, connection:
        connection.execute(lie)
    with pytest.raises(RunError, match="no run writes"):
        everything(journal)


def everything(journal: Path) -> list[RecordedAction]:
    with journal_of(str(journal.parent.parent), os.geteuid()) as runs:
        assert runs is not None
        return [each for run in runs.list_runs() for each in runs.actions(run.id)]
