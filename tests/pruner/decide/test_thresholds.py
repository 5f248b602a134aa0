"""When to prune and how much: thresholds, their patience, and what a run can and cannot reach."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from exporter.config.prune import (
    Keep,
    Policies,
    PolicySettings,
    Prune,
    Threshold,
    ThresholdName,
    Thresholds,
    Trash,
    Upkeep,
)
from exporter.hermes.checkpoints import CheckpointLayout
from exporter.pruner.decide.inventory import (
    Checkpoint,
    Deletion,
    HomeFile,
    Inventory,
    SessionFile,
    TrashedRun,
    WorkdirState,
)
from exporter.pruner.decide.thresholds import (
    Pressure,
    Reading,
    assess,
    note_done,
    note_run,
    read_levels,
)
from exporter.pruner.models import Act, PruneMemory, PrunePlan, ThresholdMemory
from exporter.runs.models import Frees
from exporter.snapshot import DiskKind, Filesystem
from tests.support.prune_plans import DAY, NOW, file, inventory, plan, pressed, session, targets

MINUTE = 60.0
HOUR = 3600.0


def under(name: str = "transcripts", for_seconds: float | None = None, **more: Any) -> Prune:
    marks = {name: Threshold(100, 50, for_seconds)}
    return Prune(thresholds=Thresholds(**marks), keep=Keep(newest=0), **more)


def disk(how: Trash | None = None, for_seconds: float | None = None) -> Prune:
    return Prune(
        thresholds=Thresholds(disk_used=Threshold(0.9, 0.8, for_seconds)),
        trash=how or Trash(),
        keep=Keep(newest=0),
    )


class Follower:
    """Tells a threshold its values one after another, as an agent does."""

    def __init__(self, how: Prune, mark: ThresholdName = ThresholdName.TRANSCRIPTS) -> None:
        self.how = how
        self.mark = mark
        self.memory = PruneMemory()
        self.pressure = Pressure()

    def see(self, value: float | None, minutes: float, pending: float = 0.0) -> tuple[bool, bool]:
        """Whether it presses, and whether a run is due."""
        readings = {} if value is None else {self.mark: Reading(value, pending)}
        now = NOW + minutes * MINUTE
        self.pressure, self.memory = assess(readings, self.how, self.memory, now)
        level = self.pressure.level(self.mark)
        assert level is not None
        return level.pressing, level.due

    def run(self, minutes: float, relief: float) -> None:
        relieved = {self.mark.value: relief}
        self.memory = note_run(self.memory, self.pressure, relieved, NOW + minutes * MINUTE)


# Pressing


def test_it_presses_from_the_high_mark_down_to_the_low_one() -> None:
    seen = Follower(under())
    values = [90, 100, 101, 99, 51, 50, 51, 100, 120]
    pressing = [seen.see(value, minutes)[0] for minutes, value in enumerate(values)]
    assert pressing == [False, False, True, True, True, False, False, False, True]


def test_a_soft_one_waits_and_begins_to_wait_anew_when_it_fell() -> None:
    seen = Follower(under(for_seconds=5 * MINUTE))
    values = [(120, 0), (120, 4), (99, 4.5), (120, 5), (120, 9), (120, 10), (120, 11)]
    pressing = [seen.see(value, minutes)[0] for value, minutes in values]
    assert pressing == [False, False, False, False, False, True, True]


def test_a_clock_that_was_set_back_does_not_end_the_waiting_early() -> None:
    seen = Follower(under(for_seconds=5 * MINUTE))
    assert seen.see(120, 600) == (False, False)
    assert seen.see(120, 0) == (False, False)
    assert seen.see(120, 5) == (True, True)


def test_between_two_runs_there_is_a_pause_in_which_pressure_is_held() -> None:
    seen = Follower(under())
    assert seen.see(120, 0) == (True, True)
    seen.run(0, relief=30)
    assert seen.see(90, 14) == (True, False)
    assert seen.see(90, 15) == (True, True)


def test_no_run_follows_one_that_did_not_help() -> None:
    seen = Follower(under())
    seen.see(120, 0)
    seen.run(0, relief=70)
    assert seen.see(120, 20) == (True, False)
    assert seen.see(86, 30) == (True, False)
    assert seen.see(84, 40) == (True, True)
    seen.see(120, 50)
    seen.run(50, relief=70)
    assert seen.see(120, 50 + 23 * 60) == (True, False)
    assert seen.see(120, 50 + 24 * 60) == (True, True)


def test_what_will_come_free_by_itself_counts_as_help() -> None:
    seen = Follower(under())
    seen.see(120, 0)
    seen.run(0, relief=70)
    assert seen.see(120, 20, pending=70) == (True, True)


def test_what_cannot_be_told_stays_as_it_was_and_starts_nothing() -> None:
    seen = Follower(under())
    seen.see(120, 0)
    assert seen.see(None, 1) == (True, False)
    assert seen.see(90, 2) == (True, True)


@pytest.mark.parametrize("growth", [0.5, 2.0, 7.0])
def test_runs_do_not_flap_around_the_mark(growth: float) -> None:
    """What grows again is pruned to the low watermark, and then left alone until the high one."""
    seen = Follower(under())
    value, runs = 0.0, 0
    for minute in range(0, 24 * 60, 5):
        value += growth
        _, due = seen.see(value, minute)
        if due:
            runs += 1
            level = seen.pressure.level(ThresholdName.TRANSCRIPTS)
            assert level is not None
            seen.run(minute, level.wanted)
            value -= level.wanted
    assert runs <= growth * 24 * 12 / 50 + 1
    assert value <= 100 + growth


# How much


def orphan(name: str, **changes: Any) -> SessionFile:
    """A transcript whose session the agent saw go."""
    return file(name, deletion=Deletion.SEEN, **changes)


def transcripts(count: int, **more: Any) -> Inventory:
    """Files that belong to sessions, and orphans of 10 bytes."""
    own = (file(f"own{n}", session_id="open", allocated_bytes=0) for n in range(5 * count))
    lost = (orphan(f"lost{n:03}", days=99 - n, allocated_bytes=10) for n in range(count))
    return inventory(
        session("open", is_open=True),
        files=(*own, *lost),
        **more,
    )


def under_pressure(found: Inventory, how: Prune, *, by_hand: bool = True) -> PrunePlan:
    return plan(found, how, pressure=pressed(found, how), by_hand=by_hand)


def test_the_oldest_go_until_the_low_mark_is_reached() -> None:
    found = under_pressure(transcripts(15), under())
    assert targets(found, Act.DELETE_FILE) == [f"sessions/lost{n:03}" for n in range(10)]
    assert found.unreachable == ()
    assert under_pressure(transcripts(10), under()).actions == ()


def test_by_hand_neither_grace_nor_pause_stands_in_the_way() -> None:
    found, how = transcripts(15), under(for_seconds=5 * MINUTE)
    calm = pressed(found, how, PruneMemory(last_run_at=NOW - 1))
    assert not any(level.due for level in calm.levels)
    assert len(plan(found, how, pressure=calm, by_hand=True).actions) == 10
    assert plan(found, how, pressure=calm, by_hand=False).actions == ()


def test_what_the_target_cannot_reach_is_said_with_the_reason() -> None:
    young = tuple(orphan(f"young{n}", days=0.5, allocated_bytes=60) for n in range(2))
    foreign = orphan("foreign", is_own=False, allocated_bytes=30)
    own = (file(f"own{n}", session_id="open", allocated_bytes=1) for n in range(50))
    found = inventory(
        session("open", is_open=True),
        files=(*own, *young, foreign),
        transcripts_bytes=1000,
    )
    told = under_pressure(found, under())
    assert {(each.threshold, each.reason): each.bytes for each in told.unreachable} == {
        ("transcripts", "protected"): 30,
        ("transcripts", "age"): 120,
        ("transcripts", "no_policy"): 800,
    }


def test_sessions_are_measured_by_what_they_hold() -> None:
    sessions = [session(f"s{n}", days=200 - n, payload_bytes=15) for n in range(8)]
    assert targets(under_pressure(inventory(*sessions), under("state_db_payload"))) == [
        f"s{n}" for n in range(5)
    ]


def test_empty_sessions_are_counted() -> None:
    sessions = [session(f"s{n:03}", days=300 - n, rows=0) for n in range(120)]
    found = under_pressure(inventory(*sessions, session("full")), under("empty_sessions"))
    assert targets(found) == [f"s{n:03}" for n in range(70)]
    assert found.unreachable == ()


def test_a_threshold_asks_only_for_what_can_lower_it() -> None:
    found = inventory(
        session("a", payload_bytes=900),
        checkpoints=(Checkpoint(CheckpointLayout.LEGACY, "checkpoints/x", 900, 1.0),),
    )
    assert [each.target for each in under_pressure(found, under("checkpoints")).actions] == [
        "checkpoints/x"
    ]
    assert targets(under_pressure(found, under("state_db_payload"))) == ["a"]


def test_projects_that_wait_for_git_count_as_reclaimed() -> None:
    projects = tuple(Checkpoint(CheckpointLayout.STORE, f"{n}", 30, n + 1.0) for n in range(4))
    found = inventory(checkpoints=projects, checkpoints_bytes=120, awaiting_gc_bytes=0)
    first = under_pressure(found, under("checkpoints"))
    assert targets(first, Act.DELETE_PROJECT) == ["0", "1", "2"]
    assert [(each.reason, each.bytes) for each in first.unreachable] == [("upkeep", 70)]
    after = inventory(checkpoints=projects[3:], checkpoints_bytes=120, awaiting_gc_bytes=90)
    again = under_pressure(after, under("checkpoints"))
    assert again.actions == ()
    assert [(each.reason, each.bytes) for each in again.unreachable] == [("upkeep", 70)]


def test_what_there_is_no_room_for_is_unreachable_for_that_reason() -> None:
    sessions = [session(f"s{n}", days=200 - n, payload_bytes=15) for n in range(8)]
    crowded = structs.replace(inventory(*sessions), free_bytes=0)
    found = under_pressure(crowded, under("state_db_payload"))
    assert (found.actions, found.blocked) == ((), "no_space")
    assert [(each.reason, each.bytes) for each in found.unreachable] == [("no_space", 70)]


# The filesystem


def test_a_full_filesystem_never_asks_for_projects_of_the_store() -> None:
    """They are copied to the trash, and their objects stay until git collects them."""
    projects = (Checkpoint(CheckpointLayout.STORE, "p", 60, 1.0),)
    found = structs.replace(full(1000), checkpoints=projects, awaiting_gc_bytes=30)
    made = under_pressure(found, disk())
    assert targets(made, Act.DELETE_PROJECT) == []
    assert len(targets(made, Act.DELETE_FILE)) == 20, "as many files as without them"
    collected = Prune(
        thresholds=disk().thresholds, keep=Keep(newest=0), upkeep=Upkeep(vacuum=False, gc=True)
    )
    assert len(targets(under_pressure(found, collected), Act.DELETE_FILE)) == 17


def full(used: int, **more: Any) -> Inventory:
    """A filesystem of 1,000 bytes with orphans of 10 bytes on it, and a session."""
    found = transcripts(20, filesystem=Filesystem(1000, 1000 - used, "ext4", used), **more)
    old = session("old", payload_bytes=10**6)
    return inventory(
        *found.sessions,
        old,
        files=(*found.files, file("old.json", session_id="old", allocated_bytes=500)),
        filesystem=found.filesystem,
        trash=found.trash,
    )


def test_a_full_filesystem_never_asks_for_sessions() -> None:
    found = under_pressure(full(950), disk())
    assert len(targets(found, Act.DELETE_FILE)) == 15
    assert targets(found) == []
    assert {each.frees for each in found.actions} == {Frees.AT_PURGE}


def test_what_only_the_trash_stands_in_the_way_of_is_not_deleted_twice() -> None:
    trash = (TrashedRun("run", 150, NOW - HOUR / 2, NOW + DAY),)
    found = under_pressure(full(950, trash=trash), disk())
    assert found.actions == ()
    assert [(each.reason, each.bytes) for each in found.unreachable] == [("trash", 150)]


def test_under_pressure_trash_older_than_min_keep_goes_oldest_first_as_far_as_it_helps() -> None:
    trash = tuple(TrashedRun(f"run{n}", 80, NOW - (3 - n) * DAY / 2, NOW + DAY) for n in range(3))
    found = under_pressure(full(950, trash=trash), disk())
    assert [each.target for each in found.actions] == ["run0", "run1"]
    assert {each.frees for each in found.actions} == {Frees.NOW}
    assert found.unreachable == ()
    young = disk(Trash(min_keep_seconds=1.25 * DAY))
    found = under_pressure(full(950, trash=trash), young)
    assert [each.target for each in found.actions] == ["run0"]
    assert [(each.reason, each.bytes) for each in found.unreachable] == [("trash", 70)]
    calm = under_pressure(full(850, trash=trash), disk())
    assert calm.actions == ()


def test_emptying_trash_waits_neither_for_the_cool_down_nor_after_a_run_of_no_help() -> None:
    trash = (TrashedRun("run", 50, NOW - 2 * HOUR, NOW + DAY),)
    found, how = full(950, trash=trash), disk()
    known = ThresholdMemory(True, NOW - DAY, NOW - 1, 0.95, 0.1, pressing_since=NOW - DAY)
    memory = PruneMemory({"disk_used": known}, last_run_at=NOW - 1)
    made = plan(found, how, pressure=pressed(found, how, memory), by_hand=False)
    assert [each.target for each in made.actions] == ["run"]
    after = note_done(memory, pressed(found, how, memory), made.actions, NOW)
    assert after == memory, "it begins no cool-down either"


def test_new_items_go_beside_old_trash_only_as_far_as_that_is_not_enough() -> None:
    old = TrashedRun("old", 80, NOW - 2 * HOUR, NOW + DAY)
    young = TrashedRun("young", 40, NOW - HOUR / 2, NOW + DAY)
    made = under_pressure(full(950, trash=(young, old)), disk())
    assert [each.kind for each in made.actions] == [Act.PURGE_TRASH] + 3 * [Act.DELETE_FILE]
    assert [(each.reason, each.bytes) for each in made.unreachable] == [("trash", 70)]


def test_rows_that_a_process_may_need_stay_unless_it_is_an_emergency() -> None:
    both = TrashedRun("both", 100, NOW - 2 * HOUR, NOW + DAY, waiting_bytes=60)
    rows = TrashedRun("rows", 30, NOW - 9 * DAY, NOW - 1, waiting_bytes=30)
    made = under_pressure(full(950, trash=(both, rows)), disk())
    purged = {a.target: a.bytes for a in made.actions if a.kind is Act.PURGE_TRASH}
    assert purged == {"both": 40}
    assert len(targets(made, Act.DELETE_FILE)) == 11, "they do not count as on their way"
    home = Emergency()
    home.trash += [structs.replace(both, taken_at=NOW - MINUTE)]
    assert home.purged(980, 0) == ["both"]


def test_a_full_filesystem_asks_for_old_sessions_that_have_files() -> None:
    found = inventory(
        *(session(name, payload_bytes=10**6) for name in ("with", "without")),
        files=(file("a.json", session_id="with", allocated_bytes=500),),
        filesystem=Filesystem(1000, 50, "ext4", 950),
    )
    made = under_pressure(found, disk())
    assert [(each.target, each.frees) for each in made.actions] == [
        ("with", Frees.AFTER_UPKEEP),
        ("sessions/a.json", Frees.AT_PURGE),
    ]


def test_a_home_is_asked_for_its_share_once() -> None:
    """Another user who fills the disk gets no more than that from it."""
    quarter = structs.replace(full(960), disk_share=0.25)
    made = under_pressure(quarter, disk())
    assert len(targets(made, Act.DELETE_FILE)) == 4
    told = {each.reason: each.bytes for each in made.unreachable}
    assert told == {"trash": 40, "other_homes": 120}
    given = structs.replace(full(920), disk_share=0.25, purged_bytes=40)
    assert under_pressure(given, disk()).actions == ()
    trash = (TrashedRun("a", 20, NOW - 3 * HOUR, NOW + DAY), TrashedRun("b", 99, NOW - 2 * HOUR, 1))
    more = structs.replace(quarter, trash=(trash[0],), purged_bytes=20)
    assert [each.target for each in under_pressure(more, disk()).actions][:1] == ["a"]


def test_what_is_not_old_enough_is_told_with_the_moment_from_which_it_is() -> None:
    repos = tuple(
        Checkpoint(
            CheckpointLayout.LEGACY,
            f"checkpoints/{n}",
            10,
            NOW - 40 * DAY,
            workdir=WorkdirState.MISSING,
            missing_since=NOW - n * HOUR,
        )
        for n in (1, 3)
    )
    found = plan(
        inventory(session("trivial", days=1, rows=2), session("a", days=80), checkpoints=repos),
        Prune(
            keep=Keep(newest=0),
            policies=Policies(stale_checkpoints=PolicySettings(90 * DAY)),
        ),
    )
    assert found.actions == ()
    assert [(each.policy, each.items) for each in found.not_yet] == [
        ("orphan_checkpoints", 2),
        ("trivial_sessions", 1),
        ("old_sessions", 1),
    ]
    orphans = found.not_yet[0]
    assert (orphans.first_at, orphans.last_at) == (NOW + 21 * HOUR, NOW + 23 * HOUR)


def test_trash_whose_time_is_over_goes_without_any_pressure() -> None:
    trash = (TrashedRun("run", 150, 1.0, 2.0),)
    found = under_pressure(full(100, trash=trash), disk(), by_hand=False)
    assert [each.target for each in found.actions] == ["run"]


def test_in_an_emergency_half_packs_skip_the_trash_and_nothing_else_does() -> None:
    own = tuple(file(f"own{n}", session_id="open", allocated_bytes=0) for n in range(50))
    lost = tuple(orphan(f"lost{n}", allocated_bytes=10) for n in range(2))
    dump = file("request_dump", kind=DiskKind.REQUEST_DUMPS, allocated_bytes=10)
    pack = "checkpoints/store/objects/pack/tmp_pack_a"
    found = inventory(
        session("open", is_open=True),
        files=(*own, *lost, dump),
        checkpoints=(Checkpoint(CheckpointLayout.LEGACY, "checkpoints/x", 10, 1.0),),
        leftovers=(HomeFile(pack, 20, NOW - 2 * DAY, True),),
        filesystem=Filesystem(1000, 20, "ext4", 980),
    )
    patient = under_pressure(found, disk(for_seconds=5 * MINUTE), by_hand=False)
    assert [(each.target, each.frees) for each in patient.actions] == [(pack, Frees.NOW)]
    pressing = under_pressure(found, disk(), by_hand=False)
    assert {each.target: each.frees for each in pressing.actions} == {
        pack: Frees.NOW,
        "sessions/lost0": Frees.AT_PURGE,
        "sessions/lost1": Frees.AT_PURGE,
        "sessions/request_dump": Frees.AT_PURGE,
        "checkpoints/x": Frees.AT_PURGE,
    }


class Emergency:
    """A filesystem of 1,000 bytes that an agent looks at again and again, with its trash."""

    def __init__(self) -> None:
        self.how = disk(for_seconds=60 * MINUTE)
        self.memory = PruneMemory()
        self.trash: list[TrashedRun] = []

    def purged(self, used: int, minutes: float) -> list[str]:
        now = NOW + minutes * MINUTE
        found = structs.replace(
            inventory(
                filesystem=Filesystem(1000, 1000 - used, "ext4", used), trash=tuple(self.trash)
            ),
            taken_at=now,
        )
        pressure, self.memory = assess(read_levels(found, self.how), self.how, self.memory, now)
        made = plan(found, self.how, pressure=pressure, by_hand=False)
        return [each.target for each in made.actions if each.kind == Act.PURGE_TRASH]

    def put(self, run: str, size: int, minutes: float) -> None:
        at = NOW + minutes * MINUTE
        self.trash.append(TrashedRun(run, size, at, at + 3 * DAY))


def test_an_emergency_empties_the_trash_of_before_oldest_first_as_far_as_it_helps() -> None:
    home = Emergency()
    for number in range(4):
        home.put(f"run{number}", 80, minutes=-5 + number)
    assert home.purged(960, 0) == []
    assert home.purged(980, 1) == ["run0", "run1", "run2"]


def test_what_an_emergency_puts_into_the_trash_stays() -> None:
    home = Emergency()
    home.put("before", 10, minutes=-5)
    assert home.purged(980, 0) == ["before"]
    home.trash.clear()
    home.put("moved", 100, minutes=1)
    assert home.purged(990, 5) == []
    # Below the mark and above it again is the same emergency: the low watermark was not reached.
    assert home.purged(960, 10) == []
    assert home.purged(990, 15) == []
    assert home.purged(700, 20) == []
    assert home.purged(990, 25) == ["moved"]


def test_a_clock_that_was_set_back_does_not_make_trash_older() -> None:
    home = Emergency()
    assert home.purged(980, 600) == []
    home.put("moved", 100, minutes=2)
    assert home.purged(980, 1) == []
