"""A survey of this host, with real processes that hold real databases."""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from exporter.evidence.models import Blindness, HomeFiles, PossibleHome
from exporter.evidence.namespaces import blindness
from exporter.evidence.process import Descriptor, PinnedProcess
from exporter.evidence.survey import survey
from exporter.hermes.process_kinds import ProcessKind
from exporter.snapshot import FileIdentity, LockAnswer
from tests.real.waiting import wait_until
from tests.support.evidence import (
    IN_NEW_PID_NAMESPACE,
    NOBODY,
    evidence,
    files,
    hermes,
    holding,
    identity,
    lost_locks,
    puppet,
    survey_elsewhere,
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def test_a_wal_holder_is_seen_with_both_of_its_locks(home: Path) -> None:
    with holding(home) as process:
        found = evidence(home)
    (holder,) = found.holders
    assert (holder.pid, holder.namespace_pid) == (process.pid, process.pid)
    assert holder.shm_inode is not None
    assert not holder.lockless_database
    assert not holder.lockless_shm
    assert not holder.forked_copy
    assert not holder.deleted_wal
    assert (lost_locks(found), found.deleted_wal_pids) == ((0, 0), [])


def test_a_holder_is_identified_by_pid_and_start(home: Path) -> None:
    with holding(home) as process:
        (holder,) = evidence(home).holders
        assert holder.start_ticks == process.stat().start_ticks


def test_a_commit_raises_only_the_written_bytes_of_its_process(home: Path) -> None:
    with holding(home) as writer, holding(home) as idler:
        # The kernel counts the answer as written a moment after we have received it.
        wait_until(lambda: idler.stat().state == "S", "it waits for its next order")
        before = {h.pid: h.written or 0 for h in evidence(home).holders}
        writer.do("connection.execute('INSERT INTO t VALUES (2)'); connection.commit()")
        after = {h.pid: h.written or 0 for h in evidence(home).holders}
    assert after[writer.pid] - before[writer.pid] > 512
    assert 0 < after[idler.pid] == before[idler.pid]


def test_a_home_that_no_process_has_open_has_only_the_blindness_of_the_host(
    home: Path,
) -> None:
    with holding(home):
        pass
    found = evidence(home)
    assert found.holders == ()
    assert found.blind == tuple(blindness())


def test_one_scan_finds_the_holders_of_each_home(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with holding(first) as one, holding(second) as two:
        one.do(f"other = connect({str(second / 'state.db')!r})")
        found = survey([files(first), files(second)])
        assert [h.pid for h in found.homes[str(first)].holders] == [one.pid]
        assert [h.pid for h in found.homes[str(second)].holders] == sorted([one.pid, two.pid])


def test_a_database_with_another_name_is_found_if_requested(home: Path) -> None:
    with puppet() as process:
        process.do(f"connection = connect({str(home / 'kanban.db')!r})")
        target = HomeFiles(
            key="board",
            database=identity(home / "kanban.db"),
            wal=identity(home / "kanban.db-wal"),
            shm=identity(home / "kanban.db-shm"),
            wal_mode=True,
            name="kanban.db",
        )
        (holder,) = survey([target]).homes["board"].holders
        assert (holder.pid, holder.shm_inode is not None, holder.lockless_shm) == (
            process.pid,
            True,
            False,
        )


def test_the_command_line_decides_the_kind_of_a_holder(home: Path) -> None:
    with hermes(home, "chat", "-r", "20260102_030405_abcdef") as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        (holder,) = evidence(home).holders
    assert holder.kind is ProcessKind.CLI
    assert [session.id for session in holder.sessions] == ["20260102_030405_abcdef"]


def test_the_environment_of_a_child_names_its_parents_session(home: Path) -> None:
    with hermes(home) as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        process.do("os.environ['HERMES_SESSION_ID'] = '20260102_030405_abcdef'")
        process.do("child = subprocess.Popen(['sleep', '600'])")
        (holder,) = evidence(home).holders
        process.do("child.kill()")
    (session,) = holder.sessions
    assert (session.id, session.how) == ("20260102_030405_abcdef", "child_environment")


def test_the_session_that_a_holder_was_started_from_is_not_its_own(home: Path) -> None:
    """A Hermes started by a Hermes inherits the other's session, and so do its forked children."""
    outer = {"HERMES_SESSION_ID": "20260102_030405_aaaaaa"}
    with puppet(script=home.parent / "bin" / "hermes", environment=outer) as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        process.do("fork()")
        process.do("child = subprocess.Popen(['sleep', '600'])")
        found = evidence(home)
        process.do("child.kill()")
    assert [holder.sessions for holder in found.holders] == [(), ()]


def test_a_holder_that_raw_opened_the_database_has_lost_its_lock_on_it(home: Path) -> None:
    with holding(home) as process:
        process.do(f"touch({str(home / 'state.db')!r})")
        found = evidence(home)
    (holder,) = found.holders
    assert (holder.lockless_database, holder.lockless_shm) == (True, False)
    assert lost_locks(found) == (1, 0)


def test_a_holder_that_raw_opened_the_wal_index_has_lost_its_lock_on_it(home: Path) -> None:
    with holding(home) as process:
        process.do(f"touch({str(home / 'state.db-shm')!r})")
        found = evidence(home)
    assert lost_locks(found) == (0, 1)


def test_the_lock_of_one_of_several_connections_counts_for_all(home: Path) -> None:
    with holding(home) as process:
        for _ in range(3):
            process.do(f"more = [connect({str(home / 'state.db')!r}), globals().get('more')]")
        found = evidence(home)
    assert lost_locks(found) == (0, 0)


def test_a_rollback_journal_needs_no_lasting_lock(home: Path) -> None:
    with puppet() as process:
        process.do(f"connection = connect({str(home / 'state.db')!r}, 'delete')")
        found = evidence(home, wal_mode=False)
    (holder,) = found.holders
    assert not holder.lockless_database
    assert lost_locks(found) == (0, 0)


def test_a_program_that_only_reads_the_file_is_a_holder_and_not_lockless(home: Path) -> None:
    with holding(home), puppet() as reader:
        reader.do(f"descriptor = os.open({str(home / 'state.db')!r}, os.O_RDONLY)")
        found = evidence(home)
        assert reader.pid in [holder.pid for holder in found.holders]
    assert lost_locks(found) == (0, 0)


def test_a_lock_that_appears_between_checks_is_not_lost(home: Path) -> None:
    """A connection that is being opened has its descriptors before its locks."""
    with holding(home) as process:
        database, shm = (str(home / name) for name in ("state.db", "state.db-shm"))
        process.do(f"touch({database!r}), touch({shm!r})")
        process.do(f"one = os.open({database!r}, os.O_RDWR); two = os.open({shm!r}, os.O_RDWR)")

        def finish_opening() -> None:
            process.do("fcntl.lockf(one, fcntl.LOCK_SH, 510, 0x40000002)")
            process.do("fcntl.lockf(two, fcntl.LOCK_SH, 1, 128)")

        found = survey([files(home)], pause=finish_opening).homes[str(home)]
        assert lost_locks(found) == (0, 0)
        assert len(found.holders) == 1


def test_a_holder_that_ends_between_checks_is_not_lockless(home: Path) -> None:
    with holding(home) as process:
        process.do(f"touch({str(home / 'state.db-shm')!r})")
        found = survey([files(home)], pause=process.end).homes[str(home)]
    assert lost_locks(found)[1] == 0


def test_a_forked_child_inherits_descriptors_and_needs_no_lock(home: Path) -> None:
    with holding(home) as process:
        child = int(process.do("fork()"))
        found = evidence(home)
    heirs = {holder.pid: holder.forked_copy for holder in found.holders}
    assert heirs == {process.pid: False, child: True}
    assert lost_locks(found) == (0, 0)


def test_a_child_that_opened_the_database_itself_is_no_forked_copy(
    home: Path,
) -> None:
    """A TUI's slash worker that lost its lock is in danger, although its parent has one."""
    code = (
        "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); "
        "c.execute('SELECT * FROM t').fetchall(); "
        "os.close(os.open(sys.argv[1] + '-shm', os.O_RDONLY)); print('x', flush=True); "
        "sys.stdin.read()"
    )
    with holding(home) as process:
        process.do(
            f"child = subprocess.Popen([sys.executable, '-c', {code!r}, "
            f"{str(home / 'state.db')!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)"
        )
        process.do("child.stdout.read(1)")
        child = int(process.do("child.pid"))
        found = evidence(home)
        process.do("child.kill()")
    assert [holder.pid for holder in found.holders if holder.lockless_shm] == [child]


def test_a_forked_child_of_a_lockless_parent_is_lockless(home: Path) -> None:
    with holding(home) as process:
        process.do("fork()")
        process.do(f"touch({str(home / 'state.db-shm')!r})")
        found = evidence(home)
    assert lost_locks(found)[1] == 2


def test_a_holder_of_a_deleted_wal_is_reported(home: Path) -> None:
    with holding(home) as process:
        (home / "state.db-wal").unlink()
        (home / "state.db-shm").unlink()
        with holding(home) as healthy:
            found = evidence(home)
            deleted = {holder.pid: holder.deleted_wal for holder in found.holders}
            assert deleted == {process.pid: True, healthy.pid: False}
    assert found.deleted_wal_pids == [process.pid]


def test_a_holder_of_a_replaced_database_is_reported(home: Path) -> None:
    with holding(home) as process:
        for name in ("state.db", "state.db-wal", "state.db-shm"):
            (home / name).unlink()
        with holding(home):
            found = evidence(home)
            lost = [holder for holder in found.holders if holder.deleted_wal]
            assert [holder.pid for holder in lost] == [process.pid]


def test_sidecars_created_after_the_home_was_examined_belong_to_it(home: Path) -> None:
    with holding(home) as first:
        first.do("connection.close()")
    before = files(home)
    assert before.shm is None
    with holding(home) as process:
        process.do(f"touch({str(home / 'state.db-shm')!r})")
        found = survey([before]).homes[str(home)]
    assert lost_locks(found)[1] == 1


def test_a_dead_process_is_no_holder(home: Path) -> None:
    with holding(home) as process:
        process.process.kill()  # no process waits for it, so it becomes a zombie
        wait_until(lambda: process.stat().state == "Z", "a zombie")
        assert evidence(home).holders == ()


def test_a_running_process_makes_its_home_a_candidate(home: Path) -> None:
    with holding(home):
        database = identity(home / "state.db")
        assert database is not None
        candidates = [c for c in survey([]).candidates if c.database == database]
    assert candidates == [PossibleHome(str(home), 0, database)]


def test_another_users_holder_is_seen() -> None:
    with tempfile.TemporaryDirectory() as folder, puppet() as process:
        home = Path(folder)
        home.chmod(0o777)
        process.do(f"os.setuid({NOBODY})")
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        (holder,) = evidence(home).holders
        assert holder.pid == process.pid
    assert (holder.shm_inode is not None, holder.lockless_shm) == (True, False)


def test_an_agent_without_privileges_reports_missing_permissions(home: Path) -> None:
    with holding(home):
        found = survey_elsewhere([files(home)], user=NOBODY)
    assert Blindness.PERMISSIONS in found.blind
    assert found.homes[str(home)].holders == ()
    assert Blindness.PERMISSIONS in found.homes[str(home)].blind


HIDING = ("unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "-")


def test_a_proc_that_hides_processes_is_reported(home: Path) -> None:
    found = survey_elsewhere([files(home)], user=NOBODY, wrapper=HIDING)
    assert Blindness.HIDEPID in found.blind


def test_root_is_not_blinded_by_hidden_processes(home: Path) -> None:
    with holding(home) as process:
        found = survey_elsewhere([files(home)], wrapper=HIDING)
    assert Blindness.HIDEPID not in found.blind
    assert [holder.pid for holder in found.homes[str(home)].holders] == [process.pid]


def test_inside_a_pid_namespace_the_absence_of_holders_proves_nothing(home: Path) -> None:
    with holding(home):
        found = survey_elsewhere([files(home)], wrapper=IN_NEW_PID_NAMESPACE)
    assert found.homes[str(home)].holders == ()
    assert Blindness.PID_NAMESPACE in found.homes[str(home)].blind


def test_from_the_host_a_container_is_seen_under_both_of_its_pids(home: Path) -> None:
    with puppet(wrapper=IN_NEW_PID_NAMESPACE) as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        found = evidence(home)
        (holder,) = found.holders
        assert holder.namespace_pid == int(process.do("os.getpid()"))
    assert holder.pid != holder.namespace_pid
    assert (holder.shm_inode is not None, lost_locks(found)) == (True, (0, 0))


def test_a_holder_that_only_the_lock_probe_sees_makes_the_home_blind(home: Path) -> None:
    target = HomeFiles(
        key="home",
        database=FileIdentity(1, 2),
        wal=None,
        shm=None,
        wal_mode=True,
        lock_probe=LockAnswer.HELD_UNSEEN,
    )
    assert Blindness.PID_NAMESPACE in survey([target]).homes["home"].blind


def test_a_lock_without_a_visible_descriptor_makes_the_home_blind(home: Path) -> None:
    """The file is bound to another name elsewhere, so its links there do not say state.db."""
    with puppet() as process:
        process.do(f"connection = connect({str(home / 'other.db')!r})")
        target = HomeFiles(
            key="home",
            database=identity(home / "other.db"),
            wal=None,
            shm=identity(home / "other.db-shm"),
            wal_mode=True,
            lock_probe=LockAnswer.HELD,
        )
        assert Blindness.PERMISSIONS in survey([target]).homes["home"].blind


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_without_a_proc_everything_is_blind_and_nothing_is_known(
    home: Path, tmp_path: Path, folder: str
) -> None:
    (tmp_path / "empty").mkdir()
    found = survey([files(home)], proc=str(tmp_path / folder))
    assert Blindness.NO_PROC in found.blind
    assert found.homes[str(home)].lockless_pids is None


@pytest.mark.parametrize("known", ["before the scan alone", "after the scan alone"])
def test_only_processes_that_this_agent_started_are_ours(home: Path, known: str) -> None:
    """A worker may begin or end while the processes are scanned."""
    script = home.parent / "bin" / "hermes-exporter"
    with puppet("serve", script=script) as other, puppet() as worker:
        other.do(f"connection = connect({str(home / 'state.db')!r})")
        worker.do(f"connection = connect({str(home / 'state.db')!r})")
        child = int(worker.do("fork()"))
        asked = [{worker.pid}, set[int]()]
        answers = iter(asked if known == "before the scan alone" else reversed(asked))
        found = survey([files(home)], ours=lambda: next(answers)).homes[str(home)]
    ours = {holder.pid: (holder.ours, holder.kind) for holder in found.holders}
    assert ours == {
        other.pid: (False, ProcessKind.OTHER),
        worker.pid: (True, ProcessKind.EXPORTER),
        child: (True, ProcessKind.EXPORTER),
    }


def test_a_process_that_execs_during_the_scan_has_unknown_kind(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sessions browse` replaces itself by `--resume ID` with the same PID and start time."""
    with hermes(home, "sessions", "browse") as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        read_descriptors = PinnedProcess.descriptors

        def become_another_meanwhile(
            self: PinnedProcess, *arguments: Any, **options: Any
        ) -> list[Descriptor]:
            found = read_descriptors(self, *arguments, **options)
            if self.pid == process.pid:
                process.become(sys.executable, "-c", "print('ready', flush=True); input()")
            return found

        monkeypatch.setattr(PinnedProcess, "descriptors", become_another_meanwhile)
        (holder,) = evidence(home).holders
    assert (holder.kind, holder.may_resume) == (ProcessKind.OTHER, True)


@pytest.mark.parametrize("home_state", ["running", "stopped"])
def test_a_holder_stopped_by_a_signal_is_reported_as_stopped(home: Path, home_state: str) -> None:
    with holding(home) as process:
        if home_state == "stopped":
            process.process.send_signal(signal.SIGSTOP)
            wait_until(lambda: process.stat().state == "T", "it is stopped")
        (holder,) = evidence(home).holders
    assert holder.stopped == (home_state == "stopped")
