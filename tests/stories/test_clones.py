"""Two homes with the same sessions: what is done in one of them never touches the other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.undo import undo
from exporter.pruner.models import PruneAction, PrunePlan
from exporter.runs.models import Frees
from tests.real.agent import Metrics, agent
from tests.real.cli import ask, chat, open_sessions
from tests.real.command import run_json
from tests.real.hermes import NEWEST, Hermes, python_for
from tests.real.stub_model import StubModel
from tests.support.checkpoint_homes import Checkpoints
from tests.support.home_picture import picture
from tests.support.pruned_home import make_home, plan_all
from tests.support.reaping import target_of
from tests.support.removers import planned_project
from tests.support.running_agent import scanned_again, when
from tests.support.session_pruning import KEEP_SECONDS
from tests.support.verdicts import IMPATIENT

SAID = "SELECT session_id, role, content FROM messages ORDER BY id"


def cloned(hermes: Hermes, home: Path) -> Path:
    """Newer releases leave the sessions and checkpoints out."""
    hermes.call(home, "profile", "create", "twin", "--clone-all", "--no-alias")
    return (home / "profiles/twin").rename(home.parent / "twin")


def copied(_: Hermes, home: Path) -> Path:
    return shutil.copytree(home, home.parent / "twin", symlinks=True)


def reaped(metrics: Metrics, home: str) -> float:
    return sum(metrics.by("hermes_reaper_reaped_total", "source", "proof", home=home).values())


def plan_everything(home: Path, project: str) -> PrunePlan:
    wanted = planned_project(home, project).action
    checkpoints = PruneAction(
        kind=wanted.kind,
        policy="stale_checkpoints",
        target=wanted.target,
        reason="it is old",
        frees=Frees.AT_PURGE,
        expected=wanted.expected,
    )
    plan = plan_all(home)
    return structs.replace(plan, actions=(*plan.actions, checkpoints))


@pytest.mark.parametrize(("way", "version"), [(cloned, "0.16.0"), (copied, NEWEST)])
def test_a_prune_and_its_undo_never_touch_the_twin_of_a_home(
    way: Callable[[Hermes, Path], Path], version: str, tmp_path: Path
) -> None:
    hermes = python_for(version)
    home = make_home(hermes, tmp_path / "home", 3)
    made = Checkpoints(hermes, home)
    made.snapshot("one")
    twin = way(hermes, home)
    before, beside = picture(home), picture(twin)
    assert {name for name in before if name.startswith(("row ", "ref "))} <= beside.keys()
    taken = execute(
        plan_everything(home, made.name("one")), target_of(home), keep_seconds=KEEP_SECONDS
    )
    assert len(taken.done) == 7
    assert picture(twin) == beside
    with_trash = shutil.copytree(home, tmp_path / "with-trash", symlinks=True)
    left = picture(home)
    assert len(undo(taken.run or "", target_of(with_trash)).done) == 7
    assert picture(with_trash) == before
    assert picture(home) == left
    assert len(undo(taken.run or "", target_of(home)).done) == 7
    assert picture(home) == before
    assert picture(twin) == beside


def test_a_chat_goes_on_though_its_session_is_dead_in_the_twin_of_its_home(
    model: StubModel, tmp_path: Path
) -> None:
    hermes, home = python_for(NEWEST), tmp_path / "home"
    model.configure(home)
    folder = tmp_path / "agent"
    folder.mkdir()
    with chat(hermes, home) as window:
        session = window.say("remember the number 4711")
        twin = shutil.copytree(home, tmp_path / "twin", symlinks=True)
        homes = [{"path": str(each), "name": each.name} for each in (home, twin)]
        settings = IMPATIENT.replace("reaper: {", "reaper: {mode: enforce, ")
        text = f"{settings}discover: false\nhomes: {json.dumps(homes)}\n"
        with agent(folder, configuration=text) as running:
            when(running, lambda found: reaped(found, "twin") == 1, "it is ended in the twin")
            assert reaped(scanned_again(running, "home"), "home") == 0
            assert window.say("what was the number?") == session
            assert open_sessions(home) == {session}
            assert open_sessions(twin) == set()
            assert ask(home, SAID)[: len(ask(twin, SAID))] == ask(twin, SAID)
        said = ask(home, SAID)
        back = run_json("undo", "--last", "--home", twin, "--state-dir", tmp_path / "state")
        assert back["restored"] == 1
        assert open_sessions(twin) == {session}
        assert ask(home, SAID) == said
        assert window.say() == session
