"""Processes that a cgroup freezes, in both versions of cgroups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.evidence.process import is_frozen
from tests.real.waiting import wait_until
from tests.support.evidence import Puppet, evidence, holding

CGROUPS = Path("/sys/fs/cgroup")
FREEZERS = (
    (CGROUPS / "freezer", "freezer.state", "FROZEN", "THAWED"),
    (CGROUPS / "unified", "cgroup.freeze", "1", "0"),
    (CGROUPS, "cgroup.freeze", "1", "0"),
)


@contextmanager
def frozen(process: Puppet, root: Path, control: str, on: str, off: str) -> Iterator[None]:
    """Put the process into a frozen group of its own; thaw and leave it at the end."""
    group = root / f"test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(process.pid))
        (group / control).write_text(on)
        wait_until(lambda: _says_frozen(group), "it is frozen")
        yield
    finally:
        (group / control).write_text(off)
        process.end()
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "the group is empty")
        group.rmdir()


def _says_frozen(group: Path) -> bool:
    answers = (group / "freezer.state", "FROZEN"), (group / "cgroup.events", "frozen 1")
    return any(path.exists() and said in path.read_text() for path, said in answers)


def test_a_holder_in_a_frozen_cgroup_is_stopped(tmp_path: Path) -> None:
    """Uses each freezer that this machine has. The trees in the next test stand for the others."""
    for number, (root, control, on, off) in enumerate(FREEZERS):
        if not (root / "cgroup.procs").exists():
            continue
        home = tmp_path / str(number)
        with holding(home) as process:
            assert [holder.stopped for holder in evidence(home).holders] == [False]
            with frozen(process, root, control, on, off):
                assert [holder.stopped for holder in evidence(home).holders] == [True]


@pytest.mark.parametrize(
    ("membership", "file", "content", "expected"),
    [
        ("0::/user/a", "user/a/cgroup.events", "populated 1\nfrozen 1\n", True),
        ("0::/user/a", "user/a/cgroup.events", "populated 1\nfrozen 0\n", False),
        ("0::/user/a", "unified/user/a/cgroup.events", "populated 1\nfrozen 1\n", True),
        ("6:freezer:/a", "freezer/a/freezer.state", "FROZEN\n", True),
        ("6:freezer:/a", "freezer/a/freezer.state", "FREEZING\n", True),
        ("6:freezer:/a", "freezer/a/freezer.state", "THAWED\n", False),
        ("6:cpu,freezer:/a:b", "freezer/a:b/freezer.state", "FROZEN\n", True),
        ("6:freezer:/", "freezer/freezer.state", "FROZEN\n", False),
        ("0::/../elsewhere", "a", "", False),
    ],
)
def test_the_files_of_a_group_tell_if_it_is_frozen(
    tmp_path: Path, membership: str, file: str, content: str, expected: bool
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    assert is_frozen(f"9:memory:/x\n{membership}\n".encode(), str(tmp_path)) is expected
