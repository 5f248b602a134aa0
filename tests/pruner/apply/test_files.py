"""Files are taken by exact name into the trash and given back as they were; the rest is refused."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from exporter.hermes.prunable_names import is_session_file
from exporter.pruner.apply import rename
from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.files import FileRemover
from exporter.pruner.decide.policies import POLICIES
from exporter.pruner.expected import ExpectedFile, as_keys
from exporter.pruner.models import Act, PrunePlan
from exporter.runs.folder import RunBusyError
from exporter.runs.journal import running
from exporter.runs.models import Frees, RecordedAction
from exporter.runs.trash import name_in_trash
from exporter.writing.target import Target
from tests.support.removers import (
    action,
    picture,
    planned_file,
    renamed,
    restore,
    take,
    taken,
    trash,
)

NOBODY = 65534
DUMP = "sessions/request_dump_20260101_000000_abcdef_20260101_000001.json"
TRANSCRIPT = "sessions/session_20260101_000000_abcdef.json"
PACK = "checkpoints/store/objects/pack/tmp_pack_Ab12Cd"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / "sessions").mkdir(parents=True)
    home.chmod(0o700)
    (home / DUMP).write_bytes(b"x" * 9000)
    (home / DUMP).chmod(0o640)
    os.utime(home / DUMP, ns=(1_700_000_000_123_456_789, 1_700_000_001_987_654_321))
    (home / "sessions/sessions.json").write_text("{}")
    return home


@pytest.fixture
def remover(home: Path) -> FileRemover:
    return FileRemover(str(home), os.geteuid())


def test_a_file_is_taken_and_given_back_with_bytes_mode_and_times(
    home: Path, remover: FileRemover
) -> None:
    before = picture(home)
    action = planned_file(home, DUMP)
    assert take(remover, home, action) == [""]
    assert not (home / DUMP).exists()
    assert taken(remover, home, action) == [True]
    assert restore(remover, home, action) == [""]
    assert picture(home) == before
    assert taken(remover, home, action) == [False]


def test_taking_and_giving_back_may_be_repeated(home: Path, remover: FileRemover) -> None:
    before = picture(home)
    action = planned_file(home, DUMP)
    assert take(remover, home, action) == [""]
    assert take(remover, home, action) == ["it is gone already"]
    assert taken(remover, home, action) == [True]
    assert restore(remover, home, action, action) == ["", ""]
    assert picture(home) == before


@pytest.mark.parametrize(
    "name",
    [
        "*",
        "[a-z]?",
        "new\nline",
        "tab\tand 'quotes' \"both\" $(touch x); rm -rf ~",
        "..",
        "...",
        "-rf",
        "ü" * 100,
        "a" * 240,
    ],
)
def test_ids_that_mean_something_to_a_shell_are_names_like_any_other(
    home: Path, remover: FileRemover, name: str
) -> None:
    target = f"sessions/session_{name}.json"[:250]
    target = target if target.endswith(".json") else target[:240] + ".json"
    (home / target).write_bytes(b"mine")
    others = {path: content for path, content in picture(home).items() if path != target}
    action = planned_file(home, target)
    assert take(remover, home, action) == [""]
    assert picture(home) == others
    assert restore(remover, home, action) == [""]
    assert (home / target).read_bytes() == b"mine"


def test_what_is_newer_in_its_place_is_never_overwritten(home: Path, remover: FileRemover) -> None:
    action = planned_file(home, DUMP)
    assert take(remover, home, action) == [""]
    (home / DUMP).write_text("newer")
    [why] = restore(remover, home, action)
    assert "newer" in why
    assert (home / DUMP).read_text() == "newer"
    (home / DUMP).unlink()
    assert restore(remover, home, action) == [""]
    assert (home / DUMP).stat().st_size == 9000


def test_a_file_comes_back_though_its_folder_is_gone(home: Path, remover: FileRemover) -> None:
    action = planned_file(home, DUMP)
    assert take(remover, home, action) == [""]
    shutil.rmtree(home / "sessions")
    assert restore(remover, home, action) == [""]
    assert (home / DUMP).stat().st_size == 9000


# Names that no plan can make us take


@pytest.mark.parametrize(
    "target",
    [
        "sessions/sessions.json",
        "sessions/.sessions_abc.tmp",
        "sessions/notes.txt",
        "sessions/saved/export.json",
        "sessions/../state.db",
        "sessions/../sessions/session_a.json",
        "./sessions/session_a.json",
        "/sessions/session_a.json",
        "sessions//session_a.json",
        "sessions/",
        "sessions",
        "",
        "..",
        "state.db",
        "state.db-wal",
        "config.yaml",
        ".hermes-exporter/journal.db",
        "checkpoints/.last_prune",
        "checkpoints/store/HEAD",
        "checkpoints/store/objects/pack/pack-abc.pack",
        "checkpoints/store/objects/pack/../tmp_pack_abc",
        "checkpoints/elsewhere/objects/pack/tmp_pack_abc",
        "checkpoints/store/objects/ab/tmp_obj_../x",
        "profiles/other/sessions/session_a.json",
    ],
)
def test_no_other_name_is_ever_taken(home: Path, remover: FileRemover, target: str) -> None:
    (home / "state.db").write_text("precious")
    (home / "sessions/session_a.json").write_text("precious")
    before = picture(home)
    action = planned_file(home, DUMP)
    forged = renamed(action, target, policy="orphan_files")
    with trash(home) as opened:
        assert remover.take(forged, opened) == "no file of this name is ever taken"
        assert remover.take(forged, None) == "no file of this name is ever taken"
    assert picture(home) == before


def forged(home: Path, target: str, policy: str) -> RecordedAction:
    """An action that expects exactly what is there, whatever policy it names."""
    expected = as_keys(ExpectedFile.of((home / target).lstat()))
    return action(Act.DELETE_FILE, target, expected, policy=policy)


@pytest.mark.parametrize(
    ("policy", "target"),
    [
        ("request_dumps", TRANSCRIPT),
        ("orphan_checkpoints", DUMP),
        ("stale_checkpoints", PACK),
        ("expired_trash", DUMP),
        ("old_sessions", PACK),
    ],
)
def test_a_policy_takes_only_files_of_its_own_names(
    home: Path, remover: FileRemover, policy: str, target: str
) -> None:
    (home / target).parent.mkdir(parents=True, exist_ok=True)
    (home / target).write_text("another policy's")
    before = picture(home)
    assert take(remover, home, forged(home, target, policy)) == [
        f"policy {policy} takes no file of this name"
    ]
    assert picture(home) == before


def test_what_a_policy_of_another_version_took_comes_back_but_nothing_is_taken_for_it(
    home: Path, remover: FileRemover
) -> None:
    before = picture(home)
    known, unknown = (forged(home, DUMP, each) for each in ("request_dumps", "of_another_version"))
    assert take(remover, home, unknown) == ["this version has no policy 'of_another_version'"]
    assert picture(home) == before
    assert take(remover, home, known) == [""]
    assert taken(remover, home, unknown) == [True]
    assert restore(remover, home, unknown) == [""]
    assert picture(home) == before


def everything(path: bytes) -> bool:
    del path
    return True


@pytest.mark.parametrize(
    "target",
    [
        "state.db",
        "kanban.db",
        "config.yaml",
        "cron/state.db-wal",
        "cron/.state.db.rescued",
        "cron/sessions.json",
        "cron/../state.db",
        "sessions/sessions.json",
        "sessions/saved/export.json",
        "checkpoints/store/HEAD",
        "profiles/other/cron/output/a.md",
        ".hermes-exporter/backups/trash/a",
    ],
)
def test_no_policy_can_take_what_is_denied_to_all(
    home: Path, remover: FileRemover, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even one whose names are wrong."""
    greedy = dataclasses.replace(POLICIES["request_dumps"], names=everything)
    monkeypatch.setitem(POLICIES, "request_dumps", greedy)
    (home / "cron/output").mkdir(parents=True)
    (home / "cron/output/a.md").write_text("a job's")
    (home / target).parent.mkdir(parents=True, exist_ok=True)
    (home / target).write_text("precious")
    before = picture(home, without=())
    assert remover.take(forged(home, target, "request_dumps"), None) == (
        "no file of this name is ever taken"
    )
    assert picture(home, without=()) == before
    assert take(remover, home, forged(home, "cron/output/a.md", "request_dumps")) == [""]


@given(st.binary(max_size=40))
def test_whatever_the_name_a_file_lies_in_sessions_itself(name: bytes) -> None:
    if is_session_file(b"sessions/" + name):
        assert b"/" not in name
        assert name not in (b"", b".", b"..")


# Things that are not what they seem


def linked_elsewhere(home: Path, outside: Path) -> None:
    os.link(home / DUMP, outside / "second-name")


def of_somebody_else(home: Path, outside: Path) -> None:
    os.chown(home / DUMP, NOBODY, NOBODY)


def a_symlink(home: Path, outside: Path) -> None:
    (home / DUMP).unlink()
    (home / DUMP).symlink_to(outside / "victim.json")


def a_pipe(home: Path, outside: Path) -> None:
    (home / DUMP).unlink()
    os.mkfifo(home / DUMP)


def a_folder(home: Path, outside: Path) -> None:
    (home / DUMP).unlink()
    (home / DUMP).mkdir()


def behind_a_symlink(home: Path, outside: Path) -> None:
    shutil.move(home / "sessions", outside / "sessions")
    (home / "sessions").symlink_to(outside / "sessions")


def in_a_folder_of_somebody_else(home: Path, outside: Path) -> None:
    os.chown(home / "sessions", NOBODY, NOBODY)


TRICKS = [
    (linked_elsewhere, "hard links"),
    (of_somebody_else, "belongs to uid 65534"),
    (a_symlink, "symlink"),
    (a_pipe, "no regular file"),
    (a_folder, "no regular file"),
    (behind_a_symlink, "sessions is a symlink"),
    (in_a_folder_of_somebody_else, "sessions belongs to uid 65534"),
]


@pytest.mark.parametrize(("trick", "reason"), TRICKS)
def test_what_is_no_plain_file_of_the_owner_is_refused_with_the_reason(
    home: Path,
    remover: FileRemover,
    tmp_path: Path,
    trick: Callable[[Path, Path], None],
    reason: str,
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "victim.json").write_text("precious")
    trick(home, outside)
    before, there = picture(home), picture(outside)
    action = planned_file(home, DUMP, policy="orphan_files")
    with trash(home) as opened:
        assert reason in remover.take(action, opened)
        assert reason in remover.take(action, None)
    assert picture(home) == before
    assert picture(outside) == there


@pytest.mark.parametrize("kind", ["tmpfs", "bind"])
def test_a_folder_that_is_mounted_is_refused(
    home: Path, remover: FileRemover, tmp_path: Path, kind: str, mounts: Callable[..., None]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "bind":
        mounts("--bind", str(elsewhere), str(home / "sessions"))
    else:
        mounts("-t", "tmpfs", "none", str(home / "sessions"))
    (home / DUMP).write_text("mounted")
    action = planned_file(home, DUMP, policy="orphan_files")
    with trash(home) as opened:
        assert "mounted from elsewhere" in remover.take(action, opened)
        assert "mounted from elsewhere" in remover.take(action, None)
    assert (home / DUMP).read_text() == "mounted"


def test_a_file_that_is_mounted_is_refused(
    home: Path, remover: FileRemover, tmp_path: Path, mounts: Callable[..., None]
) -> None:
    (tmp_path / "other").write_text("other")
    mounts("--bind", str(tmp_path / "other"), str(home / DUMP))
    assert "mounted" in take(remover, home, planned_file(home, DUMP))[0]


def test_what_changed_since_the_plan_is_left_alone(home: Path, remover: FileRemover) -> None:
    action = planned_file(home, DUMP)
    with (home / DUMP).open("ab") as file:
        file.write(b"more")
    assert take(remover, home, action) == ["it has changed since it was planned"]
    (home / DUMP).write_bytes(b"x" * 9000)
    assert take(remover, home, action) == ["it has changed since it was planned"]
    replaced = planned_file(home, DUMP)
    (home / "new").write_bytes(b"x" * 9000)
    shutil.copystat(home / DUMP, home / "new")
    (home / "new").replace(home / DUMP)
    assert take(remover, home, replaced) == ["it has changed since it was planned"]
    assert (home / DUMP).stat().st_size == 9000


def test_a_plan_that_does_not_say_what_to_expect_takes_nothing(
    home: Path, remover: FileRemover
) -> None:
    action = planned_file(home, DUMP)
    action.action.expected.clear()
    assert "the plan does not say" in take(remover, home, action)[0]
    assert (home / DUMP).exists()


def test_what_was_swapped_at_the_very_last_moment_is_put_back(
    home: Path, remover: FileRemover, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the rename: what is moved then is seen to be something else."""
    action = planned_file(home, DUMP)

    def swap_then_rename(*arguments: object) -> None:
        monkeypatch.undo()
        (home / DUMP).unlink()
        (home / DUMP).symlink_to("/etc/passwd")
        rename.rename_no_replace(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("exporter.pruner.apply.move.rename_no_replace", swap_then_rename)
    assert take(remover, home, action) == ["it is a symlink"]
    assert os.readlink(home / DUMP) == "/etc/passwd"
    with trash(home) as opened:
        assert os.listdir(opened.descriptor) == []


def test_a_run_killed_before_it_saw_the_swap_is_set_right(home: Path, remover: FileRemover) -> None:
    action = planned_file(home, DUMP)
    (home / DUMP).write_text("another")
    with trash(home) as opened:
        (home / DUMP).rename(os.path.join(opened.path, os.fsdecode(name_in_trash(action))))
    assert taken(remover, home, action) == [False]
    assert (home / DUMP).read_text() == "another"


# Without the trash


def test_in_an_emergency_only_garbage_goes_without_the_trash(
    home: Path, remover: FileRemover
) -> None:
    pack = home / "checkpoints/store/objects/pack/tmp_pack_Ab12Cd"
    pack.parent.mkdir(parents=True)
    pack.write_bytes(b"x" * 5000)
    request_dump = planned_file(home, DUMP)
    assert "only certain garbage" in remover.take(request_dump, None)
    old = planned_file(home, DUMP, policy="old_sessions")
    assert "only certain garbage" in remover.take(old, None)
    orphan = planned_file(home, DUMP, policy="orphan_files")
    assert "only certain garbage" in remover.take(orphan, None)
    assert (home / DUMP).exists()
    leftover = planned_file(home, str(pack.relative_to(home)), policy="orphan_checkpoints")
    assert not remover.was_taken(leftover, None)
    assert remover.take(leftover, None) == ""
    assert remover.was_taken(leftover, None)
    assert not pack.exists()
    assert not (home / ".hermes-exporter").exists()


def test_while_another_run_is_under_way_not_even_garbage_goes(home: Path) -> None:
    """On a full disk garbage goes before the run is noted, but not while there is room for that."""
    (home / PACK).parent.mkdir(parents=True)
    (home / PACK).write_bytes(b"x" * 5000)
    leftover = planned_file(home, PACK).action
    garbage = structs.replace(leftover, frees=Frees.NOW)
    plan = PrunePlan(home=str(home), hash="0123456789abcdef", actions=(garbage,))
    target = Target(str(home), os.geteuid())
    with running(str(home), target.owner, "prune"), pytest.raises(RunBusyError):
        execute(plan, target, keep_seconds=3600.0)
    assert (home / PACK).exists()
    assert execute(plan, target, keep_seconds=3600.0).done == (PACK,)
    assert not (home / PACK).exists()


# Filesystems that cannot rename without replacing


def test_step_by_step_nothing_is_replaced_either(home: Path, tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    for source in (tmp_path / "a", tmp_path / "dir"):
        source.mkdir() if source.name == "dir" else source.write_text("a")
        (source / "inside").write_text("x") if source.is_dir() else None
        taken_name = tmp_path / f"{source.name}-taken"
        taken_name.write_text("b")
        with pytest.raises(FileExistsError):
            rename.rename_step_by_step(
                folder, source.name.encode(), folder, taken_name.name.encode()
            )
        rename.rename_step_by_step(
            folder, source.name.encode(), folder, b"free-" + source.name.encode()
        )
        assert not source.exists()
        assert taken_name.read_text() == "b"
    os.close(folder)


def test_a_file_with_both_names_after_a_kill_gets_one_again(
    home: Path, remover: FileRemover
) -> None:
    action = planned_file(home, DUMP)
    with trash(home) as opened:
        os.link(home / DUMP, os.path.join(opened.path, os.fsdecode(name_in_trash(action))))
    assert taken(remover, home, action) == [False]
    assert (home / DUMP).stat().st_nlink == 1
