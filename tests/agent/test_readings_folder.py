"""Readings of homes are kept as bytes, one file for each home; trouble with them is no error."""

from __future__ import annotations

import os
import stat
from array import array
from pathlib import Path

from exporter.agent.readings_folder import ReadingsFolder
from exporter.hermes.payload_sizes import MeasuredSizes
from exporter.pruner.gather.inventory_reader import Measurements
from exporter.scan.disk.repository import KeptRepos
from exporter.workers import kept_readings
from tests.real.command import run_json
from tests.support.small_homes import small_home

HOME = "/home/ada/.hermes"


def only_file(state: Path) -> Path:
    (file,) = (state / "readings").iterdir()
    return file


def test_the_readings_of_a_home_are_replaced_and_private(tmp_path: Path) -> None:
    state = tmp_path / "state"
    kept = ReadingsFolder(str(state))
    assert kept.load(HOME) == b""
    kept.save(HOME, b"first")
    kept.save(HOME, b"second")
    assert ReadingsFolder(str(state)).load(HOME) == b"second"
    assert kept.load("/home/bob/.hermes") == b""
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (state, only_file(state))]
    assert modes == [0o700, 0o600]


def test_fresh_readings_use_none_and_are_kept(tmp_path: Path) -> None:
    ReadingsFolder(str(tmp_path)).save(HOME, b"old")
    fresh = ReadingsFolder(str(tmp_path), fresh=True)
    assert fresh.load(HOME) == b""
    fresh.save(HOME, b"new")
    assert ReadingsFolder(str(tmp_path)).load(HOME) == b"new"


def test_where_nothing_can_be_kept_there_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file, no folder")
    kept = ReadingsFolder(str(tmp_path / "state"))
    kept.save(HOME, b"bytes")
    assert kept.load(HOME) == b""


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    kept = ReadingsFolder(str(tmp_path / "state"))
    kept.save(HOME, b"bytes")
    file = only_file(tmp_path / "state")
    file.unlink()
    (tmp_path / "other").write_text("of another program")
    file.symlink_to(tmp_path / "other")
    assert kept.load(HOME) == b""
    kept.save(HOME, b"bytes")
    assert kept.load(HOME) == b"bytes"
    assert (tmp_path / "other").read_text() == "of another program"


def test_a_fifo_in_their_place_stops_no_command(tmp_path: Path) -> None:
    kept = ReadingsFolder(str(tmp_path))
    kept.save(HOME, b"bytes")
    file = only_file(tmp_path)
    file.unlink()
    os.mkfifo(file)
    assert kept.load(HOME) == b""


def test_no_run_uses_kept_readings(tmp_path: Path) -> None:
    """What `prune` plans is what is there, though the kept sizes would cross a threshold."""
    home, state = small_home(tmp_path / "home"), tmp_path / "state"
    where = ("--home", home, "--state-dir", state)
    before = run_json("prune", "--pressure", *where)["plan"]["actions"]
    found = (home / "state.db").stat()
    huge = MeasuredSizes(array("q", (1, 1 << 50)).tobytes(), 1, 40_000)
    repos = KeptRepos((0, 0), 0.0, [])
    measured = Measurements(huge, {"project": (0.0, 1 << 50)})
    data = kept_readings.dump(str(home), (found.st_dev, found.st_ino), repos, measured)
    ReadingsFolder(str(state)).save(str(home), data or b"")
    assert only_file(state).stat().st_size > 0
    assert run_json("prune", "--pressure", *where)["plan"]["actions"] == before
    assert run_json("prune", "--pressure", "--yes", *where)["done"] == len(before)


def test_readings_of_homes_that_are_gone_for_long_are_removed(tmp_path: Path) -> None:
    ReadingsFolder(str(tmp_path)).save(HOME, b"bytes")
    later = os.stat(only_file(tmp_path)).st_mtime + 91 * 86400
    ReadingsFolder(str(tmp_path), clock=lambda: later - 2 * 86400).save("/b", b"bytes")
    assert ReadingsFolder(str(tmp_path)).load(HOME) == b"bytes"
    ReadingsFolder(str(tmp_path), clock=lambda: later).save("/c", b"bytes")
    assert ReadingsFolder(str(tmp_path)).load(HOME) == b""
