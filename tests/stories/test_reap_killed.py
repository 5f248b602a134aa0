"""A reap that is killed at any instant: each session ends exactly once, and the journal knows."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from exporter.reaper.change_ends import BY_ACTION
from exporter.reaper.plan import ReapPlan
from exporter.reaper.reap import _to_record, execute
from exporter.reaper.reopen import _still_as_reaped
from exporter.runs.journal import journal_of, running
from exporter.runs.models import ActionState, RunKind, RunOutcome
from exporter.runs.recovery import recover
from tests.real.hermes import NEWEST, python_for
from tests.support.home_scans import sql
from tests.support.kill_times import Instants
from tests.support.killable_process import Crew, crew_that
from tests.support.reaping import (
    GATEWAY,
    REASON,
    dump,
    hermes_process,
    history,
    leaky_home,
    planned,
    target_of,
)

SESSIONS = tuple(f"20260101_08{number:04}_aaaaaa" for number in range(8))
"""Each is ended in a transaction of its own."""

_ACT = """
import msgspec
from exporter.evidence.openers import KnownOpeners
from exporter.reaper.plan import ReapPlan
from exporter.reaper.change_ends import BY_ACTION
from exporter.reaper.reap import execute
from exporter.reaper.reopen import undo
from exporter.writing.target import Target
def act(home, what, pid):
    # So little time for a transaction that there are many, and many instants to be killed at.
    known = KnownOpeners((int(pid),) if pid != "0" else ())
    site = Target(home, 0, known, lock_budget_seconds=0.001, pause_seconds=0.0)
    if what == "reap":
        plan = msgspec.json.decode(open(f"{home}-plan.json").read(), type=ReapPlan)
        execute(plan, site, end_reason="reaped")
    else:
        undo(what, site)
"""


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with crew_that(_ACT) as ready:
        yield ready


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    return leaky_home(python_for(NEWEST), folder / "home", SESSIONS)


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    home = shutil.copytree(template, tmp_path / "home")
    plan, _ = planned(home)
    assert len(plan.actions) == len(SESSIONS)
    (tmp_path / "home-plan.json").write_bytes(msgspec.json.encode(plan))
    return home


def measure(crew: Crew, home: Path, what: str) -> float:
    """How long it takes when it is not killed."""
    began = time.monotonic()
    crew.work(home, what)
    return time.monotonic() - began


def done_by(home: Path, action: str) -> Counter[str]:
    """How often the journal says that this was done to each session; nothing may be left open."""
    done: Counter[str] = Counter()
    with journal_of(str(home), 0) as runs:
        assert runs is not None
        assert runs.unfinished_runs() == []
        for run in runs.list_runs():
            for each in runs.actions(run.id):
                assert each.state is not ActionState.INTENDED
                taken = each.state in (ActionState.DONE, ActionState.UNDONE)
                done[each.action.target] += taken and each.action.kind == action
    return done


def kill_again_and_again(crew: Crew, home: Path, tmp_path: Path, kills: int) -> None:
    """Reap and undo in turn, each killed at random instants until it gets through."""
    original = dump(home)
    spare = shutil.copytree(home, tmp_path / "spare")
    shutil.copyfile(tmp_path / "home-plan.json", tmp_path / "spare-plan.json")
    chance = random.Random(kills)
    reaps = Instants(chance, measure(crew, spare, "reap"))
    undos = Instants(chance, measure(crew, spare, history(spare)[0].id))
    killed = 0
    with hermes_process(python_for(NEWEST), home, *GATEWAY) as gateway:
        gateway.ask("create", session="chat", source="telegram")
        while killed < kills:
            while crew.work_and_die(reaps, home, "reap", gateway.pid):
                killed += 1
                gateway.ask("append", session="chat")
            check_reaped(home, original)
            for run in [
                run.id for run in history(home) if run.kind is RunKind.REAP and run.actions
            ]:
                while crew.work_and_die(undos, home, run, gateway.pid):
                    killed += 1
            check_undone(home, original)
            shutil.rmtree(home / ".hermes-exporter")
        crew.work(home, "reap", gateway.pid)
        check_reaped(home, original)
        assert gateway.ask("count", session="chat") > 0
    assert sql(home, "PRAGMA quick_check;") == "ok"


def check_reaped(home: Path, original: dict[str, dict[str, str]]) -> None:
    assert done_by(home, "end_session") == Counter(dict.fromkeys(SESSIONS, 1))
    after = dump(home)
    plan = msgspec.json.decode(Path(f"{home}-plan.json").read_bytes(), type=ReapPlan)
    for action in plan.actions:
        row = after[action.target]
        assert float(row["ended_at"]) == action.expected.last_activity_at
        assert row["end_reason"] == f"'{REASON}'"
        assert row | {"ended_at": "NULL", "end_reason": "NULL"} == original[action.target]


def check_undone(home: Path, original: dict[str, dict[str, str]]) -> None:
    assert done_by(home, "reopen_session") == Counter(dict.fromkeys(SESSIONS, 1))
    after = dump(home)
    assert {session: after[session] for session in SESSIONS} == original


def test_killed_thirty_times_each_session_is_reaped_and_given_back_exactly_once(
    crew: Crew, home: Path, tmp_path: Path
) -> None:
    kill_again_and_again(crew, home, tmp_path, 30)


@pytest.mark.full
def test_killed_two_hundred_times_each_session_is_reaped_and_given_back_exactly_once(
    crew: Crew, home: Path, tmp_path: Path
) -> None:
    kill_again_and_again(crew, home, tmp_path, 200)


def test_what_a_killed_run_left_open_is_settled_by_the_next(home: Path) -> None:
    """Killed between the write and the note of it, and killed before the write."""
    plan, place = planned(home)
    written, unwritten = plan.actions[0], plan.actions[1]
    execute(msgspec.structs.replace(plan, actions=(written,)), place, end_reason=REASON)
    shutil.rmtree(home / ".hermes-exporter")
    with running(str(home), 0, "reap") as runs:
        run = runs.begin(
            RunKind.REAP, [_to_record(each, REASON, (), []) for each in (written, unwritten)]
        )
    for _ in range(2):
        with running(str(home), 0, "reap") as runs:
            recover(target_of(home), runs, BY_ACTION)
            assert [each.state for each in runs.actions(run)] == ["done", "skipped"]
            assert runs.find(run).outcome is RunOutcome.PARTIAL


def test_an_undo_that_was_killed_counts_although_hermes_ended_the_session_again(
    home: Path,
) -> None:
    """Otherwise what a person took back would be reaped, or pruned, once more."""
    plan, place = planned(home)
    reaped = execute(
        msgspec.structs.replace(plan, actions=plan.actions[:2]), place, end_reason=REASON
    )
    assert reaped.run is not None
    opened, untouched = reaped.done
    with running(str(home), 0, "undo") as runs:
        reopenings, _ = _still_as_reaped(reaped.run, place, runs)
        run = runs.begin(RunKind.UNDO, reopenings, by_hand=True)
    # Killed after the first was opened. Then Hermes goes on with that one, and ends it.
    sql(home, f"UPDATE sessions SET ended_at = 5.0, end_reason = 'exit' WHERE id = '{opened}';")
    with running(str(home), 0, "reap") as runs:
        recover(place, runs, BY_ACTION)
        assert {each.action.target: each.state for each in runs.actions(run)} == {
            opened: ActionState.DONE,
            untouched: ActionState.SKIPPED,
        }
        assert [*runs.restored()] == [opened]
        assert [each.state for each in runs.actions(reaped.run)] == ["undone", "done"]
