"""Who else has a database open at the moment it is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
from msgspec import structs

from exporter.evidence.openers import Bystanders, Standing, look_around
from exporter.snapshot import FileIdentity
from tests.real.hermes import REPOSITORY
from tests.support.evidence import NOBODY, evidence, files, holding

FINE = Standing(lost=(), newcomers=())


def look(home: Path, *known: int) -> Standing | None:
    return look_around(Bystanders(known), files(home), pause=lambda: None)


def test_those_who_are_known_and_have_their_locks_are_fine(tmp_path: Path) -> None:
    with holding(tmp_path) as one, holding(tmp_path) as two:
        assert look(tmp_path, one.pid, two.pid) == FINE


def test_whoever_is_not_known_is_a_newcomer(tmp_path: Path) -> None:
    with holding(tmp_path) as known, holding(tmp_path) as new:
        assert look(tmp_path, known.pid) == Standing((), (new.pid,))
        new.do("connection.close()")
        assert look(tmp_path, known.pid) == FINE


def test_whoever_has_the_pid_of_one_that_ended_is_a_newcomer(tmp_path: Path) -> None:
    """A PID cannot be had again at will, so the one that ended is said to have begun earlier."""
    with holding(tmp_path) as process:
        known = Bystanders.of(evidence(tmp_path))
        assert look_around(known, files(tmp_path)) == FINE
        earlier = {pid: ticks - 1 for pid, ticks in known.started.items()}
        ended = structs.replace(known, started=earlier)
        assert look_around(ended, files(tmp_path)) == Standing((), (process.pid,))
        process.do("connection.close()")
        assert look_around(ended, files(tmp_path)) == FINE


def test_those_who_have_closed_or_ended_are_fine(tmp_path: Path) -> None:
    with holding(tmp_path) as stays, holding(tmp_path) as closes, holding(tmp_path) as ends:
        closes.do("connection.close()")
        ends.end()
        assert look(tmp_path, stays.pid, closes.pid, ends.pid) == FINE


def test_either_lock_can_be_lost(tmp_path: Path) -> None:
    for name in ("state.db", "state.db-shm"):
        with holding(tmp_path) as healthy, holding(tmp_path) as process:
            process.do(f"touch({str(tmp_path / name)!r})")
            assert look(tmp_path, healthy.pid, process.pid) == Standing((process.pid,), ())


def test_a_lock_that_comes_back_while_we_wait_was_only_late(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        shm = str(tmp_path / "state.db-shm")
        process.do(f"touch({shm!r})")
        process.do(f"descriptor = os.open({shm!r}, os.O_RDWR)")

        def wait() -> None:
            process.do("fcntl.lockf(descriptor, fcntl.LOCK_SH, 1, 128)")

        known = Bystanders((process.pid,))
        assert look_around(known, files(tmp_path), pause=wait) == FINE


def test_a_process_that_writes_into_deleted_files_has_lost_them(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        (tmp_path / "state.db-wal").unlink()
        (tmp_path / "state.db-shm").unlink()
        assert look(tmp_path, process.pid) == Standing((process.pid,), ())


def elsewhere(file: FileIdentity | None) -> FileIdentity | None:
    return structs.replace(file, device=file.device + 1) if file else None


def test_a_file_of_another_filesystem_with_the_same_number_is_another_file(tmp_path: Path) -> None:
    """The kernel's table names a file by its inode; only the process itself tells which it is."""
    with holding(tmp_path) as other:
        same = files(tmp_path)
        namesake = structs.replace(
            same,
            database=elsewhere(same.database),
            wal=elsewhere(same.wal),
            shm=elsewhere(same.shm),
            directory="/elsewhere",
        )
        assert look_around(Bystanders(), namesake) == FINE
        assert look_around(Bystanders(), same) == Standing((), (other.pid,))


def test_forked_heirs_need_no_locks(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        process.do("child = fork()")
        found = evidence(tmp_path)
        assert len(found.holders) == 2
        known = Bystanders.of(found)
        assert (known.pids, known.lockless) == ((process.pid,), False)
        assert look(tmp_path, *known.pids) == FINE


def test_what_a_survey_found_lost_is_remembered(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        process.do(f"touch({str(tmp_path / 'state.db')!r})")
        known = Bystanders.of(evidence(tmp_path))
        assert (known.pids, known.lockless) == ((process.pid,), True)


def test_where_no_locks_are_shown_nothing_can_be_said(tmp_path: Path) -> None:
    with holding(tmp_path / "home"):
        assert look_around(Bystanders(), files(tmp_path / "home"), proc=str(tmp_path)) is None


_LOOK_AS_USER = """
import os, sys, msgspec
from exporter.evidence.openers import Bystanders, look_around
from exporter.evidence.models import HomeFiles
os.setuid(int(sys.argv[1]))
known, files = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[Bystanders, HomeFiles])
sys.stdout.buffer.write(msgspec.json.encode(look_around(known, files)))
"""


def look_as_nobody(home: Path, *known: int) -> Standing:
    answer = subprocess.run(
        [sys.executable, "-c", _LOOK_AS_USER, str(NOBODY)],
        input=msgspec.json.encode((Bystanders(known), files(home))),
        stdout=subprocess.PIPE,
        check=True,
        cwd=REPOSITORY,
    )
    return msgspec.json.decode(answer.stdout, type=Standing)


def test_a_process_that_cannot_be_looked_into_is_known_by_its_locks(tmp_path: Path) -> None:
    with holding(tmp_path) as known, holding(tmp_path) as new:
        assert look_as_nobody(tmp_path, known.pid) == Standing((), (new.pid,))
        known.do(f"touch({str(tmp_path / 'state.db')!r})")
        assert look_as_nobody(tmp_path, known.pid, new.pid) == Standing((known.pid,), ())
