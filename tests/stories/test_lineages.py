"""Families of sessions such as no chat makes, but a runaway program or a broken row may."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.undo import undo
from exporter.reaper.reap import execute as reap
from exporter.reaper.reopen import undo as reopen
from tests.support.home_scans import sql
from tests.support.prune_plans import plan, read_inventory, targets
from tests.support.reaping import REASON, dump, planned, target_of
from tests.support.session_pruning import KEEP_SECONDS, dump_all
from tests.support.small_homes import small_home

FIRST = "20260101_000000_aaaaaa"
PARENT = "printf('20260101_%06d_aaaaaa', substr(id, 10, 6) - 1)"


@pytest.mark.parametrize(
    ("shape", "generations", "ended_by"),
    [("line", 5_000, "cli_close"), ("circle", 5_000, "cli_close"), ("circle", 100, "compression")],
)
def test_a_family_of_very_many_generations_is_judged_pruned_and_given_back(
    tmp_path: Path, shape: str, generations: int, ended_by: str
) -> None:
    home = small_home(tmp_path / "home", generations)
    first = "(SELECT MAX(id) FROM sessions)" if shape == "circle" else "NULL"
    sql(
        home,
        f"UPDATE sessions SET parent_session_id = iif(id = '{FIRST}', {first}, {PARENT});",
    )
    before = dump(home)
    verdicts, place = planned(home)
    ended = reap(verdicts, place, end_reason=REASON)
    assert len(ended.done) == generations
    assert len(reopen(ended.run or "", target_of(home)).done) == generations
    assert dump(home) == before
    sql(home, f"UPDATE sessions SET ended_at = started_at + 1, end_reason = '{ended_by}';")
    whole = dump_all(home)
    wanted = plan(read_inventory(home, days_later=400).inventory)
    assert len(targets(wanted)) == generations
    some = targets(wanted)[:: generations // 100]  # each costs some milliseconds
    taken = execute(wanted, target_of(home), keep_seconds=KEEP_SECONDS, only=set(some))
    assert set(taken.done) == set(some)
    assert set(undo(taken.run or "", target_of(home)).done) == set(some)
    assert dump_all(home) == whole
