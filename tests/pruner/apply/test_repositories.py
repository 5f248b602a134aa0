"""Shadow repositories are taken and given back whole; one that is in use or a trick is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.pruner.apply import rename
from exporter.pruner.apply.repositories import RepositoryRemover
from exporter.runs.trash import name_in_trash
from tests.real.waiting import wait_until
from tests.support.disk_homes import commit_in_repo, git, make_shadow_repo
from tests.support.removers import (
    picture,
    planned_repo,
    renamed,
    restore,
    take,
    taken,
    trash,
)

NOBODY = 65534
REPO = "checkpoints/0123456789abcdef"
ARCHIVE = "checkpoints/legacy-20260101-000000"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    make_shadow_repo(home / "checkpoints", Path(REPO).name, tmp_path / "work")
    for number in range(2):
        make_shadow_repo(home / ARCHIVE, f"{number:016x}", tmp_path / f"archived-{number}")
    (home / "checkpoints/.last_prune").write_text("1")
    os.utime(home / REPO, (1_700_000_000, 1_700_000_000))
    return home


@pytest.fixture
def remover(home: Path) -> RepositoryRemover:
    return RepositoryRemover(str(home), os.geteuid())


@pytest.mark.parametrize("target", [REPO, ARCHIVE, f"{ARCHIVE}/{1:016x}"])
def test_a_repository_is_taken_and_given_back_whole(
    home: Path, remover: RepositoryRemover, target: str
) -> None:
    before, modified = picture(home), (home / target).stat().st_mtime_ns
    action = planned_repo(home, target)
    assert take(remover, home, action) == [""]
    assert not (home / target).exists()
    assert taken(remover, home, action) == [True]
    assert take(remover, home, action) == ["it is gone already"]
    assert restore(remover, home, action, action) == ["", ""]
    assert picture(home) == before
    assert (home / target).stat().st_mtime_ns == modified


def test_what_comes_back_is_the_repository_that_it_was(
    home: Path, remover: RepositoryRemover
) -> None:
    before = snapshots(home / REPO)
    action = planned_repo(home, REPO)
    assert take(remover, home, action) == [""]
    assert restore(remover, home, action) == [""]
    assert snapshots(home / REPO) == before
    assert git(home, "fsck", "--strict", GIT_DIR=str(home / REPO)) == ""


def snapshots(repo: Path) -> str:
    """Each commit with its files, as git tells it."""
    return git(repo, "log", "--raw", "--no-abbrev", "--all", GIT_DIR=str(repo))


def test_a_repository_that_hermes_made_anew_is_not_overwritten(
    home: Path, remover: RepositoryRemover, tmp_path: Path
) -> None:
    action = planned_repo(home, REPO)
    assert take(remover, home, action) == [""]
    make_shadow_repo(home / "checkpoints", Path(REPO).name, tmp_path / "work")
    anew = picture(home)
    [why] = restore(remover, home, action)
    assert "newer" in why
    assert picture(home) == anew
    (home / REPO).rename(tmp_path / "aside")
    (home / REPO).mkdir()
    assert "newer" in restore(remover, home, action)[0]


@pytest.mark.parametrize(
    "target",
    [
        "checkpoints/store",
        "checkpoints",
        "checkpoints/0123456789ABCDEF",
        "checkpoints/0123456789abcdef/objects",
        "checkpoints/legacy-x/../../sessions",
        "checkpoints/legacy-20260101-000000/notes",
        "sessions",
        "../elsewhere",
        "/",
        "",
    ],
)
def test_no_other_folder_is_ever_taken(home: Path, remover: RepositoryRemover, target: str) -> None:
    before = picture(home)
    action = planned_repo(home, REPO)
    forged = renamed(action, target)
    assert take(remover, home, forged) == ["no folder of this name is ever taken"]
    assert picture(home) == before


def test_a_repository_never_goes_without_the_trash(home: Path, remover: RepositoryRemover) -> None:
    before = picture(home)
    assert "certain garbage" in remover.take(planned_repo(home, REPO), None)
    assert picture(home) == before


# Tricks


def a_symlink(home: Path, outside: Path) -> None:
    shutil.move(home / REPO, outside / "repo")
    (home / REPO).symlink_to(outside / "repo")


def behind_a_symlink(home: Path, outside: Path) -> None:
    shutil.move(home / "checkpoints", outside / "checkpoints")
    (home / "checkpoints").symlink_to(outside / "checkpoints")


def of_somebody_else(home: Path, outside: Path) -> None:
    os.chown(home / REPO, NOBODY, NOBODY)


def with_something_of_somebody_else(home: Path, outside: Path) -> None:
    (home / REPO / "objects/deep/down").mkdir(parents=True)
    (home / REPO / "objects/deep/down/file").touch()
    os.chown(home / REPO / "objects/deep/down/file", NOBODY, NOBODY)


def a_file(home: Path, outside: Path) -> None:
    shutil.rmtree(home / REPO)
    (home / REPO).touch()


def very_deep(home: Path, outside: Path) -> None:
    (home / REPO / "/".join("d" * 100)).mkdir(parents=True)


def locked(name: str) -> Callable[[Path, Path], None]:
    return lambda home, outside: (home / REPO / name).touch()


TRICKS = [
    (a_symlink, "symlink"),
    (behind_a_symlink, "checkpoints is a symlink"),
    (of_somebody_else, "belongs to uid 65534"),
    (with_something_of_somebody_else, "something in it belongs to uid 65534"),
    (a_file, "no folder"),
    (very_deep, "levels deep"),
    (locked("index.lock"), "lock"),
    (locked("refs/heads/master.lock"), "lock"),
    (locked("gc.pid"), "lock"),
]


@pytest.mark.parametrize(("trick", "reason"), TRICKS)
def test_what_is_no_plain_repository_at_rest_is_refused_with_the_reason(
    home: Path,
    remover: RepositoryRemover,
    tmp_path: Path,
    trick: Callable[[Path, Path], None],
    reason: str,
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    trick(home, outside)
    before, there = picture(home), picture(outside)
    assert reason in take(remover, home, planned_repo(home, REPO))[0]
    assert picture(home) == before
    assert picture(outside) == there


def test_a_lock_that_was_left_days_ago_keeps_nothing(
    home: Path, remover: RepositoryRemover
) -> None:
    (home / REPO / "index.lock").touch()
    old = time.time() - 3 * 86400
    os.utime(home / REPO / "index.lock", (old, old))
    assert take(remover, home, planned_repo(home, REPO)) == [""]


def test_a_link_in_a_repository_is_moved_as_a_link(
    home: Path, remover: RepositoryRemover, tmp_path: Path
) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/precious").write_text("x")
    (home / REPO / "hooks-link").symlink_to(tmp_path / "victim")
    before, there = picture(home), picture(tmp_path / "victim")
    action = planned_repo(home, REPO)
    assert take(remover, home, action) == [""]
    assert picture(tmp_path / "victim") == there
    assert restore(remover, home, action) == [""]
    assert picture(home) == before


@pytest.mark.parametrize("where", ["", "/objects/info"])
@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_a_repository_with_something_mounted_is_refused(
    home: Path,
    remover: RepositoryRemover,
    tmp_path: Path,
    where: str,
    kind: str,
    mounts: Callable[..., None],
) -> None:
    (tmp_path / "other").mkdir()
    source = ("--bind", str(tmp_path / "other")) if kind == "bind" else ("-t", "tmpfs", "none")
    mounts(*source, f"{home}/{REPO}{where}")
    assert "mounted" in take(remover, home, planned_repo(home, REPO))[0]


def test_a_repository_that_hermes_used_since_the_plan_is_left_alone(
    home: Path, remover: RepositoryRemover, tmp_path: Path
) -> None:
    action = planned_repo(home, REPO)
    (tmp_path / "work/file.txt").write_text("changed")
    commit_in_repo(home / REPO, tmp_path / "work")
    assert take(remover, home, action) == ["it has changed since it was planned"]


def test_a_repository_in_which_git_is_at_work_is_left_alone(
    home: Path, remover: RepositoryRemover, tmp_path: Path
) -> None:
    """As Hermes runs it: by GIT_DIR, from the working directory, and here before it has a lock."""
    action = planned_repo(home, REPO)
    with subprocess.Popen(
        ["git", "hash-object", "--stdin"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        cwd=tmp_path / "work",
        env={"PATH": os.environ["PATH"], "GIT_DIR": str(home / REPO)},
    ) as process:
        comm = Path(f"/proc/{process.pid}/comm")
        wait_until(lambda: comm.read_text() == "git\n" or None, "git")
        assert take(remover, home, action) == [f"git process {process.pid} works in it"]
        assert process.stdin is not None
        process.stdin.close()
    assert take(remover, home, action) == [""]


@pytest.mark.parametrize("swap", ["symlink", "folder", "used"])
def test_a_repository_swapped_between_the_look_and_the_rename_is_put_back(
    home: Path,
    remover: RepositoryRemover,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    swap: str,
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("x")
    action = planned_repo(home, REPO)

    def swap_then_rename(*arguments: object) -> None:
        monkeypatch.undo()
        if swap == "used":
            (home / REPO / "index.lock").touch()
        else:
            (home / REPO).rename(tmp_path / "aside")
            (home / REPO).symlink_to(victim) if swap == "symlink" else (home / REPO).mkdir()
        after.update(picture(home))
        rename.rename_no_replace(*arguments)  # type: ignore[arg-type]

    after: dict[str, object] = {}
    monkeypatch.setattr("exporter.pruner.apply.move.rename_no_replace", swap_then_rename)
    assert take(remover, home, action) != [""]
    assert picture(home) == after
    assert (victim / "precious").read_text() == "x"
    with trash(home) as opened:
        assert os.listdir(opened.descriptor) == []


def test_a_run_killed_before_it_saw_the_swap_is_set_right(
    home: Path, remover: RepositoryRemover, tmp_path: Path
) -> None:
    action = planned_repo(home, REPO)
    (home / REPO).rename(tmp_path / "aside")
    with trash(home) as opened:
        Path(opened.path, os.fsdecode(name_in_trash(action))).symlink_to("/")
    assert taken(remover, home, action) == [False]
    assert os.readlink(home / REPO) == "/"


@pytest.mark.parametrize("marker", ["/", "/etc", "../../..", "\n", "/proc/self/root"])
def test_the_working_directory_of_a_repository_is_no_business_of_ours(
    home: Path, remover: RepositoryRemover, marker: str, tmp_path: Path
) -> None:
    (home / REPO / "HERMES_WORKDIR").write_text(f"{marker}\n")
    work = picture(tmp_path / "work")
    action = planned_repo(home, REPO)
    assert take(remover, home, action) == [""]
    assert restore(remover, home, action) == [""]
    assert picture(tmp_path / "work") == work


def test_nothing_that_a_repository_brings_along_is_run(
    home: Path, remover: RepositoryRemover, tmp_path: Path
) -> None:
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\n: > {tmp_path}/sprung\n")
    trap.chmod(0o755)
    for hook in ("reference-transaction", "post-index-change", "pre-auto-gc", "post-checkout"):
        (home / REPO / "hooks").mkdir(exist_ok=True)
        (home / REPO / "hooks" / hook).symlink_to(trap)
    with (home / REPO / "config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = {trap}\n[include]\n\tpath = {tmp_path}/more\n")
    action = planned_repo(home, REPO)
    assert take(remover, home, action) == [""]
    assert restore(remover, home, action) == [""]
    assert not (tmp_path / "sprung").exists()
