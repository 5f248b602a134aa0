"""What no policy may take, however old it is."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec import structs

from exporter.config.prune import Keep, Policies, PolicySettings, Prune
from exporter.evidence.models import Holder, LeaseFact, Liveness, NamedSession, ProcessFacts
from exporter.hermes.process_kinds import NamedBy, ProcessKind
from exporter.pruner.decide.inventory import Inventory, ParentLink, Safeguards
from exporter.reaper.models import ReaperRules
from exporter.runs.models import Filter
from exporter.snapshot import Hold, LockAnswer
from tests.support.prune_plans import (
    CALM,
    DAY,
    NOW,
    SEEN,
    inventory,
    kept,
    plan,
    session,
    settings,
    targets,
)


def holder(kind: ProcessKind, days_ago: float, **changes: Any) -> Holder:
    """A process that has had the database open since then."""
    about: dict[str, Any] = {
        "pid": 7,
        "start_ticks": 7,
        "started_at": NOW - days_ago * DAY,
        "namespace_pid": 7,
        "kind": kind,
        "may_resume": True,
        "shm_inode": 1,
        "lockless_database": False,
        "lockless_shm": False,
        "deleted_wal": False,
        "forked_copy": False,
        **changes,
    }
    return Holder(**about)


def beside(*holders: Holder, **changes: Any) -> Inventory:
    facts = structs.replace(SEEN, holders=holders)
    return inventory(
        session("old", days=100),
        session("older", days=200),
        safeguards=Safeguards(facts, **changes),
    )


def test_an_old_ended_session_goes() -> None:
    assert targets(plan(inventory(session("a")))) == ["a"]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"pinned": True}, "pinned"),
        ({"archived": True}, "archived"),
        ({"emptied": True}, "emptied"),
        ({"handed_off": True}, "held"),
        ({"clocks_sane": False}, "clocks"),
        ({"last_activity_at": NOW + 10 * DAY}, None),
        ({"is_open": True}, None),
    ],
)
def test_what_its_own_row_says_for_it(change: dict[str, Any], rule: str | None) -> None:
    found = plan(inventory(session("a", **change), session("b")))
    assert targets(found) == ["b"]
    assert kept(found) == ({rule: 1} if rule else {})


@pytest.mark.parametrize(
    ("keep", "changes"),
    [
        (Keep(newest=0, sources=("cron",)), {"source": "cron"}),
        (Keep(newest=0, titled=True), {"titled": True}),
        (Keep(newest=1), {"last_activity_at": NOW - 95 * DAY}),
    ],
)
def test_what_the_settings_keep(keep: Keep, changes: dict[str, Any]) -> None:
    found = inventory(session("a", **changes), session("b"))
    assert targets(plan(found, Prune(keep=keep))) == ["b"]


def test_the_newest_are_those_that_ended() -> None:
    found = inventory(
        session("open", days=1, is_open=True), session("a", days=100), session("b", days=200)
    )
    assert targets(plan(found, Prune(keep=Keep(newest=1)))) == ["b"]


def test_titles_and_archives_can_be_given_up() -> None:
    found = inventory(session("a", titled=True), session("b", archived=True))
    assert targets(plan(found, Prune(keep=Keep(newest=0, archived=False)))) == ["a", "b"]


@pytest.mark.parametrize(
    "guards",
    [
        {"holds": {"a": [Hold.ROUTED]}},
        {"holds": {"a": [Hold.TOPIC_BOUND]}},
        {"holds": {"a": [Hold.GOAL]}},
        {"turn_leases": frozenset({"a"})},
        {"reaped_at": {"a": NOW - 2 * DAY}},
        {"facts": structs.replace(SEEN, leases=(LeaseFact("a", "cli", 1, Liveness.ALIVE),))},
        {"facts": structs.replace(SEEN, leases=(LeaseFact("a", "cli", 1, Liveness.UNKNOWN),))},
    ],
)
def test_what_points_at_it(guards: dict[str, Any]) -> None:
    safeguards = structs.replace(CALM, **guards)
    assert targets(plan(inventory(session("a"), session("b"), safeguards=safeguards))) == ["b"]


def test_a_reap_of_long_ago_protects_no_more() -> None:
    safeguards = structs.replace(CALM, reaped_at={"a": NOW - 4 * DAY})
    assert targets(plan(inventory(session("a"), safeguards=safeguards))) == ["a"]


def test_what_an_undo_gave_back_goes_only_if_a_person_includes_it() -> None:
    safeguards = structs.replace(CALM, restored=frozenset({"a"}))
    found = inventory(session("a"), safeguards=safeguards)
    assert targets(plan(found, by_hand=False)) == []
    assert targets(plan(found, by_hand=True)) == []
    assert targets(plan(found, filter_by=Filter(include_undone=True))) == ["a"]


@pytest.mark.parametrize(
    ("safeguards", "reason"),
    [
        (Safeguards(ProcessFacts()), "not_looked_yet"),
        (Safeguards(structs.replace(SEEN, blind=("hidepid",))), "hidepid"),
        (Safeguards(structs.replace(SEEN, lock_probe=LockAnswer.HELD_UNSEEN)), "pid_namespace"),
        (Safeguards(SEEN, unreadable=("routing",)), "routing"),
        (Safeguards(SEEN, unreadable=("run_journal",)), "run_journal"),
    ],
)
@pytest.mark.parametrize("by_hand", [True, False])
def test_what_cannot_be_read_protects_everything(
    safeguards: Safeguards, reason: str, by_hand: bool
) -> None:
    found = plan(inventory(session("a"), safeguards=safeguards), by_hand=by_hand)
    assert (found.actions, found.blocked) == ((), reason)
    assert found.why


# Processes


EAGER = dataclasses.replace(
    settings(),
    policies=Policies(old_sessions=PolicySettings(1.0), trivial_sessions=PolicySettings(1.0, 5)),
)
"""A policy's age is in nothing's way."""
CHATS = (
    *(ProcessKind.CLI, ProcessKind.ONESHOT, ProcessKind.TUI, ProcessKind.ACP),
    *(ProcessKind.DASHBOARD, ProcessKind.OTHER, ProcessKind.HERMES),
)


def idle(hours: float, **settings: float | None) -> list[str]:
    """What goes of sessions that are idle for so long, beside a gateway and beside each chat."""
    rules = structs.replace(ReaperRules(), **settings)
    one = session("a", days=hours / 24)
    taken = []
    for kind in (ProcessKind.GATEWAY, *CHATS):
        facts = structs.replace(SEEN, holders=(holder(kind, days_ago=150),))
        found = plan(inventory(one, safeguards=Safeguards(facts, rules)), EAGER)
        taken.append(kind.value if targets(found) else "")
    return [each for each in taken if each]


def test_beside_a_server_or_a_chat_an_ended_session_must_be_idle_as_an_open_one_must() -> None:
    """A process goes on with a row that another has ended, whatever the policy's age."""
    assert idle(1.9) == []
    assert idle(2.1) == ["gateway"]
    assert idle(71.9) == ["gateway"]
    assert idle(72.1) == ["gateway", *(each.value for each in CHATS)]


def test_where_presuming_is_off_sessions_stay_beside_any_process() -> None:
    assert idle(5000, presume_server_seconds=None, presume_chat_seconds=None) == []
    assert idle(5000, presume_chat_seconds=None) == ["gateway"]


def test_with_plugins_a_server_counts_as_a_chat() -> None:
    facts = structs.replace(
        SEEN, holders=(holder(ProcessKind.GATEWAY, days_ago=150),), plugins=True
    )
    for days, expected in ((2.0, []), (4.0, ["a"])):
        found = inventory(session("a", days=days), safeguards=Safeguards(facts))
        assert targets(plan(found, EAGER)) == expected


def test_where_a_row_cannot_be_hidden_sessions_stay_beside_a_chat() -> None:
    """Hermes up to 0.15. A server keeps nothing between turns, so beside it they go."""
    chat = beside(holder(ProcessKind.CLI, 1), can_hide_rows=False)
    assert kept(plan(chat)) == {"possible_host": 2}
    program = beside(holder(ProcessKind.OTHER, 1), can_hide_rows=False)
    assert kept(plan(program)) == {"possible_host": 2}
    server = beside(holder(ProcessKind.GATEWAY, 1), can_hide_rows=False)
    assert targets(plan(server)) == ["older", "old"]


def test_a_maintenance_command_and_our_own_processes_are_in_no_way() -> None:
    ours = structs.replace(holder(ProcessKind.OTHER, days_ago=1), ours=True)
    for each in (ours, holder(ProcessKind.MAINTENANCE, days_ago=1)):
        facts = structs.replace(SEEN, holders=(each,))
        found = inventory(session("a", days=0.1), safeguards=Safeguards(facts))
        assert targets(plan(found, EAGER)) == ["a"]


def test_a_clock_that_was_set_by_hours_makes_no_age_believable() -> None:
    facts = structs.replace(SEEN, clock_stepped=True)
    found = plan(inventory(session("a"), safeguards=Safeguards(facts)))
    assert (found.actions, found.blocked) == ((), "clock")


def test_a_session_that_a_process_names_stays() -> None:
    named = (NamedSession("old", NamedBy.RESUME),)
    assert targets(plan(beside(holder(ProcessKind.CLI, 1, sessions=named)))) == ["older"]


# Families


def test_a_compressed_conversation_goes_whole_or_not_at_all() -> None:
    root = session("root", days=300, end_reason="compression")
    middle = session("middle", days=200, parent_id="root", link=ParentLink.COMPRESSION)
    tip = session("tip", days=100, parent_id="middle", link=ParentLink.COMPRESSION)
    found = plan(inventory(root, middle, tip))
    assert targets(found) == ["tip", "middle", "root"]
    assert {action.group for action in found.actions} == {1}
    for change in ({"is_open": True}, {"pinned": True}, {"last_activity_at": NOW - DAY}):
        kept_tip = structs.replace(tip, **change)
        assert targets(plan(inventory(root, middle, kept_tip))) == []


def test_a_branch_keeps_what_it_was_branched_from() -> None:
    parent = session("parent", rows=2)
    branch = session("branch", days=1, parent_id="parent", link=ParentLink.BRANCH)
    assert targets(plan(inventory(parent, branch))) == []


def test_delegates_go_with_their_parent_and_before_it() -> None:
    parent = session("parent")
    delegate = session("delegate", parent_id="parent", link=ParentLink.DELEGATE)
    found = plan(inventory(parent, delegate))
    assert targets(found) == ["delegate", "parent"]
    assert {action.group for action in found.actions} == {1}


def test_a_delegate_that_a_safer_policy_would_take_goes_with_its_parent() -> None:
    parent = session("parent", rows=30)
    delegate = session("delegate", rows=2, parent_id="parent", link=ParentLink.DELEGATE)
    found = plan(inventory(parent, delegate))
    assert [(each.target, each.policy, each.group) for each in found.actions] == [
        ("delegate", "old_sessions", 1),
        ("parent", "old_sessions", 1),
    ]
    alone = plan(inventory(structs.replace(parent, last_activity_at=NOW - 30 * DAY), delegate))
    assert targets(alone) == ["delegate"]


def test_a_parent_stays_while_its_delegate_does() -> None:
    parent = session("parent")
    delegate = session("delegate", days=1, parent_id="parent", link=ParentLink.DELEGATE)
    assert targets(plan(inventory(parent, delegate))) == []
    pinned = session("delegate", parent_id="parent", link=ParentLink.DELEGATE, pinned=True)
    assert kept(plan(inventory(parent, pinned))) == {"delegates": 1, "pinned": 1}


def test_a_substantial_child_of_a_trivial_parent_is_kept_and_left_without_a_parent() -> None:
    parent = session("parent", days=10, rows=2)
    child = session("child", days=10, rows=50, parent_id="parent", link=ParentLink.CHILD)
    assert targets(plan(inventory(parent, child))) == ["parent"]


def test_a_session_that_gave_much_to_do_is_not_trivial() -> None:
    parent = session("parent", days=10, rows=2)
    delegate = session("delegate", days=10, rows=50, parent_id="parent", link=ParentLink.DELEGATE)
    found = plan(inventory(parent, delegate))
    assert targets(found) == []
    assert kept(found) == {"delegates": 2}


def test_relatives_of_open_sessions_stay() -> None:
    open_one = session(
        "open", is_open=True, ended_at=None, parent_id="parent", link=ParentLink.CHILD
    )
    child = session("child", parent_id="open", link=ParentLink.DELEGATE)
    grandchild = session("grandchild", parent_id="child", link=ParentLink.CHILD)
    for middle in (child, structs.replace(child, pinned=True)):
        found = inventory(session("parent"), open_one, middle, grandchild, session("other"))
        assert targets(plan(found)) == ["other"]


def test_an_id_that_may_have_been_cut_stays() -> None:
    assert targets(plan(inventory(session("x" * 512)), settings())) == []
