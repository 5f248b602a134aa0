"""Homes in the writable layer of an overlay mount."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.evidence.models import Blindness
from exporter.evidence.namespaces import is_below, mount_table, upper_folders
from exporter.evidence.procfs import read_stat
from tests.real.waiting import wait_until
from tests.support.evidence import evidence, puppet

IN_OVERLAY = """
mount -t tmpfs none {base} && mkdir {base}/lower {base}/upper {base}/work {base}/merged || exit 1
mkdir {base}/upper/home
mount -t overlay none -o lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work \
    {base}/merged || exit 1
exec "$@"
"""


def test_a_home_in_the_upper_layer_of_an_overlay_in_any_mount_namespace_is_blind(
    tmp_path: Path,
) -> None:
    """The holder uses the merged view, and shares neither inode nor lock with the layer itself."""
    base, other = tmp_path / "base", tmp_path / "other"
    base.mkdir()
    other.mkdir()
    wrapper = ("unshare", "-m", "sh", "-c", IN_OVERLAY.format(base=base), "-")
    with puppet(wrapper=wrapper) as process:
        process.do(f"connection = connect({str(base / 'merged/home/state.db')!r})")
        assert Blindness.OVERLAY in evidence(base / "upper" / "home").blind
        assert Blindness.OVERLAY not in evidence(other).blind
    assert Blindness.OVERLAY not in evidence(base / "upper" / "home").blind


FIRST_THREAD_ENDS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_that_has_just_ended_is_gone_but_not_one_whose_first_thread_has() -> None:
    """The kernel shows the mounts of neither. A survey is blind if a living process hides them."""
    with subprocess.Popen([sys.executable, "-c", "pass"]) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        with pytest.raises(ProcessLookupError):
            mount_table("/proc", ended.pid)
    command = [sys.executable, "-c", FIRST_THREAD_ENDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as lives:

        def first_thread_is_gone() -> bool:
            stat = read_stat("/proc", lives.pid)
            return stat is not None and stat.state == "Z"

        wait_until(first_thread_is_gone, "its first thread ended")
        with pytest.raises(OSError, match="Invalid argument"):
            mount_table("/proc", lives.pid)


MOUNTS = rb"""
22 1 0:20 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:50 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir=/with\040blank\054comma,workdir=/w
41 22 0:51 / /m2 ro - overlay overlay rw,lowerdir=/l1:/l2
42 22 0:52 / /m3 rw - overlay overlay rw,lowerdir=/l,upperdir=diff,workdir=work
"""


def test_upper_folders_are_read_as_the_kernel_writes_them() -> None:
    assert upper_folders(MOUNTS) == {"/with blank,comma", "diff"}


@pytest.mark.parametrize(
    ("folder", "upper", "expected"),
    [
        ("/a/b", "/a/b", True),
        ("/a/b/c", "/a/b", True),
        ("/a/bc", "/a/b", False),
        ("/a", "/a/b", False),
        ("/a", "/", True),
        ("/x/diff/home", "diff", True),
        ("/x/different/home", "diff", False),
        ("/x/diff/home", "./diff/", True),
    ],
)
def test_a_home_is_below_its_upper_folder(folder: str, upper: str, expected: bool) -> None:
    assert is_below(folder, upper) is expected
