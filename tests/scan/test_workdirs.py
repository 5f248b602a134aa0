"""A working directory is missing only if that is certain."""

from __future__ import annotations

import os
from pathlib import Path

from exporter.scan.workdirs import Workdirs, remote_mounts

MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:30 / /mnt/nas rw - nfs4 server:/x rw
31 22 0:31 / /mnt/with\\040blank rw shared:1 - fuse.sshfs me@there rw
32 22 0:32 / /net rw - autofs systemd-1 rw
33 22 254:1 / /srv rw - xfs /dev/vdb rw
"""


def test_a_folder_that_is_gone_from_a_folder_that_is_there_is_missing(tmp_path: Path) -> None:
    workdirs = Workdirs(str(tmp_path))
    assert workdirs.is_missing(os.fsencode(tmp_path / "gone"))
    assert not workdirs.is_missing(os.fsencode(tmp_path))


def test_an_unmounted_disk_makes_nothing_missing(tmp_path: Path) -> None:
    assert not Workdirs(str(tmp_path)).is_missing(os.fsencode(tmp_path / "disk/project"))


def test_what_cannot_be_known_is_not_missing(tmp_path: Path) -> None:
    workdirs = Workdirs(str(tmp_path))
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("file/below", "dangling", "loop", "loop/below", "x" * 5000):
        assert not workdirs.is_missing(os.fsencode(tmp_path / name))
    assert not workdirs.is_missing(None)


def test_network_mounts_are_known_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    found = remote_mounts(b"/home/me/.hermes", str(tmp_path / "mountinfo"))
    assert found == (b"/mnt/nas/", b"/mnt/with blank/", b"/net/")
    (tmp_path / "mountinfo").write_text(f"30 22 0:30 / {tmp_path}/nas rw - nfs4 server:/x rw\n")
    workdirs = Workdirs(str(tmp_path / "home"), str(tmp_path / "mountinfo"))
    assert workdirs.is_missing(os.fsencode(tmp_path / "nas"))
    workdirs.refresh(0.0)
    assert not workdirs.is_missing(os.fsencode(tmp_path / "nas"))
    assert not workdirs.is_missing(os.fsencode(tmp_path / "nas/project"))


def test_a_home_on_a_network_mount_may_ask_about_its_own_mount(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    found = remote_mounts(b"/mnt/nas/me/.hermes", str(tmp_path / "mountinfo"))
    assert b"/mnt/nas/" not in found


def test_without_a_list_of_mounts_none_is_a_network_mount(tmp_path: Path) -> None:
    assert remote_mounts(b"/home/me", str(tmp_path / "none")) == ()
