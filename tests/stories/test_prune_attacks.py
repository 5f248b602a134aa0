"""Root prunes the home of a user who wants more than that: nothing outside of it is touched."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.command import run, run_json
from tests.real.hermes import NEWEST
from tests.real.homes import make_home
from tests.support.evidence import NOBODY
from tests.support.removers import picture

OWNER = NOBODY
SECONDS = 200 * 86_400
DUMPS = [
    f"sessions/request_dump_20260101_080000_aaaaaa_20260102_08000{number}_813577.json"
    for number in range(4)
]
"""Of a session that the home has."""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can reach; those of tests are closed to them."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hermes-exporter-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An old home of an ordinary user."""
    home = make_home(NEWEST, tmp_path_factory.mktemp("attacks")).path
    for name in DUMPS:
        (home / name).write_bytes(b"x" * 5000)
    with sqlite3.connect(home / "state.db") as connection:
        connection.execute(f"UPDATE messages SET timestamp = timestamp - {SECONDS}")
        connection.execute(
            f"UPDATE sessions SET started_at = started_at - {SECONDS}, "
            f"ended_at = ended_at - {SECONDS}"
        )
    connection.close()
    for path in home.rglob("*"):
        found = path.lstat()
        os.utime(path, (found.st_atime - SECONDS, found.st_mtime - SECONDS), follow_symlinks=False)
    subprocess.run(["chown", "-hR", f"{OWNER}:{OWNER}", home], check=True)
    return home


@pytest.fixture
def home(template: Path, place: Path) -> Path:
    subprocess.run(["cp", "-a", template, place / "home"], check=True)
    return place / "home"


@pytest.fixture
def outside(place: Path) -> Path:
    """What belongs to root: a file, a repository, and a trap that tells if it was sprung."""
    outside = place / "outside"
    (outside / "repo/objects").mkdir(parents=True)
    (outside / "repo/HEAD").write_text("ref: refs/heads/master\n")
    (outside / "victim.json").write_text("precious")
    (outside / "trap").write_text(f"#!/bin/sh\n: > {place}/sprung\n")
    (outside / "trap").chmod(0o755)
    return outside


def repos(plan: Any) -> list[str]:
    return [each["target"] for each in plan["actions"] if each["action"] == "delete_repo"]


def prune(home: Path, place: Path, plan: Any) -> tuple[set[str], dict[str, str]]:
    """Execute a plan that was shown; what was done, and why the rest was not."""
    words = ("--plan", plan["hash"], "--yes", "--json")
    done = run("prune", "--home", home, "--state-dir", place / "state", *words)
    said = json.loads(done.stdout)
    skipped = {each["target"]: each["why"] for each in said["skipped"]}
    targets = {each["target"] for each in plan["actions"]}
    assert set(skipped) <= targets
    assert done.returncode in ((0, 3) if targets - set(skipped) else (1,)), done.stderr
    return targets - set(skipped), skipped


def test_what_is_swapped_between_plan_and_run_is_refused_and_nothing_outside_is_touched(
    home: Path, place: Path, outside: Path
) -> None:
    plan = run_json("prune", "--home", home, "--state-dir", place / "state")["plan"]
    assert set(DUMPS) <= {each["target"] for each in plan["actions"]}
    swapped = repos(plan)[0]
    shutil.rmtree(home / swapped)
    (home / swapped).symlink_to(outside / "repo")
    for name in DUMPS[:3]:
        (home / name).unlink()
    (home / DUMPS[0]).symlink_to(outside / "victim.json")
    os.link(outside / "victim.json", home / DUMPS[1])
    (home / DUMPS[2]).write_text("written by root")
    there = picture(outside)
    done, skipped = prune(home, place, plan)
    assert {swapped, *DUMPS[:3]} <= set(skipped)
    assert all(skipped.values())
    assert DUMPS[3] in done
    assert not (home / DUMPS[3]).exists()
    assert picture(outside) == there
    of_root = {path for path in home.rglob("*") if path.lstat().st_uid != OWNER}
    assert of_root == {home / name for name in (swapped, *DUMPS[:3])}


def test_a_sessions_folder_and_checkpoints_that_lead_elsewhere_lose_nothing(
    home: Path, place: Path, outside: Path
) -> None:
    plan = run_json("prune", "--home", home, "--state-dir", place / "state")["plan"]
    for name in ("sessions", "checkpoints"):
        shutil.move(home / name, outside / name)
        (home / name).symlink_to(outside / name)
    there = picture(outside)
    done, skipped = prune(home, place, plan)
    assert {*DUMPS, *repos(plan)} <= set(skipped)
    assert picture(outside) == there
    assert not [target for target in done if "/" in target]


def test_nothing_that_repositories_bring_along_runs_and_their_working_directories_are_safe(
    home: Path, place: Path, outside: Path
) -> None:
    store = home / "checkpoints/store"
    for repo in [store, *home.glob("checkpoints/*/HERMES_WORKDIR")]:
        repo = repo if repo == store else repo.parent
        times = repo.stat()
        (repo / "hooks").mkdir(exist_ok=True)
        for hook in ("reference-transaction", "post-index-change", "pre-auto-gc"):
            (repo / "hooks" / hook).symlink_to(outside / "trap")
        with (repo / "config").open("a") as config:
            config.write(f"[core]\n\tfsmonitor = {outside}/trap\n[include]\n\tpath = /etc/x\n")
        if repo != store:
            (repo / "HERMES_WORKDIR").write_text("/\n")
        os.utime(repo, ns=(times.st_atime_ns, times.st_mtime_ns))
    subprocess.run(["chown", "-hR", f"{OWNER}:{OWNER}", home], check=True)
    plan = run_json("prune", "--home", home, "--state-dir", place / "state")["plan"]
    root = os.stat("/")
    done, skipped = prune(home, place, plan)
    projects = {each["target"] for each in plan["actions"] if each["action"] == "delete_project"}
    assert projects <= set(skipped)
    assert all("sets core.fsmonitor" in skipped[each] for each in projects)
    assert not (place / "sprung").exists()
    assert os.stat("/").st_mtime_ns == root.st_mtime_ns
    assert done
