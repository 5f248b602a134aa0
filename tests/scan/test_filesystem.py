"""The kind of a home's filesystem decides whether its locks prove anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exporter.scan.filesystem import LOCAL_KINDS, NETWORK_KINDS, UNKNOWN, filesystem_of


def kind(folder: Path, path: Path, *mounts: tuple[str, str]) -> str:
    """The kind of a path on a host with these mount points and types."""
    lines = [
        f"{number} 1 0:{number} / {point} rw,relatime shared:1 - {kind} source rw\n"
        for number, (point, kind) in enumerate(mounts, 20)
    ]
    (folder / "mountinfo").write_text("".join(lines))
    found = filesystem_of(str(path), str(folder / "mountinfo"))
    assert found is not None
    return found.kind


def test_the_longest_mount_point_above_a_path_decides(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    mounts = (("/", "ext4"), (str(home), "nfs4"), (str(tmp_path), "xfs"))
    assert kind(tmp_path, tmp_path, *mounts) == "xfs"
    assert kind(tmp_path, home, *mounts) == "nfs4"


def test_a_mount_point_that_only_begins_alike_decides_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home2"
    home.mkdir()
    assert kind(tmp_path, home, ("/", "ext4"), (f"{tmp_path}/home", "nfs")) == "ext4"


def test_of_two_mounts_on_one_point_the_last_decides(tmp_path: Path) -> None:
    assert kind(tmp_path, tmp_path, ("/", "ext4"), ("/", "nfs")) == "nfs"


def test_a_mount_point_with_blanks_is_recognised(tmp_path: Path) -> None:
    home = tmp_path / "a home\\here"
    home.mkdir()
    escaped = str(home).replace("\\", r"\134").replace(" ", r"\040")
    assert kind(tmp_path, home, ("/", "ext4"), (escaped, "cifs")) == "cifs"


@pytest.mark.parametrize("content", ["", "nonsense\n", "20 1 0:20 / / rw - \n"])
def test_without_a_mount_table_the_kind_is_unknown(tmp_path: Path, content: str) -> None:
    (tmp_path / "mountinfo").write_text(content)
    for table in ("mountinfo", "none"):
        found = filesystem_of(str(tmp_path), str(tmp_path / table))
        assert found is not None
        assert found.kind == UNKNOWN
    assert UNKNOWN not in LOCAL_KINDS | NETWORK_KINDS


def test_the_size_is_that_of_statvfs(tmp_path: Path) -> None:
    found = filesystem_of(str(tmp_path))
    now = os.statvfs(tmp_path)
    assert found is not None
    assert found.size_bytes == now.f_blocks * now.f_frsize
    assert filesystem_of(str(tmp_path / "none")) is None


def test_no_kind_is_both_local_and_of_a_network() -> None:
    assert not LOCAL_KINDS & NETWORK_KINDS
