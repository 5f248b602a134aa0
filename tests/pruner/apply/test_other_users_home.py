"""A root agent acts on the home of another user as that user, and a hostile home gains nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.pruner.models import Act
from tests.real.elsewhere import as_user
from tests.support.disk_homes import make_shadow_repo
from tests.support.evidence import NOBODY
from tests.support.remover_process import Crew, crew
from tests.support.removers import action, picture, planned_file, planned_repo

OWNER = NOBODY
REPO = "checkpoints/0123456789abcdef"
FILES = (
    "sessions/session_a.json",
    "sessions/session_b.json",
    "sessions/request_dump_a_1.json",
    "sessions/c.jsonl",
)


@pytest.fixture(scope="module")
def owner() -> Iterator[Crew]:
    """What a root agent starts for such a home: a process of that user's."""
    with crew(as_user(OWNER)) as started:
        yield started


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users can reach; those of tests are closed to them."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hermes-exporter-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def home(open_path: Path) -> Path:
    home = open_path / "home"
    (home / "sessions").mkdir(parents=True)
    home.chmod(0o700)
    for name in FILES:
        (home / name).write_bytes(b"x" * 5000)
    make_shadow_repo(home / "checkpoints", Path(REPO).name, open_path / "work")
    subprocess.run(["chown", "-hR", f"{OWNER}:{OWNER}", home, open_path / "work"], check=True)
    return home


def test_the_owner_takes_and_gives_back_and_nothing_of_root_is_left(
    home: Path, owner: Crew
) -> None:
    before = picture(home)
    actions = [planned_file(home, FILES[0], 0), planned_repo(home, REPO, 1)]
    assert owner.ask(home, "take", actions) == ["", ""]
    assert {os.lstat(path).st_uid for path in home.rglob("*")} == {OWNER}
    assert owner.ask(home, "restore", actions) == ["", ""]
    assert picture(home) == before
    assert owner.ask(home, "purge", actions) == [""]
    assert picture(home) == before


def test_a_hostile_home_moves_nothing_outside_of_it_and_every_refusal_says_why(
    home: Path, owner: Crew, open_path: Path
) -> None:
    """Its owner may do anything to it between the plan and the run."""
    outside = open_path / "outside"
    (outside / "repo").mkdir(parents=True)
    (outside / "victim.json").write_text("root's")
    (outside / "repo/HEAD").write_text("root's")
    actions = [
        *(planned_file(home, each, number) for number, each in enumerate(FILES)),
        planned_repo(home, REPO, len(FILES)),
    ]
    for target in ("../outside/victim.json", "sessions/../../outside/victim.json"):
        before = actions[0].action.expected
        actions.append(action(Act.DELETE_FILE, target, before, number=len(actions)))
    actions.append(action(Act.DELETE_REPO, "checkpoints/../../outside/repo", before, number=9))
    for name in FILES[:3]:
        (home / name).unlink()
    os.link(outside / "victim.json", home / FILES[0])
    (home / FILES[1]).symlink_to(outside / "victim.json")
    (home / FILES[2]).write_text("root's")
    (home / FILES[3]).write_text("written since")
    shutil.rmtree(home / REPO)
    (home / REPO).symlink_to(outside / "repo")
    seen, there = picture(home), picture(outside)
    said = owner.ask(home, "take", actions)
    reasons = ["uid 0", "symlink", "uid 0", "changed", "symlink", "no file", "no file", "no folder"]
    assert said is not None
    for why, reason in zip(said, reasons, strict=True):
        assert reason in why
    assert picture(home) == seen
    assert picture(outside) == there
