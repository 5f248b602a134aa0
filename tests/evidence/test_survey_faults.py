"""Reading a process fails: only ENOENT and ESRCH mean that the process is gone."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs

from exporter.evidence.liveness import lease_alive, start_times
from exporter.evidence.models import Blindness, GatewayState, Liveness, Survey
from exporter.evidence.openers import (
    KnownHolder,
    KnownOpeners,
    compare_openers,
    may_open,
)
from exporter.evidence.procfs import read_stat
from exporter.evidence.survey import survey
from exporter.snapshot import GatewayFiles, LockAnswer
from tests.real.waiting import wait_until
from tests.support.evidence import (
    NOBODY,
    evidence,
    files,
    holding,
    identity,
    puppet,
    survey_elsewhere,
)

DENYING = [sys.executable, "-m", "tests.real.denied_call"]
FEW_DESCRIPTORS = ("sh", "-c", 'ulimit -n 64; exec "$@"', "-")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc that leads to the real one, until a test breaks a part of it."""
    folder = tmp_path / "proc"
    folder.mkdir()
    for name in ("1", "2", "locks", "self", "sys"):
        (folder / name).symlink_to(f"/proc/{name}")
    return folder


def with_broken(proc: Path, pid: int, *broken: str) -> str:
    """A process with parts that cannot be read, for another reason than its end."""
    process = proc / str(pid)
    process.mkdir()
    for name in ("cgroup", "cmdline", "environ", "fd", "fdinfo", "io", "maps", "mountinfo", "ns"):
        (process / name).symlink_to(f"/proc/{pid}/{name}")
    for name in ("stat", "status", "task"):
        (process / name).symlink_to(f"/proc/{pid}/{name}")
    for name in broken:
        (process / name).unlink()
        (process / name).symlink_to(name)  # ELOOP
    return str(proc)


def is_known_dead(found: Survey, home: Path) -> bool:
    """True if there is no holder and nothing blind: idle sessions of this home would be ended."""
    seen = found.homes[str(home)]
    return not seen.holders and not seen.blind


@pytest.mark.parametrize("code", ["ENOSYS", "EPERM", "ENOMEM", "EIO", "ENFILE", "EMFILE"])
def test_a_holder_whose_file_cannot_be_identified_makes_its_home_blind(
    home: Path, code: str
) -> None:
    with holding(home):
        wrapper = [*DENYING, str(getattr(errno, code))]
        found = survey_elsewhere([files(home)], wrapper=wrapper)
    reason = Blindness.PERMISSIONS if code == "EPERM" else Blindness.UNREADABLE
    assert reason in found.homes[str(home)].blind


def test_an_agent_that_may_open_too_few_files_is_blind(home: Path) -> None:
    with holding(home):
        found = survey_elsewhere([files(home)], wrapper=FEW_DESCRIPTORS, hold_descriptors=True)
    assert Blindness.UNREADABLE in found.homes[str(home)].blind


@pytest.mark.parametrize("part", ["fd", "fdinfo", "stat", "status", "cmdline", "cgroup", "task"])
def test_any_unreadable_part_of_a_holder_makes_its_home_blind(
    home: Path, proc: Path, part: str
) -> None:
    with holding(home) as process:
        found = survey([files(home)], proc=with_broken(proc, process.pid, part))
    assert Blindness.UNREADABLE in found.homes[str(home)].blind


def test_a_child_whose_environment_cannot_be_read_makes_its_home_blind(
    home: Path, proc: Path
) -> None:
    """The child may name the session that its parent runs."""
    with holding(home) as process:
        process.do("child = subprocess.Popen(['sleep', '600'])")
        child = int(process.do("child.pid"))
        with_broken(proc, process.pid)
        found = survey([files(home)], proc=with_broken(proc, child, "environ"))
        process.do("child.kill()")
    assert Blindness.UNREADABLE in found.homes[str(home)].blind


FIRST_THREAD_ENDS = """
import ctypes, os, sqlite3, sys, threading
path = sys.argv[1]
connection = sqlite3.connect(path)
connection.execute("PRAGMA journal_mode=wal")
connection.execute("CREATE TABLE t (n)")
for name in (path, path + "-shm"):
    os.close(os.open(name, os.O_RDONLY))
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_holder_whose_first_thread_ended_and_whose_locks_are_lost_makes_its_home_blind(
    home: Path,
) -> None:
    """/proc shows none of its files, and the kernel no lock of it, but its other thread goes on."""
    command = [sys.executable, "-c", FIRST_THREAD_ENDS, str(home / "state.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:

        def first_thread_is_gone() -> bool:
            stat = read_stat("/proc", process.pid)
            return stat is not None and stat.state == "Z"

        wait_until(first_thread_is_gone, "its first thread ended")
        assert Blindness.UNREADABLE in evidence(home).blind
        assert Blindness.UNREADABLE not in evidence(home.parent / "other").blind
    assert Blindness.UNREADABLE not in evidence(home).blind


def test_an_unreadable_lock_table_blinds_a_home_whose_lock_is_held(home: Path, proc: Path) -> None:
    (proc / "locks").unlink()
    (proc / "locks").mkdir()
    with holding(home):
        target = structs.replace(files(home), lock_probe=LockAnswer.HELD)
        found = survey([target], proc=str(proc))
    assert Blindness.UNREADABLE in found.homes[str(home)].blind


def test_a_lock_whose_holder_is_not_found_makes_the_home_blind(home: Path, proc: Path) -> None:
    """The lock table names the holder, but /proc has no such process."""
    with holding(home):
        target = structs.replace(files(home), lock_probe=LockAnswer.HELD)
        found = survey([target], proc=str(proc))
    assert found.homes[str(home)].blind


def test_a_holder_by_another_name_that_has_its_own_database_is_not_overlooked(home: Path) -> None:
    """It has another state.db open, and this one bound to another name."""
    own = home.parent / "own"
    own.mkdir()
    with puppet() as process:
        process.do(f"own = connect({str(own / 'state.db')!r})")
        process.do(f"connection = connect({str(home / 'other.db')!r})")
        target = structs.replace(
            files(home),
            database=identity(home / "other.db"),
            shm=identity(home / "other.db-shm"),
            lock_probe=LockAnswer.HELD,
        )
        assert survey([target]).homes[str(home)].blind


def test_a_process_that_has_ended_makes_nothing_blind(home: Path) -> None:
    with holding(home):
        pass
    target = structs.replace(files(home), lock_probe=LockAnswer.HELD)
    assert survey([target]).homes[str(home)].blind == evidence(home).blind


def test_an_unreadable_process_of_a_user_blinds_only_that_users_homes(
    home: Path, proc: Path
) -> None:
    """Otherwise any user could stop all reaping with a file that cannot be read."""
    with puppet() as process:
        process.do(f"os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})")
        theirs = structs.replace(files(home), key="theirs", owner=NOBODY)
        anothers = structs.replace(files(home), key="anothers", owner=12345)
        found = survey([theirs, anothers], proc=with_broken(proc, process.pid, "fd"))
    assert Blindness.UNREADABLE in found.homes["theirs"].blind
    assert Blindness.UNREADABLE not in found.homes["anothers"].blind


def test_mounts_are_read_only_for_homes(home: Path, proc: Path) -> None:
    """They tell which homes are below an overlay."""
    with puppet() as process:
        broken = with_broken(proc, process.pid, "mountinfo", "ns")
        assert Blindness.UNREADABLE in survey([files(home)], proc=broken).homes[str(home)].blind
        assert Blindness.UNREADABLE not in survey([], proc=broken).blind


def test_a_file_whose_path_is_too_long_to_read_blinds_nothing(home: Path) -> None:
    """Any user can open one."""
    with puppet() as process:
        process.do("import tempfile; folder = tempfile.mkdtemp(); os.chdir(folder)")
        process.do("[(os.mkdir('d' * 250), os.chdir('d' * 250)) for _ in range(20)] and None")
        process.do("deep = os.open('state.db', os.O_RDWR | os.O_CREAT)")
        found = evidence(home)
        process.do("os.chdir('/')")
        process.do("import shutil; shutil.rmtree(folder)")
    assert Blindness.UNREADABLE not in found.blind


def test_a_holder_that_cannot_be_read_counts_as_having_lost_its_lock(
    home: Path, proc: Path
) -> None:
    with holding(home) as process:
        shm = identity(home / "state.db-shm")
        assert shm is not None
        broken = with_broken(proc, process.pid, "fd")
        (proc / "locks").unlink()
        (proc / "locks").touch()
        known = [KnownHolder(process.pid, shm.inode)]
        assert not may_open(known, proc=broken)


def test_a_new_opener_that_cannot_be_read_counts(home: Path, proc: Path) -> None:
    with holding(home) as process:
        broken = with_broken(proc, process.pid, "fd")
        standing = compare_openers(KnownOpeners(), files(home), proc=broken)
    assert standing is not None
    assert standing.new_openers == (process.pid,)


def test_a_known_process_that_cannot_be_read_may_have_been_replaced(home: Path, proc: Path) -> None:
    with holding(home) as process:
        broken = with_broken(proc, process.pid, "stat")
        known = KnownOpeners(pids=(process.pid,), started={process.pid: process.stat().start_ticks})
        standing = compare_openers(known, files(home), proc=broken)
    assert standing is not None
    assert standing.new_openers == (process.pid,)


def test_a_lease_whose_process_cannot_be_read_is_not_dead(home: Path, proc: Path) -> None:
    found = evidence(home)
    with puppet() as process:
        started = start_times(with_broken(proc, process.pid, "stat"))
        assert lease_alive(process.pid, 1.0, found, started) is Liveness.UNKNOWN
        assert lease_alive(process.pid, 1.0, found) is Liveness.DEAD


def test_a_gateway_whose_process_cannot_be_read_is_not_down(home: Path, proc: Path) -> None:
    with puppet() as process:
        record = GatewayFiles(pid=process.pid, start_ticks=1, lock=None)
        target = files(home, record)
        found = survey([target], proc=with_broken(proc, process.pid, "stat")).homes[str(home)]
    assert found.gateway is not None
    assert found.gateway.state is GatewayState.UNKNOWN
