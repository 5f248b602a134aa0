"""A scan counts the files that a pattern matches, or reports nothing about them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from exporter.scan import matched_files
from exporter.scan.matched_files import FileCounter, check_pattern
from exporter.snapshot import MatchedFiles
from exporter.workers import protocol
from exporter.workers.home import WorkerHome
from tests.support.home_scans import over_the_wire, read_request


def write(home: Path, *names: str) -> None:
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("12345")
        os.utime(home / name, (1000.0, 1000.0))


def count(home: Path, pattern: str) -> int | None:
    found = FileCounter(str(home)).count([pattern]).get(pattern)
    return found.files if found is not None else None


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write(tmp_path, "skills/SKILL.md", "skills/art/draw/SKILL.md", "skills/art/draw/notes.md")
    write(tmp_path, "skills/.archive/old/SKILL.md", "skills/code/SKILL.md")
    write(tmp_path, "memories/MEMORY.md", "memories/USER.md")
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("skills/SKILL.md", 1),
        ("skills/*/SKILL.md", 1),
        ("skills/*/*/SKILL.md", 1),
        ("skills/**/SKILL.md", 3),
        ("skills/**/*.md", 4),
        ("**/*.md", 6),
        ("memories/[MU]*.md", 2),
        ("skills/*/", 2),
        ("skills/**/*/", 3),
        ("skills/*", 1),
        ("skills/.archive/*/SKILL.md", 1),
        ("plugins/*/plugin.yaml", 0),
        ("memories/MEMORY.md/*", 0),
    ],
)
def test_a_pattern_matches_as_a_shell_does(home: Path, pattern: str, files: int) -> None:
    assert count(home, pattern) == files


def test_number_length_and_last_change_are_told(home: Path) -> None:
    os.utime(home / "memories/USER.md", (2000.0, 2000.0))
    counted = FileCounter(str(home)).count(["memories/*.md", "memories/*.txt"])
    assert counted == {
        "memories/*.md": MatchedFiles(2, 10, 2000.0),
        "memories/*.txt": MatchedFiles(0, 0, None),
    }


def test_links_are_not_followed(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    write(elsewhere, "SKILL.md")
    (home / "skills/linked").symlink_to(elsewhere)
    (home / "skills/code/linked.md").symlink_to(elsewhere / "SKILL.md")
    (home / "skills/loop").symlink_to(home)
    assert count(home, "skills/**/*.md") == 4
    assert count(home, "skills/linked/SKILL.md") == 0


def test_another_filesystem_is_not_entered(home: Path, mounts: Callable[..., None]) -> None:
    (home / "skills/mounted").mkdir()
    mounts("-t", "tmpfs", "tmpfs", str(home / "skills/mounted"))
    write(home, "skills/mounted/SKILL.md")
    assert count(home, "skills/**/SKILL.md") == 3


def test_what_cannot_be_counted_in_full_is_not_told(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other patterns are not affected."""
    monkeypatch.setattr(matched_files, "_NAMES_MAX", 8)
    counted = FileCounter(str(home)).count(["**/*.md", "memories/*.md"])
    assert counted.keys() == {"memories/*.md"}


def test_names_that_do_not_match_take_of_the_limit_too(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matched_files, "_NAMES_MAX", 8)
    write(home, *(f"cache/{number}" for number in range(10)))
    assert count(home, "cache/SKILL.md") == 0
    assert count(home, "cache/*.md") is None


def test_counting_ends_when_its_time_is_up(home: Path) -> None:
    now = iter(range(100))
    counter = FileCounter(str(home), lambda: float(next(now)))
    assert counter.count(["skills/**/SKILL.md"]) == {}


def test_files_are_counted_once_a_minute(home: Path) -> None:
    now = [0.0]
    counter = FileCounter(str(home), lambda: now[0])
    pattern = "skills/**/SKILL.md"
    assert counter.count([pattern])[pattern].files == 3
    write(home, "skills/new/SKILL.md")
    now[0] = 59.0
    assert counter.count([pattern])[pattern].files == 3
    now[0] = 60.0
    assert counter.count([pattern])[pattern].files == 4


@pytest.mark.parametrize(
    "pattern", ["", "/etc/passwd", "../other/*", "a//b", "a/./b", "a/**", "**/**/b", "x" * 129]
)
def test_a_pattern_that_is_not_below_the_home_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="no pattern"):
        check_pattern(pattern)


def test_a_folder_that_cannot_be_read_is_not_counted_as_empty(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert count(home, "skills/*/SKILL.md") is None


def test_a_snapshot_carries_what_was_asked_for(home: Path) -> None:
    request = structs.replace(read_request(home, os.getuid()), file_patterns=["skills/**/SKILL.md"])
    *_, last = WorkerHome(str(home)).read(request)
    reply = over_the_wire(last)
    assert isinstance(reply, protocol.ScanReply)
    assert reply.snapshot.matched_files["skills/**/SKILL.md"].files == 3
