"""`status` without an agent keeps what takes long to read; what it shows stays true."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.real.command import run, run_json
from tests.support.disk_homes import commit_in_repo, du, make_shadow_repo, settle
from tests.support.small_homes import small_home

REPOS = 12
SNAPSHOT_FILES = 80


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Make a home with more files below checkpoints/ than each scan reads."""
    home = small_home(tmp_path / "home")
    for number in range(REPOS):
        repo = make_shadow_repo(home / "checkpoints", f"{number:016x}", tmp_path / f"w{number}")
        for each in range(SNAPSHOT_FILES):
            (repo / f"objects/{each:02x}").mkdir(exist_ok=True)
            (repo / f"objects/{each:02x}/{each:038x}").write_bytes(b"x")
    settle(*(folder for folder in (home / "checkpoints").rglob("*") if folder.is_dir()))
    return home


def status(home: Path, state: Path, *more: str) -> dict[str, Any]:
    where = ("--home", home, "--state-dir", state, "--no-agent")
    (found,) = run_json("status", *where, *more)["homes"]
    assert isinstance(found, dict)
    return found


def shown_bytes(found: dict[str, Any]) -> int:
    return sum(found["disk"].values())


def fingerprint(home: Path) -> dict[Path, tuple[int, int]]:
    return {path: (os.lstat(path).st_ino, os.lstat(path).st_mtime_ns) for path in home.rglob("*")}


def test_the_next_status_sees_every_snapshot_and_reads_the_rest_in_turn(
    home: Path, tmp_path: Path
) -> None:
    state, before = tmp_path / "state", fingerprint(home)
    assert shown_bytes(status(home, state)) == du(home)
    assert fingerprint(home) == before
    (tmp_path / "w3/file.txt").write_bytes(os.urandom(50_000))
    commit_in_repo(home / f"checkpoints/{3:016x}", tmp_path / "w3")
    size = du(home)
    assert shown_bytes(status(home, state)) == size
    # A change that no program makes: it shows in no folder. Only a new reading finds it.
    with (home / f"checkpoints/{5:016x}/objects/05/{5:038x}").open("ab") as file:
        file.write(b"x" * 50_000)
    assert shown_bytes(status(home, state)) == size
    assert shown_bytes(status(home, state, "--fresh")) == du(home) > size
    assert shown_bytes(status(home, state)) == du(home)


def test_a_damaged_file_is_ignored_and_replaced(home: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = status(home, state)
    (kept,) = (state / "readings").iterdir()
    content = kept.read_bytes()
    for damage in (b"", b"no readings", content[: len(content) // 2], content[:-1] + b"\xc1"):
        kept.write_bytes(damage)
        found = status(home, state)
        assert (found["disk"], found["sessions"]) == (first["disk"], first["sessions"])
        assert kept.read_bytes() != damage


def test_a_prune_reads_everything_anew(home: Path, tmp_path: Path) -> None:
    """A run must not rest on what an earlier command saw."""
    state = tmp_path / "state"
    status(home, state)
    (kept,) = (state / "readings").iterdir()
    kept.write_bytes(b"no readings")
    done = run("prune", "--home", home, "--state-dir", state, "--no-agent")
    assert done.returncode == 0, done.stderr
    assert kept.read_bytes() == b"no readings"
