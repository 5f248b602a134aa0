"""The open files that make a process a holder: each file of the database, and deleted ones."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from msgspec import structs

from exporter.evidence.models import Holder
from exporter.evidence.survey import survey
from tests.real.hermes import python_for
from tests.real.holders import holder as real_holder
from tests.support.evidence import NOBODY, evidence, files, hermes, holding, puppet

ID = "20260102_030405_abcdef"
PARTS = ("state.db", "state.db-wal", "state.db-shm")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def holders_beside(home: Path, *known: int) -> list[Holder]:
    return [each for each in evidence(home).holders if each.pid not in known]


@pytest.mark.parametrize("part", PARTS)
def test_each_file_of_a_database_makes_a_holder(home: Path, part: str) -> None:
    with holding(home) as other, puppet() as process:
        process.do(f"held = os.open({str(home / part)!r}, os.O_RDWR)")
        (found,) = holders_beside(home, other.pid)
        assert (found.pid, found.outsider) == (process.pid, False)


@pytest.mark.parametrize(
    "deleted", [each for n in (1, 2, 3) for each in itertools.combinations(PARTS, n)]
)
def test_every_deleted_file_of_that_path_makes_a_holder(
    home: Path, deleted: tuple[str, ...]
) -> None:
    """After a snapshot restore, a CLI has a deleted state.db and the living -wal and -shm."""
    with holding(home) as process:
        for part in deleted:
            content = (home / part).read_bytes()
            (home / part).unlink()
            (home / part).write_bytes(content)
        (found,) = evidence(home).holders
        assert (found.pid, found.deleted_wal) == (process.pid, True)


def test_a_real_hermes_is_a_holder_after_its_database_was_replaced(home: Path) -> None:
    release = python_for("0.19.0")
    with real_holder(release, home) as process:
        process.ask("create", session=ID)
        content = (home / "state.db").read_bytes()
        (home / "state.db").unlink()
        (home / "restored.db").write_bytes(content)
        (home / "restored.db").rename(home / "state.db")
        (found,) = evidence(home).holders
        assert found.pid == process.pid
        process.kill()


def test_only_sessions_named_by_the_owner_or_root_count(home: Path) -> None:
    with hermes(home, "-r", ID) as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        process.do(f"os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})")
        told = {}
        for owner in (0, NOBODY, None):
            target = structs.replace(files(home), owner=owner)
            (found,) = survey([target]).homes[str(home)].holders
            told[owner] = [session.id for session in found.sessions]
    assert told == {0: [], NOBODY: [ID], None: [ID]}
