"""What automatic runs take in 24 hours: no more than the caps, and in the end all of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from msgspec import structs

from exporter.config.prune import Caps, Keep, Policies, PolicySettings, Prune
from exporter.hermes.checkpoints import CheckpointLayout
from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.undo import undo
from exporter.pruner.decide.inventory import Checkpoint, Inventory, TakenRecently, TrashedRun
from exporter.pruner.decide.stores import Amount, Store
from exporter.pruner.gather.inventory_reader import InventoryReader
from exporter.pruner.models import Act, PrunePlan
from exporter.writing.target import Target
from tests.support.prune_plans import DAY, NOW, inventory, plan, read_inventory, session, targets

HOUR = 3600.0
ITEMS, BYTES, SHARE = Caps(items=4), Caps(bytes=49), Caps(share=0.2)


def capped(caps: Caps) -> Prune:
    return Prune(caps=caps, keep=Keep(newest=0))


def old(count: int, *, size: int = 10) -> Inventory:
    """Old sessions, the oldest first, and 10 that stay."""
    many = (session(f"s{n:02}", days=300 - n, payload_bytes=size) for n in range(count))
    return inventory(*many, *(session(f"k{n}", days=1) for n in range(10)))


def taken(found: Inventory, **amounts: int) -> Inventory:
    """The same after automatic runs have taken sessions within the last day."""
    items = amounts.get("items", 0)
    stores = {Store.SESSIONS: Amount(items, items)}
    size = amounts.get("bytes", 0)
    return structs.replace(
        found, taken_recently=TakenRecently(items, size, stores, NOW - 20 * HOUR)
    )


def automatic(found: Inventory, caps: Caps) -> PrunePlan:
    return plan(found, capped(caps), by_hand=False)


@pytest.mark.parametrize(
    ("caps", "expected"), [(ITEMS, 4), (BYTES, 4), (SHARE, 6), (Caps(), 15), (Caps(share=1.0), 20)]
)
def test_an_automatic_plan_has_the_oldest_up_to_the_caps(caps: Caps, expected: int) -> None:
    found = automatic(old(20), caps)
    assert targets(found) == [f"s{n:02}" for n in range(expected)]
    waits = found.capped
    assert (waits.items if waits else 0) == 20 - expected
    assert (waits.bytes if waits else 0) == 10 * (20 - expected)
    assert waits is None or waits.more_at == NOW + DAY
    assert found.blocked == ""


def test_what_was_taken_in_the_last_day_counts_and_says_when_more_may_go() -> None:
    found = automatic(taken(old(20), items=3, bytes=30), ITEMS)
    assert targets(found) == ["s00"]
    assert found.capped is not None
    assert found.capped.more_at == NOW + 4 * HOUR
    assert targets(automatic(taken(old(20), items=4, bytes=40), BYTES)) == []


def test_a_share_is_of_what_the_store_was_before() -> None:
    found = taken(old(20), items=10, bytes=100)
    assert len(targets(automatic(found, Caps(share=0.5)))) == 10
    assert len(targets(automatic(found, SHARE))) == 0


def test_few_items_may_be_any_share_of_a_store() -> None:
    found = inventory(*(session(f"s{n}") for n in range(6)))
    assert len(targets(automatic(found, Caps(share=0.01)))) == 5


def test_a_run_by_hand_takes_all_and_says_that_it_is_more_than_a_day() -> None:
    for caps in (ITEMS, BYTES, SHARE):
        by_hand = plan(old(20), capped(caps), by_hand=True)
        assert len(by_hand.actions) == 20
        assert by_hand.capped is None
        assert all("of automatic runs in 24 h" in each for each in by_hand.warnings)
        assert by_hand.warnings


def test_nothing_smaller_passes_what_fits_tomorrow() -> None:
    large = session("large", days=250, payload_bytes=35)
    found = inventory(*old(10).sessions, large, *(session(f"z{n}", payload_bytes=1) for n in "ab"))
    after = taken(found, items=1, bytes=10)
    names = targets(automatic(after, Caps(bytes=60, share=1.0)))
    assert names == [f"s0{n}" for n in range(5)]
    small = inventory(session("a", days=300, payload_bytes=10), large, session("z"))
    assert targets(automatic(taken(small, items=1, bytes=10), Caps(bytes=45))) == ["a"]


def test_of_what_alone_is_more_than_a_day_one_goes_in_24_hours() -> None:
    """Such as the archive of all old checkpoints: no person has to take it."""
    large = [session(f"large{n}", days=900 - n, payload_bytes=100) for n in range(2)]
    found = automatic(inventory(*large, *old(3).sessions), Caps(bytes=50))
    assert targets(found) == ["large0"], "and what is smaller waits for tomorrow"
    assert found.capped is not None
    assert (found.capped.items, found.capped.more_at) == (4, NOW + DAY)
    after = taken(inventory(large[1], *old(3).sessions), items=1, bytes=100)
    assert targets(automatic(after, Caps(bytes=50))) == []
    last = session("large", payload_bytes=100)
    both = automatic(taken(inventory(*old(3).sessions, last), items=1, bytes=10), Caps(bytes=50))
    assert targets(both) == ["s00", "s01", "s02", "large"], "others do not keep it back for ever"


def test_a_full_share_of_one_store_does_not_keep_the_others() -> None:
    repos = tuple(
        Checkpoint(CheckpointLayout.LEGACY, f"checkpoints/{n}", 10, n + 1.0) for n in range(20)
    )
    found = inventory(*old(20).sessions, checkpoints=repos)
    made = automatic(taken(found, items=15, bytes=1), Caps(share=0.5))
    assert len(targets(made, Act.DELETE_REPO)) == 10
    assert targets(made) == [f"s{n:02}" for n in range(7)]


def test_emptied_trash_needs_no_room_in_the_caps() -> None:
    trash = (TrashedRun("run", 10**9, NOW - 9 * DAY, NOW - 1),)
    found = structs.replace(taken(old(20), items=9, bytes=99), trash=trash)
    made = automatic(found, ITEMS)
    assert [each.kind for each in made.actions] == [Act.PURGE_TRASH]


# On disk, with the journal


def make_repos(home: Path, count: int, size: int) -> None:
    """Shadow repositories that no chat has used for 40 days."""
    for number in range(count):
        repo = home / "checkpoints" / f"{number:016x}"
        repo.mkdir(parents=True)
        for name in ("HEAD", "HERMES_WORKDIR", "config", "index"):
            (repo / name).write_text("ref: refs/heads/main\n" if name == "HEAD" else "/gone\n")
        (repo / "objects").mkdir()
        (repo / "objects" / "blob").write_bytes(os.urandom(size))
        then = time.time() - 40 * DAY
        for path in (*repo.rglob("*"), repo):
            os.utime(path, (then, then))


def test_a_backlog_of_stale_checkpoints_is_gone_in_days_without_a_person(tmp_path: Path) -> None:
    """12 MB for 12 GB: at most 10 a day, and at most half of what is there."""
    home = tmp_path / "home"
    make_repos(home, count=48, size=250_000)
    how = Prune(
        caps=Caps(bytes=10_000_000),
        policies=Policies(stale_checkpoints=PolicySettings(14 * DAY)),
    )
    by_day: list[int] = []
    for day in range(6):
        for hour in (0, 5, 23):
            later = day + hour / 24
            clock = lambda later=later: time.time() + later * DAY  # noqa: E731
            found = read_inventory(
                home, inventory_reader=InventoryReader(str(home), clock=clock)
            ).inventory
            made = structs.replace(plan(found, how, by_hand=False), home=str(home))
            repos = len(targets(made, Act.DELETE_REPO))
            if hour:
                assert repos == 0, "the day's part was taken at its beginning"
                continue
            by_day.append(repos)
            if made.actions:
                target = Target(str(home), os.geteuid(), clock=clock)
                outcome = execute(made, target, keep_seconds=3 * DAY)
                assert outcome.skipped == ()
                if repos:
                    last_run = str(outcome.run)
    assert by_day == [24, 12, 6, 5, 1, 0]
    assert list((home / "checkpoints").iterdir()) == []
    last = Target(str(home), os.geteuid(), clock=lambda: time.time() + 5 * DAY)
    assert len(undo(last_run, last).done) == 1
    assert len(list((home / "checkpoints").iterdir())) == 1
