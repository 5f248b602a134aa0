"""A prune or an undo that is stopped between rows and files: the next run finishes it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from exporter.pruner.apply.execute import execute, purge
from exporter.pruner.apply.undo import undo
from exporter.pruner.models import PrunePlan
from exporter.runs.journal import journal_of
from exporter.runs.journal_file import opened
from exporter.runs.models import RunKind
from tests.real.agent import agent
from tests.real.command import run, run_json
from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.real.waiting import wait_until
from tests.support.pruned_home import (
    TRASH,
    contents,
    make_home,
    plan_all,
    session_names,
    sessions,
    transcripts,
    unfinished,
)
from tests.support.reaping import history, target_of
from tests.support.session_pruning import KEEP_SECONDS, prunable_process

SESSIONS = 4

# Kills itself before or after the step of this number: a note in the journal, or a rename.
_DIE = """
import os, signal, sys
import msgspec
from exporter.pruner.apply import execute as pruning, undo as undoing
from exporter.pruner.apply import move as moving
from exporter.pruner.models import PrunePlan
from exporter.writing.target import Target
from exporter.runs.journal import RunJournal
home, what, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
steps = 0
def step():
    global steps
    if steps == last:
        os.kill(os.getpid(), signal.SIGKILL)
    steps += 1
def fatal(function):
    def wrapped(*words, **more):
        step()
        answer = function(*words, **more)
        step()
        return answer
    return wrapped
RunJournal.settle, RunJournal.finish = fatal(RunJournal.settle), fatal(RunJournal.finish)
moving.rename_no_replace, moving.put_back = fatal(moving.rename_no_replace), fatal(moving.put_back)
site = Target(home, os.geteuid(), pause_seconds=0.001)
if what == "prune":
    plan = msgspec.json.decode(open(f"{home}-plan.json", "rb").read(), type=PrunePlan)
    pruning.execute(plan, site, keep_seconds=3600.0)
else:
    undoing.undo(what, site)
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stopped")
    return make_home(python_for(NEWEST), folder / "home", SESSIONS)


def fresh(template: Path, folder: Path, name: str) -> Path:
    home = shutil.copytree(template, folder / name)
    Path(f"{home}-plan.json").write_bytes(msgspec.json.encode(plan_all(home)))
    return home


def dies(home: Path, what: str, step: int) -> bool:
    """Whether it was killed; False if it has no step of this number."""
    done = subprocess.run(
        [sys.executable, "-c", _DIE, home, what, str(step)], cwd=REPOSITORY, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL)
    return done.returncode != 0


def settle(home: Path) -> None:
    """Any next run settles what the others have left; this one has nothing of its own to do."""
    empty = PrunePlan(home=str(home), hash="nothing", actions=plan_all(home).actions[:0])
    execute(empty, target_of(home), keep_seconds=KEEP_SECONDS)
    purge_nothing(home)


def purge_nothing(home: Path) -> None:
    with pytest.raises(Exception, match="has no trash"):
        purge("20200101T000000-abcd", target_of(home))


def give_all_back(home: Path) -> None:
    for each in history(home):
        if each.kind is RunKind.PRUNE and (home / TRASH / each.id).is_dir():
            undo(each.id, target_of(home))


def test_a_prune_killed_at_any_step_is_finished_by_the_next_run(
    template: Path, tmp_path: Path
) -> None:
    before, step = contents(template), 0
    while True:
        home = fresh(template, tmp_path, f"home{step}")
        if not dies(home, "prune", step):
            break
        settle(home)
        assert unfinished(home) == []
        assert transcripts(home) == sessions(home)  # no transcript has lost its session
        give_all_back(home)
        assert contents(home) == before
        shutil.rmtree(home)
        step += 1
    assert step > 2 * SESSIONS


def test_recovery_that_is_killed_at_any_step_is_made_again(template: Path, tmp_path: Path) -> None:
    """The prune has deleted the rows and nothing else; so recovery has most to do."""
    before, step = contents(template), 0
    while True:
        home = fresh(template, tmp_path, f"home{step}")
        assert dies(home, "prune", 0)
        assert (sessions(home), len(transcripts(home))) == ([], SESSIONS)
        [run] = unfinished(home)
        if not dies(home, run, step):
            break
        settle(home)
        assert unfinished(home) == []
        assert transcripts(home) == sessions(home)
        give_all_back(home)
        assert contents(home) == before
        shutil.rmtree(home)
        step += 1
    assert step > 3 * SESSIONS


def test_the_next_prune_by_hand_finishes_what_was_stopped(template: Path, tmp_path: Path) -> None:
    home = fresh(template, tmp_path, "home")
    assert dies(home, "prune", 0)  # the rows are gone, and not even that is noted
    assert (sessions(home), len(transcripts(home))) == ([], SESSIONS)
    where: list[str | Path] = ["--home", home, "--state-dir", tmp_path / "state"]
    planned = run("prune", *where)
    assert f"prune {unfinished(home)[0]} was interrupted" in planned.stderr
    run_json("prune", "--yes", *where)
    assert transcripts(home) == []
    assert unfinished(home) == []
    undone = run_json("undo", "--last", *where)
    assert (undone["restored"], undone["failed"]) == (2 * SESSIONS, [])
    assert contents(home) == contents(template)


def test_what_recovery_takes_months_later_stays_in_the_trash_as_long_as_anything(
    template: Path, tmp_path: Path
) -> None:
    home = fresh(template, tmp_path, "home")
    assert dies(home, "prune", 0)
    with opened(str(home / ".hermes-exporter/journal.db")) as journal:
        months = 90 * 86400.0
        journal.execute(
            "UPDATE runs SET started_at = started_at - ?, undoable_until = undoable_until - ?",
            (months, months),
        )
    (stopped,) = unfinished(home)
    where: list[str | Path] = ["--home", home, "--state-dir", tmp_path / "state"]
    for _ in range(2):  # the first one settles it, and the second would empty its trash
        run_json("prune", "--yes", *where)
    assert transcripts(home) == []
    assert run_json("undo", stopped, *where)["failed"] == []
    assert contents(home) == contents(template)


def test_undo_of_the_last_run_gives_back_one_that_was_stopped(
    template: Path, tmp_path: Path
) -> None:
    home = fresh(template, tmp_path, "home")
    assert dies(home, "prune", 0)
    undone = run_json("undo", "--last", "--home", home, "--state-dir", tmp_path / "state")
    assert undone["failed"] == []
    assert contents(home) == contents(template)


def test_a_session_that_hermes_goes_on_with_before_recovery_counts_as_taken(
    template: Path, tmp_path: Path
) -> None:
    """Were it taken for one that was never deleted, its past would be lost with the trash."""
    home = fresh(template, tmp_path, "home")
    assert dies(home, "prune", 0)
    with prunable_process(python_for(NEWEST), home) as hermes:
        hermes.ask("create", session=session_names(1)[0], source="cli")
        hermes.ask("append", session=session_names(1)[0])
    settle(home)
    [run_id] = [each.id for each in history(home) if each.kind is RunKind.PRUNE]
    with journal_of(str(home), 0) as runs:
        assert runs is not None
        states = {each.action.target: each.state.value for each in runs.actions(run_id)}
    assert {states[each] for each in session_names(SESSIONS)} == {"done"}


def test_a_prune_that_is_told_to_stop_is_finished_by_the_next(
    template: Path, tmp_path: Path
) -> None:
    home = shutil.copytree(template, tmp_path / "home")
    config = tmp_path / "agent.yml"
    config.write_text("prune: {keep: {newest: 1}}\n")
    where = ["--home", str(home), "--state-dir", str(tmp_path / "state")]
    where += ["--config.file", str(config)]
    with subprocess.Popen(
        [sys.executable, "-m", "exporter", "prune", "--yes", *where],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        wait_until(
            lambda: list(home.glob(f"{TRASH}/*/*.rows.gz")) or process.poll() is not None,
            "something in the trash",
        )
        process.send_signal(signal.SIGTERM)
    run_json("prune", "--yes", *where)
    assert unfinished(home) == []
    assert transcripts(home) == sessions(home)


def test_an_agent_finishes_what_was_stopped(template: Path, tmp_path: Path) -> None:
    home = fresh(template, tmp_path, "home")
    assert dies(home, "prune", 0)
    enforcing = "scan: {interval: 1s}\nprune: {mode: enforce, interval: 1s}\n"
    with agent(tmp_path, [home], configuration=enforcing):
        wait_until(lambda: unfinished(home) == [], "the run is settled")
    assert transcripts(home) == []


def test_an_agent_that_observes_leaves_it_to_a_person(template: Path, tmp_path: Path) -> None:
    home = fresh(template, tmp_path, "home")
    assert dies(home, "prune", 0)
    with agent(tmp_path, [home]) as observing:
        observing.next_scan()
        observing.next_scan()
    assert len(transcripts(home)) == SESSIONS
    assert len(unfinished(home)) == 1
