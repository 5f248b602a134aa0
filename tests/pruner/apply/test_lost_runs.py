"""What lies in the trash is given back though no journal lists its run any more."""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from exporter.demo.home import make as make_demo
from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.lost_runs import note_lost_runs
from exporter.pruner.apply.reborn import heal_reborn
from exporter.pruner.apply.recovery import BY_ACTION
from exporter.pruner.apply.undo import undo
from exporter.runs.journal import mend_journal
from exporter.runs.recovery import recover_home
from exporter.runs.summary import RunReader
from tests.real.command import run, run_json
from tests.real.hermes import NEWEST, python_for
from tests.support.home_picture import picture
from tests.support.pruned_home import contents, make_home, plan_all, session_names
from tests.support.reaping import history
from tests.support.session_pruning import beside_all, planned, prunable_process, prune

JOURNAL = ".hermes-exporter/journal.db"
CHAT, OTHER = session_names(2)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return make_home(python_for(NEWEST), tmp_path / "home", 2)


def settle(home: Path) -> None:
    note_lost_runs(beside_all(home))
    recover_home(beside_all(home), BY_ACTION)


def unfinished(home: Path) -> list[str]:
    reader = RunReader(str(home))
    return list(reader.read(home.stat().st_uid).report.unfinished)


def test_sessions_and_transcripts_come_back_after_the_journal_was_lost(home: Path) -> None:
    before = contents(home)
    taken = execute(plan_all(home), beside_all(home), keep_seconds=3600.0)
    assert len(taken.done) == 4
    (home / JOURNAL).unlink()
    assert unfinished(home) == [taken.run]
    settle(home)
    assert unfinished(home) == []
    assert [(each.id, each.actions) for each in history(home)] == [(taken.run, 4)]
    assert undo(taken.run or "", beside_all(home)).skipped == ()
    assert contents(home) == before


def test_sessions_and_transcripts_come_back_after_all_actions_were_damaged(home: Path) -> None:
    """A small journal has them on one page."""
    before = contents(home)
    taken = execute(plan_all(home), beside_all(home), keep_seconds=3600.0)
    with closing(apsw.Connection(str(home / JOURNAL))) as connection:
        [(page,)] = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'actions'")
        size = int(connection.pragma("page_size"))
    with (home / JOURNAL).open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(bytes(size))
    assert mend_journal(str(home), home.stat().st_uid)
    settle(home)
    assert [(each.id, each.actions) for each in history(home)] == [(taken.run, 4)]
    assert undo(taken.run or "", beside_all(home)).skipped == ()
    assert contents(home) == before


def test_a_run_that_an_older_copy_of_the_journal_does_not_have_can_be_undone(home: Path) -> None:
    before = contents(home)
    first = prune(home, planned(home, [OTHER])).run
    shutil.copy(home / JOURNAL, home.parent / "older.db")
    second = prune(home, planned(home, [CHAT])).run
    shutil.copy(home.parent / "older.db", home / JOURNAL)
    assert unfinished(home) == [second]
    settle(home)
    for each in (second, first):
        assert undo(each or "", beside_all(home)).skipped == ()
    assert contents(home) == before


def test_a_session_that_hermes_goes_on_with_gets_its_past_back_without_its_journal(
    home: Path,
) -> None:
    with prunable_process(python_for(NEWEST), home, module="go_on") as hermes:
        prune(home, planned(home, [CHAT]))
        (home / JOURNAL).unlink()
        hermes.ask("go_on", session=CHAT, text="and now?")
        settle(home)
        assert heal_reborn(beside_all(home)).sessions == (CHAT,)
        said = [content for _, content in hermes.ask("conversation", session=CHAT)]
        assert (len(said), said[-2]) == (4, "and now?")


def test_what_an_older_database_brings_back_in_part_comes_back_whole(home: Path) -> None:
    """`hermes import` replaces state.db and the journal: the trash alone has the last messages."""
    shutil.copy(home / "state.db", home.parent / "older.db")
    with prunable_process(python_for(NEWEST), home, module="go_on") as hermes:
        hermes.ask("go_on", session=CHAT, text="and now?")
        said = hermes.ask("conversation", session=CHAT)
    prune(home, planned(home, [CHAT]))
    (home / JOURNAL).unlink()
    shutil.copyfile(home.parent / "older.db", home / "state.db")
    settle(home)
    assert heal_reborn(beside_all(home)).sessions == (CHAT,)
    with prunable_process(python_for(NEWEST), home, module="go_on") as hermes:
        assert hermes.ask("conversation", session=CHAT) == said


def test_what_is_there_again_was_not_taken(home: Path) -> None:
    """The journal is lost after an undo, whose trash a crash has left."""
    taken = execute(plan_all(home), beside_all(home), keep_seconds=3600.0)
    trash = home / ".hermes-exporter/backups/trash"
    shutil.copytree(trash, home.parent / "trash")
    assert undo(taken.run or "", beside_all(home)).skipped == ()
    shutil.rmtree(trash, ignore_errors=True)
    shutil.copytree(home.parent / "trash", trash)
    (home / JOURNAL).unlink()
    before = contents(home)
    settle(home)
    assert heal_reborn(beside_all(home)).sessions == ()
    assert contents(home) == before


def test_names_that_no_run_has_given_are_not_taken_for_runs(home: Path) -> None:
    trash = home / ".hermes-exporter/backups/trash"
    prune(home, planned(home, [OTHER]))
    for name in ("99999999T999999-aaaa", "purging-20260101T000000-aaaa", "notes"):
        (trash / name).mkdir()
    for name in ("000001-..", "000002-notes", "000003-state.db"):
        (trash / "99999999T999999-aaaa" / name).mkdir()
    settle(home)
    assert len(history(home)) == 1, "a folder without anything of ours is left alone"
    done = run("history", "--home", str(home), "--json")
    assert done.returncode == 0, done.stderr


def test_all_that_a_demo_has_comes_back_by_the_commands(tmp_path: Path) -> None:
    """Files, repositories and projects of the checkpoint store too."""
    home = Path(make_demo(str(tmp_path / "home"), now=time.time()))
    before = picture(home)
    words = ("--home", str(home), "--state-dir", str(tmp_path / "state"))
    taken = run_json("prune", "--yes", *words)
    assert taken["outcome"] == "done"
    (home / JOURNAL).unlink()
    assert {each["run"] for each in run_json("history", *words)} == {taken["run"]}
    undone = run_json("undo", "--last", *words)
    assert (undone["run"], undone["failed"]) == (taken["run"], [])
    after = picture(home)
    different = {name for name in before if after.get(name) != before[name]}
    assert different <= {"file profiles/work/state.db"}, "it is a home of its own, with its own run"
