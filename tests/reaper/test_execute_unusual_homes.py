"""Reaping on full disks, in read-only homes, in the folders and homes of other users."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from exporter.reaper.reap import execute
from exporter.runs.folder import RunError
from exporter.runs.journal import journal_of
from exporter.runs.models import ActionState, Outcome, RunOutcome
from tests.real.counts import inventory
from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.support.evidence import NOBODY
from tests.support.home_scans import sql
from tests.support.reaping import (
    GATEWAY,
    REASON,
    dump,
    hermes_process,
    history,
    leaky_home,
    open_sessions,
    planned,
    reap,
)

LEAKED = tuple(f"20260101_0800{number:02}_aaaaaa" for number in range(10))
KIB = 1024


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return leaky_home(python_for(NEWEST), tmp_path_factory.mktemp("places") / "home", LEAKED)


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", *options, folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


# Full disks


def fill(folder: Path, leave_bytes: int) -> Path:
    """Take all space of a filesystem but so much."""
    filler = folder / "filler"
    status = os.statvfs(folder)
    with filler.open("wb") as file:
        for _ in range((status.f_bavail * status.f_frsize - leave_bytes) // 4096):
            file.write(bytes(4096))
    return filler


@pytest.mark.parametrize("left", [0, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512])
def test_a_full_disk_loses_nothing_and_the_next_run_goes_on(
    template: Path, tmp_path: Path, left: int
) -> None:
    """However far it gets before there is no space: for the journal, the WAL or its index."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=8m", "tmpfs") as disk:
        home = shutil.copytree(template, disk / "home")
        with hermes_process(python_for(NEWEST), home, *GATEWAY) as gateway:
            gateway.ask("create", session="chat", source="telegram")
            gateway.ask("append", session="chat", count=3)
            original = dump(home)
            plan, place = planned(home)
            filler = fill(disk, left * KIB)
            why = what_stops(lambda: execute(plan, place, end_reason=REASON))
            full = "disk is full" in why or "No space left on device" in why
            assert full or (left >= 256 and not why)
            filler.unlink()
            gateway.ask("append", session="chat", count=3)
            plan, place = planned(home)
            execute(plan, place, end_reason=REASON)
            assert gateway.ask("count", session="chat") == 6
        assert done_once(home) == set(LEAKED)
        unended = {"ended_at": "NULL", "end_reason": "NULL"}
        assert {session: dump(home)[session] | unended for session in LEAKED} == {
            session: original[session] for session in LEAKED
        }
        assert open_sessions(home) == {"chat"}
        assert sql(home, "PRAGMA quick_check;") == "ok"


def what_stops(run: Callable[[], Outcome]) -> str:
    try:
        return run().why
    except RunError as error:
        return str(error)


def done_once(home: Path) -> set[str]:
    """The sessions that the journal says were ended, each of them once."""
    with journal_of(str(home), 0) as runs:
        assert runs is not None
        assert runs.unfinished_runs() == []
        done = [
            each.action.target
            for run in runs.list_runs()
            for each in runs.actions(run.id)
            if each.state is ActionState.DONE
        ]
    assert len(done) == len(set(done))
    return set(done)


# Homes that cannot be written


def test_a_read_only_home_is_left_as_it_is(home: Path, tmp_path: Path) -> None:
    plan, place = planned(home)
    with mounted(home, "--bind", str(home)):
        subprocess.run(["mount", "-o", "remount,ro,bind", home], check=True)
        before = inventory(home)
        outcome = execute(plan, place, end_reason=REASON)
        assert (outcome.run, outcome.outcome) == (None, RunOutcome.FAILED)
        assert "read-only" in outcome.why
        assert inventory(home) == before


def test_the_history_of_a_read_only_home_can_be_read(home: Path) -> None:
    run = reap(home).run
    with mounted(home, "--bind", str(home)):
        subprocess.run(["mount", "-o", "remount,ro,bind", home], check=True)
        assert [each.id for each in history(home)] == [run]


def test_a_journal_folder_that_leads_elsewhere_stops_the_reap(home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (home / ".hermes-exporter").symlink_to(tmp_path / "elsewhere")
    plan, place = planned(home)
    with pytest.raises(RunError, match="is a symlink or no folder"):
        execute(plan, place, end_reason=REASON)
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert open_sessions(home) == set(LEAKED)


def test_root_does_not_reap_in_another_users_home(home: Path) -> None:
    """Whatever root writes there the user could not use; so a worker becomes that user first."""
    for path in (home, *home.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    plan, place = planned(home)
    before = inventory(home)
    with pytest.raises(RunError, match="only the owner"):
        execute(plan, place, end_reason=REASON)
    assert inventory(home) == before


_REAP_AS_USER = """
import os, sys, msgspec
from exporter.reaper.plan import ReapPlan
from exporter.runs.models import Outcome
from exporter.reaper.reap import execute
from exporter.writing.target import Target
home, user = sys.argv[1], int(sys.argv[2])
plan = msgspec.json.decode(sys.stdin.buffer.read(), type=ReapPlan)
os.setgroups([]); os.setgid(user); os.setuid(user)
sys.stdout.buffer.write(msgspec.json.encode(execute(plan, Target(home, user), end_reason="reaped")))
"""


@pytest.fixture
def nobodys_home(template: Path) -> Iterator[Path]:
    """A home that its owner can reach: pytest's own folders are root's alone."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        home = shutil.copytree(template, Path(folder) / "home")
        for path in (home, *home.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        yield home


def test_a_worker_that_is_the_owner_reaps_and_all_it_leaves_is_the_owners(
    nobodys_home: Path,
) -> None:
    plan, _ = planned(nobodys_home)
    command = [sys.executable, "-c", _REAP_AS_USER, str(nobodys_home), str(NOBODY)]
    answer = subprocess.run(
        command, input=msgspec.json.encode(plan), capture_output=True, check=True, cwd=REPOSITORY
    )
    outcome = msgspec.json.decode(answer.stdout)
    assert (outcome["outcome"], len(outcome["done"])) == ("done", len(LEAKED))
    assert {path.lstat().st_uid for path in nobodys_home.rglob("*")} == {NOBODY}
    assert open_sessions(nobodys_home) == set()
