"""Counting files below folders."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from exporter.scan.walk import Tally, descend
from tests.disk_harness import du


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


def test_tallies_add_up() -> None:
    total = Tally(1, 2, 3, 40.0, 5, b"a")
    total.add(Tally(10, 20, 30, 4.0, 50, b"b"))
    assert total == Tally(11, 22, 33, 40.0, 55, b"ab")
