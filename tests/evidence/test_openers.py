"""The other processes that have a database open at the moment it is written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from exporter.evidence.openers import KnownOpeners, OpenerCheck, compare_openers
from exporter.evidence.survey import survey
from exporter.snapshot import FileIdentity
from tests.real.hermes import REPOSITORY
from tests.support.evidence import NOBODY, Puppet, evidence, files, holding, puppet

FINE = OpenerCheck(lost=(), new_openers=())


def look(home: Path, *known: int) -> OpenerCheck | None:
    return compare_openers(KnownOpeners(known), files(home), pause=lambda: None)


def test_known_openers_with_their_locks_pass(tmp_path: Path) -> None:
    with holding(tmp_path) as one, holding(tmp_path) as two:
        assert look(tmp_path, one.pid, two.pid) == FINE


def test_an_unknown_process_is_a_new_opener(tmp_path: Path) -> None:
    with holding(tmp_path) as known, holding(tmp_path) as new:
        assert look(tmp_path, known.pid) == OpenerCheck((), (new.pid,))
        new.do("connection.close()")
        assert look(tmp_path, known.pid) == FINE


def test_a_process_with_a_reused_pid_is_a_new_opener(tmp_path: Path) -> None:
    """A test cannot make the kernel reuse a PID. Instead it notes an earlier start for this PID."""
    with holding(tmp_path) as process:
        known = KnownOpeners.of(evidence(tmp_path))
        assert compare_openers(known, files(tmp_path)) == FINE
        earlier = {pid: ticks - 1 for pid, ticks in known.started.items()}
        ended = structs.replace(known, started=earlier)
        assert compare_openers(ended, files(tmp_path)) == OpenerCheck((), (process.pid,))
        process.do("connection.close()")
        assert compare_openers(ended, files(tmp_path)) == FINE


def test_a_worker_of_the_agent_is_no_new_opener_and_neither_is_what_it_forks(
    tmp_path: Path,
) -> None:
    """Here the test's own process is the worker, and what holds the database its child."""
    with holding(tmp_path) as known, puppet() as reader:
        for ours in (reader.pid, os.getpid()):
            surveyed = survey([files(tmp_path)], ours={ours}.copy)
            openers = KnownOpeners.of(surveyed.homes[str(tmp_path)])
            assert openers.pids == (known.pid,)
            reader.do(f"connection = connect({str(tmp_path / 'state.db')!r})")
            found = compare_openers(openers, files(tmp_path))
            assert found == OpenerCheck((), (), (reader.pid,))
            assert found.opened_since
            reused = structs.replace(openers, ours={ours: openers.ours[ours] - 1})
            assert compare_openers(reused, files(tmp_path)) == OpenerCheck((), (reader.pid,))
            reader.do("connection.close()")


def test_known_openers_that_closed_or_ended_pass(tmp_path: Path) -> None:
    with holding(tmp_path) as stays, holding(tmp_path) as closes, holding(tmp_path) as ends:
        closes.do("connection.close()")
        ends.end()
        assert look(tmp_path, stays.pid, closes.pid, ends.pid) == FINE


def test_the_loss_of_either_lock_is_found(tmp_path: Path) -> None:
    for name in ("state.db", "state.db-shm"):
        with holding(tmp_path) as healthy, holding(tmp_path) as process:
            process.do(f"touch({str(tmp_path / name)!r})")
            assert look(tmp_path, healthy.pid, process.pid) == OpenerCheck((process.pid,), ())


def test_a_lock_that_appears_between_checks_is_not_lost(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        shm = str(tmp_path / "state.db-shm")
        process.do(f"touch({shm!r})")
        process.do(f"descriptor = os.open({shm!r}, os.O_RDWR)")

        def wait() -> None:
            process.do("fcntl.lockf(descriptor, fcntl.LOCK_SH, 1, 128)")

        known = KnownOpeners((process.pid,))
        assert compare_openers(known, files(tmp_path), pause=wait) == FINE


def test_a_process_that_writes_into_deleted_files_counts_as_lost(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        (tmp_path / "state.db-wal").unlink()
        (tmp_path / "state.db-shm").unlink()
        assert look(tmp_path, process.pid) == OpenerCheck((process.pid,), ())


def test_a_backup_that_reads_the_wal_index_has_lost_nothing(tmp_path: Path) -> None:
    """Only SQLite maps it, and only a mapped file can break its process."""
    with holding(tmp_path) as process, puppet() as backup:
        backup.do(f"shm = os.open({str(tmp_path / 'state.db-shm')!r}, os.O_RDONLY)")
        known = KnownOpeners.of(evidence(tmp_path))
        assert set(known.pids) == {process.pid, backup.pid}
        assert look(tmp_path, *known.pids) == FINE


def elsewhere(file: FileIdentity | None) -> FileIdentity | None:
    return structs.replace(file, device=file.device + 1) if file else None


def test_the_same_inode_on_another_filesystem_is_another_file(tmp_path: Path) -> None:
    """The kernel's table names a file by inode.

    Only the process's own descriptors name the device.
    """
    with holding(tmp_path) as other:
        same = files(tmp_path)
        namesake = structs.replace(
            same,
            database=elsewhere(same.database),
            wal=elsewhere(same.wal),
            shm=elsewhere(same.shm),
            directory="/elsewhere",
        )
        assert compare_openers(KnownOpeners(), namesake) == FINE
        assert compare_openers(KnownOpeners(), same) == OpenerCheck((), (other.pid,))


@contextmanager
def by_another_name(home: Path) -> Iterator[Puppet]:
    """Run a process that has the home's database open by a hard link, and so with another WAL."""
    with holding(home) as process:
        process.do("connection.close()")
    other = home.parent / "other"
    other.mkdir()
    os.link(home / "state.db", other / "state.db")
    with holding(other) as process:
        assert (other / "state.db-wal").stat().st_size
        yield process


def no_pause() -> None:
    raise AssertionError("nothing is suspicious here")


def test_a_process_with_another_wal_is_found(tmp_path: Path) -> None:
    """Also beside one with the WAL that is ours, which is not taken for such a process."""
    home = tmp_path / "home"
    with by_another_name(home) as process:
        found = OpenerCheck((), (), (), (process.pid,))
        assert look(home, process.pid) == found
        with holding(home) as usual:
            assert look(home, usual.pid, process.pid) == found
            assert look(home, usual.pid) == structs.replace(found, new_openers=(process.pid,))
        process.do("connection.close()")
        assert look(home, process.pid) == FINE


def test_a_process_with_another_wal_that_cannot_be_read_is_found(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with by_another_name(home) as process, holding(home) as usual:
        found = look_as_nobody(home, usual.pid)
        assert found == OpenerCheck((), (process.pid,), (), (process.pid,))


def test_beside_healthy_processes_no_time_is_spent(tmp_path: Path) -> None:
    with holding(tmp_path) as one, holding(tmp_path) as new:
        found = compare_openers(KnownOpeners((one.pid,)), files(tmp_path), pause=no_pause)
        assert found == OpenerCheck((), (new.pid,))


def with_a_lock_alone(home: Path, process: Puppet, mode: str) -> KnownOpeners:
    """The process takes its lock on the database, as SQLite does before it opens -shm."""
    process.do(f"database = os.open({str(home / 'state.db')!r}, {mode})")
    process.do("fcntl.lockf(database, fcntl.LOCK_SH, 510, 0x40000002)")
    return KnownOpeners((process.pid,))


def closed_database(home: Path) -> None:
    with holding(home) as process:
        process.do("connection.close()")
    assert not (home / "state.db-shm").exists()


@pytest.mark.parametrize("has_shm", [False, True])
def test_a_process_that_just_opens_the_database_has_no_other_wal(
    tmp_path: Path, has_shm: bool
) -> None:
    """It may make -shm after we have looked for it."""
    home, shm = tmp_path / "home", str(tmp_path / "home/state.db-shm")
    closed_database(home)
    if has_shm:
        (home / "state.db-shm").touch()
    with puppet() as process:
        known = with_a_lock_alone(home, process, "os.O_RDWR")

        def wait() -> None:
            process.do(f"shm = os.open({shm!r}, os.O_RDWR | os.O_CREAT)")
            process.do("fcntl.lockf(shm, fcntl.LOCK_SH, 1, 128)")

        assert compare_openers(known, files(home), pause=wait) == FINE


def test_a_process_that_just_closes_the_database_has_no_other_wal(tmp_path: Path) -> None:
    home = tmp_path / "home"
    closed_database(home)
    with puppet() as process:
        known = with_a_lock_alone(home, process, "os.O_RDWR")

        def wait() -> None:
            process.do("os.close(database)")

        assert compare_openers(known, files(home), pause=wait) == FINE


def test_a_process_that_only_reads_the_database_has_no_other_wal(tmp_path: Path) -> None:
    """A worker of the agent reads a database without -shm so."""
    home = tmp_path / "home"
    closed_database(home)
    with puppet() as process:
        known = with_a_lock_alone(home, process, "os.O_RDONLY")
        assert compare_openers(known, files(home), pause=no_pause) == FINE
        process.do(f"writes = os.open({str(home / 'state.db')!r}, os.O_RDWR)")
        assert compare_openers(known, files(home)) == OpenerCheck((), (), (), (process.pid,))


@pytest.mark.parametrize("wal_mode", [False, None])
def test_with_a_rollback_journal_no_process_has_another_wal(
    tmp_path: Path, wal_mode: bool | None
) -> None:
    """There every reader has just the lock on the database."""
    with puppet() as process:
        process.do(f"connection = connect({str(tmp_path / 'state.db')!r}, 'delete')")
        process.do("connection.execute('BEGIN')")
        process.do("connection.execute('SELECT n FROM t').fetchone()")
        home = structs.replace(files(tmp_path), wal_mode=wal_mode)
        found = compare_openers(KnownOpeners(), home, pause=no_pause)
        assert found == OpenerCheck((), (process.pid,))


def test_a_database_of_another_filesystem_with_the_same_inode_has_no_wal_of_ours(
    tmp_path: Path,
) -> None:
    """Homes on filesystems of their own often have the same inodes; this must take no time."""
    with holding(tmp_path):
        same = files(tmp_path)
        namesake = structs.replace(
            same, database=elsewhere(same.database), wal=None, shm=None, directory="/elsewhere"
        )
        assert compare_openers(KnownOpeners(), namesake, pause=no_pause) == FINE


def test_forked_copies_need_no_locks(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        process.do("child = fork()")
        found = evidence(tmp_path)
        assert len(found.holders) == 2
        known = KnownOpeners.of(found)
        assert (known.pids, known.lockless) == ((process.pid,), False)
        assert look(tmp_path, *known.pids) == FINE


def test_known_openers_remember_a_lock_lost_at_the_survey(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        process.do(f"touch({str(tmp_path / 'state.db')!r})")
        known = KnownOpeners.of(evidence(tmp_path))
        assert (known.pids, known.lockless) == ((process.pid,), True)


def test_there_is_no_answer_where_locks_are_not_shown(tmp_path: Path) -> None:
    with holding(tmp_path / "home"):
        assert compare_openers(KnownOpeners(), files(tmp_path / "home"), proc=str(tmp_path)) is None


_LOOK_AS_USER = """
import os, sys, msgspec
from exporter.evidence.openers import KnownOpeners, compare_openers
from exporter.evidence.models import HomeFiles
os.setuid(int(sys.argv[1]))
known, files = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[KnownOpeners, HomeFiles])
sys.stdout.buffer.write(msgspec.json.encode(compare_openers(known, files)))
"""


def look_as_nobody(home: Path, *known: int) -> OpenerCheck:
    answer = subprocess.run(
        [sys.executable, "-c", _LOOK_AS_USER, str(NOBODY)],
        input=msgspec.json.encode((KnownOpeners(known), files(home))),
        stdout=subprocess.PIPE,
        check=True,
        cwd=REPOSITORY,
    )
    return msgspec.json.decode(answer.stdout, type=OpenerCheck)


def test_a_process_that_cannot_be_read_is_known_by_its_locks(tmp_path: Path) -> None:
    with holding(tmp_path) as known, holding(tmp_path) as new:
        assert look_as_nobody(tmp_path, known.pid) == OpenerCheck((), (new.pid,))
        known.do(f"touch({str(tmp_path / 'state.db')!r})")
        assert look_as_nobody(tmp_path, known.pid, new.pid) == OpenerCheck((known.pid,), ())


_WRITE_HERE = """
import sys
from exporter.evidence.openers import KnownOpeners
from exporter.writing.connection import writing
from exporter.writing.idle_wal import is_open_elsewhere

path, owner, known = sys.argv[1], int(sys.argv[2]), KnownOpeners((int(sys.argv[3]),))
with writing(path, owner=owner, openers=known) as writer, writer.transaction():
    print(writer.new_openers(), is_open_elsewhere(path))
"""


def test_in_a_container_with_the_hosts_proc_a_writer_is_no_new_opener_of_its_own(
    tmp_path: Path,
) -> None:
    """Otherwise no session could ever be ended there."""
    database = tmp_path / "state.db"
    with holding(tmp_path) as known:
        command = ["unshare", "-p", "-f", "--kill-child", sys.executable, "-c", _WRITE_HERE]
        arguments = [str(database), str(database.stat().st_uid), str(known.pid)]
        found = subprocess.check_output([*command, *arguments], cwd=REPOSITORY, text=True)
        assert found == "() True\n"
    found = subprocess.check_output([*command, *arguments], cwd=REPOSITORY, text=True)
    assert found == "() False\n"
