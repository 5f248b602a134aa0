"""Projects of the checkpoint store are taken as bundles, and given back as Hermes knew them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from git import Repo

from exporter.runs.models import RecordedAction
from exporter.runs.trash import name_in_trash
from tests.real.hermes import NEWEST, VERSIONS, python_for
from tests.support.checkpoint_homes import Checkpoints
from tests.support.disk_homes import git
from tests.support.removers import picture, renamed, restore, take, taken, trash

NOBODY = 65534


@pytest.fixture(params=VERSIONS)
def every_version(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoints:
    return Checkpoints(python_for(request.param), tmp_path / "home")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    made = Checkpoints(python_for(NEWEST), tmp_path_factory.mktemp("checkpoints") / "home")
    made.snapshot("one", "two", turns=2)
    return made


@pytest.fixture
def made(template: Checkpoints, tmp_path: Path) -> Checkpoints:
    home = shutil.copytree(template.home, tmp_path / "home", symlinks=True)
    return Checkpoints(template.hermes, home, template.work)


def test_a_project_is_taken_and_given_back_as_its_hermes_knew_it(
    every_version: Checkpoints,
) -> None:
    made = every_version
    made.snapshot("one", "two")
    refs, files, snapshots = made.refs(), made.own_files("one"), made.snapshots("one")
    action = made.planned("one")
    assert take(made.remover, made.home, action) == [""]
    assert made.refs() == {path: tip for path, tip in refs.items() if made.name("one") not in path}
    assert made.own_files("one") == {}
    asked = made.ask(list=[made.folder("one"), made.folder("two")])
    assert asked["snapshots"][made.folder("one")] == []
    assert len(asked["snapshots"][made.folder("two")]) == 3
    assert asked["projects"] == [made.folder("two")]
    # Hermes's own prune collects everything that no ref leads to any more.
    made.ask(prune={"retention_days": 0, "delete_orphans": False})
    assert subprocess.run(
        ["git", "cat-file", "-e", snapshots[0]], env={"GIT_DIR": str(made.store)}, check=False
    ).returncode
    assert restore(made.remover, made.home, action, action) == ["", ""]
    assert made.refs() == refs
    assert made.own_files("one") == files
    assert len(files) == 3
    assert made.fsck() == ""
    restored = made.ask(list=[made.folder("one")], restore=[[made.folder("one"), snapshots[-1]]])
    assert restored["snapshots"][made.folder("one")] == snapshots
    assert restored["restored"][0]["success"]


def test_a_store_with_longer_hashes_is_pruned_and_given_back(tmp_path: Path) -> None:
    """The variable GIT_DEFAULT_HASH makes git use them, and git 3 does so without it."""
    made = Checkpoints(python_for(NEWEST), tmp_path / "home")
    git(tmp_path, "init", "--quiet", "--bare", "--object-format=sha256", str(made.store))
    for key in ("user.name", "user.email"):
        git(made.store, "config", "--file", "config", key, "hermes")  # as Hermes does
    made.snapshot("one")
    snapshots, files = made.snapshots("one"), made.own_files("one")
    assert len(snapshots[0]) == 64
    action = made.planned("one")
    assert take(made.remover, made.home, action) == [""]
    assert made.snapshots("one") == []
    assert restore(made.remover, made.home, action) == [""]
    assert (made.snapshots("one"), made.own_files("one")) == (snapshots, files)


def test_what_is_still_in_the_store_is_given_back_too(made: Checkpoints) -> None:
    refs, files = made.refs(), made.own_files()
    actions = [made.planned("one", 0), made.planned("two", 1)]
    assert take(made.remover, made.home, *actions) == ["", ""]
    assert made.refs() == {}
    assert taken(made.remover, made.home, *actions) == [True, True]
    assert restore(made.remover, made.home, *actions) == ["", ""]
    assert (made.refs(), made.own_files()) == (refs, files)


def test_the_bundle_lies_outside_of_the_store_and_needs_nothing_from_it(
    made: Checkpoints, tmp_path: Path
) -> None:
    tip = made.snapshots("one")[0]
    action = made.planned("one")
    assert take(made.remover, made.home, action) == [""]
    with trash(made.home) as opened:
        kept = Path(opened.path, os.fsdecode(name_in_trash(action)))
    assert sorted(each.name for each in kept.iterdir()) == [
        "about.json",
        "indexes",
        "projects",
        "snapshots.bundle",
    ]
    assert not list(made.store.rglob("*.bundle"))
    git(tmp_path, "clone", "--quiet", "--mirror", str(kept / "snapshots.bundle"), "copy")
    with Repo(tmp_path / "copy") as copy:
        assert [each.commit.hexsha for each in copy.references] == [tip]


def test_a_project_that_hermes_goes_on_with_is_not_overwritten(made: Checkpoints) -> None:
    action = made.planned("one")
    assert take(made.remover, made.home, action) == [""]
    made.snapshot("one", turns=1)
    refs, files = made.refs(), made.own_files()
    [why] = restore(made.remover, made.home, action)
    assert "Hermes has made new snapshots" in why
    assert (made.refs(), made.own_files()) == (refs, files)


def test_a_project_that_hermes_used_since_the_plan_is_left_alone(made: Checkpoints) -> None:
    action = made.planned("one")
    made.snapshot("one", turns=1)
    before = picture(made.home)
    assert take(made.remover, made.home, action) == ["it has changed since it was planned"]
    assert picture(made.home) == before


def test_projects_that_only_a_ref_or_only_a_file_knows_are_taken_too(made: Checkpoints) -> None:
    (made.store / "projects" / f"{made.name('one')}.json").unlink()
    git(made.store, "update-ref", "-d", f"refs/hermes/{made.name('two')}", GIT_DIR=str(made.store))
    refs, files = made.refs(), made.own_files()
    actions = [made.planned("one", 0), made.planned("two", 1)]
    assert take(made.remover, made.home, *actions) == ["", ""]
    assert made.refs() == {}
    assert not [path for path in made.own_files() if "." in path]
    assert taken(made.remover, made.home, *actions) == [True, True]
    assert take(made.remover, made.home, *actions) == ["it is gone already"] * 2
    assert restore(made.remover, made.home, *actions) == ["", ""]
    assert (made.refs(), made.own_files()) == (refs, files)


def test_a_run_killed_before_the_ref_was_deleted_has_taken_nothing(made: Checkpoints) -> None:
    before = picture(made.home)
    action = made.planned("one")
    kept = pack_by_hand(made, action)
    assert taken(made.remover, made.home, action) == [False]
    assert picture(made.home) == before
    assert not kept.exists()


def test_a_run_killed_after_the_ref_was_deleted_is_finished(made: Checkpoints) -> None:
    refs, files = made.refs(), made.own_files()
    action = made.planned("one")
    pack_by_hand(made, action)
    git(made.store, "update-ref", "-d", made.ref("one"), GIT_DIR=str(made.store))
    assert taken(made.remover, made.home, action) == [True]
    assert made.own_files("one") == {}
    assert restore(made.remover, made.home, action) == [""]
    assert made.refs() == refs
    assert {path: seen[3][0] for path, seen in made.own_files().items()} == {
        path: seen[3][0] for path, seen in files.items()
    }


def test_what_hermes_made_anew_after_a_kill_is_left_alone(made: Checkpoints) -> None:
    action = made.planned("one")
    pack_by_hand(made, action)
    git(made.store, "update-ref", "-d", made.ref("one"), GIT_DIR=str(made.store))
    made.snapshot("one", turns=1)
    refs, files = made.refs(), made.own_files()
    assert taken(made.remover, made.home, action) == [True]
    assert (made.refs(), made.own_files()) == (refs, files)


def test_a_store_that_is_gone_since_a_kill_does_not_stand_in_the_way(made: Checkpoints) -> None:
    actions = [made.planned("one", 0), made.planned("two", 1)]
    assert take(made.remover, made.home, actions[0]) == [""]
    shutil.rmtree(made.home / "checkpoints")
    assert taken(made.remover, made.home, *actions) == [True, False]
    assert restore(made.remover, made.home, actions[0]) == ["checkpoints is gone"]


def pack_by_hand(made: Checkpoints, action: RecordedAction) -> Path:
    """What lies in the trash before the ref is deleted."""
    with trash(made.home) as opened:
        kept = Path(opened.path, os.fsdecode(name_in_trash(action)))
    kept.mkdir()
    tip = made.refs()[made.ref("one")]
    (kept / "about.json").write_text(json.dumps({"project": made.name("one"), "tip": tip}))
    git(
        made.store,
        "bundle",
        "create",
        "--quiet",
        str(kept / "snapshots.bundle"),
        made.ref("one"),
        GIT_DIR=str(made.store),
    )
    return kept


def test_a_project_never_goes_without_the_trash(made: Checkpoints) -> None:
    before = picture(made.home)
    assert "certain garbage" in made.remover.take(made.planned("one"), None)
    assert picture(made.home) == before


# Refusals


def config(line: str) -> Callable[[Checkpoints, Path], None]:
    def change(made: Checkpoints, outside: Path) -> None:
        with (made.store / "config").open("a") as file:
            file.write(line.format(trap=outside / "trap") + "\n")

    return change


def lock(name: str) -> Callable[[Checkpoints, Path], None]:
    return lambda made, outside: (made.store / name.format(made.name("one"))).touch()


def store_elsewhere(made: Checkpoints, outside: Path) -> None:
    made.store.rename(outside / "store")
    made.store.symlink_to(outside / "store")


def file_elsewhere(made: Checkpoints, outside: Path) -> None:
    file = made.store / "projects" / f"{made.name('one')}.json"
    file.rename(outside / "project.json")
    file.symlink_to(outside / "project.json")


def index_of_somebody_else(made: Checkpoints, outside: Path) -> None:
    os.chown(made.store / "indexes" / made.name("one"), NOBODY, NOBODY)


def index_with_two_names(made: Checkpoints, outside: Path) -> None:
    os.link(made.store / "indexes" / made.name("one"), outside / "index")


def symbolic_ref(made: Checkpoints, outside: Path) -> None:
    git(
        made.store,
        "symbolic-ref",
        f"refs/hermes/{made.name('one')}",
        f"refs/hermes/{made.name('two')}",
        GIT_DIR=str(made.store),
    )


def damaged(made: Checkpoints, outside: Path) -> None:
    for folder in (made.store / "objects").iterdir():
        if len(folder.name) == 2:
            next(folder.iterdir()).unlink()


OBSTACLES = [
    (config("[core]\n\tfsmonitor = {trap}"), "sets core.fsmonitor"),
    (config("[core]\n\thooksPath = {trap}"), "sets core.hookspath"),
    (config("[include]\n\tpath = {trap}"), "sets include.path"),
    (config('[filter "x"]\n\tclean = {trap}'), "Hermes does not write"),
    (lock("indexes/{}.lock"), "lock"),
    (lock("packed-refs.lock"), "lock"),
    (lock("gc.pid"), "lock"),
    (store_elsewhere, "store is a symlink"),
    (file_elsewhere, "symlink"),
    (index_of_somebody_else, "belongs to uid 65534"),
    (index_with_two_names, "not what Hermes writes"),
    (symbolic_ref, "not a plain ref"),
    (damaged, "failed"),
]


@pytest.mark.parametrize(("obstacle", "reason"), OBSTACLES)
def test_a_store_that_is_not_plainly_hermes_own_and_at_rest_is_left_alone(
    made: Checkpoints,
    tmp_path: Path,
    obstacle: Callable[[Checkpoints, Path], None],
    reason: str,
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "trap").write_text(f"#!/bin/sh\n: > {outside}/sprung\n")
    (outside / "trap").chmod(0o755)
    for hook in ("reference-transaction", "post-index-change", "pre-auto-gc"):
        (made.store / "hooks").mkdir(exist_ok=True)
        (made.store / "hooks" / hook).symlink_to(outside / "trap")
    obstacle(made, outside)
    before, there = picture(made.home), picture(outside)
    action = made.planned("one")
    assert reason in take(made.remover, made.home, action)[0]
    assert picture(made.home) == before
    assert picture(outside) == there
    with trash(made.home) as opened:
        assert os.listdir(opened.descriptor) == []


def test_hooks_of_the_store_do_not_run(made: Checkpoints, tmp_path: Path) -> None:
    (tmp_path / "trap").write_text(f"#!/bin/sh\n: > {tmp_path}/sprung\n")
    (tmp_path / "trap").chmod(0o755)
    (made.store / "hooks").mkdir(exist_ok=True)
    (made.store / "hooks/reference-transaction").symlink_to(tmp_path / "trap")
    action = made.planned("one")
    assert take(made.remover, made.home, action) == [""]
    assert restore(made.remover, made.home, action) == [""]
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["", "..", "../../x", "*", "0123456789ABCDEF", "a" * 16 + "\n"])
def test_no_other_name_is_a_project(made: Checkpoints, name: str) -> None:
    before = picture(made.home)
    action = made.planned("one")
    forged = renamed(action, name)
    assert take(made.remover, made.home, forged) == ["no project has such a name"]
    assert picture(made.home) == before


# The size cap of Hermes


def test_what_waits_in_the_trash_costs_living_projects_no_snapshot_at_hermes_size_cap(
    tmp_path: Path,
) -> None:
    """Had it a ref in the store, the store would stay above the cap, and Hermes cuts everywhere."""
    counts = {}
    for trashed in (False, True):
        folder = tmp_path / f"trashed-{trashed}"
        folder.mkdir()
        made = Checkpoints(python_for(NEWEST), folder / "home")
        made.snapshot("stale", turns=2, file_bytes=450_000)
        made.snapshot("one", "two", turns=2, file_bytes=50_000)
        if trashed:
            assert take(made.remover, made.home, made.planned("stale")) == [""]
            made.ask(prune={"retention_days": 0, "delete_orphans": False})
        asked = made.snapshot(
            "one",
            turns=1,
            file_bytes=50_000,
            limits={"max_total_size_mb": 1},
            list=[made.folder("one"), made.folder("two")],
        )
        counts[trashed] = [
            len(asked["snapshots"][made.folder(project)]) for project in ("one", "two")
        ]
    assert counts == {True: [3, 2], False: [1, 1]}
