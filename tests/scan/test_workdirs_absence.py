"""When a working directory is gone permanently, and when that is unknown."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from exporter.scan.workdirs import MissingWorkdir, MissingWorkdirs


@pytest.fixture
def absences(tmp_path: Path) -> MissingWorkdirs:
    return watching(tmp_path)


def watching(folder: Path, fstab: str = "", mountinfo: str = "") -> MissingWorkdirs:
    (folder / "fstab").write_text(fstab)
    (folder / "mountinfo").write_text(mountinfo)
    found = MissingWorkdirs(str(folder / "home"), str(folder / "mountinfo"), str(folder / "fstab"))
    found.refresh(time.monotonic())
    return found


def at(path: Path) -> bytes:
    return os.fsencode(path)


def test_what_is_there_is_not_gone(absences: MissingWorkdirs, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    assert absences.of(at(tmp_path / "project")) is None
    assert absences.is_there(at(tmp_path / "project"))


def test_what_was_removed_is_gone_since_its_folder_changed(
    absences: MissingWorkdirs, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project").rmdir()
    changed = tmp_path.stat().st_ctime
    os.utime(tmp_path, (0, 0))
    found = absences.of(at(tmp_path / "project"))
    assert found == MissingWorkdir(tmp_path.stat().st_ctime)
    assert changed <= found.since <= time.time()


def test_a_folder_that_is_gone_itself_or_empty_may_be_a_disk_that_is_not_mounted(
    absences: MissingWorkdirs, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    assert absences.of(at(tmp_path / "disk" / "project")) is None
    assert absences.of(at(tmp_path / "media" / "disk" / "project")) is None


def test_what_fstab_would_mount_is_not_gone_while_it_is_not_mounted(tmp_path: Path) -> None:
    disk = tmp_path / "my disk"
    disk.mkdir()
    (disk / "readme").write_text("mount it here")
    named = os.fsencode(disk).decode().replace(" ", "\\040")
    fstab = f"# a comment\nUUID=1 / ext4 defaults 0 1\nUUID=2 {named} ext4 noauto 0 2\n"
    assert watching(tmp_path, fstab).of(at(disk / "project")) is None
    mounted = f"30 1 8:1 / {named} rw - ext4 /dev/sdb1 rw\n"
    assert watching(tmp_path, fstab, mounted).of(at(disk / "project")) is not None


def test_a_path_of_some_container_is_not_gone(absences: MissingWorkdirs) -> None:
    assert absences.of(b"/surely-not-here") is None
    assert absences.of(b"/") is None
    assert absences.of(None) is None


def test_what_lies_on_a_network_is_not_asked_for(tmp_path: Path) -> None:
    share = tmp_path / "share"
    share.mkdir()
    (share / "other").mkdir()
    mounted = f"30 1 0:50 / {share} rw - nfs4 server:/ rw\n"
    assert watching(tmp_path, mountinfo=mounted).of(at(share / "project")) is None
