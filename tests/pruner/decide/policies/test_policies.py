"""What each policy takes, in order of harm, and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from exporter.config.prune import (
    POLICY_NAMES,
    Policies,
    PolicyOverride,
    PolicySettings,
    SourcePolicies,
    Trash,
)
from exporter.hermes.checkpoints import CheckpointLayout
from exporter.hermes.own_pruning import OwnPruning
from exporter.pruner.decide.inventory import (
    Archive,
    Checkpoint,
    Deletion,
    HomeFile,
    Inventory,
    TrashedRun,
    WorkdirState,
)
from exporter.pruner.decide.policies import POLICIES
from exporter.pruner.models import Act
from exporter.runs.models import Filter, Frees
from exporter.snapshot import DiskKind
from tests.support.prune_plans import (
    DAY,
    NOW,
    file,
    inventory,
    kept,
    plan,
    session,
    settings,
    targets,
)


def checkpoint(target: str, days: float = 100.0, **changes: Any) -> Checkpoint:
    return Checkpoint(
        layout=changes.pop("layout", CheckpointLayout.LEGACY),
        target=target,
        allocated_bytes=changes.pop("allocated_bytes", 10_000),
        touched_at=NOW - days * DAY,
        **changes,
    )


# Sessions


def test_sessions_by_what_was_said_and_how_long_ago() -> None:
    found = plan(
        inventory(
            session("empty", days=2, rows=0),
            session("too young", days=0.5, rows=0),
            session("trivial", days=8, rows=5),
            session("young", days=6, rows=5),
            session("six", days=8, rows=6),
            session("old", days=91),
        )
    )
    assert [(each.policy, each.target) for each in found.actions] == [
        ("empty_sessions", "empty"),
        ("trivial_sessions", "trivial"),
        ("old_sessions", "old"),
    ]
    assert {each.frees for each in found.actions} == {Frees.AFTER_UPKEEP}


def test_what_compaction_put_aside_was_said_too() -> None:
    """1,600 messages, of which four rows are active: rows count, whatever is active."""
    compacted = session("compacted", days=30, rows=1600, size=1600)
    assert targets(plan(inventory(compacted))) == []


def test_a_count_that_hermes_kept_may_only_protect() -> None:
    assert targets(plan(inventory(session("lost", days=30, rows=0, size=40)))) == []


def test_a_source_may_have_its_own_terms() -> None:
    override = SourcePolicies(
        old_sessions=PolicyOverride(older_than_seconds=14 * DAY),
        trivial_sessions=PolicyOverride(max_messages=50),
    )
    how = settings(sources={"cron": override})
    found = inventory(
        session("cli", days=20),
        session("cron", days=20, source="cron", rows=60),
        session("small cron", days=10, source="cron", rows=40),
    )
    assert targets(plan(found, how)) == ["small cron", "cron"]


def test_a_policy_that_is_off_takes_nothing_whoever_asks() -> None:
    off = PolicySettings(90 * DAY, off=True)
    found = inventory(
        session("short", days=8, rows=2), session("old"), session("nightly", source="cron")
    )
    for filters in (
        Filter(),
        Filter(("old_sessions",)),
        Filter(("old_sessions",), older_than_seconds=1.0),
    ):
        made = plan(found, settings(policies=Policies(old_sessions=off)), filter_by=filters)
        assert targets(made) == ([] if filters.policies else ["short"])
        assert (made.blocked, made.warnings) == ("", ())
    some = SourcePolicies(old_sessions=PolicyOverride(14 * DAY, off=False))
    how = settings(policies=Policies(old_sessions=off), sources={"cron": some})
    assert targets(plan(found, how)) == ["short", "nightly"]
    none = {"cron": SourcePolicies(old_sessions=PolicyOverride(off=True))}
    assert targets(plan(found, settings(sources=none))) == ["short", "old"]


def test_files_of_a_policy_that_is_off_stay_too() -> None:
    dump = file("request_dump_a.json", kind=DiskKind.REQUEST_DUMPS)
    off = Policies(
        request_dumps=PolicySettings(DAY, off=True), stale_checkpoints=PolicySettings(DAY, off=True)
    )
    found = inventory(files=(dump,), checkpoints=(checkpoint("checkpoints/a"),))
    assert len(plan(found).actions) == 2
    assert plan(found, settings(policies=off)).actions == ()


def test_transcripts_go_with_their_session_and_after_it() -> None:
    mine = file("a.jsonl", session_id="a", inode=1, size=2, mtime_ns=3)
    dump = file("request_dump_a_x.json", 1, session_id="a", kind=DiskKind.REQUEST_DUMPS)
    linked = file("session_a.json", session_id="a", is_own=False)
    found = plan(inventory(session("a"), files=(mine, dump, linked, file("b.json"))))
    assert [(each.kind, each.target) for each in found.actions] == [
        (Act.DELETE_SESSION, "a"),
        (Act.DELETE_FILE, "sessions/a.jsonl"),
        (Act.DELETE_FILE, "sessions/request_dump_a_x.json"),
    ]
    assert found.actions[1].expected == {"inode": 1, "size": 2, "mtime_ns": 3, "session": "a"}


def test_where_hermes_prunes_by_itself_it_is_left_to_it_for_its_interval() -> None:
    fresh = OwnPruning(sessions_on=True, sessions_at=NOW - 3600, checkpoints_at=NOW - 3600)
    found = inventory(session("a"), checkpoints=(checkpoint("checkpoints/x"),), self_pruning=fresh)
    assert plan(found, by_hand=False).actions == ()
    assert kept(plan(found, by_hand=False)) == {"hermes_prunes": 2}
    assert len(plan(found, by_hand=True).actions) == 2
    late = OwnPruning(sessions_on=True, sessions_at=NOW - 2 * DAY, checkpoints_at=NOW - 2 * DAY)
    found = inventory(session("a"), checkpoints=(checkpoint("checkpoints/x"),), self_pruning=late)
    assert len(plan(found, by_hand=False).actions) == 2


# Files


def test_request_dumps_go_whatever_their_session_does_unless_it_is_to_be_kept() -> None:
    def dump(name: str, days: float = 8, **changes: Any) -> Any:
        return file(name, days, kind=DiskKind.REQUEST_DUMPS, **changes)

    found = plan(
        inventory(
            session("open", is_open=True),
            session("pinned", pinned=True),
            files=(
                dump("request_dump_open_1.json", session_id="open"),
                dump("request_dump_pinned_1.json", session_id="pinned"),
                dump("request_dump_open_2.json", days=6, session_id="open"),
                dump("request_dump_gone_1.json"),
            ),
        )
    )
    assert targets(found, Act.DELETE_FILE) == [
        "sessions/request_dump_gone_1.json",
        "sessions/request_dump_open_1.json",
    ]


def lost_one(**changes: Any) -> Inventory:
    """Ten transcripts of a session, and one whose row is gone."""
    own = tuple(file(f"own{number}.json", session_id="open") for number in range(10))
    lost = file("lost.json", days=10, **changes)
    return inventory(session("open", is_open=True), files=(*own, lost))


def orphans(**changes: Any) -> list[str]:
    return targets(plan(lost_one(**changes)), Act.DELETE_FILE)


@pytest.mark.parametrize("deletion", [Deletion.SEEN, Deletion.OURS])
def test_a_file_is_an_orphan_if_its_session_is_known_to_be_deleted(deletion: Deletion) -> None:
    assert orphans(deletion=deletion) == ["sessions/lost.json"]


@pytest.mark.parametrize(
    ("deletion", "rule"),
    [(Deletion.UNPROVEN, "last_copy"), (Deletion.UNSETTLED, "unfinished_run")],
)
def test_a_file_whose_session_may_have_been_lost_stays(deletion: Deletion, rule: str) -> None:
    found = plan(lost_one(deletion=deletion))
    assert (found.actions, kept(found)) == ((), {rule: 1})


def test_a_person_may_name_the_last_copies_and_is_told_what_they_are() -> None:
    named = Filter(("orphan_files",), unproven=True)
    found = plan(lost_one(deletion=Deletion.UNPROVEN), filter_by=named)
    [action] = found.actions
    assert (action.target, action.frees) == ("sessions/lost.json", Frees.AT_PURGE)
    assert "MAY BE A LAST COPY" in action.reason
    assert "last copies of conversations" in found.warnings[0]
    unsettled = plan(lost_one(deletion=Deletion.UNSETTLED), filter_by=named)
    assert unsettled.actions == ()


@pytest.mark.parametrize(
    "change", [{"is_own": False}, {"is_surely_hermes": False}, {"modified_at": NOW - 3600}]
)
def test_what_is_no_orphan(change: dict[str, Any]) -> None:
    assert orphans(deletion=Deletion.SEEN, **change) == []


@pytest.mark.parametrize("deletion", [Deletion.OURS, Deletion.UNSETTLED, Deletion.UNPROVEN])
def test_what_our_own_runs_or_a_restore_left_does_not_block_the_policy(deletion: Deletion) -> None:
    """A run that was stopped may leave the transcripts of hundreds of sessions behind."""
    own = tuple(file(f"own{number}.json", session_id="open") for number in range(10))
    ours = tuple(file(f"ours{number}.json", deletion=deletion) for number in range(600))
    seen = file("lost.json", days=10, deletion=Deletion.SEEN)
    found = plan(inventory(session("open", is_open=True), files=(*own, *ours, seen)))
    assert found.blocked == ""
    assert "sessions/lost.json" in targets(found, Act.DELETE_FILE)
    assert (len(found.actions) == 601) is (deletion is Deletion.OURS)


def test_many_orphans_are_not_believed() -> None:
    own = tuple(file(f"own{number}.json", session_id="open") for number in range(7))
    lost = tuple(file(f"lost{number}.json", deletion=Deletion.SEEN) for number in range(2))
    found = inventory(session("open", is_open=True), files=(*own, *lost))
    blocked = plan(found)
    assert (blocked.actions, blocked.blocked) == ((), "too_many_orphans")
    assert "2 of 9 transcripts" in blocked.why
    assert kept(blocked) == {"too_many_orphans": 2}


# Checkpoints


def test_checkpoints_of_folders_that_are_gone_for_long() -> None:
    gone: dict[str, Any] = {"workdir": WorkdirState.MISSING, "days": 2.0}
    found = plan(
        inventory(
            checkpoints=(
                checkpoint("checkpoints/a", missing_since=NOW - 2 * DAY, **gone),
                checkpoint("checkpoints/b", missing_since=NOW - 3600, **gone),
                checkpoint("checkpoints/c", days=2, workdir=WorkdirState.UNKNOWN),
                checkpoint("checkpoints/d", days=2, workdir=WorkdirState.PRESENT),
                checkpoint("e", layout=CheckpointLayout.STORE, missing_since=NOW - 9 * DAY, **gone),
                checkpoint("checkpoints/f", missing_since=NOW - 9 * DAY, is_own=False, **gone),
            )
        )
    )
    assert [(each.kind, each.target, each.frees) for each in found.actions] == [
        (Act.DELETE_REPO, "checkpoints/a", Frees.AT_PURGE),
        (Act.DELETE_PROJECT, "e", Frees.AFTER_UPKEEP),
    ]


def test_stale_checkpoints_and_archives() -> None:
    found = plan(
        inventory(
            checkpoints=(
                checkpoint("checkpoints/a", days=15),
                checkpoint("checkpoints/b", days=13),
                checkpoint("checkpoints/legacy-1", days=20, layout=Archive.ARCHIVE),
                checkpoint("c", days=NOW / DAY, layout=CheckpointLayout.STORE),
            )
        )
    )
    assert targets(found, Act.DELETE_REPO) == ["checkpoints/legacy-1", "checkpoints/a"]
    assert targets(found, Act.DELETE_PROJECT) == []


def test_half_packs_that_a_killed_git_left() -> None:
    found = plan(
        inventory(
            leftovers=(
                HomeFile("checkpoints/store/objects/pack/tmp_pack_a", 99, NOW - 2 * DAY, True),
                HomeFile("checkpoints/store/objects/pack/tmp_pack_b", 99, NOW - 3600, True),
                HomeFile("checkpoints/store/objects/pack/tmp_pack_c", 99, NOW - 2 * DAY, False),
            )
        )
    )
    assert targets(found, Act.DELETE_FILE) == ["checkpoints/store/objects/pack/tmp_pack_a"]


# Trash


def test_trash_goes_when_its_time_is_over_or_it_is_too_large() -> None:
    def run(name: str, days: float, size: int) -> TrashedRun:
        return TrashedRun(name, size, NOW - days * DAY, NOW + (3 - days) * DAY)

    trash = (run("old", 4, 10), run("first", 2, 60), run("second", 1, 60))
    found = plan(inventory(trash=trash), settings(trash=Trash(max_bytes=100)))
    assert targets(found, Act.PURGE_TRASH) == ["old", "first"]
    assert {each.frees for each in found.actions} == {Frees.NOW}
    found = plan(inventory(trash=trash), by_hand=False)
    assert targets(found, Act.PURGE_TRASH) == ["old"]


def test_a_run_that_is_larger_than_the_trash_can_be_undone_for_min_keep() -> None:
    def purged(age_seconds: float) -> list[str]:
        taken_at = NOW - age_seconds
        large = TrashedRun("large", 1000, taken_at, taken_at + 3 * DAY)
        return targets(
            plan(inventory(trash=(large,)), settings(trash=Trash(max_bytes=100))), Act.PURGE_TRASH
        )

    assert purged(3599) == []
    assert purged(3601) == ["large"]


# The plan


def test_the_order_is_that_of_harm() -> None:
    lost = (
        file("a.json", deletion=Deletion.SEEN),
        *(file(f"own{n}.json", session_id="open") for n in range(9)),
    )
    found = plan(
        inventory(
            session("old"),
            session("trivial", rows=1),
            session("empty", rows=0),
            session("open", is_open=True),
            files=(*lost, file("request_dump_x.json", kind=DiskKind.REQUEST_DUMPS)),
            checkpoints=(
                checkpoint("checkpoints/stale"),
                checkpoint("checkpoints/gone", workdir=WorkdirState.MISSING, missing_since=1.0),
            ),
            trash=(TrashedRun("run", 1, 1.0, 2.0),),
        )
    )
    assert [each.policy for each in found.actions] == [
        name for name in POLICY_NAMES if POLICIES[name].gather is None
    ]


def test_filters_narrow_it() -> None:
    found = inventory(
        session("a", days=30),
        session("b", days=50, source="cron"),
        session("c", rows=0),
        files=(file("b.json", session_id="b"),),
    )
    old = ("old_sessions",)
    month = Filter(old, older_than_seconds=40 * DAY)
    assert targets(plan(found, filter_by=month)) == ["c", "b"]
    assert targets(plan(found, filter_by=Filter(old))) == ["c"]
    narrow = Filter(old, ("cron",), 20 * DAY)
    assert [each.target for each in plan(found, filter_by=narrow).actions] == [
        "b",
        "sessions/b.json",
    ]


def test_the_hash_is_of_what_would_be_done_and_not_of_when() -> None:
    first = plan(inventory(session("a"), session("b")))
    later = inventory(session("b"), session("a"))
    assert plan(later).hash == first.hash
    assert first.hash != plan(inventory(session("a"))).hash
    other = session("b", expected=b'{"rows": 21}')
    assert first.hash != plan(inventory(session("a"), other)).hash


def test_how_old_is_said_with_the_age_that_the_settings_allow() -> None:
    how = settings(policies=Policies(old_sessions=PolicySettings(5 * DAY)))
    (action,) = plan(inventory(session("a", days=6)), how).actions
    assert action.reason == "old, idle for 6d"
