"""Users with more open files than a survey reads blind their own homes, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from exporter.evidence.models import Blindness, HomeFiles
from exporter.evidence.procfs import find_descriptors
from exporter.evidence.survey import survey
from exporter.snapshot import LockAnswer
from tests.support.evidence import NOBODY, Puppet, files, holding, puppet

LIMIT = 15_000
"""More than all other processes of a test machine have open together, less than one process can."""
ANOTHER = 54321
# In one process, one after another: each counts the open files of the same users.
pytestmark = pytest.mark.xdist_group("descriptor_budget")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def owned(home: Path, owner: int) -> HomeFiles:
    return structs.replace(files(home), key=str(owner), owner=owner)


def connect_to(home: Path) -> str:
    return f"connection = connect({str(home / 'state.db')!r})"


@contextmanager
def hoarder(
    uid: int, count: int, *, dumpable: bool = True, first: str = "None"
) -> Iterator[Puppet]:
    """A process of another user without a home, with so many open files."""
    with puppet() as process:
        process.do(first)
        process.do("import ctypes, resource; limit = resource.RLIMIT_NOFILE")
        process.do("resource.setrlimit(limit, (resource.getrlimit(limit)[1],) * 2)")
        process.do(f"os.setgroups([]), os.setgid({uid}), os.setuid({uid})")
        process.do(f"held = [os.open('/', os.O_PATH) for _ in range({count})] and None")
        process.do(f"ctypes.CDLL(None).prctl(4, {int(dumpable)}, 0, 0, 0)")
        yield process


@pytest.mark.parametrize("dumpable", [True, False])
def test_a_user_above_the_budget_blinds_only_homes_that_this_user_can_write(
    home: Path, dumpable: bool
) -> None:
    """A process that may not be dumped seems to belong to root in /proc, but does not."""
    with holding(home) as process, hoarder(NOBODY, LIMIT + 10, dumpable=dumpable):
        targets = [owned(home, owner) for owner in (0, NOBODY, ANOTHER)]
        found = survey(targets, descriptors_per_user=LIMIT)
        assert found.limited_users == 1
        blind = {key: Blindness.LIMITED in seen.blind for key, seen in found.homes.items()}
        assert blind == {"0": False, str(NOBODY): True, str(ANOTHER): False}
        assert [holder.pid for holder in found.homes["0"].holders] == [process.pid]


def test_many_small_processes_of_one_user_are_counted_together(home: Path) -> None:
    with hoarder(NOBODY, LIMIT // 4) as process:
        process.do("[fork() for _ in range(4)]")
        found = survey([owned(home, NOBODY), owned(home, 0)], descriptors_per_user=LIMIT)
    assert found.limited_users == 1
    assert Blindness.LIMITED in found.homes[str(NOBODY)].blind
    assert Blindness.LIMITED not in found.homes["0"].blind


def test_two_users_within_the_budget_blind_nothing(home: Path) -> None:
    with hoarder(NOBODY, LIMIT * 2 // 3), hoarder(ANOTHER, LIMIT * 2 // 3):
        found = survey([owned(home, NOBODY)], descriptors_per_user=LIMIT)
    assert found.limited_users == 0
    assert Blindness.LIMITED not in found.homes[str(NOBODY)].blind


def test_no_more_descriptors_are_read_than_allowed(home: Path) -> None:
    with hoarder(NOBODY, 500) as process:
        assert find_descriptors("/proc", process.pid, {"state.db"}, 100) == ([], 101)
        assert find_descriptors("/proc", process.pid, {"state.db"}, 10_000)[1] >= 500


def test_a_lock_of_a_process_above_the_budget_makes_its_home_blind(home: Path) -> None:
    """It has a home of another user open, and was not read."""
    with holding(home), hoarder(NOBODY, LIMIT + 10, first=connect_to(home)):
        target = structs.replace(owned(home, ANOTHER), lock_probe=LockAnswer.HELD)
        blind = survey([target], descriptors_per_user=LIMIT).homes[str(ANOTHER)].blind
    assert Blindness.PERMISSIONS in blind
    assert Blindness.LIMITED not in blind
