"""Whatever a home holds: what is protected stays, families stay whole, and enough is enough."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from msgspec import structs

from exporter.config.prune import Caps, Keep, Prune, Threshold, ThresholdName, Thresholds
from exporter.evidence.models import LeaseFact, Liveness
from exporter.pruner.decide.inventory import Inventory, InventorySession, ParentLink, Safeguards
from exporter.pruner.decide.lineage import Lineages
from exporter.pruner.decide.protection import protect
from exporter.pruner.decide.thresholds import note_run, relief_of
from exporter.pruner.models import Act, PruneMemory, PrunePlan
from exporter.snapshot import DiskKind, Hold
from tests.support.prune_plans import (
    DAY,
    NOW,
    SEEN,
    file,
    inventory,
    plan,
    pressed,
    session,
    targets,
)

NAMES = tuple("abcdefghij")
FEW_EXAMPLES = budget(max_examples=40, deadline=None)


@st.composite
def sessions(draw: st.DrawFn) -> tuple[InventorySession, ...]:
    """A handful with parents among each other, also in circles."""
    found = []
    for name in draw(st.sets(st.sampled_from(NAMES), min_size=1)):
        parent = draw(st.sampled_from([None, *NAMES]))
        about: dict[str, Any] = {
            "days": draw(st.sampled_from([0.1, 2, 10, 100, 200])),
            "rows": draw(st.sampled_from([0, 3, 5, 6, 40])),
            "source": draw(st.sampled_from(["cli", "cron", "telegram"])),
            "is_open": draw(st.sampled_from([False, False, False, True])),
            "pinned": draw(st.sampled_from([False, False, False, True])),
            "archived": draw(st.sampled_from([False, False, False, True])),
            "clocks_sane": draw(st.sampled_from([True, True, True, False])),
            "parent_id": parent,
            "link": draw(st.sampled_from(list(ParentLink))) if parent else ParentLink.NONE,
        }
        found.append(session(name, **about))
    return tuple(sorted(found, key=lambda each: each.id))


@st.composite
def homes(draw: st.DrawFn) -> Inventory:
    names = st.sets(st.sampled_from(NAMES), max_size=2)
    guards = Safeguards(
        structs.replace(
            SEEN,
            leases=tuple(LeaseFact(name, "cli", 1, Liveness.ALIVE) for name in draw(names)),
        ),
        holds={name: [Hold.ROUTED] for name in draw(names)},
        reaped_at=dict.fromkeys(draw(names), NOW - DAY),
        restored=frozenset(draw(names)),
    )
    files = tuple(
        file(f"{name}.json", session_id=name, allocated_bytes=size)
        for name, size in draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 100))).items()
    )
    dumps = tuple(
        file(f"request_dump_{name}.json", days, kind=DiskKind.REQUEST_DUMPS, session_id=name)
        for name, days in draw(
            st.dictionaries(st.sampled_from(NAMES), st.sampled_from([1, 10]))
        ).items()
    )
    return inventory(*draw(sessions()), files=files + dumps, safeguards=guards)


@st.composite
def terms(draw: st.DrawFn) -> Prune:
    return Prune(
        keep=Keep(
            newest=draw(st.integers(0, 3)),
            sources=draw(st.sampled_from([(), ("cron",)])),
            archived=draw(st.booleans()),
        ),
        caps=Caps(share=1.0),
    )


@FEW_EXAMPLES
@given(homes(), terms(), st.booleans())
def test_nothing_protected_is_ever_planned(found: Inventory, how: Prune, by_hand: bool) -> None:
    protection = protect(found, how)
    planned = set(targets(plan(found, how, by_hand=by_hand)))
    by_name = {each.id: each for each in found.sessions}
    assert not planned & protection.rules.keys()
    for name in planned:
        each = by_name[name]
        assert not each.is_open
        assert not each.pinned
        assert each.clocks_sane
        assert name not in found.safeguards.holds
        assert name not in found.safeguards.reaped_at
        assert each.source not in how.keep.sources
        assert NOW - each.last_activity_at > DAY
        assert by_hand or name not in found.safeguards.restored


@FEW_EXAMPLES
@given(homes(), terms(), st.sampled_from(NAMES))
def test_more_protection_never_takes_more(found: Inventory, how: Prune, name: str) -> None:
    pinned = tuple(
        structs.replace(each, pinned=True) if each.id == name else each for each in found.sessions
    )
    before = set(targets(plan(found, how)))
    after = set(targets(plan(structs.replace(found, sessions=pinned), how)))
    assert after <= before - {name}


@FEW_EXAMPLES
@given(homes(), terms())
def test_conversations_go_whole_and_delegates_with_their_parent(
    found: Inventory, how: Prune
) -> None:
    made = plan(found, how)
    planned = set(targets(made))
    lineages = Lineages(found.sessions)
    for conversation in lineages.conversations():
        names = {each.id for each in conversation}
        assert not names & planned or names <= planned
    for each in found.sessions:
        parent = lineages.parent(each)
        if parent is not None and parent.id in planned and each.link is ParentLink.DELEGATE:
            assert each.id in planned
    assert len(targets(made)) == len(planned)
    groups = {action.target: action.group for action in made.actions if action.group}
    numbers = [action.group for action in made.actions if action.kind == Act.DELETE_SESSION]
    assert set(groups) <= planned
    for number in set(groups.values()):
        first = numbers.index(number)
        count = numbers.count(number)
        assert numbers[first : first + count] == [number] * count


@FEW_EXAMPLES
@given(homes(), terms())
def test_files_of_a_session_go_after_it_and_never_without_it(found: Inventory, how: Prune) -> None:
    taken: set[str] = set()
    for action in plan(found, how).actions:
        if action.kind == Act.DELETE_SESSION:
            taken.add(action.target)
        elif "session" in action.expected:
            assert action.expected["session"] in taken
        else:
            assert action.target.startswith("sessions/request_dump_")


@FEW_EXAMPLES
@given(homes(), terms(), st.randoms())
def test_the_same_home_gives_the_same_plan(found: Inventory, how: Prune, chance: Any) -> None:
    again = list(found.sessions)
    files = list(found.files)
    chance.shuffle(again)
    chance.shuffle(files)
    mixed = structs.replace(found, sessions=tuple(again), files=tuple(files))
    assert plan(found, how).actions == plan(mixed, how).actions


@FEW_EXAMPLES
@given(
    homes(),
    terms(),
    st.sampled_from(["transcripts", "state_db_payload", "empty_sessions"]),
    st.data(),
)
def test_a_plan_under_pressure_is_a_part_of_the_whole_and_stops_at_the_low_mark(
    found: Inventory, how: Prune, name: str, data: st.DataObject
) -> None:
    low = data.draw(st.integers(1, 200))
    marks = Thresholds(**{name: Threshold(low + data.draw(st.integers(1, 50)), low)})
    how = Prune(keep=how.keep, caps=how.caps, thresholds=marks)
    pressure = pressed(found, how)
    level = pressure.level(ThresholdName(name))
    assert level is not None
    made = plan(found, how, pressure=pressure)
    assert {each.target for each in made.actions} <= {
        each.target for each in plan(found, how).actions
    }
    relief = relief_of(made.actions, pressure).get(name, 0.0)
    if not level.pressing:
        assert made.actions == ()
        return
    if relief < level.wanted:
        # All that could help is in it.
        whole = relief_of(plan(found, how).actions, pressure).get(name, 0.0)
        assert relief == whole
        assert name == "empty_sessions" or made.unreachable
    elif made.actions:
        assert relief - _last(made, name) < level.wanted
    memory = note_run(PruneMemory(), pressure, {name: relief}, NOW)
    assert memory.last_run_at == NOW


def _last(made: PrunePlan, name: str) -> float:
    """An upper bound for what the last thing that was taken adds: the largest of all."""
    by_unit: dict[tuple[str, int, str], float] = {}
    for action in made.actions:
        owner = str(action.expected.get("session") or action.target)
        key = (action.policy, action.group, "" if action.group else owner)
        of_session = action.kind == Act.DELETE_SESSION
        amount = {
            "transcripts": 0 if of_session else action.bytes,
            "state_db_payload": action.bytes if of_session else 0,
            "empty_sessions": int(of_session and not action.expected.get("rows")),
        }[name]
        by_unit[key] = by_unit.get(key, 0) + amount
    return sum(by_unit.values()) if _grouped(made) else max(by_unit.values(), default=0)


def _grouped(made: PrunePlan) -> bool:
    """Files carry no group, and delegates may go before their parent: then only the sum bounds."""
    return any(action.group for action in made.actions) or any(
        action.policy is not made.actions[0].policy for action in made.actions
    )


@pytest.mark.full
@budget(max_examples=1000, deadline=None)
@given(homes(), terms(), st.sampled_from(NAMES), st.booleans())
def test_all_of_that_holds_of_very_many_homes(
    found: Inventory, how: Prune, name: str, by_hand: bool
) -> None:
    _plain(test_nothing_protected_is_ever_planned)(found, how, by_hand)
    _plain(test_more_protection_never_takes_more)(found, how, name)
    _plain(test_conversations_go_whole_and_delegates_with_their_parent)(found, how)
    _plain(test_files_of_a_session_go_after_it_and_never_without_it)(found, how)


def _plain(test: Any) -> Any:
    """A test that takes what it is given."""
    return test.hypothesis.inner_test
