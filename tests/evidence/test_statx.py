"""Files are recognised without asking their filesystem."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from exporter.evidence.models import Blindness, HomeFiles
from exporter.evidence.statx import device_of, identity_of
from exporter.evidence.survey import survey
from exporter.snapshot import FileIdentity
from tests.real.hermes import REPOSITORY
from tests.support.evidence import NOBODY, puppet
from tests.support.stuck_filesystem import FILE_INODE, stuck_filesystem


def target(database: FileIdentity) -> HomeFiles:
    return HomeFiles(key="home", database=database, wal=None, shm=None, wal_mode=True)


def test_statx_gives_the_same_identity_as_stat(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = (tmp_path / "file").stat()
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        assert identity_of("file", directory) == FileIdentity(found.st_dev, found.st_ino)
        assert device_of("file", directory) == found.st_dev
    finally:
        os.close(directory)


def test_a_filesystem_that_hangs_does_not_hang_the_survey(tmp_path: Path) -> None:
    with puppet() as process, stuck_filesystem(tmp_path) as filesystem:
        process.do(f"descriptor = os.open({str(tmp_path / 'state.db')!r}, os.O_RDONLY)")
        found = tmp_path.stat()
        filesystem.stop_answering()
        evidence = survey([target(FileIdentity(found.st_dev, FILE_INODE))]).homes["home"]
        assert [holder.pid for holder in evidence.holders] == [process.pid]


def test_a_filesystem_private_to_its_user_hides_no_holder_from_root() -> None:
    """FUSE denies even root, so one user could make the agent blind for all homes."""
    with tempfile.TemporaryDirectory() as folder, puppet() as process:
        Path(folder).chmod(0o755)
        with stuck_filesystem(Path(folder), owner=NOBODY):
            process.do(f"os.setgid({NOBODY}), os.setuid({NOBODY})")
            process.do(f"descriptor = os.open({folder + '/state.db'!r}, os.O_RDONLY)")
            device = int(process.do("os.fstat(descriptor).st_dev"))
            with pytest.raises(PermissionError):
                os.stat(f"/proc/{process.pid}/fd/3")
            found = survey([target(FileIdentity(device, FILE_INODE))])
            assert [holder.pid for holder in found.homes["home"].holders] == [process.pid]
            assert Blindness.PERMISSIONS not in found.blind


_ON_OVERLAY = """
import os, sys
from pathlib import Path
from tests.support.evidence import evidence, holding, lost_locks
home = Path(sys.argv[1])
with holding(home) as process:
    process.do("fork()")
    found = evidence(home)
    device = (home / "state.db-shm").stat().st_dev
    listed = f"{os.major(device):02x}:{os.minor(device):02x}:" in Path("/proc/locks").read_text()
    copies = [holder.forked_copy for holder in found.holders]
    print(listed, *lost_locks(found), copies)
"""


def test_locks_are_matched_even_if_the_kernel_shows_another_device(tmp_path: Path) -> None:
    """On an overlay, for example a container's root, /proc/locks shows another device than stat."""
    for name in ("lower", "tmpfs", "merged"):
        (tmp_path / name).mkdir()
    mount = (
        f"cd {tmp_path} && mount -t tmpfs none tmpfs && mkdir tmpfs/upper tmpfs/work && "
        "mount -t overlay -o lowerdir=lower,upperdir=tmpfs/upper,workdir=tmpfs/work,xino=off "
        f'none merged && cd {REPOSITORY} && exec "$@"'
    )
    command = ["unshare", "-m", "sh", "-c", mount, "-", sys.executable, "-c", _ON_OVERLAY]
    said = subprocess.check_output([*command, str(tmp_path / "merged")], text=True)
    assert said == "False 0 0 [False, True]\n"
