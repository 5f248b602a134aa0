"""Killed at any instant: each thing is where it was or whole in the trash; nothing is lost."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.runs.models import RecordedAction
from tests.real.hermes import NEWEST, python_for
from tests.support.checkpoint_homes import Checkpoints
from tests.support.disk_homes import make_shadow_repo
from tests.support.kill_times import Instants
from tests.support.remover_process import Crew, crew
from tests.support.removers import RUN, picture, planned_file, planned_repo

PROJECTS = ("one", "two", "three")


@pytest.fixture(scope="module")
def hands() -> Iterator[Crew]:
    with crew() as started:
        yield started


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    folder = tmp_path_factory.mktemp("killed")
    made = Checkpoints(python_for(NEWEST), folder / "home")
    made.snapshot(*PROJECTS, turns=2)
    for number in range(3):
        make_shadow_repo(made.home / "checkpoints", f"{number:016x}", folder / "work" / str(number))
    (made.home / "sessions").mkdir()
    for number in range(20):
        (made.home / f"sessions/session_{number}.json").write_bytes(b"x" * 5000)
    return made


@pytest.fixture
def made(template: Checkpoints, tmp_path: Path) -> Checkpoints:
    home = shutil.copytree(template.home, tmp_path / "home", symlinks=True)
    return Checkpoints(template.hermes, home, template.work)


def planned(made: Checkpoints) -> list[RecordedAction]:
    home = made.home
    files = sorted(f"sessions/{path.name}" for path in (home / "sessions").iterdir())
    actions = [planned_file(home, each, number) for number, each in enumerate(files)]
    for number in range(3):
        actions.append(planned_repo(home, f"checkpoints/{number:016x}", len(actions)))
    for project in PROJECTS:
        actions.append(made.planned(project, len(actions)))
    return actions


def outside_of_git(made: Checkpoints) -> dict[str, Any]:
    """Everything but where git keeps refs and objects, which it may keep in other ways."""
    inner = ("checkpoints/store/objects", "checkpoints/store/refs", "checkpoints/store/packed-refs")
    return {path: seen for path, seen in picture(made.home).items() if not path.startswith(inner)}


def in_trash(made: Checkpoints) -> list[str]:
    return sorted(path.name for path in trash_of_run(made).iterdir())


def trash_of_run(made: Checkpoints) -> Path:
    return made.home / ".hermes-exporter/backups/trash" / RUN


def kill_again_and_again(hands: Crew, made: Checkpoints, tmp_path: Path, kills: int) -> None:
    actions, refs, before = planned(made), made.refs(), outside_of_git(made)
    kept = sorted(f"{each.number:06}-{Path(each.action.target).name}" for each in actions)
    spare = shutil.copytree(made.home, tmp_path / "spare", symlinks=True)
    spared = planned(Checkpoints(made.hermes, spare, made.work))
    chance, killed = random.Random(kills), 0
    instants = {}
    for do in ("take", "restore"):
        began = time.monotonic()
        assert hands.ask(spare, do, spared) == [""] * len(actions)
        instants[do] = Instants(chance, time.monotonic() - began)
    while killed < kills:
        killed += take_killed(hands, made, actions, instants["take"])
        assert in_trash(made) == kept
        assert made.refs() == {}
        killed += hands.until_done(made.home, "restore", actions, instants["restore"])
        assert made.refs() == refs
        assert outside_of_git(made) == before
        assert made.fsck() == ""
        shutil.rmtree(made.home / ".hermes-exporter")
    assert len(made.snapshots("one")) == 2


def take_killed(
    hands: Crew, made: Checkpoints, actions: list[RecordedAction], instants: Instants
) -> int:
    """Take all as runs would: what a kill has left is found out about before the next."""
    killed, left = 0, list(actions)
    while left:
        done = hands.ask(made.home, "take", left, instants.draw())
        instants.heed(killed=done is None)
        killed += done is None
        taken = hands.ask(made.home, "was_taken", left)
        assert taken is not None
        for action, is_taken in zip(left, taken, strict=True):
            assert (trash_of_run(made) / name(action)).exists() == is_taken
        left = [each for each, is_taken in zip(left, taken, strict=True) if not is_taken]
    return killed


def name(action: RecordedAction) -> str:
    return f"{action.number:06}-{Path(action.action.target).name}"


def test_killed_fifteen_times_everything_is_taken_and_given_back_exactly(
    hands: Crew, made: Checkpoints, tmp_path: Path
) -> None:
    kill_again_and_again(hands, made, tmp_path, 15)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_killed_two_hundred_times_everything_is_taken_and_given_back_exactly(
    hands: Crew, made: Checkpoints, tmp_path: Path
) -> None:
    kill_again_and_again(hands, made, tmp_path, 200)


def test_a_purge_that_was_killed_is_brought_to_its_end_and_touches_nothing_else(
    hands: Crew, made: Checkpoints
) -> None:
    actions = planned(made)
    assert hands.ask(made.home, "take", actions) == [""] * len(actions)
    before = picture(made.home)
    copy = shutil.copytree(made.home, made.home.parent / "copy", symlinks=True)
    began = time.monotonic()
    assert hands.ask(copy, "purge", actions) == [""]
    instants = Instants(random.Random(1), time.monotonic() - began)
    hands.until_done(made.home, "purge", actions, instants)
    assert list(trash_of_run(made).parent.iterdir()) == []
    assert picture(made.home) == before
