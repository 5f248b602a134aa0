"""Evidence that another user could fake: open files, mappings and names that mean nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from exporter.evidence.models import HomeEvidence
from exporter.evidence.openers import KnownHolder, KnownOpeners, may_open
from exporter.evidence.survey import survey
from tests.support.evidence import NOBODY, Puppet, files, holding, lost_locks, puppet

OWNER = 0
READ = "os.O_RDONLY"


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that other users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        (path / "home").mkdir()
        yield path / "home"


def look(home: Path) -> HomeEvidence:
    return survey([structs.replace(files(home), owner=OWNER)]).homes[str(home)]


def open_shm(process: Puppet, home: Path, flags: str) -> None:
    process.do(f"shm = os.open({str(home / 'state.db-shm')!r}, {flags})")


@contextmanager
def another_user() -> Iterator[Puppet]:
    with puppet() as process:
        process.do("import mmap")
        process.do(f"os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})")
        yield process


def test_a_descriptor_that_can_neither_read_nor_lock_makes_no_holder(home: Path) -> None:
    with holding(home) as hermes, puppet() as process:
        open_shm(process, home, "os.O_PATH")
        assert [holder.pid for holder in look(home).holders] == [hermes.pid]


def test_a_backup_that_reads_the_wal_index_is_not_lockless(home: Path) -> None:
    with holding(home), puppet() as process:
        open_shm(process, home, READ)
        found = look(home)
        (backup,) = (holder for holder in found.holders if holder.pid == process.pid)
        assert lost_locks(found)[1] == 0
        assert backup.shm_inode is not None
        known = [KnownHolder(backup.pid, backup.shm_inode)]
        assert may_open(known)


def test_an_sqlite_that_may_only_read_and_lost_its_lock_is_in_danger(home: Path) -> None:
    shm = str(home / "state.db-shm")
    with holding(home), puppet() as process:
        process.do(
            f"reader = sqlite3.connect('file:{home}/state.db?mode=ro&readonly_shm=1', uri=True)"
        )
        process.do("reader.execute('SELECT * FROM t').fetchall()")
        assert lost_locks(look(home))[1] == 0
        process.do(f"touch({shm!r})")
        found = look(home)
        assert [h.pid for h in found.holders if h.lockless_shm] == [process.pid]
        (inode,) = {holder.shm_inode for holder in found.holders}
        assert inode is not None
        holdings = [KnownHolder(process.pid, inode)]
        assert not may_open(holdings)


def test_another_user_that_can_only_read_raises_no_alarm(home: Path) -> None:
    with holding(home) as hermes, another_user() as stranger:
        open_shm(stranger, home, READ)
        stranger.do(f"database = os.open({str(home / 'state.db')!r}, os.O_RDONLY)")
        stranger.do("memory = mmap.mmap(shm, 0, prot=mmap.PROT_READ)")
        found = look(home)
        assert lost_locks(found) == (0, 0)
        assert {h.pid: h.outsider for h in found.holders} == {
            hermes.pid: False,
            stranger.pid: True,
        }
        assert KnownOpeners.of(found).pids == (hermes.pid,)
        assert [h.pid for h in found.holders if h.shm_inode is not None] == [hermes.pid]


def test_another_user_that_may_write_counts_as_a_hermes(home: Path) -> None:
    with holding(home), another_user() as process:
        (home / "state.db-shm").chmod(0o666)
        open_shm(process, home, "os.O_RDWR")
        assert lost_locks(look(home))[1] == 1


def in_a_mount_namespace_where(theirs: Path, home: Path, uid: int) -> Puppet:
    """A process that sees its own folder at the home's path."""
    script = f'mount --bind {theirs} {home} && exec setpriv --reuid={uid} --clear-groups "$@"'
    return puppet(wrapper=("unshare", "-m", "sh", "-c", script, "-"))


@pytest.mark.parametrize(("uid", "counted"), [(NOBODY, 0), (OWNER, 1)])
def test_a_deleted_wal_counts_only_for_the_homes_owner_or_root(
    home: Path, uid: int, counted: int
) -> None:
    theirs = home.parent / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    with holding(home), in_a_mount_namespace_where(theirs, home, uid) as process:
        wal = str(home / "state.db-wal")
        process.do(f"wal = os.open({wal!r}, os.O_RDWR | os.O_CREAT); os.unlink({wal!r})")
        assert "state.db-wal (deleted)" in process.do("os.readlink(f'/proc/self/fd/{wal}')")
        assert look(home).deleted_wal_pids == [process.pid] * counted


def test_many_suspects_do_not_make_a_survey_wait_for_each_of_them(home: Path) -> None:
    pauses: list[None] = []
    with holding(home) as process:
        process.do("[fork() for _ in range(20)]")
        process.do(f"touch({str(home / 'state.db-shm')!r})")
        found = survey([files(home)], pause=lambda: pauses.append(None))
        assert lost_locks(found.homes[str(home)])[1] == 21
    assert len(pauses) <= 40
