"""The projects of both checkpoint layouts, and their states."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from git import Repo
from hypothesis import given
from hypothesis import strategies as st

from exporter.hermes.checkpoints import (
    ProjectState,
    StoreReader,
    project_state,
    read_workdir,
)
from tests.support.disk_homes import add_project, add_ref, git, make_shadow_repo, make_store

A, B, C = "a" * 16, "b" * 16, "c" * 16
TIMES = st.floats(0, 4e9)


@given(TIMES, TIMES, st.floats(1, 1e8))
def test_a_project_with_a_lost_workdir_is_an_orphan_at_any_age(
    touch: float, now: float, keep: float
) -> None:
    assert project_state(touch, True, now, keep) is ProjectState.ORPHAN


@given(TIMES, TIMES, st.floats(1, 1e8))
def test_only_a_known_time_in_the_past_makes_a_project_stale(
    touch: float, now: float, keep: float
) -> None:
    state = project_state(touch, False, now, keep)
    assert (state is ProjectState.STALE) == (touch > 0 and now - touch > keep)
    assert project_state(0.0, False, now, keep) is ProjectState.ACTIVE
    assert project_state(now + touch, False, now, keep) is ProjectState.ACTIVE


def test_the_workdir_of_a_shadow_repository_is_read(tmp_path: Path) -> None:
    repo = make_shadow_repo(tmp_path, A, tmp_path / "work with\nnewline")
    assert read_workdir(os.fsencode(repo) + b"/") == os.fsencode(tmp_path / "work with\nnewline")


@pytest.mark.parametrize("content", [b"", b"\n", b"relative/path\n", b"/a\0b\n", b"/" * 100_000])
def test_a_marker_without_an_absolute_path_gives_no_workdir(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "HERMES_WORKDIR").write_bytes(content)
    assert read_workdir(os.fsencode(tmp_path) + b"/") is None


def test_a_marker_that_is_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("/etc\n")
    (tmp_path / "HERMES_WORKDIR").symlink_to(tmp_path / "secret")
    assert read_workdir(os.fsencode(tmp_path) + b"/") is None
    (tmp_path / "HERMES_WORKDIR").unlink()
    os.mkfifo(tmp_path / "HERMES_WORKDIR")
    assert read_workdir(os.fsencode(tmp_path) + b"/") is None


def test_projects_are_found_by_file_and_by_ref(tmp_path: Path) -> None:
    """A project without a ref has no snapshot yet.

    Hermes itself no longer finds one without a file.
    """
    store = make_store(tmp_path / "store", [A, B])
    add_project(store, A, tmp_path, 1000.0)
    add_project(store, C, tmp_path / "gone", 2000.0)
    found = {p.name: p for p in reader(store).read(0.0)}
    assert found.keys() == {A, B, C}
    assert (found[A].workdir, found[A].last_touch) == (os.fsencode(tmp_path), 1000.0)
    assert found[B].workdir is None
    assert found[B].last_touch == (store / "indexes" / B).stat().st_mtime
    assert found[C].workdir == os.fsencode(tmp_path / "gone")


def test_packed_and_loose_refs_are_found(tmp_path: Path) -> None:
    """A gc packs all refs, and new refs are loose again."""
    store = make_store(tmp_path / "store", [A, B])
    watching = reader(store)
    assert names(watching) == [A, B]
    git(store, "pack-refs", "--all", GIT_DIR=str(store))
    assert not (store / "refs/hermes" / A).exists()
    assert names(watching) == [A, B]
    add_ref(store, C)
    assert names(watching) == [A, B, C]
    git(store, "update-ref", "-d", f"refs/hermes/{A}", GIT_DIR=str(store))
    assert names(watching) == [B, C]
    with Repo(store) as repo:
        assert sorted(ref.path for ref in repo.refs) == [f"refs/hermes/{n}" for n in (B, C)]


def test_git_does_not_run_while_no_ref_changed(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [A])
    watching = reader(store)
    assert names(watching) == [A]
    (store / "commondir").write_text("..")  # from now on git would refuse to run here
    assert names(watching) == [A]
    assert watching.problem is None
    add_ref_by_hand(store, B)
    assert names(watching) == [A]
    assert "commondir" in str(watching.problem)


def test_a_refused_store_still_shows_the_projects_with_a_file(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [A, B])
    add_project(store, A, tmp_path, 1000.0)
    with (store / "config").open("a") as config:
        config.write("[core]\n\tfsmonitor = /bin/false\n")
    watching = reader(store)
    assert names(watching) == [A]
    assert "core.fsmonitor" in str(watching.problem)


def test_git_is_run_again_some_time_after_a_failure(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [A])
    (store / "commondir").write_text("..")
    watching = reader(store)
    assert watching.read(0.0) == []
    (store / "commondir").unlink()
    assert watching.read(60.0) == []
    assert [p.name for p in watching.read(601.0)] == [A]
    assert watching.problem is None


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{", b'{"workdir": 5}', b'{"workdir": "/x", "last_touch": "soon"}', b"\xff"],
)
def test_an_invalid_project_file_is_a_project_without_workdir(
    tmp_path: Path, content: bytes
) -> None:
    store = make_store(tmp_path / "store", [])
    (store / "projects" / f"{A}.json").write_bytes(content)
    (project,) = reader(store).read(0.0)
    assert (project.name, project.workdir, project.last_touch) == (A, None, 0.0)


def test_files_with_other_names_are_ignored(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [])
    for name in ("x.json", f"{A}.json.tmp", f"{A.upper()}.json", "é.json"):
        (store / "projects" / name).write_text("{}")
    assert reader(store).read(0.0) == []


def test_a_changed_project_file_is_read_again(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store", [])
    watching = reader(store)
    for touch in (1000.5, 2000.5, time.time()):
        add_project(store, A, tmp_path, touch)
        (project,) = watching.read(0.0)
        assert project.last_touch == touch


def test_a_projects_folder_that_is_a_symlink_is_not_followed(tmp_path: Path) -> None:
    elsewhere = make_store(tmp_path / "elsewhere", [])
    add_project(elsewhere, A, tmp_path, 1000.0)
    store = make_store(tmp_path / "store", [])
    (store / "projects").rmdir()
    (store / "projects").symlink_to(elsewhere / "projects")
    assert reader(store).read(0.0) == []


def reader(store: Path) -> StoreReader:
    return StoreReader(os.fsencode(store), str(store))


def names(watching: StoreReader) -> list[str]:
    return [project.name for project in watching.read(0.0)]


def add_ref_by_hand(store: Path, name: str) -> None:
    """Add a ref as a file; git itself would refuse to do so in a broken repository."""
    (store / "refs/hermes" / name).write_text((store / "refs/hermes" / A).read_text())
