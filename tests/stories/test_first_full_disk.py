"""A disk that is full to the last byte, in a home that never had a run."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real.command import run
from tests.support.old_sessions import old_sessions


@pytest.fixture
def home() -> Iterator[Path]:
    """A home on a small tmpfs without a free byte."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", folder], check=True)
        try:
            home = old_sessions(Path(folder) / "home", 30)
            for number in range(20):
                name = f"request_dump_20260101_{number:06}_aaaaaa_20260101_080000_000000.json"
                (home / "sessions" / name).write_text("{}")
                os.utime(home / "sessions" / name, (1.7e9, 1.7e9))
            (home / "logs").mkdir()
            (home / "logs" / "agent.log").write_bytes(b"x" * 6_000_000)
            fill(Path(folder) / "filler")
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
