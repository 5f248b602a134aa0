"""The textfile collector never reads a half-written file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from exporter.cli.commands.textfile import write_atomically
from exporter.errors import ExporterError, UsageError


def test_the_file_is_written_readable_by_all(tmp_path: Path) -> None:
    path = tmp_path / "hermes.prom"
    previous = os.umask(0o077)
    try:
        write_atomically(str(path), b"hermes_home_up 1\n")
    finally:
        os.umask(previous)
    assert path.read_bytes() == b"hermes_home_up 1\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["hermes.prom"]


def test_the_old_file_is_replaced_not_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "hermes.prom"
    path.write_bytes(b"old\n")
    with path.open("rb") as reader:
        write_atomically(str(path), b"new\n")
        assert reader.read() == b"old\n"
    assert path.read_bytes() == b"new\n"


def test_a_relative_path_is_fine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_atomically("hermes.prom", b"x\n")
    assert (tmp_path / "hermes.prom").read_bytes() == b"x\n"


def test_a_name_that_node_exporter_ignores_is_refused_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"use .*hermes\.txt\.prom"):
        write_atomically(str(tmp_path / "hermes.txt"), b"")
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ExporterError, match=r"cannot write .*: No such file or directory \(.*gone"):
        write_atomically(str(tmp_path / "gone" / "hermes.prom"), b"")


def test_a_folder_that_is_none_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ExporterError, match="Not a directory"):
        write_atomically(str(tmp_path / "file" / "hermes.prom"), b"")


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "hermes.prom").mkdir()
    with pytest.raises(ExporterError, match="Is a directory; left as it was"):
        write_atomically(str(tmp_path / "hermes.prom"), b"x\n")
    assert os.listdir(tmp_path) == ["hermes.prom"]
