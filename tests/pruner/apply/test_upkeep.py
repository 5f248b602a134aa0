"""VACUUM and git gc run in quiet windows only, lose nothing, and say what they did."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from exporter.evidence.openers import KnownOpeners
from exporter.pruner.apply.upkeep import (
    collect_garbage,
    run_upkeep,
    vacuum_database,
)
from exporter.pruner.requests import UpkeepRequest, is_quiet
from exporter.runs.folder import RunBusyError
from exporter.runs.journal import running
from exporter.writing.idle_wal import is_open_elsewhere
from exporter.writing.vacuum import vacuum
from exporter.writing.write_checks import WriteError
from tests.real.hermes import NEWEST, python_for
from tests.real.waiting import wait_until
from tests.support.checkpoint_homes import Checkpoints
from tests.support.disk_homes import du, git
from tests.support.evidence import evidence, puppet
from tests.support.home_scans import sql
from tests.support.reaping import GATEWAY, hermes_process
from tests.support.removers import picture, restore, take

ROOMY = 1 << 40
DAY = 86_400.0
NOBODY_THERE = KnownOpeners()


# VACUUM


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cold home of which Hermes has deleted most."""
    home = tmp_path_factory.mktemp("upkeep") / "home"
    home.mkdir(mode=0o700)
    hermes = python_for(NEWEST)
    sessions = [f"20260101_0000{number:02}_aaaaaa" for number in range(12)]
    with hermes_process(hermes, home) as writer:
        for session in sessions:
            writer.ask("leak", session=session, count=30)
    hermes.run("delete_sessions", home, sessions=sessions[2:])
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


def dumped(home: Path) -> str:
    """Every row of every table that is no index of text; and what the index finds."""
    return sql(
        home,
        "SELECT * FROM sessions ORDER BY id; SELECT * FROM messages ORDER BY id;"
        "SELECT * FROM state_meta; SELECT rowid FROM messages_fts WHERE messages_fts MATCH"
        " 'message' ORDER BY rowid;",
    )


def files(home: Path) -> list[str]:
    return sorted(path.name for path in home.glob("state.db*"))


def test_vacuum_gives_back_what_deletions_left_and_changes_nothing_else(home: Path) -> None:
    before, names, size = dumped(home), files(home), (home / "state.db").stat().st_size
    done = vacuum_database(str(home), 0, NOBODY_THERE, quiet=True)
    assert done.why == ""
    after = (home / "state.db").stat().st_size
    assert (done.before_bytes, done.after_bytes) == (size, after)
    assert after < size / 2
    assert files(home) == names == ["state.db"]
    assert dumped(home) == before
    assert sql(home, "PRAGMA integrity_check;") == "ok"
    with hermes_process(python_for(NEWEST), home) as hermes:
        hermes.ask("append", session="20260101_000001_aaaaaa")
        assert len(hermes.ask("listed")) == 2


def test_sidecars_that_a_killed_hermes_left_stay_and_nothing_in_them_is_lost(
    home: Path, tmp_path: Path
) -> None:
    with hermes_process(python_for(NEWEST), home) as hermes:
        hermes.ask("leak", session="20260102_000000_aaaaaa", count=5)
        hermes.kill()
    before, names = dumped(shutil.copytree(home, tmp_path / "copy")), files(home)
    assert names == ["state.db", "state.db-shm", "state.db-wal"]
    inodes = [(home / name).stat().st_ino for name in names]
    assert vacuum_database(str(home), 0, NOBODY_THERE, quiet=True).why == ""
    assert files(home) == names
    assert [(home / name).stat().st_ino for name in names] == inodes
    assert dumped(home) == before


def test_a_database_that_somebody_holds_is_not_vacuumed_whatever_the_caller_believes(
    home: Path,
) -> None:
    size = (home / "state.db").stat().st_size
    assert is_quiet(evidence(home))
    with hermes_process(python_for(NEWEST), home, *GATEWAY) as hermes:
        assert not is_quiet(evidence(home))
        for quiet in (True, False):
            assert vacuum_database(str(home), 0, NOBODY_THERE, quiet=quiet).why
        assert vacuum_database(str(home), 0, KnownOpeners((hermes.pid,)), quiet=True).why
        assert is_open_elsewhere(str(home / "state.db"))
        hermes.ask("append", session="20260101_000001_aaaaaa")
    assert not is_open_elsewhere(str(home / "state.db"))
    assert (home / "state.db").stat().st_size >= size


def test_beside_a_process_that_lost_its_lock_nothing_is_vacuumed_whatever_the_caller_believes(
    home: Path,
) -> None:
    """SQLite would find no lock of it, and take the database for its own."""
    with puppet() as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        process.do(f"touch({str(home / 'state.db')!r})")
        before = [(home / name).read_bytes() for name in ("state.db", "state.db-wal")]
        with pytest.raises(WriteError):
            vacuum(
                str(home / "state.db"),
                owner=0,
                openers=NOBODY_THERE,
                is_wanted=lambda: False,
                free_bytes=lambda _: ROOMY,
            )
        assert [(home / name).read_bytes() for name in ("state.db", "state.db-wal")] == before


@pytest.mark.parametrize("looks", [1, 2000])
def test_a_process_that_comes_meanwhile_gets_its_turn(
    home: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """It waits for the lock; VACUUM is given up with nothing changed, and Hermes goes on."""
    before, size = dumped(home), (home / "state.db").stat().st_size
    left = iter(range(looks))
    is_there = lambda path: next(left, None) is None  # noqa: E731
    monkeypatch.setattr("exporter.pruner.apply.upkeep.is_open_elsewhere", is_there)
    monkeypatch.setattr("exporter.writing.vacuum._PROGRESS_EVERY_STEPS", 1)
    monkeypatch.setattr("exporter.writing.vacuum._LOOK_EVERY_SECONDS", 0.0)
    done = vacuum_database(str(home), 0, NOBODY_THERE, quiet=True)
    assert done.why.endswith("state.db was wanted by another process; it was not vacuumed")
    assert dumped(home) == before
    assert (home / "state.db").stat().st_size == size
    assert sql(home, "PRAGMA integrity_check;") == "ok"


def test_a_hermes_that_starts_while_vacuum_runs_again_and_again_is_not_hurt(home: Path) -> None:
    started, done = threading.Event(), []

    def vacuum_until_started() -> None:
        while not started.is_set():
            done.append(vacuum_database(str(home), 0, NOBODY_THERE, quiet=True).why)

    with ThreadPoolExecutor() as pool:
        working = pool.submit(vacuum_until_started)
        try:
            wait_until(lambda: done, "it is vacuumed while no process has it open")
            with hermes_process(python_for(NEWEST), home, *GATEWAY) as hermes:
                hermes.ask("append", session="20260101_000001_aaaaaa")
                started.set()
                working.result()
                hermes.ask("append", session="20260101_000001_aaaaaa")
                assert len(hermes.ask("listed")) == 2
        finally:
            started.set()
    assert done[0] == ""
    assert sql(home, "PRAGMA integrity_check;") == "ok"
    count = "SELECT COUNT(*) FROM messages WHERE session_id = '20260101_000001_aaaaaa';"
    assert sql(home, count) == "32"


def test_vacuum_needs_space_and_says_how_much(home: Path) -> None:
    before = (home / "state.db").read_bytes()
    done = vacuum_database(str(home), 0, NOBODY_THERE, quiet=True, free_bytes=lambda place: 4096)
    assert "bytes free" in done.why
    assert (home / "state.db").read_bytes() == before
    assert files(home) == ["state.db"]


def test_only_the_owner_does_upkeep(home: Path) -> None:
    os.chown(home / "state.db", 65534, 65534)
    assert vacuum_database(str(home), 65534, NOBODY_THERE, quiet=True).why
    assert collect_garbage(str(home), 65534, quiet=True).why


def test_upkeep_does_what_is_asked_one_run_at_a_time(home: Path) -> None:
    order = UpkeepRequest(str(home), 0, NOBODY_THERE, quiet=True)
    assert run_upkeep(order) == []
    assert not (home / ".hermes-exporter").exists()
    both = msgspec.structs.replace(order, vacuum=True, gc=True)
    with running(str(home), 0, "prune"), pytest.raises(RunBusyError, match="prune by process"):
        run_upkeep(both)
    vacuumed, collected = run_upkeep(both)
    assert (vacuumed.work, vacuumed.why) == ("vacuum", "")
    assert vacuumed.before_bytes > vacuumed.after_bytes
    assert (collected.work, collected.why) == ("gc", "there is no checkpoint store")


# gc


@pytest.fixture(scope="module")
def store_template(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    made = Checkpoints(python_for(NEWEST), tmp_path_factory.mktemp("gc") / "home")
    made.snapshot("one", "two", turns=3, file_bytes=50_000)
    (made.home / "checkpoints/.last_prune").write_text("1234.5")
    return made


@pytest.fixture
def made(store_template: Checkpoints, tmp_path: Path) -> Checkpoints:
    home = shutil.copytree(store_template.home, tmp_path / "home", symlinks=True)
    return Checkpoints(store_template.hermes, home, store_template.work)


def age_objects(store: Path) -> None:
    old = time.time() - DAY
    for file in (store / "objects").rglob("*"):
        if file.is_file():
            os.utime(file, (old, old))


def test_gc_frees_what_a_taken_project_left_and_keeps_every_snapshot(made: Checkpoints) -> None:
    action = made.planned("one")
    refs = made.refs()
    assert take(made.remover, made.home, action) == [""]
    age_objects(made.store)
    left = made.refs()
    done = collect_garbage(str(made.home), 0, quiet=True)
    assert done.why == ""
    assert done.before_bytes - done.after_bytes > 100_000
    assert done.after_bytes == du(made.store)
    assert made.refs() == left
    assert made.fsck() == ""
    for folder in ("refs/heads", "branches"):
        assert (made.store / folder).is_dir()
    assert (made.home / "checkpoints/.last_prune").read_text() == "1234.5"
    assert len(made.snapshots("two")) == 3
    made.snapshot("two", turns=1)
    assert restore(made.remover, made.home, action) == [""]
    assert made.refs()[made.ref("one")] == refs[made.ref("one")]
    assert made.fsck() == ""


def test_a_snapshot_in_the_making_survives_gc(made: Checkpoints) -> None:
    """Hermes has added its files to the index, and no ref knows them yet."""
    work = Path(made.folder("one"))
    (work / "in flight").write_text("precious")
    place = {
        "GIT_DIR": str(made.store),
        "GIT_WORK_TREE": str(work),
        "GIT_INDEX_FILE": str(made.store / "indexes" / made.name("one")),
    }
    git(work, "add", "-A", **place)
    assert collect_garbage(str(made.home), 0, quiet=True).why == ""
    tree = git(work, "write-tree", **place).strip()
    assert "in flight" in git(work, "ls-tree", "--name-only", tree, **place)


def test_gc_waits_for_a_quiet_window(made: Checkpoints) -> None:
    before = picture(made.home)
    assert collect_garbage(str(made.home), 0, quiet=False).why
    assert collect_garbage(str(made.home), 0, quiet=True, free_bytes=lambda place: 10).why
    with (made.store / "config").open("a") as config:
        config.write("[core]\n\tfsmonitor = /bin/true\n")
    assert "core.fsmonitor" in collect_garbage(str(made.home), 0, quiet=True).why
    (made.store / "indexes/abc.lock").touch()
    assert "abc.lock" in collect_garbage(str(made.home), 0, quiet=True).why
    changed = {path for path, seen in picture(made.home).items() if before.get(path) != seen}
    assert changed == {"checkpoints/store/config", "checkpoints/store/indexes/abc.lock"}


def test_gc_waits_for_a_living_git(made: Checkpoints) -> None:
    with subprocess.Popen(
        ["git", "cat-file", "--batch"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "GIT_DIR": str(made.store)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"nothing\n")
        process.stdin.flush()
        process.stdout.readline()
        assert f"git process {process.pid}" in collect_garbage(str(made.home), 0, quiet=True).why
        process.stdin.close()
    assert collect_garbage(str(made.home), 0, quiet=True).why == ""
