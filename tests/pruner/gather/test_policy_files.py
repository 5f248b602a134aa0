"""Files that a policy lists for itself: those of its names, of the owner, in the home itself."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.pruner.decide.inventory import HomeFile
from exporter.pruner.decide.policies import POLICIES
from exporter.pruner.decide.policy import Policy, files_in, find_files
from exporter.pruner.gather import policy_files
from exporter.pruner.gather.policy_files import list_policy_files

FOLDER = "cron/output"
NAMES = re.compile(rb".*\.md", re.DOTALL)
NOBODY = 65534
OTHERS = {name: policy for name, policy in POLICIES.items() if policy.gather is None}


@pytest.fixture(autouse=True)
def gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Policy(name="notes", find=find_files("old"), gather=files_in(FOLDER, NAMES))
    monkeypatch.setattr(policy_files, "POLICIES", {**OTHERS, "notes": notes})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    write(home / FOLDER / "job/1.md")
    home.chmod(0o700)
    return home


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


def listed(home: Path) -> dict[str, HomeFile]:
    found = list_policy_files(str(home), os.geteuid())
    assert set(found) == {"notes"}
    return {each.path: each for each in found["notes"]}


def test_the_files_of_a_policy_are_found_on_every_level_by_their_names(home: Path) -> None:
    write(home / FOLDER / "2.md")
    write(home / FOLDER / "job/deep/er/3.md")
    write(home / FOLDER / "job/notes.txt")
    write(home / "cron/4.md")
    assert sorted(listed(home)) == [
        "cron/output/2.md",
        "cron/output/job/1.md",
        "cron/output/job/deep/er/3.md",
    ]
    seen, found = (home / FOLDER / "2.md").stat(), listed(home)["cron/output/2.md"]
    assert found == HomeFile(
        path="cron/output/2.md",
        allocated_bytes=seen.st_blocks * 512,
        modified_at=seen.st_mtime,
        is_own=True,
        inode=seen.st_ino,
        size=1,
        mtime_ns=seen.st_mtime_ns,
    )


def a_linked_folder(home: Path) -> None:
    outside = home.parent / "outside"
    (home / FOLDER / "job").rename(outside)
    (home / FOLDER / "job").symlink_to(outside)


def a_linked_place(home: Path) -> None:
    (home / "cron").rename(home.parent / "cron")
    (home / "cron").symlink_to(home.parent / "cron")


def a_folder_of_another_user(home: Path) -> None:
    os.chown(home / FOLDER / "job", NOBODY, NOBODY)


def a_name_that_is_no_text(home: Path) -> None:
    os.rename(home / FOLDER / "job/1.md", os.fsencode(home / FOLDER) + b"/\xff.md")


def a_folder_too_deep(home: Path) -> None:
    deep = home / FOLDER / "/".join("abcdefgh")
    deep.mkdir(parents=True)
    (home / FOLDER / "job/1.md").rename(deep / "1.md")


def nothing_there(home: Path) -> None:
    (home / "cron").rename(home / "gone")


@pytest.mark.parametrize(
    "change",
    [
        *(a_linked_folder, a_linked_place, a_folder_of_another_user),
        *(a_name_that_is_no_text, a_folder_too_deep, nothing_there),
    ],
)
def test_what_could_not_be_taken_is_not_listed(home: Path, change: Callable[[Path], None]) -> None:
    assert len(listed(home)) == 1
    change(home)
    assert listed(home) == {}


def test_links_and_hard_links_are_listed_as_not_the_owner_s_alone(home: Path) -> None:
    (home / FOLDER / "link.md").symlink_to("job/1.md")
    os.link(home / FOLDER / "job/1.md", home / "second name")
    assert {path: each.is_own for path, each in listed(home).items()} == {
        "cron/output/job/1.md": False,
        "cron/output/link.md": False,
    }


def test_a_huge_folder_is_listed_in_part(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        write(home / FOLDER / f"{number}.md")
    monkeypatch.setattr(policy_files, "ENTRIES_MAX", 10)
    assert 8 <= len(listed(home)) <= 10


def test_without_such_a_policy_nothing_is_looked_at(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_files, "POLICIES", OTHERS)
    assert list_policy_files(str(home), os.geteuid()) == {}
