"""/proc/locks, as the kernel writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.evidence.lock_table import LockEntry, LockTable, parse_lock
from tests.real.waiting import wait_until
from tests.support.evidence import holding, puppet

SHARED = 0x40000002


def inode(path: Path) -> int:
    return path.stat().st_ino


@pytest.mark.parametrize(
    ("line", "entry"),
    [
        (
            b"1: POSIX  ADVISORY  READ 1234 fe:00:2377057 128 128",
            LockEntry("POSIX", 1234, 2377057, 128, 128),
        ),
        (
            b"2: FLOCK  ADVISORY  WRITE 77 08:01:9 0 EOF",
            LockEntry("FLOCK", 77, 9, 0, 2**63 - 1),
        ),
        (b"3: OFDLCK ADVISORY  READ -1 08:01:9 5 6", LockEntry("OFDLCK", -1, 9, 5, 6)),
        (b"1: -> POSIX  ADVISORY  WRITE 1234 fe:00:9 128 128", None),
        (b"4: LEASE  ACTIVE    READ 1 08:01:9 0 EOF", None),
        (b"1: POSIX  ADVISORY  READ x fe:00:9 128 128", None),
        (b"", None),
    ],
)
def test_a_line_is_a_held_lock_or_nothing(line: bytes, entry: LockEntry | None) -> None:
    assert parse_lock(line) == entry


def test_the_table_names_the_owners_of_sqlites_locks(tmp_path: Path) -> None:
    database, shm = tmp_path / "state.db", tmp_path / "state.db-shm"
    with holding(tmp_path) as one, holding(tmp_path) as two:
        table = LockTable({inode(database), inode(shm)})
        assert table.database_owners(inode(database)) == {one.pid, two.pid}
        assert table.shm_owners(inode(shm)) == {one.pid, two.pid}
        assert table.shm_owners(inode(database)) == frozenset()
        assert table.flock_owners(inode(shm)) == frozenset()


def test_files_that_were_not_asked_for_are_left_out(tmp_path: Path) -> None:
    with holding(tmp_path):
        table = LockTable({inode(tmp_path / "state.db")})
        assert table.shm_owners(inode(tmp_path / "state.db-shm")) == frozenset()
        assert not table.failed


def test_a_process_that_waits_for_a_lock_does_not_hold_it(tmp_path: Path) -> None:
    path = tmp_path / "gateway.lock"
    take = f"lock = open({str(path)!r}, 'w'); fcntl.flock(lock, fcntl.LOCK_EX)"
    with puppet() as owner, puppet() as waiter:
        owner.do(take)
        assert waiter.process.stdin is not None
        waiter.process.stdin.write(take + "\n")
        waiter.process.stdin.flush()
        arrow = f"-> FLOCK  ADVISORY  WRITE {waiter.pid} ".encode()
        wait_until(lambda: arrow in Path("/proc/locks").read_bytes(), "a waiting process")
        table = LockTable({inode(path)})
        assert table.flock_owners(inode(path)) == {owner.pid}


def test_without_proc_locks_there_is_no_lock_table(tmp_path: Path) -> None:
    table = LockTable({1}, proc=str(tmp_path))
    assert table.flock_owners(1) == frozenset()
    assert table.failed
