"""Deleting old sessions beside real Hermes processes: those of the plan, whole, and no other."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.pruner.apply.undo import undo
from exporter.runs.models import RunOutcome
from tests.real.hermes import NEWEST, VERSIONS, Hermes, python_for
from tests.support.reaping import GATEWAY, inodes, target_of
from tests.support.session_pruning import beside_all, dump_all, planned, prunable_process, prune

LARGE, SMALL, EMPTY, PARENT, DELEGATE, BRANCH, KEPT = (
    f"20250101_080000_aaaaa{number}" for number in range(7)
)
OLD = (LARGE, SMALL, EMPTY, DELEGATE, PARENT)
GROUPS = {DELEGATE: 1, PARENT: 1}
WORDS = ("word1", "terminal", "picture", "careful")


class Old:
    """A release, and a home of it with old sessions."""

    def __init__(self, hermes: Hermes, path: Path) -> None:
        self.hermes = hermes
        self.path = path


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def template(version: str) -> Path:
        if version not in made:
            home = tmp_path_factory.mktemp(f"old-{version}") / "home"
            made[version] = make_old_home(python_for(version), home)
        return made[version]

    return template


def make_old_home(hermes: Hermes, home: Path) -> Path:
    home.mkdir(mode=0o700)
    with prunable_process(hermes, home) as writer:
        writer.ask("old", session=LARGE, count=150, title="A large one", words="much " * 40)
        writer.ask("old", session=SMALL, count=4)
        writer.ask("old", session=EMPTY, count=0)
        writer.ask("old", session=PARENT, count=3)
        writer.ask("old", session=DELEGATE, count=2, parent=PARENT, marker="_delegate_from")
        writer.ask("old", session=BRANCH, count=3, parent=PARENT, marker="_branched_from")
        writer.ask("old", session=KEPT, count=5)
        writer.ask("leave_traces", session=SMALL)
    return home


@pytest.fixture(params=VERSIONS)
def every(request: pytest.FixtureRequest, templates: Callable[[str], Path], tmp_path: Path) -> Old:
    home = shutil.copytree(templates(request.param), tmp_path / "home")
    return Old(python_for(request.param), home)


@pytest.fixture
def newest(templates: Callable[[str], Path], tmp_path: Path) -> Old:
    return Old(python_for(NEWEST), shutil.copytree(templates(NEWEST), tmp_path / "home"))


def test_what_was_planned_is_deleted_and_undo_gives_it_back_byte_for_byte(every: Old) -> None:
    before = dump_all(every.path, *WORDS)
    outcome = prune(every.path, planned(every.path, OLD, GROUPS))
    assert (outcome.outcome, outcome.done, outcome.skipped) == (RunOutcome.DONE, OLD, ())
    after = dump_all(every.path, *WORDS)
    assert {bytes.fromhex(row[2]).decode() for row in after["sessions"]} == {BRANCH, KEPT}
    assert len(after["messages"]) == len(after["messages_fts_content"]) == 8
    assert len(after["state_meta"]) == len(before["state_meta"]) - 1
    assert outcome.run is not None
    returned = undo(outcome.run, target_of(every.path))
    assert (sorted(returned.done), returned.skipped, returned.notes) == (sorted(OLD), (), ())
    assert dump_all(every.path, *WORDS) == before


def test_hermes_goes_on_with_what_is_left(every: Old) -> None:
    """It lists, searches, resumes, exports and prunes, and finds nothing broken."""
    prune(every.path, planned(every.path, OLD, GROUPS))
    with prunable_process(every.hermes, every.path) as hermes:
        assert set(hermes.ask("listed")) == {BRANCH, KEPT}
        assert hermes.ask("search", text="word1") == [BRANCH, KEPT]
        assert hermes.ask("show", session=BRANCH)["parent_session_id"] is None
        assert hermes.ask("resume", session=KEPT) == 5
        hermes.ask("append", session=KEPT)
        assert len(hermes.ask("exported", session=KEPT)["messages"]) == 6
        assert hermes.ask("broken") == []
        assert hermes.ask("own_prune", days=90) == 1
        assert hermes.ask("broken") == []
        assert hermes.ask("listed") == [KEPT]


def test_the_trash_holds_what_hermes_itself_would_have_exported(every: Old) -> None:
    with prunable_process(every.hermes, every.path) as hermes:
        exported = {session: hermes.ask("exported", session=session) for session in OLD}
    outcome = prune(every.path, planned(every.path, OLD, GROUPS))
    assert outcome.run is not None
    trash = every.path / ".hermes-exporter" / "backups" / "trash" / outcome.run
    lines = [
        json.loads(line)
        for file in sorted(trash.glob("*.jsonl.gz"))
        for line in gzip.decompress(file.read_bytes()).splitlines()
    ]
    assert {line["id"]: line for line in lines} == exported


def test_a_writing_gateway_loses_nothing_and_waits_for_nobody(every: Old) -> None:
    with prunable_process(every.hermes, every.path, *GATEWAY) as gateway:
        gateway.ask("create", session="chat", source="telegram")
        gateway.ask("start_writing", session="chat")
        before = inodes(every.path)
        place = beside_all(every.path)
        outcome = prune(every.path, planned(every.path, OLD, GROUPS), place)
        assert (outcome.done, outcome.skipped, outcome.why) == (OLD, (), "")
        assert outcome.run is not None
        returned = undo(outcome.run, place)
        assert (len(returned.done), returned.skipped) == (len(OLD), ())
        said = gateway.ask("stop_writing")
        assert said["failure"] == ""
        assert said["written"] > 0
        assert gateway.ask("count", session="chat") == said["written"]
        assert gateway.ask("count", session=LARGE) == 150
        assert gateway.ask("broken") == []
        assert inodes(every.path) == before
