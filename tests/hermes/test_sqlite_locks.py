"""F_GETLK on a real -shm file: held, free, held by an unseen process, or blind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.hermes.sqlite_locks import probe_database, probe_shm
from exporter.snapshot import LockAnswer
from tests.real.hermes import REPOSITORY
from tests.support.evidence import (
    IN_NEW_PID_NAMESPACE,
    NOBODY,
    evidence,
    holding,
    lost_locks,
    puppet,
)

_PROBE = (
    "import os, sys; from exporter.hermes.sqlite_locks import probe_shm; "
    "folder = os.open(sys.argv[1], os.O_RDONLY); uid = int(sys.argv[2]); "
    "uid and os.setuid(uid); print(probe_shm('state.db-shm', directory=folder))"
)


def probe_elsewhere(home: Path, *wrapper: str, user: int = 0) -> LockAnswer:
    done = subprocess.run(
        [*wrapper, sys.executable, "-c", _PROBE, str(home), str(user)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        cwd=REPOSITORY,
    )
    return LockAnswer(done.stdout.strip())


def test_an_open_connection_is_held(tmp_path: Path) -> None:
    with holding(tmp_path):
        assert probe_shm(str(tmp_path / "state.db-shm")) is LockAnswer.HELD


def test_a_path_relative_to_an_open_directory_works(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with holding(tmp_path):
            assert probe_shm("state.db-shm", directory=directory) is LockAnswer.HELD
    finally:
        os.close(directory)


def test_the_files_of_a_killed_process_are_free(tmp_path: Path) -> None:
    with holding(tmp_path):
        pass
    assert probe_shm(str(tmp_path / "state.db-shm")) is LockAnswer.FREE


def test_a_holder_outside_our_pid_namespace_is_held_unseen(tmp_path: Path) -> None:
    with holding(tmp_path):
        assert probe_elsewhere(tmp_path, *IN_NEW_PID_NAMESPACE) is LockAnswer.HELD_UNSEEN


def test_a_holder_in_a_container_is_seen_from_the_host(tmp_path: Path) -> None:
    with puppet(wrapper=IN_NEW_PID_NAMESPACE) as process:
        process.do(f"connection = connect({str(tmp_path / 'state.db')!r})")
        assert probe_shm(str(tmp_path / "state.db-shm")) is LockAnswer.HELD


def test_another_user_that_may_read_the_file_sees_the_holder(tmp_path: Path) -> None:
    with holding(tmp_path):
        (tmp_path / "state.db-shm").chmod(0o644)
        tmp_path.chmod(0o755)
        assert probe_elsewhere(tmp_path, user=NOBODY) is LockAnswer.HELD


def test_the_holder_keeps_its_locks_while_others_probe(tmp_path: Path) -> None:
    with holding(tmp_path):
        for _ in range(10):
            probe_shm(str(tmp_path / "state.db-shm"))
        found = evidence(tmp_path)
    assert lost_locks(found) == (0, 0)


@pytest.mark.parametrize("kind", ["missing", "link", "fifo", "folder", "unreadable"])
def test_a_missing_unreadable_or_irregular_file_is_blind_and_does_not_block(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "state.db-shm"
    if kind == "link":
        (tmp_path / "target").touch()
        path.symlink_to(tmp_path / "target")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "unreadable":
        path.touch(0o000)
        tmp_path.chmod(0o755)
        assert probe_elsewhere(tmp_path, user=NOBODY) is LockAnswer.BLIND
        return
    assert probe_shm(str(path)) is LockAnswer.BLIND


def test_a_connection_by_another_name_is_known_by_the_lock_on_the_file(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for each in (home, elsewhere):
        each.mkdir()
    with holding(elsewhere):
        os.link(elsewhere / "state.db", home / "state.db")
        assert probe_shm(str(home / "state.db-shm")) is LockAnswer.BLIND
        assert probe_database(str(home / "state.db")) is LockAnswer.HELD
    assert probe_database(str(home / "state.db")) is LockAnswer.FREE
