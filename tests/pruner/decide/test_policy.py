"""What a policy may touch is what its own file says, and all of it is known by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from exporter.config.prune import POLICY_NAMES, ThresholdName
from exporter.hermes.checkpoints import CheckpointLayout
from exporter.pruner.decide import policies
from exporter.pruner.decide.findings import FindingBuilder, Scope
from exporter.pruner.decide.inventory import (
    Checkpoint,
    Deletion,
    HomeFile,
    TrashedRun,
    WorkdirState,
)
from exporter.pruner.decide.items import file_item
from exporter.pruner.decide.lineage import Lineages
from exporter.pruner.decide.policies import POLICIES, lowering
from exporter.pruner.decide.policy import Policy, files_in, find_files
from exporter.pruner.decide.protection import protect
from exporter.pruner.models import Act
from exporter.runs.models import Filter
from exporter.snapshot import DiskKind
from tests.support.prune_plans import (
    CALM,
    DAY,
    NOW,
    file,
    inventory,
    kept,
    plan,
    session,
    settings,
)

HELPERS = {"__init__", "checkpoints", "conversations"}
ID = "20250101_080000_abcdef"
DUMP = f"request_dump_{ID}_20250101_080000_000001.json"
HALF_PACK = "checkpoints/store/objects/pack/tmp_pack_a"


def test_every_policy_of_the_settings_has_a_file_and_every_file_is_in_the_settings() -> None:
    files = {path.stem for path in Path(policies.__file__).parent.glob("*.py")} - HELPERS
    assert files == set(POLICY_NAMES), "a file needs a line in Policies of config/prune.py"
    assert tuple(POLICIES) == POLICY_NAMES
    assert all(policy.name == name for name, policy in POLICIES.items())


def test_thresholds_ask_the_policies_that_say_so() -> None:
    sessions = ["empty_sessions", "trivial_sessions", "old_sessions"]
    checkpoints = ["orphan_checkpoints", "stale_checkpoints"]
    asked = {
        each.value: [name for name in lowering(each) if POLICIES[name].gather is None]
        for each in ThresholdName
    }
    assert asked == {
        "transcripts": ["request_dumps", "orphan_files", *sessions],
        "checkpoints": checkpoints,
        "state_db_payload": sessions,
        "disk_used": ["request_dumps", "orphan_files", *checkpoints, *sessions],
        "empty_sessions": ["empty_sessions"],
    }


def test_whatever_is_planned_is_something_that_its_policy_may_take_and_lower() -> None:
    gone: dict[str, Any] = {"workdir": WorkdirState.MISSING, "missing_since": 1.0}
    own = tuple(file(f"session_{ID}{n}.json", session_id="open") for n in range(9))
    found = plan(
        inventory(
            session("open", is_open=True),
            session("empty", rows=0),
            session("trivial", rows=1),
            session("old"),
            files=(
                *own,
                file(f"session_{ID}.json", deletion=Deletion.SEEN),
                file("old.jsonl", session_id="old"),
                file(DUMP, kind=DiskKind.REQUEST_DUMPS),
            ),
            checkpoints=(
                Checkpoint(CheckpointLayout.LEGACY, "checkpoints/0123456789abcdef", 9, 1.0, **gone),
                Checkpoint(CheckpointLayout.LEGACY, "checkpoints/0123456789abcde0", 9, 1.0),
                Checkpoint(CheckpointLayout.STORE, "0123456789abcdef", 9, 1.0),
            ),
            leftovers=(HomeFile(HALF_PACK, 9, 1.0, True),),
            trash=(TrashedRun("run", 9, 1.0, 2.0),),
        )
    )
    names = [name for name in POLICY_NAMES if POLICIES[name].gather is None]
    for action in found.actions:
        policy = POLICIES[action.policy]
        assert set(action.lowers) <= set(policy.lowers)
        moved = action.kind in (Act.DELETE_FILE, Act.DELETE_REPO)
        assert policy.may_take(action.target.encode()) is moved
    assert {name: sum(each.policy == name for each in found.actions) for name in names} == {
        **dict.fromkeys(names, 1),
        "orphan_checkpoints": 2,
        "stale_checkpoints": 2,
        "old_sessions": 2,
    }


# Files of a policy's own


NOTES = files_in("cron/output", re.compile(rb"[a-z]+/\d+\.md"))


def test_files_of_a_policys_own_lower_the_use_of_the_disk_and_nothing_else() -> None:
    """No other threshold counts them. Without `lowers` pressure never asks the policy."""
    for name, policy in POLICIES.items():
        if policy.gather is not None:
            assert policy.lowers == (ThresholdName.DISK_USED,), name
            assert isinstance(policy.gather.names.pattern, bytes), f"{name}: re.compile(rb'…')"


def test_what_no_policy_may_take_is_not_gathered_whatever_the_pattern_says() -> None:
    everything = files_in("cron", re.compile(rb".*"))
    assert everything.has(b"cron/output/1.md")
    assert not everything.has(b"cron/state.db.bak")
    assert not everything.has(b"cron/sessions.json")


def test_what_an_undo_gave_back_stays_also_if_a_policy_forgets_to_ask() -> None:
    given_back, other = (HomeFile(f"cron/output/a/{n}.md", 9, 1.0, True) for n in (1, 2))
    home = inventory(safeguards=structs.replace(CALM, restored=frozenset([given_back.path])))
    scope = Scope(home, protect(home, settings()), settings(), Lineages(()), {}, {})
    found = FindingBuilder(scope, "request_dumps")
    for each in (given_back, other):
        found.consider(file_item(each, ()), clock=each.modified_at, reason="old")
    assert [item.target for group in found.finding().groups for item in group.items] == [other.path]
    assert [rule for rule, _ in found.finding().kept] == ["restored"]


@pytest.mark.parametrize(
    ("path", "may"),
    [
        (b"cron/output/job/1.md", True),
        (b"cron/output/job/1.md\n", False),
        (b"cron/output/job/x.md", False),
        (b"cron/output/1.md", False),
        (b"cron/output", False),
        (b"job/1.md", False),
        (b"x/cron/output/job/1.md", False),
        (b"cron/outputs/job/1.md", False),
    ],
)
def test_a_policy_may_take_what_it_gathers_and_nothing_else(path: bytes, may: bool) -> None:
    policy = Policy(name="notes", find=POLICIES["old_sessions"].find, gather=NOTES)
    assert policy.may_take(path) is may


@pytest.mark.parametrize(
    "folder",
    [
        *("", "/etc", "..", "cron/..", "./cron", "cron//output", "cron/"),
        *("sessions", "checkpoints", "profiles/a/cron", ".hermes-exporter/backups"),
    ],
)
def test_a_policy_cannot_gather_where_nothing_may_be_taken(folder: str) -> None:
    with pytest.raises(ValueError, match="no policy may take files"):
        files_in(folder, re.compile(rb".*"))


def test_what_a_policy_gathers_goes_by_age_unless_it_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, disk = "request_dumps", (ThresholdName.DISK_USED,)
    policy = Policy(name=name, find=find_files("{age} old"), gather=NOTES, lowers=disk)
    monkeypatch.setitem(POLICIES, name, policy)

    def note(number: int, days: float, *, is_own: bool = True) -> HomeFile:
        path = f"cron/output/job/{number}.md"
        return HomeFile(path, 4096, NOW - days * DAY, is_own, number, 9, 8)

    notes = (note(1, 8), note(2, 6), note(3, 8, is_own=False), note(4, 9), note(5, 8))
    guards = structs.replace(CALM, restored=frozenset({"cron/output/job/5.md"}))
    found = inventory(gathered={name: notes}, safeguards=guards)
    made = plan(found, by_hand=False)
    assert [(each.target, each.reason, each.lowers) for each in made.actions] == [
        ("cron/output/job/4.md", "9d old", disk),
        ("cron/output/job/1.md", "8d old", disk),
    ]
    assert made.actions[1].expected == {"inode": 1, "size": 9, "mtime_ns": 8}
    assert kept(made) == {"not_own": 1, "restored": 1}
    assert len(plan(found, filter_by=Filter(include_undone=True)).actions) == 3


def test_the_newest_file_of_each_folder_stays_if_the_policy_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However old it is: Hermes may read it again. Of two that are equally new both stay."""
    name = "request_dumps"
    find = find_files("{age} old", newest_stays=True)
    monkeypatch.setitem(POLICIES, name, Policy(name=name, find=find, gather=NOTES))
    days = {"a/1": 90, "a/2": 80, "a/3": 2, "b/1": 70, "b/2": 60, "c/1": 50, "c/2": 50}
    notes = tuple(
        HomeFile(f"cron/output/{path}.md", 4096, NOW - age * DAY, True)
        for path, age in days.items()
    )
    made = plan(inventory(gathered={name: notes}))
    assert [each.target for each in made.actions] == [
        *("cron/output/a/1.md", "cron/output/a/2.md", "cron/output/b/1.md"),
    ]
    assert kept(made) == {"newest_file": 3}  # b/2, c/1 and c/2; a/3 is only too young


def test_a_policy_that_may_take_nothing_by_name_takes_nothing_by_name() -> None:
    assert not POLICIES["expired_trash"].may_take(DUMP.encode())
