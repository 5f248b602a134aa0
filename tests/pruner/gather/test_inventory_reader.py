"""Stock of homes that real releases made, and what would be pruned from them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from exporter.config.prune import Keep, Prune
from exporter.evidence.models import ProcessFacts
from exporter.hermes.checkpoints import CheckpointLayout
from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.undo import undo
from exporter.pruner.decide.inventory import (
    Archive,
    Inventory,
    InventorySession,
    ParentLink,
    WorkdirState,
)
from exporter.pruner.gather.inventory_reader import InventoryReader
from exporter.pruner.models import Act, PruneMemory, PrunePlan
from exporter.runs.models import Filter
from exporter.snapshot import DiskKind
from tests.real.hermes import NEWEST, VERSIONS, Hermes, python_for
from tests.real.holders import holder
from tests.real.homes import MadeHome, make_home
from tests.support.evidence import evidence
from tests.support.prune_plans import DAY, inside, kept, plan, read_inventory, targets
from tests.support.reaping import target_of

ALL_MAY_GO = Prune(keep=Keep(newest=0))


@pytest.fixture(scope="module", params=VERSIONS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MadeHome:
    return make_home(request.param, tmp_path_factory.mktemp("plan"))


@pytest.fixture
def home(tmp_path: Path) -> tuple[Hermes, Path]:
    """An empty home of the newest release."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return python_for(NEWEST), path


def inventory_of(made: MadeHome) -> Inventory:
    """Taken by an agent that saw all working directories before some of them went."""
    gone = [made.path.with_name("home-projects") / name for name in ("store-gone", "legacy-gone")]
    for each in gone:
        each.mkdir()
    memory = read_inventory(made.path).memory
    for each in gone:
        each.rmdir()
    return read_inventory(made.path, memory, days_later=200).inventory


def all_that_may_go(found: Inventory) -> PrunePlan:
    return plan(found, ALL_MAY_GO)


def look(home: Path) -> dict[str, tuple[int, int, int]]:
    """The files of the database as they are."""
    return {
        each.name: (each.stat().st_ino, each.stat().st_size, each.stat().st_mtime_ns)
        for each in home.glob("state.db*")
    }


def rows_of(session: InventorySession) -> int:
    """The rows that an ended session must still have when it is deleted."""
    return int(msgspec.json.decode(session.expected)["rows"])


def test_stock_is_taken_of_every_session_and_leaves_no_trace(made: MadeHome) -> None:
    before = look(made.path)
    found = inventory_of(made)
    assert look(made.path) == before
    by_name = {each.id: each for each in found.sessions}
    assert set(made.sessions.values()) <= by_name.keys()
    links = {name: by_name[made.sessions[name]].link for name in ("tip", "child", "branch")}
    assert links == {
        "tip": ParentLink.COMPRESSION,
        "child": ParentLink.DELEGATE,
        "branch": ParentLink.BRANCH,
    }
    compacted = by_name[made.sessions["compacted"]]
    assert compacted.size == (22 + 3 if made.hermes.at_least("0.18.2") else 22)
    assert by_name[made.sessions["archived"]].archived is made.hermes.at_least("0.16.0")
    assert found.safeguards.unreadable == ()
    assert found.payload_bytes == sum(each.payload_bytes for each in found.sessions)
    assert min(each.payload_bytes for each in found.sessions if each.source == "cli") > 20_000


def test_files_are_known_by_their_sessions_and_the_file_of_chats_by_nobody(
    made: MadeHome,
) -> None:
    found = inventory_of(made)
    named = {made.sessions["mid_turn"], made.sessions["archived"]}
    kinds = [(each.session_id, each.kind) for each in found.files if each.session_id in named]
    both = (DiskKind.TRANSCRIPTS, DiskKind.REQUEST_DUMPS)
    assert sorted(kinds) == sorted((name, kind) for name in named for kind in both)
    # Up to 0.14 gateways write transcripts too.
    assert all(each.session_id in made.sessions.values() for each in found.files)
    assert "sessions.json" not in {each.name for each in found.files}


def test_checkpoints_of_both_layouts_with_the_state_of_their_folders(made: MadeHome) -> None:
    found = inventory_of(made).checkpoints
    states = sorted((each.layout.value, each.workdir.value) for each in found)
    assert states == [
        (Archive.ARCHIVE.value, WorkdirState.UNKNOWN.value),
        (CheckpointLayout.LEGACY.value, WorkdirState.MISSING.value),
        (CheckpointLayout.LEGACY.value, WorkdirState.PRESENT.value),
        (CheckpointLayout.STORE.value, WorkdirState.MISSING.value),
        (CheckpointLayout.STORE.value, WorkdirState.PRESENT.value),
        (CheckpointLayout.STORE.value, WorkdirState.PRESENT.value),
    ]
    assert all(each.allocated_bytes > 0 for each in found)


def test_only_ended_sessions_go_and_none_that_something_speaks_for(made: MadeHome) -> None:
    found = inventory_of(made)
    made_plan = all_that_may_go(found)
    planned = set(targets(made_plan))
    stay = {"mid_turn", "ancestor", "tip", "child", "branch", "handoff", "topic", "chat_direct"}
    if made.hermes.at_least("0.16.0"):
        stay.add("archived")
    assert not planned & {made.sessions[name] for name in stay}
    assert not planned & {each.id for each in found.sessions if each.is_open}
    ended = [each for each in found.sessions if not each.is_open]
    assert len(planned) >= len(ended) - len(stay)
    assert made.sessions["written_after_end"] in planned
    policies = {each.policy for each in made_plan.actions}
    assert {"orphan_checkpoints", "empty_sessions", "trivial_sessions"} <= policies


def test_today_only_what_is_old_enough_goes(made: MadeHome) -> None:
    """Written two hours ago and again just now; a folder that was removed just now."""
    found = read_inventory(made.path).inventory
    made_plan = all_that_may_go(found)
    assert made.sessions["written_after_end"] not in targets(made_plan)
    assert targets(made_plan, Act.DELETE_PROJECT) == targets(made_plan, Act.DELETE_REPO) == []


def test_the_same_home_gives_the_same_plan_twice(made: MadeHome) -> None:
    first, second = (all_that_may_go(inventory_of(made)) for _ in range(2))
    assert first.hash == second.hash
    assert [each.target for each in first.actions] == [each.target for each in second.actions]


def test_what_is_done_is_what_was_planned_and_what_comes_back_is_left_alone(
    tmp_path: Path,
) -> None:
    home = make_home(NEWEST, tmp_path)
    planned = all_that_may_go(inventory_of(home))
    place = target_of(home.path)
    outcome = execute(planned, place, keep_seconds=DAY)
    assert outcome.done == tuple(action.target for action in planned.actions)
    assert all_that_may_go(read_inventory(home.path).inventory).actions == ()
    assert outcome.run is not None
    assert undo(outcome.run, place).skipped == ()
    again = read_inventory(home.path, undone_seconds=300 * DAY, days_later=200).inventory
    assert all_that_may_go(again).actions[1:] == ()
    asked_for = plan(again, ALL_MAY_GO, filter_by=Filter(include_undone=True))
    assert {*targets(asked_for)} == {*targets(planned)}
    assert [action.kind for action in plan(again, ALL_MAY_GO, by_hand=False).actions] == [
        Act.PURGE_TRASH
    ]


@pytest.mark.parametrize("version", [VERSIONS[0], NEWEST])
def test_hermes_own_marks_are_understood(version: str, tmp_path: Path) -> None:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    (path / "config.yaml").write_text("sessions: {auto_prune: true, min_interval_hours: 5}\n")
    inside(
        python_for(version),
        path,
        "from tools.checkpoint_manager import maybe_auto_prune_checkpoints\n"
        "import os, pathlib\n"
        "(pathlib.Path(os.environ['HERMES_HOME']) / 'checkpoints').mkdir()\n"
        "maybe_auto_prune_checkpoints()\n"
        "db.maybe_auto_prune_and_vacuum(vacuum=False)",
    )
    found = read_inventory(path).inventory
    told, now = found.self_pruning, found.taken_at
    assert told.has_sessions(now)
    assert told.has_checkpoints(now)
    assert told.has_sessions(now + 4.9 * 3600)
    assert not told.has_sessions(now + 5.1 * 3600)
    assert not told.has_checkpoints(now + 25 * 3600)
    (path / "config.yaml").write_text("checkpoints: {auto_prune: false}\n")
    told = read_inventory(path).inventory.self_pruning
    assert not told.has_sessions(now)
    assert not told.has_checkpoints(now)


# Messages


def test_a_long_session_that_was_compacted_in_place_is_never_trivial(
    home: tuple[Hermes, Path],
) -> None:
    hermes, path = home
    inside(
        hermes,
        path,
        "with ago(30 * DAY):\n"
        "    db.create_session('long', 'cli')\n"
        "    for n in range(1600): db.append_message('long', 'user', f'message {n}')\n"
        "    db.archive_and_compact('long', [{'role': 'user', 'content': str(n)} "
        "for n in range(4)])\n"
        "    db.end_session('long', 'cli_close')\n"
        "    db.create_session('short', 'cli')\n"
        "    db.append_message('short', 'user', 'hello')\n"
        "    db.end_session('short', 'cli_close')\n",
    )
    found = read_inventory(path).inventory
    assert {each.id: rows_of(each) for each in found.sessions} == {
        "long": 1604,
        "short": 1,
    }
    assert targets(all_that_may_go(found)) == ["short"]


def test_payload_is_measured_again_only_of_what_moved(home: tuple[Hermes, Path]) -> None:
    hermes, path = home
    said = "db.create_session('a', 'cli')\ndb.append_message('a', 'user', 'x' * 10_000)\n"
    inside(hermes, path, said + "db.create_session('b', 'cli')")
    inventory_reader = InventoryReader(str(path))
    first = {
        each.id: each
        for each in read_inventory(path, inventory_reader=inventory_reader).inventory.sessions
    }
    assert 10_000 <= first["a"].payload_bytes < 11_000
    inside(hermes, path, "db.append_message('b', 'user', 'y' * 5_000)\ndb.clear_messages('a')")
    again = {
        each.id: each
        for each in read_inventory(path, inventory_reader=inventory_reader).inventory.sessions
    }
    assert again["a"].payload_bytes == first["b"].payload_bytes
    assert 5_000 <= again["b"].payload_bytes < 6_000
    fresh = read_inventory(path).inventory.sessions
    assert {each.id: each for each in fresh} == again


# Processes


def test_a_session_that_a_living_cli_may_have_in_memory_stays(home: tuple[Hermes, Path]) -> None:
    """Another process has ended its row; it goes on with it nevertheless."""
    hermes, path = home
    inside(
        hermes,
        path,
        "with ago(200 * DAY):\n"
        "    db.create_session('old', 'cli')\n"
        "    db.end_session('old', 'cli_close')\n"
        "with ago(2 * DAY):\n"
        "    db.create_session('its', 'cli')\n"
        "    db.end_session('its', 'reaped')\n",
    )
    with holder(hermes, path, []):
        facts = ProcessFacts(holders=evidence(path).holders, blind=())
        beside = read_inventory(path, facts=facts, end_reason="none").inventory
        assert targets(all_that_may_go(beside)) == ["old"]
        assert kept(all_that_may_go(beside)) == {"possible_host": 1}
    alone = read_inventory(path, end_reason="none").inventory
    assert sorted(targets(all_that_may_go(alone))) == ["its", "old"]


def test_what_carries_our_end_and_is_in_no_journal_counts_from_when_it_was_first_seen(
    home: tuple[Hermes, Path],
) -> None:
    hermes, path = home
    inside(
        hermes,
        path,
        "with ago(200 * DAY):\n"
        "    db.create_session('a', 'cli')\n"
        "    db.end_session('a', 'reaped')\n",
    )
    first = read_inventory(path)
    assert kept(all_that_may_go(first.inventory)) == {"reaped": 1}
    later = read_inventory(path, first.memory, days_later=4)
    assert targets(all_that_may_go(later.inventory)) == ["a"]
    assert (
        read_inventory(path, PruneMemory(), days_later=4).memory.unrecorded_reaps
        != first.memory.unrecorded_reaps
    )


# What cannot be read


def test_a_database_that_cannot_be_read_blocks_everything(home: tuple[Hermes, Path]) -> None:
    _, path = home
    (path / "state.db").write_bytes(b"no database" * 1000)
    assert all_that_may_go(read_inventory(path).inventory).blocked == "database"


def test_chats_that_cannot_be_read_block_everything(home: tuple[Hermes, Path]) -> None:
    hermes, path = home
    inside(hermes, path, "db.create_session('a', 'cli')\ndb.end_session('a', 'cli_close')")
    (path / "sessions").mkdir(exist_ok=True)
    (path / "sessions" / "sessions.json").write_text("{")
    assert all_that_may_go(read_inventory(path, days_later=DAY).inventory).blocked == "routing"


def test_a_journal_that_cannot_be_read_blocks_everything(home: tuple[Hermes, Path]) -> None:
    _, path = home
    (path / ".hermes-exporter").mkdir(mode=0o700)
    (path / ".hermes-exporter" / "journal.db").write_bytes(b"no database" * 1000)
    assert all_that_may_go(read_inventory(path).inventory).blocked == "run_journal"
