"""A run that needs more room than there is says so before it begins, and leaves all as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from exporter.hermes.checkpoints import CheckpointLayout
from exporter.pruner.apply import execute as executing
from exporter.pruner.apply import undo as undoing
from exporter.pruner.decide.inventory import Checkpoint
from exporter.pruner.models import Act
from exporter.runs.folder import RunError
from exporter.writing.space import rows_trash_bytes, wal_bytes, why_no_room
from tests.real.hermes import NEWEST, python_for
from tests.support.prune_plans import inventory, plan, session, targets
from tests.support.session_pruning import beside_all, dump_all, planned, prunable_process, prune

MIB = 1 << 20
OLD = "20250101_080000_aaaaaa"


def test_what_a_run_needs_is_bounded_by_the_wal_and_twice_the_rows() -> None:
    assert rows_trash_bytes(0, 0) == 0
    assert rows_trash_bytes(10, 50 * MIB) < 101 * MIB
    assert wal_bytes(10**12) == 64 * MIB
    assert wal_bytes(0) == MIB
    assert why_no_room(5, 5, "it") == ""
    assert why_no_room(3 * MIB, MIB, "it") == "it may need 3.0 MiB of disk, and 1.0 MiB are free"


def test_a_plan_has_only_sessions_for_whose_rows_there_is_room() -> None:
    many = [session(f"s{n}", days=300 - n, payload_bytes=MIB) for n in range(30)]
    home = inventory(*many)
    assert len(targets(plan(home))) == 30
    some = plan(structs.replace(home, free_bytes=40 * MIB))
    assert targets(some) == ["s0", "s1", "s2", "s3", "s4", "s5"]
    assert some.rows_trash_bytes < 13 * MIB
    assert "sessions are left for now: deleting these sessions may need" in some.warnings[-1]
    none = plan(structs.replace(home, free_bytes=0), by_hand=False)
    assert (none.actions, none.blocked) == ((), "no_space")
    assert "0 B are free" in none.why


def test_a_plan_has_only_projects_for_whose_bundles_there_is_room() -> None:
    """A bundle is a copy: the objects stay in the store until git collects them."""
    store = CheckpointLayout.STORE
    projects = tuple(Checkpoint(store, f"p{n}", 4 * MIB, n + 1.0) for n in range(5))
    home = inventory(checkpoints=projects)
    assert len(targets(plan(home), Act.DELETE_PROJECT)) == 5
    some = plan(structs.replace(home, free_bytes=17 * MIB))
    assert targets(some, Act.DELETE_PROJECT) == ["p0", "p1", "p2"], "each is unpacked once, too"
    assert "projects of the checkpoint store are left for now" in some.warnings[-1]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with prunable_process(python_for(NEWEST), home) as hermes:
        hermes.ask("old", session=OLD, count=4)
    return home


def test_a_disk_that_filled_since_the_plan_keeps_sessions_and_their_undo_waits(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dump_all(home)
    made = planned(home, [OLD])
    with monkeypatch.context() as full:
        full.setattr(executing, "free_bytes_in", lambda _: 1000)
        left = prune(home, made)
        assert (left.done, "1000 B are free" in left.skipped[0].why) == ((), True)
    assert dump_all(home) == before
    run = str(prune(home, made).run)
    with monkeypatch.context() as full:
        full.setattr(undoing, "free_bytes_in", lambda _: 1000)
        with pytest.raises(RunError, match=f"undo of {run} may need .*; nothing was done"):
            undoing.undo(run, beside_all(home))
    assert undoing.undo(run, beside_all(home)).done == (OLD,)
    assert dump_all(home) == before
