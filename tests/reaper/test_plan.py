"""What a reap would do: only dead sessions, and not too fast."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from exporter.config.settings import Reaper
from exporter.reaper.models import JudgedSession, Verdict
from exporter.reaper.plan import (
    Blocked,
    JudgedHome,
    ReapLimits,
    ReapPlan,
    hash_of,
    plan_reap,
)
from exporter.runs.models import Evidence, SpeaksFor
from exporter.snapshot import Hold, OpenSession, TurnState

NOW = 1_800_000_000.0
PROOF = Evidence("nobody", SpeaksFor.DEAD, "no process on this host has the database open")


def judged(
    name: str,
    verdict: Verdict = Verdict.DEAD,
    *,
    source: str = "cli",
    idle: float = 3600.0,
    rows: int = 4,
) -> JudgedSession:
    session = OpenSession(
        id=name,
        source=source,
        started_at=NOW - 2 * idle,
        last_activity_at=NOW - idle,
        clocks_sane=True,
        messages=rows,
        rows=rows,
        turn=TurnState.AFTER_TURN,
    )
    return JudgedSession(session, verdict, (PROOF,))


def home(dead: int, name: str = "home", **changes: object) -> JudgedHome:
    sessions = [judged(f"dead-{number}", idle=1000.0 + number) for number in range(dead)]
    found = JudgedHome(name, sessions)
    return structs.replace(found, **changes)


def plan(home: JudgedHome, **options: object) -> ReapPlan:
    return plan_reap(home, NOW, **options)  # type: ignore[arg-type]


def targets(found: ReapPlan) -> list[str]:
    return [action.target for action in found.actions]


def test_every_dead_session_is_planned_the_longest_idle_first() -> None:
    found = plan(home(3))
    assert targets(found) == ["dead-2", "dead-1", "dead-0"]
    assert found.actions[0].reason == f"idle for 16m; {PROOF.detail}"
    assert found.actions[0].evidence == (PROOF,)


def test_the_state_that_was_judged_goes_along() -> None:
    (action,) = plan(home(1)).actions
    expected = action.expected
    assert (expected.last_activity_at, expected.rows) == (NOW - 1000.0, 4)


def test_filters_narrow_a_plan() -> None:
    sessions = [judged("a"), judged("b", source="cron"), judged("c", source="tui")]
    found = plan(JudgedHome("home", sessions), sources=["cron", "tui"])
    assert targets(found) == ["b", "c"]


def test_the_hash_names_what_would_be_done_and_not_when_it_was_planned() -> None:
    first, later = plan(home(3)), plan_reap(home(3), NOW + 5)
    assert hash_of([first]) == hash_of([later])
    assert first.created_at != later.created_at
    assert hash_of([plan(home(2))]) != hash_of([first])
    moved = [judged("dead-0", idle=1000.0, rows=5)]
    assert hash_of([plan(home(1, judged=moved))]) != hash_of([plan(home(1))])


def test_no_more_than_so_many_a_minute() -> None:
    limits = ReapLimits(max_per_minute=10)
    found = plan(home(30, limits=limits, reaped_in_last_minute=4, left_in_this_hour=99))
    assert (len(found.actions), found.deferred) == (6, 24)
    assert plan(home(30, limits=limits, reaped_in_last_minute=11)).actions == ()


def test_slow_start_leaves_the_rest_for_later_hours() -> None:
    found = plan(home(91, left_in_this_hour=10))
    assert (len(found.actions), found.deferred) == (10, 81)
    assert plan(home(91, left_in_this_hour=0)).actions == ()


def test_what_tripped_before_stays_tripped() -> None:
    found = plan(home(1, tripped="2 sessions were active after they had been reaped"))
    assert (found.actions, found.blocked) == ((), Blocked.TRIPPED)
    assert "by hand" in found.why


def test_by_hand_neither_breaker_nor_rate_holds() -> None:
    many = home(500, tripped="yes", reaped_in_last_minute=60, left_in_this_hour=0)
    assert len(plan(many, by_hand=True).actions) == 500


def test_limits_come_from_the_settings() -> None:
    assert ReapLimits.of(Reaper()) == ReapLimits()


def test_a_plan_survives_being_saved() -> None:
    found = plan(home(3))
    assert msgspec.json.decode(msgspec.json.encode(found), type=ReapPlan) == found


anything = st.builds(
    JudgedSession,
    session=st.builds(
        OpenSession,
        id=st.text(min_size=1, max_size=8),
        source=st.sampled_from(["cli", "tui", "cron", "telegram", "acp", "new"]),
        started_at=st.floats(NOW - 1e6, NOW + 1e3),
        last_activity_at=st.floats(NOW - 1e6, NOW + 1e3),
        clocks_sane=st.booleans(),
        messages=st.integers(0, 9),
        rows=st.integers(0, 9),
        turn=st.sampled_from(TurnState),
        holds=st.lists(st.sampled_from(Hold), max_size=2),
    ),
    verdict=st.sampled_from(Verdict),
    evidence=st.lists(
        st.builds(Evidence, st.just("kind"), st.sampled_from(SpeaksFor), st.text(max_size=300)),
        max_size=4,
    ).map(tuple),
)
homes = st.builds(
    JudgedHome,
    home=st.sampled_from(["a", "b"]),
    judged=st.lists(anything, max_size=80),
    limits=st.builds(ReapLimits, max_per_minute=st.integers(1, 60)),
    left_in_this_hour=st.integers(0, 80),
    reaped_in_last_minute=st.integers(0, 80),
    tripped=st.sampled_from(["", "too many"]),
)


@given(homes, st.booleans())
def test_a_plan_never_holds_a_session_that_is_not_dead(one: JudgedHome, by_hand: bool) -> None:
    found = plan(one, by_hand=by_hand)
    sessions = {(each.session.id, each.session.last_activity_at): each for each in one.judged}
    for action in found.actions:
        dead = [
            each
            for each in one.judged
            if each.session.id == action.target and each.verdict is Verdict.DEAD
        ]
        assert dead
        assert any(not each.session.holds and each.session.clocks_sane for each in dead)
        assert action.expected.last_activity_at <= NOW
        assert (action.target, action.expected.last_activity_at) in sessions


@given(homes)
def test_an_automatic_plan_keeps_every_limit(one: JudgedHome) -> None:
    found = plan(one)
    in_this_minute = one.limits.max_per_minute - one.reaped_in_last_minute
    assert len(found.actions) <= max(0, min(in_this_minute, one.left_in_this_hour))
    assert not (one.tripped and found.actions)
    assert not (found.blocked and found.actions)
