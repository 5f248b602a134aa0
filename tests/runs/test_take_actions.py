"""The one loop: what is called off, what fails in between, and what is settled then."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from exporter.errors import DatabaseError, HomeError
from exporter.runs.journal import RunJournal, running_on
from exporter.runs.models import (
    Action,
    ActionFailure,
    ActionState,
    RecordedAction,
    RunKind,
    RunOutcome,
    Settled,
    skip,
)
from exporter.runs.take_actions import AbortedError, RunRecord, Work, take_all
from exporter.snapshot import Trouble
from exporter.writing.target import Target

TARGETS = ("one", "two", "three", "four")
BROKEN = DatabaseError(Trouble.IO_ERROR, "the disk is broken")


class Scripted(Work):
    """Takes one action in each step, after what its script says of that step."""

    patient_rounds = 2

    def __init__(self, *script: Exception | None, can_go_on: bool = False) -> None:
        self.script = list(script)
        self.tried: list[str] = []
        self._can_go_on = can_go_on

    def take_some(self, waiting: Sequence[RecordedAction], settled: list[Settled]) -> None:
        self.tried.append(waiting[0].action.target)
        step = self.script.pop(0) if self.script else None
        if isinstance(step, AbortedError):
            raise step
        settled.append(Settled(waiting[0].number, ActionState.DONE))
        if step is not None:
            raise step

    def find_out(self, actions: Sequence[RecordedAction], why: str) -> list[Settled]:
        return [Settled.of(each, "" if each.action.target == "four" else why) for each in actions]

    def can_go_on(self, error: HomeError) -> bool:
        return self._can_go_on


class Blind(Scripted):
    def find_out(self, actions: Sequence[RecordedAction], why: str) -> list[Settled]:
        raise DatabaseError(Trouble.IO_ERROR, "nor can it be read")


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def target(tmp_path: Path, pauses: list[float]) -> Target:
    return Target(str(tmp_path), os.getuid(), sleep=pauses.append)


@pytest.fixture
def journal(target: Target) -> Iterator[RunJournal]:
    with running_on(target, "a test") as journal:
        yield journal


@pytest.fixture
def record(journal: RunJournal) -> RunRecord:
    record = RunRecord(journal)
    record.begin(
        RunKind.REAP,
        [RecordedAction(Action("end_session", each, "it is dead", {})) for each in TARGETS],
    )
    return record


def states(journal: RunJournal, record: RunRecord) -> list[tuple[str, str]]:
    """What the journal, and not only the record, has of each action."""
    return [(each.state.value, each.why) for each in journal.actions(record.run)]


def test_all_is_taken_and_settled(target: Target, journal: RunJournal, record: RunRecord) -> None:
    take_all(target, record, record.actions, Scripted())
    assert states(journal, record) == [("done", "")] * 4
    outcome = record.finish()
    assert (outcome.outcome, outcome.done, outcome.skipped) == (RunOutcome.DONE, TARGETS, ())


def test_work_that_is_called_off_is_tried_again_after_a_pause(
    target: Target, journal: RunJournal, record: RunRecord, pauses: list[float]
) -> None:
    work = Scripted(None, AbortedError("a process came"))
    take_all(target, record, record.actions, work)
    assert work.tried == ["one", "two", "two", "three", "four"]
    assert pauses == [target.pause_seconds]
    assert states(journal, record) == [("done", "")] * 4


def test_work_that_is_called_off_again_and_again_skips_the_rest(
    target: Target, journal: RunJournal, record: RunRecord
) -> None:
    take_all(target, record, record.actions, Scripted(None, *[AbortedError("no")] * 2))
    assert states(journal, record) == [("done", "")] + [("skipped", "no")] * 3
    assert record.finish().outcome is RunOutcome.DONE, "nothing went wrong"


@pytest.mark.parametrize(
    ("kind", "why", "outcome"),
    [
        (RunKind.PRUNE, "it has changed since it was planned", RunOutcome.DONE),
        (RunKind.PRUNE, ActionFailure("cannot move it: Permission denied"), RunOutcome.PARTIAL),
        (RunKind.UNDO, "there is a newer one in its place", RunOutcome.PARTIAL),
    ],
)
def test_what_failed_makes_a_run_partial_and_so_does_what_an_undo_leaves(
    journal: RunJournal, kind: RunKind, why: str, outcome: RunOutcome
) -> None:
    record = RunRecord(journal)
    record.begin(kind, [RecordedAction(Action("any", each, "", {})) for each in TARGETS])
    first, *others = record.actions
    record.settle([Settled.of(first, ""), *skip(others, why)])
    finished = record.finish()
    assert finished.outcome is outcome
    assert type(finished.skipped[0].why) is str, "it can be sent"
    assert journal.find(record.run).outcome is outcome


def test_after_an_error_it_is_found_out_what_happened(
    target: Target, journal: RunJournal, record: RunRecord
) -> None:
    """What the work knew before the error is kept."""
    take_all(target, record, record.actions, Scripted(None, BROKEN))
    assert states(journal, record) == [
        *[("done", "")] * 2,
        ("skipped", "the disk is broken"),
        ("done", ""),
    ]
    outcome = record.finish()
    assert (outcome.outcome, outcome.why) == (RunOutcome.PARTIAL, "the disk is broken")


def test_an_error_that_the_work_can_avoid_ends_nothing(
    target: Target, journal: RunJournal, record: RunRecord
) -> None:
    take_all(target, record, record.actions, Scripted(BROKEN, can_go_on=True))
    assert states(journal, record) == [("done", "")] * 4
    assert record.why == ""


def test_what_cannot_be_found_out_stays_open(
    target: Target, journal: RunJournal, record: RunRecord
) -> None:
    with pytest.raises(DatabaseError, match="nor can it be read"):
        take_all(target, record, record.actions, Blind(BROKEN))
    assert record.why == "the disk is broken"
    assert states(journal, record) == [("done", "")] + [("intended", "")] * 3
    assert [each.action.target for each in record.open(record.actions)] == list(TARGETS[1:])


def test_progress_and_reasons_are_told(target: Target, journal: RunJournal) -> None:
    told: list[tuple[int, int]] = []
    record = RunRecord(journal, lambda settled, total: told.append((settled, total)))
    record.begin(
        RunKind.UNDO, [RecordedAction(Action("give_back", each, "undo", {})) for each in TARGETS]
    )
    long = "x" * 400
    record.settle([Settled(0, ActionState.DONE, "another title")])
    record.settle([Settled(1, ActionState.SKIPPED, long)])
    assert told == [(1, 4), (2, 4)]
    record.why = "stopped"
    outcome = record.outcome()
    assert [(each.target, each.why) for each in outcome.notes] == [("one", "another title")]
    assert [each.why for each in outcome.skipped] == ["x" * 300, "stopped", "stopped"]
