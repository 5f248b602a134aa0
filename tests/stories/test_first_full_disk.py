"""A disk that is full to the last byte, in a home that never had a run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.real.agent import agent
from tests.real.command import run
from tests.real.waiting import wait_until
from tests.support.home_scans import sql
from tests.support.old_sessions import old_sessions


@contextmanager
def small_home(size: str, sessions: int = 30, *, leaked: int = 0) -> Iterator[Path]:
    """A home with old sessions, dumps and a log, on a small filesystem of its own."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=True)
        try:
            home = old_sessions(Path(folder) / "home", sessions)
            if leaked:
                end = "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id < "
                sql(home, f"{end}'20260101_{leaked:06}'; PRAGMA wal_checkpoint(TRUNCATE);")
            for number in range(20):
                name = f"request_dump_20260101_{number:06}_aaaaaa_20260101_080000_000000.json"
                (home / "sessions" / name).write_text("{}")
                os.utime(home / "sessions" / name, (1.7e9, 1.7e9))
            (home / "logs").mkdir()
            (home / "logs" / "agent.log").write_bytes(b"x" * 6_000_000)
            yield home
        finally:
            subprocess.run(["umount", folder], check=True)


def fill(file: Path) -> None:
    with file.open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
        write_all(filler.write)
    assert os.statvfs(file).f_bavail == 0


def write_all(write: Callable[[bytes], int | None]) -> None:
    while write(b"x" * 4096):
        pass


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that never had a run; its disk has not a free byte."""
    with small_home("16m") as home:
        fill(home.parent / "filler")
        yield home


def test_the_first_run_says_what_to_free_and_then_works(home: Path, tmp_path: Path) -> None:
    options = ["--home", str(home), "--state-dir", str(tmp_path / "state")]
    full = run("prune", "--policy", "request_dumps", "--yes", *options)
    assert full.returncode == 1
    said = full.stdout + full.stderr
    assert said.count("the disk of") == 1
    command = said.partition("`")[2].partition("`")[0]
    assert command == f"truncate -s 0 {home}/logs/agent.log"
    subprocess.run(shlex.split(command), check=True)
    assert run("prune", "--policy", "request_dumps", "--yes", *options).returncode == 0


def test_where_no_log_is_large_enough_it_says_where_to_look(home: Path, tmp_path: Path) -> None:
    """To free one small file after another would be a riddle; and there is no trash to empty."""
    (home / "logs" / "agent.log").unlink()
    fill(home.parent / "more")
    options = ["--home", str(home), "--state-dir", str(tmp_path / "state")]
    full = run("prune", "--policy", "request_dumps", "--yes", *options)
    assert full.returncode == 1
    said = full.stdout + full.stderr
    assert f"Free 2.5 MiB there first; `du -xah {home.parent} | sort -h | tail` shows" in said
    purged = run("purge", "--yes", *options)
    assert (purged.returncode, purged.stdout) == (0, "The trash is empty.\n")


@pytest.mark.parametrize("command", ["reap", "prune"])
def test_what_it_says_to_free_is_enough_for_all_that_was_planned(
    command: str, tmp_path: Path
) -> None:
    """Sessions need room for their rows in the trash and for the WAL, not for the journal alone."""
    options = ["--state-dir", str(tmp_path / "state")]
    with small_home("64m", 2000, leaked=200) as home:
        (home / "logs" / "agent.log").unlink()
        filler = home.parent / "filler"
        fill(filler)
        full = run(command, "--yes", "--home", home, *options)
        assert full.returncode == 1, full
        said = re.search(r"Free ([\d.]+) MiB there first", full.stdout + full.stderr)
        assert said is not None, full
        os.truncate(filler, filler.stat().st_size - int(float(said[1]) * (1 << 20)))
        done = run(command, "--yes", "--home", home, "--json", *options)
        assert done.returncode == 0, done
        result = json.loads(done.stdout)
        assert (result["outcome"], result["skipped"]) == ("done", [])
        assert result["done"] == len(result["plan"]["actions"]) >= 200


def test_a_run_says_that_sessions_are_left_for_want_of_room(tmp_path: Path) -> None:
    options = ["--state-dir", str(tmp_path / "state")]
    with small_home("64m", 2000) as home:
        filler = home.parent / "filler"
        fill(filler)
        os.truncate(filler, filler.stat().st_size - (5 << 19))
        done = run("prune", "--yes", "--home", home, *options)
        assert "sessions are left for now: deleting these sessions may need" in done.stdout
        (noted,) = json.loads(run("history", "--json", "--home", home, *options).stdout)
        assert noted["actions"] < 2000


def test_a_plan_that_cannot_be_saved_says_so_and_how_to_do_it_all_the_same(home: Path) -> None:
    """The state directory is on the full disk too: a hash that no command knows helps no one."""
    where = ["--home", str(home), "--state-dir", str(home.parent / "state")]
    shown = run("prune", "--policy", "request_dumps", *where)
    assert shown.returncode == 0, shown
    assert "--plan" not in shown.stdout
    assert f"This plan could not be saved: {home.parent}/state: No space left on device." in (
        shown.stdout
    )
    assert shlex.split(shown.stdout.splitlines()[-1])[1:] == [
        *("prune", "--policy", "request_dumps"),
        *(*where, "--yes"),
    ]
    told = run("prune", "--policy", "request_dumps", "--json", *where)
    assert "the plan could not be saved" in told.stderr


def test_an_agent_that_enforces_a_home_has_kept_space_before_its_disk_is_full(
    tmp_path: Path,
) -> None:
    with small_home("64m") as home:
        reserve = home / ".hermes-exporter/reserve"
        settings = "scan: {interval: 1s}\nprune: {mode: enforce}\n"
        with agent(tmp_path, [home], configuration=settings):
            wait_until(
                lambda: reserve.exists() and reserve.stat().st_blocks, "the agent keeps space"
            )
        fill(home.parent / "filler")
        options = ["--home", str(home), "--state-dir", str(tmp_path / "state")]
        done = run("prune", "--policy", "request_dumps", "--yes", *options)
        assert done.returncode == 0, done.stderr
        assert "20 items taken." in done.stdout
        assert reserve.stat().st_blocks == 0  # it was needed; the file says that there is one
