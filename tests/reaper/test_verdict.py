"""What makes a session dead, and everything that keeps it from being so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from exporter.evidence.liveness import BootTime
from exporter.evidence.models import Holder, LeaseFact, Liveness, NamedSession, ProcessFacts
from exporter.hermes.process_kinds import NamedBy, ProcessKind
from exporter.reaper.models import ReaperRules, UnknownReason, Verdict
from exporter.reaper.possible_hosts import FirstSeen, HostClass, hosts_of
from exporter.reaper.verdict import Context, WatchedSession, decide, judge
from exporter.reaper.verdict_history import VerdictHistory
from exporter.runs.models import Proof, SpeaksFor
from exporter.snapshot import Hold, LockAnswer, OpenSession, TurnState

NOW = 1_800_000_000.0
HOUR = 3600.0
RULES = ReaperRules()
NOBODY = ProcessFacts(lock_probe=LockAnswer.FREE, blind=())


def session(
    name: str = "a",
    *,
    source: str = "cli",
    idle: float = 3600.0,
    age: float = 7200.0,
    holds: list[Hold] | None = None,
    rows: int = 4,
    parent: str | None = None,
    heartbeat: float | None = None,
    sane: bool = True,
) -> OpenSession:
    return OpenSession(
        id=name,
        source=source,
        started_at=NOW - age,
        last_activity_at=NOW - idle,
        clocks_sane=sane,
        messages=rows,
        rows=rows,
        turn=TurnState.AFTER_TURN,
        holds=holds or [],
        parent_id=parent,
        last_heartbeat_at=heartbeat,
    )


def holder(
    kind: ProcessKind = ProcessKind.CLI,
    *,
    pid: int = 100,
    started: float = 86400.0,
    may_resume: bool = False,
    mapped: tuple[str, ...] = (),
    how: NamedBy = NamedBy.RESUME,
    forked_copy: bool = False,
    written: int | None = None,
    stopped: bool = False,
    ours: bool = False,
) -> Holder:
    return Holder(
        pid=pid,
        start_ticks=pid * 10,
        started_at=NOW - started,
        namespace_pid=pid,
        kind=kind,
        may_resume=may_resume,
        shm_inode=7,
        lockless_database=False,
        lockless_shm=False,
        deleted_wal=False,
        forked_copy=forked_copy,
        sessions=tuple(NamedSession(name, how) for name in mapped),
        written=written,
        stopped=stopped,
        ours=ours,
    )


def facts(*holders: Holder, **changes: object) -> ProcessFacts:
    found = ProcessFacts(holders=holders, lock_probe=LockAnswer.HELD, blind=())
    return structs.replace(found, **changes)


def verdict(
    one: OpenSession, seen: ProcessFacts, rules: ReaperRules = RULES, *, watched: float = 0.0
) -> Verdict:
    """`watched` is for how long the agent has watched it standing still."""
    return decide(WatchedSession(one, watched), Context(seen, rules, NOW)).verdict


def waits_for(one: OpenSession, seen: ProcessFacts, watched: float = 0.0) -> UnknownReason | None:
    return decide(WatchedSession(one, watched), Context(seen, RULES, NOW)).reason


def proof(one: OpenSession, seen: ProcessFacts, watched: float = 0.0) -> Proof | None:
    return decide(WatchedSession(one, watched), Context(seen, RULES, NOW)).proof


def test_an_idle_session_is_proven_dead_where_no_process_has_the_database_open() -> None:
    assert verdict(session(), NOBODY) is Verdict.DEAD
    found = judge(WatchedSession(session()), Context(NOBODY, RULES, NOW))
    assert all(rule.holds for rule in found.rules)
    assert found.evidence[-1].says is SpeaksFor.DEAD
    assert proof(session(), NOBODY) is Proof.PROVEN


def test_recent_activity_is_life() -> None:
    assert verdict(session(idle=599), NOBODY) is Verdict.LIVE
    assert verdict(session(idle=600), NOBODY) is Verdict.DEAD


def test_a_backend_that_gave_a_heartbeat_keeps_its_sessions_alive() -> None:
    fresh = structs.replace(NOBODY, backend_beat_at=NOW - 30)
    assert verdict(session(source="tui"), fresh) is Verdict.LIVE
    assert verdict(session(source="cli"), fresh) is Verdict.DEAD
    stale = structs.replace(NOBODY, backend_beat_at=NOW - 91)
    assert verdict(session(source="tui"), stale) is Verdict.DEAD


def test_a_turn_under_way_is_life_also_for_a_session_it_may_belong_to() -> None:
    mine = structs.replace(NOBODY, turns=frozenset({"s"}))
    assert verdict(session("s"), mine) is Verdict.LIVE
    assert verdict(session("t"), mine) is Verdict.DEAD
    root = structs.replace(NOBODY, turns=frozenset({"root"}), turns_elsewhere=True)
    assert verdict(session("s", parent="root"), root) is Verdict.LIVE
    assert verdict(session("s"), root) is Verdict.DEAD


def test_a_fresh_heartbeat_is_life_and_a_stale_one_says_nothing() -> None:
    assert verdict(session(heartbeat=NOW - 30), NOBODY) is Verdict.LIVE
    assert verdict(session(heartbeat=NOW - 91), NOBODY) is Verdict.DEAD


def test_clocks_that_make_no_sense_protect() -> None:
    assert verdict(session(sane=False), NOBODY, watched=1e9) is Verdict.UNKNOWN
    assert verdict(session(idle=-5000, sane=False), NOBODY) is Verdict.UNKNOWN
    assert waits_for(session(sane=False), NOBODY) is UnknownReason.BLIND


def test_only_listed_sources_are_ever_dead_and_the_others_are_exempt() -> None:
    for source in ("telegram", "acp", "webhook", "api_server", "unknown", "whatever"):
        assert verdict(session(source=source), NOBODY) is Verdict.EXEMPT
    opted_in = structs.replace(RULES, sources=("webhook",))
    assert verdict(session(source="webhook"), NOBODY, opted_in) is Verdict.DEAD


def test_a_subagent_that_has_the_source_of_its_parents_process_is_judged_as_a_subagent() -> None:
    helper = structs.replace(session(source="api_server"), is_subagent=True)
    assert verdict(helper, NOBODY) is Verdict.DEAD
    without = structs.replace(RULES, sources=("cli",))
    assert verdict(helper, NOBODY, without) is Verdict.EXEMPT
    held = structs.replace(helper, holds=[Hold.ROUTED])
    assert verdict(held, NOBODY) is Verdict.HELD


def test_whatever_points_at_a_session_holds_it() -> None:
    for hold in Hold:
        assert verdict(session(holds=[hold]), NOBODY) is Verdict.HELD


def test_a_living_lease_is_life_a_doubtful_one_protects_and_a_dead_one_does_not() -> None:
    def leased(liveness: Liveness) -> VerdictHistory:
        seen = structs.replace(NOBODY, leases=(LeaseFact("a", "cli", 5, liveness),))
        return looked({"a": session("a"), "b": session("b")}, seen)

    assert leased(Liveness.ALIVE).verdict("a") is Verdict.LIVE
    assert leased(Liveness.UNKNOWN).verdict("a") is Verdict.UNKNOWN
    assert leased(Liveness.DEAD).verdict("a") is Verdict.DEAD
    assert leased(Liveness.ALIVE).verdict("b") is Verdict.DEAD


def looked(
    sessions: dict[str, OpenSession],
    *seen: ProcessFacts,
    rules: ReaperRules = RULES,
    hours: float = 0.0,
) -> VerdictHistory:
    """Three scans in a row, with so many hours of watched time between the first two."""
    moments = iter([BootTime("", 0.0, 1000.0), *[BootTime("", hours * HOUR, 1000.0)] * 9])
    history = VerdictHistory(lambda: next(moments))
    for each in (seen * 3)[:3]:
        history.update(sessions, each, rules, NOW)
    return history


def test_a_session_that_a_process_names_is_live_with_its_descendants() -> None:
    worker = holder(ProcessKind.SLASH_WORKER, mapped=("a",), how=NamedBy.SESSION_KEY)
    family = {
        "a": session("a"),
        "b": session("b"),
        "child": session("child", parent="a"),
        "grandchild": session("grandchild", parent="child"),
    }
    found = looked(family, facts(worker))
    assert found.verdict("a") is Verdict.LIVE
    assert found.verdict("child") is Verdict.LIVE
    assert found.verdict("grandchild") is Verdict.LIVE
    assert found.verdict("b") is Verdict.UNKNOWN


def test_a_name_clears_its_process_of_no_other_session() -> None:
    """`--resume X` says where a chat began, not where it is."""
    named = holder(ProcessKind.CLI, mapped=("x",))
    for others in ({}, {"x": session("x")}):
        found = looked({"y": session("y"), **others}, facts(named))
        assert found.verdict("y") is Verdict.UNKNOWN


def test_what_goes_on_from_a_named_session_that_has_ended_is_live() -> None:
    """`--resume X` of a session that was compressed lands on its continuation."""
    named = holder(ProcessKind.CLI, mapped=("x",))
    found = looked({"y": session("y", parent="x"), "z": session("z")}, facts(named), hours=100)
    assert (found.verdict("y"), found.verdict("z")) == (Verdict.LIVE, Verdict.DEAD)


def test_a_lock_held_by_an_unseen_process_makes_it_unknown() -> None:
    unseen = structs.replace(NOBODY, lock_probe=LockAnswer.HELD_UNSEEN)
    assert verdict(session(), unseen, watched=1e9) is Verdict.UNKNOWN


def test_beside_a_server_a_session_is_presumed_dead_after_its_time() -> None:
    for kind in (ProcessKind.GATEWAY, ProcessKind.CRON):
        for source in ("cli", "cron", "subagent"):
            beside, one = facts(holder(kind)), session(source=source, idle=1e6, age=1e6)
            assert waits_for(one, beside, 2 * HOUR - 1) is UnknownReason.SERVER
            assert proof(one, beside, 2 * HOUR) is Proof.PRESUMED


CHATS = (
    *(ProcessKind.CLI, ProcessKind.ONESHOT, ProcessKind.TUI, ProcessKind.DASHBOARD),
    *(ProcessKind.ACP, ProcessKind.SLASH_WORKER),
)
UNKNOWN_PROGRAMS = (ProcessKind.OTHER, ProcessKind.HERMES)


def test_beside_a_chat_or_an_unknown_program_it_takes_as_long_as_the_table_says() -> None:
    one = session(idle=1e6, age=1e6)
    for kind in (*CHATS, *UNKNOWN_PROGRAMS):
        beside = facts(holder(kind), holder(ProcessKind.GATEWAY, pid=7))
        reason = UnknownReason.CHAT if kind in CHATS else UnknownReason.UNKNOWN_PROGRAM
        assert waits_for(one, beside, 72 * HOUR - 1) is reason
        assert proof(one, beside, 72 * HOUR) is Proof.PRESUMED


def test_idleness_by_hermes_own_clocks_presumes_nothing_unless_a_person_says_so() -> None:
    beside, one = facts(holder(ProcessKind.CLI)), session(idle=1e6, age=1e6)
    assert verdict(one, beside) is Verdict.UNKNOWN
    by_clock = structs.replace(RULES, presume_by_clock=True)
    assert verdict(one, beside, by_clock) is Verdict.DEAD
    assert verdict(session(idle=71 * HOUR), beside, by_clock) is Verdict.UNKNOWN


def test_where_presuming_is_off_only_the_kernel_ends_a_session() -> None:
    off = structs.replace(RULES, presume_server_seconds=None, presume_chat_seconds=None)
    for kind in (ProcessKind.GATEWAY, ProcessKind.CLI, ProcessKind.OTHER):
        assert verdict(session(), facts(holder(kind)), off, watched=1e9) is Verdict.UNKNOWN
    assert verdict(session(), NOBODY, off) is Verdict.DEAD


def test_a_session_that_hermes_would_delete_once_it_has_ended_is_never_presumed_dead() -> None:
    """Hermes deletes ended sessions by their start; half of the time is left for a silent chat."""
    day = 24 * HOUR
    prunes = {"hermes_prunes_after_days": 90}
    chats, server = facts(holder(), **prunes), facts(holder(ProcessKind.GATEWAY), **prunes)
    for seen in (chats, server):
        assert proof(session(age=44 * day), seen, watched=73 * HOUR) is Proof.PRESUMED
        assert proof(session(age=46 * day), seen, watched=73 * HOUR) is None
    assert waits_for(session(age=46 * day), server) is UnknownReason.SERVER
    assert proof(session(age=46 * day), structs.replace(NOBODY, **prunes)) is Proof.PROVEN


def test_beside_a_stopped_process_nothing_is_presumed() -> None:
    stopped = facts(holder(ProcessKind.CLI, stopped=True))
    assert waits_for(session(), stopped, 1e9) is UnknownReason.STOPPED
    cleared = facts(holder(ProcessKind.MAINTENANCE, stopped=True))
    assert verdict(session(), cleared) is Verdict.DEAD


def test_where_the_home_has_plugins_a_server_counts_as_a_chat() -> None:
    beside = facts(holder(ProcessKind.GATEWAY), plugins=True)
    assert waits_for(session(), beside, 71 * HOUR) is UnknownReason.CHAT
    assert proof(session(), beside, 72 * HOUR) is Proof.PRESUMED


def test_a_maintenance_command_and_our_own_processes_are_cleared() -> None:
    for each in (holder(ProcessKind.MAINTENANCE), holder(ProcessKind.OTHER, ours=True)):
        assert proof(session(), facts(each)) is Proof.PROVEN
        assert proof(session(), facts(each, plugins=True)) is Proof.PROVEN


def test_a_child_at_work_keeps_its_parent_alive() -> None:
    """A parent writes nothing while its delegates work."""
    busy = {"p": session("p"), "c": session("c", source="subagent", parent="p", idle=10)}
    assert looked(busy, NOBODY).verdict("p") is Verdict.LIVE


def test_a_silent_child_keeps_its_parent_from_being_presumed() -> None:
    def family(rows: int) -> dict[str, OpenSession]:
        return {"p": session("p"), "c": session("c", source="subagent", parent="p", rows=rows)}

    moments = iter([BootTime("", hours * HOUR, 0.0) for hours in (0.0, 2.5, 3.0, 3.1)])
    history = VerdictHistory(lambda: next(moments))
    for rows in (1, 2, 2, 2):  # the child grew at the second scan
        history.update(family(rows), facts(holder(ProcessKind.GATEWAY)), RULES, NOW)
    assert history.verdict("p") is Verdict.UNKNOWN


def test_a_session_that_is_its_own_descendant_is_judged_all_the_same() -> None:
    loop = {
        "a": session("a", parent="b"),
        "b": session("b", parent="a"),
        "c": session("c", parent=""),
    }
    found = looked(loop, NOBODY)
    assert {found.verdict(each) for each in loop} == {Verdict.DEAD}


def test_one_look_never_makes_a_session_dead() -> None:
    history = VerdictHistory()
    one = {"a": session()}
    history.update(one, NOBODY, RULES, NOW)
    assert history.verdict("a") is Verdict.UNKNOWN
    history.update(one, facts(holder(ProcessKind.OTHER)), RULES, NOW)
    history.update(one, NOBODY, RULES, NOW)
    assert history.verdict("a") is Verdict.UNKNOWN, "the row of agreeing scans was broken"
    history.update(one, NOBODY, RULES, NOW)
    assert history.verdict("a") is Verdict.DEAD


def test_a_child_of_a_live_session_is_held() -> None:
    family = {"p": session("p", idle=10), "c": session("c", source="subagent", parent="p")}
    assert looked(family, NOBODY).verdict("c") is Verdict.HELD


def test_unknown_sessions_are_counted_by_what_stands_in_the_way() -> None:
    both = {"a": session("a"), "b": session("b")}
    beside = facts(holder(ProcessKind.CLI, pid=1234))
    (found,) = looked(both, beside, hours=51).unknown(both)
    assert (found.reason, found.sessions, found.overdue) == (UnknownReason.CHAT, 2, 0)
    assert (found.process, found.processes) == (1234, 1)
    assert found.dead_at == pytest.approx(NOW + 21 * HOUR)


def test_what_time_alone_does_not_end_has_no_end_and_is_soon_overdue() -> None:
    one = {"a": session("a")}
    stopped = facts(holder(ProcessKind.CLI, pid=1234, stopped=True))
    (found,) = looked(one, stopped, hours=51).unknown(one)
    assert (found.reason, found.overdue) == (UnknownReason.STOPPED, 1)
    assert (found.process, found.dead_at) == (1234, None)
    (found,) = looked(one, facts(blind=("permissions",))).unknown(one)
    assert (found.reason, found.overdue, found.process) == (UnknownReason.BLIND, 1, None)


def test_where_presumptions_are_off_nothing_is_overdue() -> None:
    one = {"a": session("a", idle=1e7)}
    off = structs.replace(RULES, presume_chat_seconds=None)
    (found,) = looked(one, facts(holder(ProcessKind.CLI)), rules=off).unknown(one)
    assert (found.overdue, found.dead_at) == (0, None)
    (found,) = looked(one, facts(holder(ProcessKind.CLI)), hours=1).unknown(one)
    assert found.overdue == 1, "idle for months by its own clock, and watched for an hour"


def test_explain_says_which_process_is_waited_for_and_for_how_long() -> None:
    found = looked({"a": session("a")}, facts(holder(ProcessKind.CLI, pid=1234)), hours=51)
    (said,) = [
        rule.why for rule in found.judgement(session("a")).rules if rule.rule == "idle_long_enough"
    ]
    assert "process 1234 (cli)" in said
    assert "dead after 21h more of watched idleness" in said


sessions = st.builds(
    session,
    st.sampled_from("abc"),
    source=st.sampled_from(["cli", "tui", "cron", "subagent", "telegram", "acp"]),
    idle=st.floats(-1000, 1e6),
    age=st.floats(0, 1e6),
    holds=st.lists(st.sampled_from(list(Hold)), max_size=2),
    heartbeat=st.one_of(st.none(), st.floats(NOW - 1000, NOW)),
    sane=st.booleans(),
)
holders = st.builds(
    holder,
    st.sampled_from(list(ProcessKind)),
    pid=st.integers(2, 5),
    started=st.floats(0, 1e6),
    may_resume=st.booleans(),
    mapped=st.lists(st.sampled_from("abc"), max_size=1).map(tuple),
    how=st.sampled_from(list(NamedBy)),
    forked_copy=st.booleans(),
    stopped=st.booleans(),
    ours=st.booleans(),
)
leases = st.builds(
    LeaseFact,
    st.sampled_from("abc"),
    st.just("cli"),
    st.integers(2, 5),
    st.sampled_from(list(Liveness)),
)
all_facts = st.builds(
    ProcessFacts,
    holders=st.lists(holders, max_size=4).map(tuple),
    leases=st.lists(leases, max_size=2).map(tuple),
    lock_probe=st.sampled_from(list(LockAnswer)),
    blind=st.lists(st.sampled_from(["permissions", "network_fs"]), max_size=1).map(tuple),
    plugins=st.booleans(),
)
presences = st.builds(FirstSeen, st.floats(0, 1000), st.integers(-1, 3))
watched_times = st.floats(0, 1e6)


@given(sessions, all_facts, watched_times)
def test_never_dead_with_any_sign_of_life_or_anything_unseen(
    one: OpenSession, seen: ProcessFacts, watched: float
) -> None:
    found = judge(WatchedSession(one, watched), Context(seen, RULES, NOW))
    if found.verdict is Verdict.DEAD:
        assert not seen.blind
        assert seen.lock_probe is not LockAnswer.HELD_UNSEEN
        assert one.source in RULES.sources
        assert not one.holds
        assert one.clocks_sane
        assert SpeaksFor.LIVE not in {evidence.says for evidence in found.evidence}
        if proof(one, seen, watched) is Proof.PROVEN:
            assert SpeaksFor.BLIND not in {evidence.says for evidence in found.evidence}


@given(all_facts, presences)
def test_processes_together_are_on_the_largest_line_of_any(
    seen: ProcessFacts, presence: FirstSeen
) -> None:
    silent = {(each.pid, each.start_ticks): each.pid % 3 for each in seen.holders}
    order = list(HostClass)

    def line(*holders: Holder) -> int:
        found = hosts_of(holders, plugins=seen.plugins, silent_since=silent)
        return order.index(found.class_for(presence))

    assert line(*seen.holders) == max((line(each) for each in seen.holders), default=0)


@given(sessions, all_facts, watched_times)
def test_the_verdict_and_the_chain_of_rules_agree(
    one: OpenSession, seen: ProcessFacts, watched: float
) -> None:
    found = judge(WatchedSession(one, watched), Context(seen, RULES, NOW))
    assert (found.verdict is Verdict.DEAD) == all(rule.holds for rule in found.rules)


@given(sessions, all_facts, holders, watched_times)
def test_one_more_process_never_makes_a_session_dead(
    one: OpenSession, seen: ProcessFacts, more: Holder, watched: float
) -> None:
    if verdict(one, seen, watched=watched) is not Verdict.DEAD:
        with_more = structs.replace(seen, holders=(*seen.holders, more))
        assert verdict(one, with_more, watched=watched) is not Verdict.DEAD


@given(sessions, all_facts, st.sampled_from(list(Hold)), watched_times)
def test_one_more_hold_or_blindness_never_makes_a_session_dead(
    one: OpenSession, seen: ProcessFacts, hold: Hold, watched: float
) -> None:
    held = structs.replace(one, holds=[*one.holds, hold])
    assert verdict(held, seen, watched=watched) is not Verdict.DEAD
    blind = structs.replace(seen, blind=(*seen.blind, "permissions"))
    assert verdict(one, blind, watched=watched) is not Verdict.DEAD


@given(sessions, all_facts, st.floats(0, 1e6), watched_times)
def test_a_dead_session_stays_dead_as_time_goes_by(
    one: OpenSession, seen: ProcessFacts, later: float, watched: float
) -> None:
    if verdict(one, seen, watched=watched) is Verdict.DEAD:
        context = Context(seen, RULES, NOW + later)
        assert decide(WatchedSession(one, watched + later), context).verdict is Verdict.DEAD
