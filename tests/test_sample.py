"""Changes of a few files among many are found by looking at some of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.scan.sample import Sample

FILES = 500
SHARE = 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        (tmp_path / f"f{number}").write_bytes(b"x")
        os.utime(tmp_path / f"f{number}", (1000 + number, 1000 + number))
    (tmp_path / "folder").mkdir()
    return tmp_path


def sample_of(folder: Path) -> Sample:
    sample = Sample()
    for path in folder.iterdir():
        if not path.is_dir():
            sample.add(os.fsencode(path.name), os.lstat(path))
    return sample


def prefix(folder: Path) -> bytes:
    return os.fsencode(folder) + b"/"


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"y")


def test_nothing_is_found_where_nothing_changed(folder: Path) -> None:
    sample = sample_of(folder)
    (folder / "folder/new").write_bytes(b"subfolders are not part of it")
    assert sample.recent_are_same(prefix(folder))
    assert all(sample.share_is_same(prefix(folder), SHARE) for _ in range(20))


def test_a_change_of_what_was_written_last_is_found_at_once(folder: Path) -> None:
    sample = sample_of(folder)
    append(folder / f"f{FILES - 20}")
    assert not sample.recent_are_same(prefix(folder))
    sample = sample_of(folder)
    (folder / f"f{FILES - 1}").unlink()
    assert not sample.recent_are_same(prefix(folder))


def test_a_change_of_any_other_file_is_found_once_in_a_round(folder: Path) -> None:
    sample = sample_of(folder)
    append(folder / "f7")
    assert sample.recent_are_same(prefix(folder))
    found = [sample.share_is_same(prefix(folder), SHARE) for _ in range(6)]
    assert found.count(False) == 1


def test_a_folder_that_is_gone_is_not_as_it_was(folder: Path) -> None:
    sample = sample_of(folder)
    assert not sample.recent_are_same(prefix(folder) + b"none/")
    assert not sample.share_is_same(prefix(folder) + b"none/", SHARE)


def test_the_sample_of_an_empty_folder_is_empty(tmp_path: Path) -> None:
    assert Sample().recent_are_same(prefix(tmp_path))
    assert Sample().share_is_same(prefix(tmp_path), SHARE)
