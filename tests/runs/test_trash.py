"""The trash: where it lies, what is let into it, and emptying it for good."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.pruner.apply.execute import purge
from exporter.pruner.apply.files import FileRemover
from exporter.pruner.apply.purge import PurgeRemover
from exporter.pruner.apply.repositories import RepositoryRemover
from exporter.pruner.models import Act
from exporter.runs.folder import RunError, run_folder
from exporter.runs.journal import journal_of, running
from exporter.runs.models import RecordedAction, RunKind, RunOutcome
from exporter.runs.remove_tree import measure_tree, remove_tree
from exporter.runs.trash import is_run_id, runs_in_trash, trash_of
from exporter.writing.target import Target
from tests.real.hermes import VERSIONS, python_for
from tests.support.disk_homes import du, make_shadow_repo
from tests.support.removers import RUN, action, picture, planned_file, planned_repo, take, trash

NOBODY = 65534


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "sessions").mkdir(parents=True)
    home.chmod(0o700)
    (home / "config.yaml").write_text("model: {}\n")
    return home


@pytest.mark.parametrize("version", VERSIONS)
def test_no_backup_of_hermes_carries_the_trash_along(
    home: Path, tmp_path: Path, version: str
) -> None:
    (home / "sessions/session_a.json").write_text("taken")
    (home / "sessions/session_b.json").write_text("kept")
    make_shadow_repo(home / "checkpoints", "0123456789abcdef", tmp_path / "work")
    owner = os.geteuid()
    with running(str(home), owner, "prune") as runs:
        runs.begin(RunKind.PRUNE, [])
    taken = planned_file(home, "sessions/session_a.json")
    repo = planned_repo(home, "checkpoints/0123456789abcdef", 1)
    assert take(FileRemover(str(home), owner), home, taken) == [""]
    assert take(RepositoryRemover(str(home), owner), home, repo) == [""]
    held = python_for(version).run("back_up", home)
    for way in ("by_hand", "before_update"):
        assert "sessions/session_b.json" in held[way]
        assert not [name for name in held[way] if RUN in name or "session_a" in name]
    assert not [name for name in held["snapshot"] if "hermes-exporter" in name]


@pytest.mark.parametrize("run", ["", ".", "..", "../..", "a/b", "x", "20260101T000000-abcd/.."])
def test_only_the_id_of_a_run_names_a_trash(home: Path, run: str) -> None:
    assert not is_run_id(run)
    with run_folder(str(home), os.geteuid(), create=True) as folder:
        assert folder is not None
        with pytest.raises(RunError), trash_of(folder, run, create=True):
            pass
    assert os.listdir(home / ".hermes-exporter") == []


def test_a_trash_that_leads_elsewhere_is_not_used(home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (home / ".hermes-exporter").mkdir(mode=0o700)
    (home / ".hermes-exporter/backups").symlink_to(tmp_path / "elsewhere")
    with run_folder(str(home), os.geteuid()) as folder:
        assert folder is not None
        with pytest.raises(OSError), trash_of(folder, RUN, create=True):  # noqa: PT011
            pass
        with pytest.raises(RunError, match=r"backups is a symlink .* must be in its home"):
            runs_in_trash(folder)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_the_trash_is_the_owners_alone(home: Path) -> None:
    with trash(home) as opened:
        path = Path(opened.path)
    while path != home:
        assert path.stat().st_mode & 0o777 == 0o700
        path = path.parent


# Emptying it


@pytest.fixture
def full(home: Path, tmp_path: Path) -> Path:
    """A folder with something of everything that could lie in a trash."""
    with trash(home) as opened:
        place = Path(opened.path)
    make_shadow_repo(place, "000000-0123456789abcdef", tmp_path / "work")
    (place / "closed").mkdir()
    (place / "closed/file").write_bytes(b"x" * 5000)
    (place / "closed").chmod(0o500)
    (place / "blind").mkdir()
    (place / "blind/file").touch()
    (place / "blind").chmod(0)
    (place / "read-only").write_text("x")
    (place / "read-only").chmod(0o400)
    (place / "link").symlink_to(tmp_path / "work")
    (place / "new\nline *").touch()
    os.mkfifo(place / "pipe")
    return place


@contextmanager
def purging(home: Path) -> Iterator[PurgeRemover]:
    with run_folder(str(home), os.geteuid()) as folder:
        assert folder is not None
        yield PurgeRemover(folder)


def purge_of(run: str) -> RecordedAction:
    return action(Act.PURGE_TRASH, run, {})


def test_purging_a_run_empties_its_trash_alone(home: Path, full: Path) -> None:
    other = full.parent / "20260102T000000-abcd"
    other.mkdir()
    (other / "000000-kept").write_text("x")
    size = du(full)
    with purging(home) as remover:
        assert remover.runs_with_trash() == {RUN: size, other.name: du(other)}
        assert remover.take(purge_of(RUN), None) == ""
        assert remover.was_taken(purge_of(RUN), None)
        assert list(remover.runs_with_trash()) == [other.name]
        assert remover.take(purge_of(RUN), None) == ""
        assert remover.take(purge_of("../trash"), None) == "it is no id of a run"
    assert (other / "000000-kept").read_text() == "x"


def test_a_purge_that_was_killed_before_it_began_leaves_the_run_to_be_undone(
    home: Path, full: Path
) -> None:
    before = picture(full)
    with purging(home) as remover:
        assert not remover.was_taken(purge_of(RUN), None)
    assert picture(full) == before


def test_a_purge_that_was_killed_halfway_is_finished(home: Path, full: Path) -> None:
    full.rename(full.with_name(f"purging-{RUN}"))
    with purging(home) as remover:
        assert remover.runs_with_trash() == {}
        assert remover.was_taken(purge_of(RUN), None)
    assert list(full.parent.iterdir()) == []


def removed_from(place: Path) -> tuple[int, list[str]]:
    above = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        measured = measure_tree(above, os.fsencode(place.name))
        removed = remove_tree(above, os.fsencode(place.name))
    finally:
        os.close(above)
    assert removed.problems or measured == removed.freed_bytes
    return removed.freed_bytes, removed.problems


def test_purging_frees_what_du_says_and_follows_nothing(full: Path, tmp_path: Path) -> None:
    size, work = du(full), picture(tmp_path / "work")
    assert removed_from(full) == (size, [])
    assert not full.exists()
    assert picture(tmp_path / "work") == work
    assert removed_from(full) == (0, [])


def test_a_folder_that_is_swapped_for_a_link_at_the_very_last_moment_is_not_followed(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the opening: what is behind the link stays."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("x")
    really_open = os.open

    def swap_then_open(path: bytes, flags: int, *, dir_fd: int) -> int:
        monkeypatch.undo()
        full.rename(tmp_path / "aside")
        full.symlink_to(victim)
        return really_open(path, flags, dir_fd=dir_fd)

    above = os.open(full.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        monkeypatch.setattr(os, "open", swap_then_open)
        removed = remove_tree(above, os.fsencode(full.name))
    finally:
        os.close(above)
    assert len(removed.problems) == 1
    assert (victim / "precious").read_text() == "x"


def test_what_has_another_name_elsewhere_frees_nothing(full: Path, tmp_path: Path) -> None:
    os.link(full / "closed/file", tmp_path / "kept")
    size = du(full) - (tmp_path / "kept").stat().st_blocks * 512
    assert removed_from(full) == (size, [])
    assert (tmp_path / "kept").read_bytes() == b"x" * 5000


@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_what_is_mounted_in_the_trash_is_left_and_said(
    full: Path, tmp_path: Path, kind: str, mounts: Callable[..., None]
) -> None:
    (full / "mounted").mkdir()
    (tmp_path / "other").mkdir()
    source = ("--bind", str(tmp_path / "other")) if kind == "bind" else ("-t", "tmpfs", "none")
    mounts(*source, str(full / "mounted"))
    (full / "mounted/precious").write_text("x")
    _, problems = removed_from(full)
    assert any("mounted" in problem for problem in problems)
    assert (full / "mounted/precious").read_text() == "x"
    assert os.listdir(full) == ["mounted"]


def undoable(home: Path) -> dict[str, bool]:
    with journal_of(str(home), os.geteuid()) as runs:
        assert runs is not None
        return {each.id: each.undoable_until is not None for each in runs.list_runs()}


def test_a_purge_tells_of_its_own_run_alone_and_of_nothing_that_is_gone(
    home: Path, tmp_path: Path, mounts: Callable[..., None]
) -> None:
    """What another purge could not delete stays there for ever, and does not count against it."""
    target = Target(str(home), os.geteuid())
    names = []
    for name in ("stuck", "free"):
        with running(str(home), target.owner, "prune") as runs:
            run = runs.begin(RunKind.PRUNE, [], undoable_seconds=3600.0)
            runs.finish(run, RunOutcome.DONE)
            with trash_of(runs.folder, run, create=True) as opened:
                assert opened is not None
                (Path(opened.path) / f"000000-{name}").mkdir()
        names.append(run)
    (tmp_path / "other").mkdir()
    stuck, free = names
    place = home / ".hermes-exporter/backups/trash"
    mounts("--bind", str(tmp_path / "other"), str(place / stuck / "000000-stuck"))
    first, second = (purge(run, target) for run in names)
    (place / f"purging-{stuck}").rename(place / stuck)  # for the unmounting
    assert [each.why for each in first.skipped] == [
        "not all of it could be deleted: 000000-stuck: it is mounted"
    ]
    assert second.outcome is RunOutcome.DONE
    assert second.done == (free,)
    assert not undoable(home)[stuck]
    assert not undoable(home)[free]
