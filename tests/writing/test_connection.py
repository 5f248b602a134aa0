"""Writing to state.db: what is refused, how long the lock is held, and what failure leaves."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from exporter.errors import DatabaseError
from exporter.evidence.openers import KnownOpeners
from exporter.hermes.database import leave_wal_in_place
from exporter.hermes.schema import probe_schema
from exporter.snapshot import Trouble
from exporter.writing.connection import Writer, writing
from exporter.writing.session_end import (
    OPEN,
    End,
    active_since,
    end_of,
    end_sessions,
    has_turn_lease,
)
from exporter.writing.write_checks import WriteError, WriteTrouble
from tests.support.evidence import NOBODY, Puppet, puppet
from tests.support.home_scans import sql, trace
from tests.support.reaping import dump, inodes
from tests.support.small_homes import small_home

FIRST = "20260101_000000_aaaaaa"
ENDED = End(1_700_000_000.5, "reaped")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return small_home(tmp_path / "home")


def end_session(connection: apsw.Connection, session_id: str, end: End) -> bool:
    return end_sessions(connection, {session_id: end}) == {session_id}


@contextmanager
def opened(home: Path) -> Iterator[Puppet]:
    """A process that has the database open and has written to it."""
    with puppet() as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        yield process


@contextmanager
def writer(home: Path, *pids: int, **options: Any) -> Iterator[Writer]:
    path, owner = str(home / "state.db"), home.stat().st_uid
    with writing(path, owner=owner, openers=KnownOpeners(pids), **options) as found:
        yield found


def write(home: Path, *pids: int) -> None:
    with writer(home, *pids) as found, found.transaction():
        assert end_session(found.connection, FIRST, ENDED)


def trouble(home: Path, *pids: int) -> WriteTrouble:
    before = trace(home)
    with pytest.raises(WriteError) as error:
        write(home, *pids)
    assert trace(home) == before
    return error.value.why


# What is written


def test_a_cold_database_is_written_and_hermes_s_library_sees_it(home: Path) -> None:
    write(home)
    row = dump(home)[FIRST]
    assert (float(row["ended_at"]), row["end_reason"]) == (ENDED.ended_at, "'reaped'")


def test_the_files_of_others_stay_the_same_files(home: Path) -> None:
    with opened(home) as one, opened(home) as two:
        before = inodes(home)
        for session in dump(home):
            with writer(home, one.pid, two.pid) as found, found.transaction():
                end_session(found.connection, session, ENDED)
            assert inodes(home) == before
        count = "connection.execute('SELECT COUNT(*) FROM sessions WHERE ended_at > 0').fetchone()"
        assert one.do(count) == two.do(count) == "(3,)"


def test_files_left_by_the_dead_stay_the_same_files(home: Path) -> None:
    with opened(home) as process:
        process.do("connection.execute('CREATE TABLE mine (n)')")
        process.end()
    before = inodes(home)
    write(home)
    assert inodes(home) == before
    assert sql(home, "SELECT COUNT(*) FROM mine;") == "0"


def test_an_exception_takes_everything_back(home: Path) -> None:
    before = dump(home)

    def fail() -> None:
        with writer(home) as found, found.transaction():
            end_session(found.connection, FIRST, ENDED)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert dump(home) == before


def test_foreign_keys_hold_for_us_too(home: Path) -> None:
    with pytest.raises(WriteError), writer(home) as found, found.transaction():
        found.connection.execute("DELETE FROM sessions WHERE id = ?", (FIRST,))
    assert FIRST in dump(home)


def large_writer(home: Path, *pids: int, **options: Any) -> AbstractContextManager[Writer]:
    """A writer of mebibytes at a time, which a busy machine may take long for."""
    return writer(home, *pids, lock_limit_seconds=600.0, **options)


def fill(found: Writer, mebibytes: int) -> None:
    with found.transaction():
        found.connection.execute("CREATE TABLE IF NOT EXISTS large (content)")
        found.connection.execute("DELETE FROM large")
        found.connection.execute("INSERT INTO large VALUES (zeroblob(?))", (mebibytes << 20,))


def wal_of(home: Path) -> int:
    return (home / "state.db-wal").stat().st_size


def test_a_small_write_leaves_the_checkpoint_to_hermes(home: Path) -> None:
    with opened(home) as process:
        before, size = (home / "state.db").read_bytes(), wal_of(home)
        with large_writer(home, process.pid) as found:
            fill(found, 8)
        assert wal_of(home) > size + (8 << 20)
        assert (home / "state.db").read_bytes() == before


def test_beside_an_idle_process_the_wal_begins_anew_and_stays_small(home: Path) -> None:
    with opened(home) as process, large_writer(home, process.pid) as found:
        for _ in range(20):
            fill(found, 9)
            assert wal_of(home) < 40 << 20


def test_beside_a_reader_that_never_ends_we_stop_before_the_wal_is_64_mib_larger(
    home: Path,
) -> None:
    def fill_again_and_again(pid: int) -> None:
        with large_writer(home, pid, lock_wait_seconds=0.2) as found:
            for _ in range(20):
                fill(found, 9)

    with opened(home) as process:
        process.do("connection.execute('BEGIN')")
        process.do("connection.execute('SELECT COUNT(*) FROM sessions').fetchone()")
        with pytest.raises(WriteError, match="a process reads it for so long"):
            fill_again_and_again(process.pid)
        assert 40 << 20 < wal_of(home) < 64 << 20


def test_a_process_that_lost_its_locks_forbids_the_checkpoint(home: Path) -> None:
    with opened(home) as process, large_writer(home, process.pid) as found:
        fill(found, 12)
        before = (home / "state.db").read_bytes()
        process.do(f"touch({str(home / 'state.db')!r})")
        with pytest.raises(WriteError) as told:
            fill(found, 12)
        assert told.value.why is WriteTrouble.LOCK_LOST
        assert (home / "state.db").read_bytes() == before


def test_where_no_process_is_the_wal_is_truncated_and_never_removed(home: Path) -> None:
    with large_writer(home) as found:
        fill(found, 9)
        inode = (home / "state.db-wal").stat().st_ino
        assert found.truncate_wal()
        assert wal_of(home) == 0
    assert (home / "state.db-wal").stat().st_ino == inode
    assert sql(home, "SELECT LENGTH(content) FROM large;").split() == [str(9 << 20)]


def test_a_process_that_came_keeps_the_wal(home: Path) -> None:
    with large_writer(home) as found:
        fill(found, 1)
        with opened(home):
            assert not found.truncate_wal()
            assert wal_of(home) > 1 << 20


def test_a_process_that_comes_during_the_checkpoint_keeps_the_wal(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was not there at the look before."""
    with puppet() as process, writer(home) as found:
        with found.transaction():
            end_session(found.connection, FIRST, ENDED)
        checkpoint = found.checkpoint

        def checkpoint_beside() -> bool:
            process.do(f"connection = sqlite3.connect({str(home / 'state.db')!r})")
            process.do("connection.execute('SELECT id FROM sessions').fetchall()")
            return checkpoint()

        monkeypatch.setattr(found, "checkpoint", checkpoint_beside)
        before = wal_of(home)
        assert not found.truncate_wal()
        assert wal_of(home) == before > 0


# The lock


def test_a_writer_that_holds_the_lock_is_waited_for(home: Path) -> None:
    with opened(home) as process:
        process.do("connection.execute('BEGIN IMMEDIATE')")
        waited: list[float] = []

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            process.do("connection.commit()")

        path = str(home / "state.db")
        with (
            writing(
                path, owner=os.getuid(), openers=KnownOpeners((process.pid,)), sleep=sleep
            ) as w,
            w.transaction(),
        ):
            assert end_session(w.connection, FIRST, ENDED)
        assert len(waited) == 1
        assert 0 < waited[0] <= 0.05


def test_patience_ends(home: Path) -> None:
    with opened(home) as process:
        process.do("connection.execute('BEGIN IMMEDIATE')")
        with (
            pytest.raises(WriteError) as error,
            writer(home, process.pid, lock_wait_seconds=0.1) as found,
            found.transaction(),
        ):
            pass
        assert (error.value.why, error.value.trouble) == (WriteTrouble.BUSY, Trouble.BUSY)
        process.do("connection.commit()")


def test_a_transaction_that_lasts_too_long_is_taken_back(home: Path) -> None:
    before = dump(home)

    def dawdle() -> None:
        with writer(home, lock_limit_seconds=0.02) as found, found.transaction():
            end_session(found.connection, FIRST, ENDED)
            time.sleep(0.05)

    with pytest.raises(WriteError) as error:
        dawdle()
    assert error.value.why is WriteTrouble.TOO_LONG
    assert dump(home) == before


def test_a_query_that_lasts_too_long_is_cut_short(home: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT MAX(i) FROM n"
    with (
        pytest.raises(WriteError) as error,
        writer(home, lock_limit_seconds=0.02) as found,
        found.transaction(),
    ):
        found.connection.execute(endless).fetchall()
    assert error.value.why is WriteTrouble.TOO_LONG


def test_time_to_commit_comes_before_the_budget_is_spent(home: Path) -> None:
    now = [1000.0]
    with writer(home, lock_budget_seconds=0.2, monotonic=lambda: now[0]) as found:
        with found.transaction() as transaction:
            now[0] += 0.09
            assert not transaction.is_due
            now[0] += 0.02
            assert transaction.is_due
        assert found.held_seconds == pytest.approx(0.11)


def test_the_disk_is_waited_for_when_others_may_write_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log holds by then is whole; so a power cut after it takes nothing back."""
    synced: list[str] = []
    with opened(home) as process:

        def fsync(descriptor: int) -> None:
            assert found.held_seconds > 0
            process.do("connection.execute('CREATE TABLE meanwhile (n)')")
            process.do("connection.commit()")
            assert sql(home, f"SELECT end_reason FROM sessions WHERE id = '{FIRST}';") == "reaped"
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

        with monkeypatch.context() as patched, writer(home, process.pid) as found:
            patched.setattr(os, "fsync", fsync)
            with found.transaction():
                end_session(found.connection, FIRST, ENDED)
            assert synced == []
            found.make_durable()
            found.make_durable()
            assert synced == [str(home / "state.db-wal")]
            assert found.connection.pragma("synchronous") == 1


def test_what_was_committed_is_durable_when_the_connection_is_closed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once for all transactions, also if an error follows; not where nothing was written."""
    synced: list[int] = []

    def commit_and_fail(found: Writer) -> None:
        for _ in range(3):
            with found.transaction():
                end_session(found.connection, FIRST, ENDED)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", synced.append)
    with pytest.raises(KeyboardInterrupt), writer(home) as found:
        commit_and_fail(found)
    assert len(synced) == 1
    with writer(home):
        pass
    assert len(synced) == 1


def test_a_commit_that_may_be_lost_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    with pytest.raises(WriteError) as error, writer(home) as found, found.transaction():
        monkeypatch.setattr(os, "fsync", fsync)
    assert error.value.why is WriteTrouble.BROKEN
    assert "the disk is broken" in str(error.value)


def test_closing_writes_nothing_into_the_database_file(home: Path) -> None:
    """A checkpoint at our close would be Hermes's own affair, and may come at a bad moment."""
    before = (home / "state.db").read_bytes()
    write(home)
    assert (home / "state.db").read_bytes() == before
    assert (home / "state.db-wal").stat().st_size > 0


# What is refused


@pytest.mark.parametrize("file", ["state.db", "state.db-shm"])
def test_a_holder_that_lost_a_lock_forbids_writing(home: Path, file: str) -> None:
    with opened(home) as healthy, opened(home) as process:
        process.do(f"touch({str(home / file)!r})")
        assert trouble(home, healthy.pid, process.pid) is WriteTrouble.LOCK_LOST
        process.do("connection.execute('INSERT INTO t VALUES (2)')")
        process.do("connection.commit()")
        assert process.do("connection.execute('SELECT COUNT(*) FROM t').fetchone()") == "(3,)"


@pytest.mark.parametrize("under_lock", [False, True])
def test_a_holder_that_loses_its_lock_while_we_write_stops_the_next_transaction(
    home: Path, under_lock: bool
) -> None:
    """Every transaction checks it, whatever it is for."""
    count = "connection.execute('SELECT COUNT(*) FROM sessions WHERE ended_at > 0').fetchone()"
    with opened(home) as process:

        def write_beside() -> None:
            with writer(home, process.pid) as found:
                with found.transaction(check_under_lock=under_lock):
                    pass
                process.do(f"touch({str(home / 'state.db')!r})")
                with found.transaction(check_under_lock=under_lock):
                    end_session(found.connection, FIRST, ENDED)

        with pytest.raises(WriteError, match=f"process {process.pid} has"):
            write_beside()
        assert process.do(count) == "(0,)"


@pytest.mark.parametrize("waited_seconds", [0.0, 1.0])
def test_after_a_long_wait_for_the_write_lock_the_processes_are_checked_again(
    home: Path, waited_seconds: float
) -> None:
    """The check before the lock is old by then; one that is a moment old counts."""
    clock, blocker = [0.0], apsw.Connection(str(home / "state.db"))
    leave_wal_in_place(blocker)
    with puppet() as process:

        def wait(seconds: float) -> None:
            blocker.execute("ROLLBACK")
            process.do(f"connection = connect({str(home / 'state.db')!r})")
            clock[0] += waited_seconds

        with writer(home, monotonic=lambda: clock[0], sleep=wait) as found:
            blocker.execute("BEGIN IMMEDIATE")
            with found.transaction() as transaction:
                assert transaction.new_openers == ((process.pid,) if waited_seconds else ())
    blocker.close()


def test_a_process_that_comes_before_the_change_is_seen_under_the_lock(home: Path) -> None:
    """What it does may be written in no row."""
    with puppet() as process:

        def wait(seconds: float) -> None:
            blocker.execute("ROLLBACK")
            process.do(f"connection = connect({str(home / 'state.db')!r})")

        blocker = apsw.Connection(str(home / "state.db"))
        leave_wal_in_place(blocker)
        with writer(home, monotonic=lambda: 0.0, sleep=wait) as found:
            blocker.execute("BEGIN IMMEDIATE")
            with found.transaction(check_under_lock=True) as transaction:
                assert transaction.new_openers == (process.pid,)
        blocker.close()


def test_a_holder_of_deleted_files_forbids_writing(home: Path) -> None:
    with opened(home) as process:
        (home / "state.db-wal").unlink()
        (home / "state.db-shm").unlink()
        assert trouble(home, process.pid) is WriteTrouble.LOCK_LOST


@contextmanager
def in_a_container(home: Path) -> Iterator[Puppet]:
    """A process in a mount namespace that has of this home only the file state.db."""
    inside = home.parent / "inside"
    inside.mkdir()
    (inside / "state.db").touch()
    mount = f'mount --bind "{home}/state.db" "{inside}/state.db" && exec "$@"'
    with puppet(wrapper=("unshare", "-m", "sh", "-c", mount, "-")) as process:
        process.do(f"connection = connect({str(inside / 'state.db')!r})")
        assert (inside / "state.db-wal").stat().st_size
        yield process


COUNT = "connection.execute('SELECT COUNT(*) FROM t').fetchone()"


@pytest.mark.parametrize("beside", [False, True])
def test_a_holder_with_a_wal_elsewhere_forbids_writing(home: Path, beside: bool) -> None:
    """Two WALs of one database destroy it."""
    write(home)
    with in_a_container(home) as process, ExitStack() as stack:
        pids = [stack.enter_context(opened(home)).pid] if beside else []
        assert trouble(home, process.pid, *pids) is WriteTrouble.OTHER_WAL
        assert trouble(home, *pids) is WriteTrouble.OTHER_WAL


def test_a_holder_with_a_wal_elsewhere_that_comes_while_we_write_is_noticed(home: Path) -> None:
    before = dump(home)

    def write_beside() -> None:
        with writer(home) as found, in_a_container(home) as process:
            assert process.do(COUNT) == "(1,)"
            with found.transaction():
                end_session(found.connection, FIRST, ENDED)

    with pytest.raises(WriteError, match=r"no lock on .*-shm: it has a WAL elsewhere if"):
        write_beside()
    assert dump(home) == before


@pytest.mark.parametrize("name", ["state.db", "state.db-wal"])
def test_a_database_with_another_name_is_left_alone(home: Path, name: str) -> None:
    """As one that a backup of hard links has; what is left in its WAL there is not seen here."""
    with writer(home):
        pass
    other = home.parent / "other"
    other.mkdir()
    os.link(home / name, other / name)
    assert trouble(home) is WriteTrouble.OTHER_WAL
    with pytest.raises(WriteError, match=rf"{name} has 2 names \(hard links\); .* the other names"):
        write(home)
    (other / name).unlink()
    write(home)


def test_a_survey_that_found_a_lock_lost_is_believed(home: Path) -> None:
    path = str(home / "state.db")
    with (
        pytest.raises(WriteError, match="a process has"),
        writing(path, owner=os.getuid(), openers=KnownOpeners(lockless=True)),
    ):
        pass


def test_where_locks_are_not_shown_nothing_is_written(home: Path, tmp_path: Path) -> None:
    path = str(home / "state.db")
    with (
        pytest.raises(WriteError) as error,
        writing(path, owner=os.getuid(), openers=KnownOpeners(), proc=str(tmp_path)),
    ):
        pass
    assert error.value.why is WriteTrouble.LOCKS_UNSEEN


def test_a_database_that_is_not_in_wal_mode_is_left_alone(home: Path) -> None:
    sql(home, "PRAGMA journal_mode=DELETE;")
    assert trouble(home) is WriteTrouble.NO_WAL


def no_database(home: Path) -> None:
    (home / "state.db").unlink()


def no_sqlite(home: Path) -> None:
    (home / "state.db").write_bytes(b"nonsense")


@pytest.mark.parametrize("break_it", [no_database, no_sqlite])
def test_what_is_no_database_is_left_alone(home: Path, break_it: Callable[[Path], None]) -> None:
    break_it(home)
    assert trouble(home) in (WriteTrouble.BROKEN, WriteTrouble.NO_WAL)


def linked(home: Path) -> None:
    (home / "state.db").rename(home / "elsewhere.db")
    (home / "state.db").symlink_to(home / "elsewhere.db")


def foreign(home: Path) -> None:
    os.chown(home / "state.db", NOBODY, NOBODY)


def foreign_wal(home: Path) -> None:
    (home / "state.db-wal").touch()
    os.chown(home / "state.db-wal", NOBODY, NOBODY)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (linked, Trouble.NOT_A_FILE),
        (foreign, Trouble.FOREIGN_OWNER),
        (foreign_wal, Trouble.FOREIGN_OWNER),
    ],
)
def test_files_that_are_not_the_owners_are_left_alone(
    home: Path, make: Callable[[Path], None], why: Trouble
) -> None:
    make(home)
    before = trace(home)
    with pytest.raises(DatabaseError) as error:
        write(home)
    assert error.value.trouble is why
    assert trace(home) == before


_WRITE_AS_USER = """
import os, sys
from exporter.evidence.openers import KnownOpeners
from exporter.writing.connection import writing
from exporter.writing.write_checks import WriteError
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
try:
    with writing(sys.argv[1], owner=int(sys.argv[2]), openers=KnownOpeners()) as writer:
        with writer.transaction():
            writer.connection.execute("UPDATE sessions SET end_reason = 'x'")
except WriteError as error:
    print(error.why)
"""


def write_as_nobody(home: Path) -> str:
    for path in (home, *home.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    command = [sys.executable, "-c", _WRITE_AS_USER, str(home / "state.db"), str(NOBODY)]
    return subprocess.check_output(command, text=True).strip()


@pytest.fixture
def reachable(home: Path) -> Iterator[Path]:
    """A home that another user can reach: pytest's own folders are root's alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield shutil.copytree(home, Path(folder) / "home")


def test_a_file_without_permission_is_left_alone(reachable: Path) -> None:
    (reachable / "state.db").chmod(0o400)
    assert write_as_nobody(reachable) == "read_only"


def test_all_that_a_user_writes_is_the_users(reachable: Path) -> None:
    assert write_as_nobody(reachable) == ""
    assert {path.stat().st_uid for path in reachable.glob("state.db*")} == {NOBODY}
    assert len(inodes(reachable)) == 3


# The rows


def test_a_session_ends_once(home: Path) -> None:
    with writer(home) as found, found.transaction():
        assert end_of(found.connection, FIRST) == OPEN
        assert end_session(found.connection, FIRST, ENDED)
        assert not end_session(found.connection, FIRST, End(1.0, "other"))
        assert not end_session(found.connection, "no such session", ENDED)
        assert end_of(found.connection, FIRST) == ENDED
        assert end_of(found.connection, "no such session") is None


@pytest.mark.parametrize("trigger", [False, True])
def test_of_several_sessions_those_that_are_open_end(home: Path, trigger: bool) -> None:
    """Also if a trigger changes rows, which count as changed too."""
    if trigger:
        sql(
            home,
            "CREATE TABLE notes (id); CREATE TRIGGER note AFTER UPDATE ON sessions "
            "BEGIN INSERT INTO notes VALUES (new.id); END;",
        )
    second, third = f"{FIRST[:-8]}1{FIRST[-7:]}", f"{FIRST[:-8]}2{FIRST[-7:]}"
    with writer(home) as found, found.transaction():
        assert end_session(found.connection, second, End(1.0, "other"))
        wanted = dict.fromkeys((FIRST, second, third, "no such session"), ENDED)
        assert end_sessions(found.connection, wanted) == {FIRST, third}
        assert end_of(found.connection, second) == End(1.0, "other")


def test_a_time_that_is_no_number_counts_as_activity(home: Path) -> None:
    sql(home, f"UPDATE messages SET timestamp = 'soon' WHERE session_id = '{FIRST}';")
    with writer(home) as found:
        schema = probe_schema(found.connection)
        assert active_since(found.connection, schema, FIRST, 9e9, 2)


def test_a_turn_under_way_is_seen_where_hermes_notes_it() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE TABLE sessions (id, source, started_at, ended_at);"
        "CREATE TABLE session_turn_leases (conversation_id, holder, acquired_at, expires_at);"
        "INSERT INTO session_turn_leases VALUES ('a', 'pid=1', 1, 100), ('b', '', 1, 100)"
    )
    schema = probe_schema(connection)
    assert has_turn_lease(connection, schema, "a", 50.0)
    assert not has_turn_lease(connection, schema, "a", 100.0)
    assert not has_turn_lease(connection, schema, "b", 50.0)
    connection.close()
