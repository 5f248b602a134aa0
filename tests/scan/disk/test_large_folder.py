"""Changes of a few files among many are found by checking some of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.scan.disk.large_folder import FolderSample

FILES = 500
SHARE = 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        (tmp_path / f"f{number}").write_bytes(b"x")
        os.utime(tmp_path / f"f{number}", (1000 + number, 1000 + number))
    (tmp_path / "folder").mkdir()
    return tmp_path


def sample_of(folder: Path) -> FolderSample:
    sample = FolderSample()
    for path in folder.iterdir():
        if not path.is_dir():
            sample.add(os.fsencode(path.name), os.lstat(path))
    return sample


def prefix(folder: Path) -> bytes:
    return os.fsencode(folder) + b"/"


def append(path: Path, size: int = 1) -> None:
    with path.open("ab") as file:
        file.write(b"y" * size)
        file.flush()
        os.fsync(file.fileno())  # then its blocks are final


def test_nothing_is_found_where_nothing_changed(folder: Path) -> None:
    sample = sample_of(folder)
    (folder / "folder/new").write_bytes(b"subfolders are not part of it")
    assert sample.take_growth(prefix(folder)) == []
    assert all(sample.next_share_unchanged(prefix(folder), SHARE) for _ in range(20))


def test_growth_of_what_was_written_last_is_told_once_and_in_full(folder: Path) -> None:
    sample = sample_of(folder)
    grown = [folder / f"f{FILES - 20}", folder / f"f{FILES - 1}"]
    before = {path.name: path.stat().st_blocks for path in grown}
    for path in grown:
        append(path, 100_000)
    growth = sample.take_growth(prefix(folder))
    assert growth is not None
    assert {each.name.decode(): (each.blocks, each.mtime) for each in growth} == {
        path.name: (path.stat().st_blocks - before[path.name], int(path.stat().st_mtime))
        for path in grown
    }
    assert sample.take_growth(prefix(folder)) == []
    assert all(sample.next_share_unchanged(prefix(folder), SHARE) for _ in range(20))
    os.truncate(grown[0], 0)
    assert [each.blocks < 0 for each in sample.take_growth(prefix(folder)) or []] == [True]
    assert all(sample.next_share_unchanged(prefix(folder), SHARE) for _ in range(20))


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"another file")
    other.rename(path)


def give_a_second_name(path: Path) -> None:
    os.link(path, path.with_name("second"))
    append(path)


def make_old(path: Path) -> None:
    os.utime(path, (1, 1))


@pytest.mark.parametrize("change", [remove, replace, give_a_second_name, make_old])
def test_what_only_reading_the_folder_can_tell_is_not_guessed(
    folder: Path, change: Callable[[Path], None]
) -> None:
    sample = sample_of(folder)
    change(folder / f"f{FILES - 5}")
    assert sample.take_growth(prefix(folder)) is None


def test_a_file_that_had_several_names_is_not_guessed_either(folder: Path) -> None:
    path = folder / f"f{FILES - 5}"
    os.link(path, folder / "folder/second")
    sample = sample_of(folder)
    (folder / "folder/second").unlink()
    append(path)
    assert sample.take_growth(prefix(folder)) is None


def test_a_change_of_any_other_file_is_found_once_in_a_round(folder: Path) -> None:
    sample = sample_of(folder)
    append(folder / "f7")
    assert sample.take_growth(prefix(folder)) == []
    found = [sample.next_share_unchanged(prefix(folder), SHARE) for _ in range(6)]
    assert found.count(False) == 1


def test_a_folder_that_is_gone_is_not_as_it_was(folder: Path) -> None:
    sample = sample_of(folder)
    assert sample.take_growth(prefix(folder) + b"none/") is None
    assert not sample.next_share_unchanged(prefix(folder) + b"none/", SHARE)


def test_the_sample_of_an_empty_folder_is_empty(tmp_path: Path) -> None:
    assert FolderSample().take_growth(prefix(tmp_path)) == []
    assert FolderSample().next_share_unchanged(prefix(tmp_path), SHARE)
