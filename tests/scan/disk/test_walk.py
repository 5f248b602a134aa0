"""Count files below folders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from exporter.scan.disk import walk
from exporter.scan.disk.walk import PORTION_NAMES, FolderListing, FolderTotals, TreeWalk
from exporter.snapshot import DiskKind
from tests.support.disk_homes import du


def descend(start: list[bytes], device: int) -> FolderTotals:
    """Count everything at once."""
    descent = TreeWalk(start, device)
    descent.run()
    return descent.tally


def test_folders_on_another_device_are_left_out_as_du_x_does(tmp_path: Path) -> None:
    (tmp_path / "mounted/below").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"x" * 5000)
    prefix = os.fsencode(tmp_path) + b"/"
    here = os.lstat(tmp_path).st_dev
    assert descend([prefix], here).folders == 2
    elsewhere = descend([prefix], here + 1)
    assert (elsewhere.folders, elsewhere.files) == (0, 1)
    assert elsewhere.blocks * 512 == du(tmp_path / "file")


def test_a_chain_of_folders_too_long_for_a_path_is_said_to_be_unreadable(tmp_path: Path) -> None:
    script = 'i=0; while [ $i -lt 30 ]; do mkdir "$1" && cd -P "$1" || exit 1; i=$((i+1)); done'
    subprocess.run(["sh", "-c", script, "-", "d" * 200], cwd=tmp_path, check=True)
    tally = descend([os.fsencode(tmp_path) + b"/"], os.lstat(tmp_path).st_dev)
    assert tally.unreadable == 1
    assert 15 < tally.folders < 30
    subprocess.run(["rm", "-r", str(tmp_path)], check=True)


def test_a_walk_without_time_goes_on_where_it_was_until_all_is_counted(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}/file").touch()
    (tmp_path / "many").mkdir()
    for number in range(2 * PORTION_NAMES + 1):
        os.mkfifo(tmp_path / f"many/{number}")
    prefix, found = os.fsencode(tmp_path) + b"/", os.lstat(tmp_path)
    whole = TreeWalk([prefix], found.st_dev)
    scans = 1
    while not whole.run(lambda: True):
        scans += 1
    assert scans > 2
    assert whole.tally == descend([prefix], found.st_dev)
    many = tmp_path / "many"
    one = FolderListing(
        prefix + b"many/", os.lstat(many), DiskKind.OTHER, lambda _name, _folder: DiskKind.OTHER
    )
    assert [one.run(lambda: True) for _ in range(3)] == [False, False, True]
    assert one.tallies[DiskKind.OTHER].files == 2 * PORTION_NAMES + 1


def test_names_of_a_huge_folder_are_taken_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "HUGE_FOLDER_BYTES", 0)
    monkeypatch.setattr(walk, "PORTION_NAMES", 10)
    for number in range(50):
        (tmp_path / f"huge/{number}/below").mkdir(parents=True)
    tally = descend([os.fsencode(tmp_path) + b"/"], os.lstat(tmp_path).st_dev)
    assert (tally.folders, tally.files) == (101, 0)


def test_tallies_add_up() -> None:
    total = FolderTotals(1, 2, 3, 40.0, 5, b"a")
    total.add(FolderTotals(10, 20, 30, 4.0, 50, b"b"))
    assert total == FolderTotals(11, 22, 33, 40.0, 55, b"ab")
