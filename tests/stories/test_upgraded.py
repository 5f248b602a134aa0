"""Hermes is upgraded in place between the plan of a prune, the prune and its undo."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from exporter.pruner.apply.undo import undo
from tests.real.hermes import NEWEST, python_for
from tests.support.pruned_home import make_home, plan_all, session_names, transcript, transcripts
from tests.support.reaping import target_of
from tests.support.session_pruning import prunable_process, prune

OLD = "0.13.0"
NAMES = session_names(3)
EVERYTHING = {*NAMES, *map(transcript, NAMES)}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(python_for(OLD), tmp_path_factory.mktemp("upgraded") / "home", 3, 8)


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


@pytest.fixture
def whole(template: Path, tmp_path: Path) -> dict[str, Any]:
    """What the newest release has of the home if nothing is ever pruned."""
    return upgraded(shutil.copytree(template, tmp_path / "untouched"))


def upgraded(home: Path) -> dict[str, Any]:
    """What the newest release has of each session; it changes the schema as it opens the home."""
    with prunable_process(python_for(NEWEST), home) as hermes:
        assert hermes.ask("broken") == []
        sessions = {each: hermes.ask("exported", session=each) for each in NAMES}
        return {**sessions, "found": hermes.ask("search", text="word1"), "files": transcripts(home)}


def test_what_was_planned_before_an_upgrade_is_taken_whole_or_not_at_all(
    home: Path, whole: dict[str, Any]
) -> None:
    before = plan_all(home)
    assert upgraded(home) == whole
    first = prune(home, before)
    assert {*first.done} | {each.target for each in first.skipped} == EVERYTHING
    gone = {*first.done}
    assert [transcript(each) in gone for each in NAMES] == [each in gone for each in NAMES]
    second = prune(home, plan_all(home))
    assert gone | {*second.done} == EVERYTHING
    for taken in (second, first):
        if taken.done:
            assert {*undo(taken.run or "", target_of(home)).done} == {*taken.done}
    assert upgraded(home) == whole


def test_what_was_pruned_before_an_upgrade_comes_back_as_if_it_had_always_been_there(
    home: Path, whole: dict[str, Any]
) -> None:
    taken = prune(home, plan_all(home))
    assert {*taken.done} == EVERYTHING
    assert upgraded(home)["found"] == []
    back = undo(taken.run or "", target_of(home))
    assert {*back.done} == EVERYTHING
    assert back.skipped == ()
    assert upgraded(home) == whole
