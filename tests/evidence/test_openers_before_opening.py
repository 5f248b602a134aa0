"""The last check before a database is opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from exporter.evidence.openers import KnownHolder, may_open
from tests.real.hermes import REPOSITORY
from tests.support.evidence import NOBODY, Puppet, holding


def known(process: Puppet, home: Path) -> KnownHolder:
    return KnownHolder(process.pid, (home / "state.db-shm").stat().st_ino)


def ask(*holders: KnownHolder) -> bool:
    return may_open(holders, pause=lambda: None)


def test_opening_is_allowed_while_holders_have_their_locks(tmp_path: Path) -> None:
    with holding(tmp_path) as one, holding(tmp_path) as two:
        assert ask(known(one, tmp_path), known(two, tmp_path))


def test_opening_is_allowed_without_holders() -> None:
    assert ask()


def test_a_holder_that_has_just_lost_its_lock_forbids_opening(tmp_path: Path) -> None:
    with holding(tmp_path) as process, holding(tmp_path) as healthy:
        holder = known(process, tmp_path)
        process.do(f"touch({str(tmp_path / 'state.db-shm')!r})")
        assert not ask(known(healthy, tmp_path), holder)


def test_opening_is_allowed_after_a_holder_closed_its_connection(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        holder = known(process, tmp_path)
        process.do("connection.close()")
        assert ask(holder)


def test_opening_is_allowed_after_a_holder_ended(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        holder = known(process, tmp_path)
    assert ask(holder)


def test_a_lock_that_appears_between_checks_is_not_lost(tmp_path: Path) -> None:
    with holding(tmp_path) as process:
        shm = str(tmp_path / "state.db-shm")
        holder = known(process, tmp_path)
        process.do(f"touch({shm!r})")
        process.do(f"descriptor = os.open({shm!r}, os.O_RDWR)")

        def wait() -> None:
            process.do("fcntl.lockf(descriptor, fcntl.LOCK_SH, 1, 128)")

        assert may_open([holder], pause=wait)


_ASK_AS_USER = """
import os, sys
from exporter.evidence.openers import KnownHolder, may_open
os.setuid(int(sys.argv[3]))
holder = KnownHolder(pid=int(sys.argv[1]), shm_inode=int(sys.argv[2]))
print(may_open([holder]))
"""


def ask_as_nobody(holder: KnownHolder) -> str:
    command = [sys.executable, "-c", _ASK_AS_USER]
    command += [str(holder.pid), str(holder.shm_inode), str(NOBODY)]
    return subprocess.check_output(command, text=True, cwd=REPOSITORY).strip()


def test_a_holder_that_cannot_be_read_is_known_by_the_lock_table(
    tmp_path: Path,
) -> None:
    with holding(tmp_path) as process:
        holder = known(process, tmp_path)
        assert ask_as_nobody(holder) == "True"
        process.do(f"touch({str(tmp_path / 'state.db-shm')!r})")
        assert ask_as_nobody(holder) == "False"


def test_where_locks_are_not_shown_opening_is_allowed(tmp_path: Path) -> None:
    """No lock can be missed there; the home is reported as blind."""
    assert may_open([KnownHolder(1, 1)], proc=str(tmp_path))
