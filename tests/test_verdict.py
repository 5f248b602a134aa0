"""What makes a session dead, and everything that keeps it from being so."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from exporter.evidence.findings import Holder, Liveness, MappedSession
from exporter.hermes.processes import Mapping, ProcessKind
from exporter.reaper.findings import HomeFacts, LeaseFact, ReaperRules, Says, Verdict
from exporter.reaper.hosts import could_host, hosts_of
from exporter.reaper.judge import Bench
from exporter.reaper.verdict import Scene, conclude, judge
from exporter.snapshot import Hold, LockAnswer, OpenSession, Turn

NOW = 1_800_000_000.0
RULES = ReaperRules()
NOBODY = HomeFacts(lock_probe=LockAnswer.FREE, blind=())


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
        turn=Turn.AFTER_TURN,
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
    how: Mapping = Mapping.RESUME,
    heir: bool = False,
    written: int | None = None,
) -> Holder:
    return Holder(
        pid=pid,
        start_ticks=pid * 10,
        started_at=NOW - started,
        uid=1000,
        namespace_pid=pid,
        kind=kind,
        may_resume=may_resume,
        holds_database=True,
        holds_shm=True,
        shm_inode=7,
        database_locked=True,
        shm_locked=True,
        lockless_database=False,
        lockless_shm=False,
        deleted_wal=False,
        heir=heir,
        sessions=tuple(MappedSession(name, how, NOW - started) for name in mapped),
        written=written,
    )


def facts(*holders: Holder, **changes: object) -> HomeFacts:
    found = HomeFacts(holders=holders, lock_probe=LockAnswer.HELD, blind=())
    return structs.replace(found, **changes)


def verdict(one: OpenSession, seen: HomeFacts, rules: ReaperRules = RULES) -> Verdict:
    return conclude(one, Scene.of(seen, rules, NOW))


def test_an_idle_session_of_a_home_that_nobody_has_open_is_dead() -> None:
    assert verdict(session(), NOBODY) is Verdict.DEAD
    found = judge(session(), Scene.of(NOBODY, RULES, NOW))
    assert all(rule.holds for rule in found.rules)
    assert found.evidence[-1].says is Says.DEAD


def test_recent_activity_is_life() -> None:
    assert verdict(session(idle=599), NOBODY) is Verdict.LIVE
    assert verdict(session(idle=600), NOBODY) is Verdict.DEAD


def test_a_backend_that_gave_a_heartbeat_keeps_its_sessions_alive() -> None:
    fresh = structs.replace(NOBODY, backend_beat_at=NOW - 30)
    assert verdict(session(source="tui"), fresh) is Verdict.LIVE
    assert verdict(session(source="cli"), fresh) is Verdict.DEAD
    stale = structs.replace(NOBODY, backend_beat_at=NOW - 91)
    assert verdict(session(source="tui"), stale) is Verdict.DEAD


def test_a_turn_under_way_is_life_also_for_whom_it_may_belong_to() -> None:
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
    assert verdict(session(sane=False), NOBODY) is Verdict.UNKNOWN
    assert verdict(session(idle=-5000, sane=False), NOBODY) is Verdict.UNKNOWN


def test_only_listed_sources_are_ever_dead() -> None:
    for source in ("telegram", "acp", "webhook", "api_server", "unknown", "whatever"):
        assert verdict(session(source=source), NOBODY) is Verdict.UNKNOWN
    opted_in = structs.replace(RULES, sources=("webhook",))
    assert verdict(session(source="webhook"), NOBODY, opted_in) is Verdict.DEAD


def test_whatever_points_at_a_session_holds_it() -> None:
    for hold in Hold:
        assert verdict(session(holds=[hold]), NOBODY) is Verdict.HELD


def test_a_living_lease_is_life_a_doubtful_one_protects_and_a_dead_one_does_not() -> None:
    def leased(liveness: Liveness) -> HomeFacts:
        return structs.replace(NOBODY, leases=(LeaseFact("a", "cli", 5, liveness),))

    assert verdict(session("a"), leased(Liveness.ALIVE)) is Verdict.LIVE
    assert verdict(session("a"), leased(Liveness.UNKNOWN)) is Verdict.UNKNOWN
    assert verdict(session("a"), leased(Liveness.DEAD)) is Verdict.DEAD
    assert verdict(session("b"), leased(Liveness.ALIVE)) is Verdict.DEAD


def test_a_session_that_a_process_names_is_live() -> None:
    worker = holder(ProcessKind.SLASH_WORKER, mapped=("a",), how=Mapping.SESSION_KEY)
    assert verdict(session("a"), facts(worker)) is Verdict.LIVE
    assert verdict(session("b"), facts(worker)) is Verdict.DEAD


def test_a_slash_worker_that_names_no_session_may_run_any() -> None:
    worker = holder(ProcessKind.SLASH_WORKER, may_resume=True)
    assert verdict(session("a"), facts(worker)) is Verdict.UNKNOWN


def test_a_lock_held_by_somebody_unseen_makes_it_unknown() -> None:
    unseen = structs.replace(NOBODY, lock_probe=LockAnswer.HELD_UNSEEN)
    assert verdict(session(), unseen) is Verdict.UNKNOWN


def test_a_gateway_cannot_be_running_an_unrouted_cli_session() -> None:
    gateway = holder(ProcessKind.GATEWAY)
    assert verdict(session(source="cli"), facts(gateway)) is Verdict.DEAD


def test_a_gateway_may_be_running_a_cron_session_that_was_active_while_it_ran() -> None:
    cron = session(source="cron", idle=3600)
    assert verdict(cron, facts(holder(ProcessKind.GATEWAY, started=7200))) is Verdict.UNKNOWN
    assert verdict(cron, facts(holder(ProcessKind.GATEWAY, started=1800))) is Verdict.DEAD


def test_a_one_shot_runs_what_it_began_or_whatever_it_was_told_to_resume() -> None:
    old = session(age=7200)
    assert verdict(old, facts(holder(ProcessKind.ONESHOT, started=60))) is Verdict.DEAD
    assert verdict(old, facts(holder(ProcessKind.ONESHOT, started=9000))) is Verdict.UNKNOWN
    resuming = holder(ProcessKind.ONESHOT, started=60, may_resume=True)
    assert verdict(old, facts(resuming)) is Verdict.UNKNOWN


def test_an_interactive_cli_may_have_resumed_anything_until_it_is_accounted_for() -> None:
    cli = holder(ProcessKind.CLI, started=60)
    assert verdict(session("a"), facts(cli)) is Verdict.UNKNOWN
    named = holder(ProcessKind.CLI, started=60, mapped=("mine",))
    bench = Bench()
    open_now = {"a": session("a"), "mine": session("mine")}
    for _ in range(2):
        bench.sit(open_now, facts(named), RULES, NOW)
    assert bench.verdict("a") is Verdict.DEAD
    assert bench.verdict("mine") is Verdict.LIVE


def test_a_cli_whose_named_row_is_closed_has_moved_on_and_may_be_anywhere() -> None:
    moved_on = holder(ProcessKind.CLI, mapped=("left",))
    bench = Bench()
    for _ in range(3):
        bench.sit({"a": session("a")}, facts(moved_on), RULES, NOW)
    assert bench.verdict("a") is Verdict.UNKNOWN


def test_two_processes_that_name_one_row_account_for_neither() -> None:
    twins = (holder(pid=1, mapped=("mine",)), holder(pid=2, mapped=("mine",)))
    bench = Bench()
    for _ in range(3):
        bench.sit({"a": session("a"), "mine": session("mine")}, facts(*twins), RULES, NOW)
    assert bench.verdict("a") is Verdict.UNKNOWN


def test_kinds_that_host_nothing_stand_in_nobodys_way_and_unknown_ones_do() -> None:
    for kind in (ProcessKind.EXPORTER, ProcessKind.MAINTENANCE):
        assert verdict(session(), facts(holder(kind))) is Verdict.DEAD
    for kind in (ProcessKind.OTHER, ProcessKind.HERMES, ProcessKind.TUI, ProcessKind.DASHBOARD):
        assert verdict(session(), facts(holder(kind))) is Verdict.UNKNOWN


def test_one_look_never_makes_a_session_dead() -> None:
    bench = Bench()
    one = {"a": session()}
    bench.sit(one, NOBODY, RULES, NOW)
    assert bench.verdict("a") is Verdict.UNKNOWN
    bench.sit(one, facts(holder(ProcessKind.OTHER)), RULES, NOW)
    bench.sit(one, NOBODY, RULES, NOW)
    assert bench.verdict("a") is Verdict.UNKNOWN, "the row of agreeing scans was broken"
    bench.sit(one, NOBODY, RULES, NOW)
    assert bench.verdict("a") is Verdict.DEAD


def test_a_child_of_a_live_session_is_held() -> None:
    bench = Bench()
    family = {"p": session("p", idle=10), "c": session("c", source="subagent", parent="p")}
    for _ in range(3):
        bench.sit(family, NOBODY, RULES, NOW)
    assert bench.verdict("c") is Verdict.HELD


def test_a_child_of_a_background_task_does_not_name_the_chat() -> None:
    """Hermes gives its children the session that began last, be it the chat or not."""
    for aside in (session("bg_123456_abcdef"), session("sub", parent="chat")):
        cli = holder(ProcessKind.CLI, mapped=(aside.id,), how=Mapping.CHILD_ENVIRONMENT)
        bench = Bench()
        for _ in range(3):
            bench.sit({"chat": session("chat"), aside.id: aside}, facts(cli), RULES, NOW)
        assert bench.verdict("chat") is Verdict.UNKNOWN


def test_a_cli_that_was_seen_to_leave_the_row_it_names_may_be_anywhere() -> None:
    """Somebody else may have opened that row again, and left it open."""
    cli = holder(ProcessKind.CLI, mapped=("first",))
    bench = Bench()
    bench.sit({"a": session("a")}, facts(cli), RULES, NOW)
    for _ in range(3):
        bench.sit({"a": session("a"), "first": session("first")}, facts(cli), RULES, NOW)
    assert bench.verdict("a") is Verdict.UNKNOWN


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
    how=st.sampled_from(list(Mapping)),
    heir=st.booleans(),
)
leases = st.builds(
    LeaseFact,
    st.sampled_from("abc"),
    st.just("cli"),
    st.integers(2, 5),
    st.sampled_from(list(Liveness)),
)
all_facts = st.builds(
    HomeFacts,
    holders=st.lists(holders, max_size=4).map(tuple),
    leases=st.lists(leases, max_size=2).map(tuple),
    lock_probe=st.sampled_from(list(LockAnswer)),
    blind=st.lists(st.sampled_from(["permissions", "network_fs"]), max_size=1).map(tuple),
)


@given(sessions, all_facts)
def test_never_dead_with_any_sign_of_life_or_anything_unseen(
    one: OpenSession, seen: HomeFacts
) -> None:
    found = judge(one, Scene.of(seen, RULES, NOW))
    if found.verdict is Verdict.DEAD:
        assert not seen.blind
        assert seen.lock_probe is not LockAnswer.HELD_UNSEEN
        assert one.source in RULES.sources
        assert not one.holds
        assert one.clocks_sane
        assert not {evidence.says for evidence in found.evidence} & {Says.LIVE, Says.BLIND}


@given(sessions, all_facts, st.sets(st.integers(2, 5)))
def test_processes_together_could_run_what_any_one_of_them_could(
    one: OpenSession, seen: HomeFacts, known: set[int]
) -> None:
    accounted = {(pid, pid * 10): frozenset("b") for pid in known}
    together = hosts_of(seen.holders, accounted).may_run(one)
    assert together == any(could_host(holder, one, accounted) for holder in seen.holders)


@given(sessions, all_facts)
def test_the_verdict_and_the_chain_of_rules_agree(one: OpenSession, seen: HomeFacts) -> None:
    found = judge(one, Scene.of(seen, RULES, NOW))
    assert (found.verdict is Verdict.DEAD) == all(rule.holds for rule in found.rules)


@given(sessions, all_facts, holders)
def test_one_more_process_never_makes_a_session_dead(
    one: OpenSession, seen: HomeFacts, more: Holder
) -> None:
    if verdict(one, seen) is not Verdict.DEAD:
        with_more = structs.replace(seen, holders=(*seen.holders, more))
        assert verdict(one, with_more) is not Verdict.DEAD


@given(sessions, all_facts, st.sampled_from(list(Hold)))
def test_one_more_hold_or_blindness_never_makes_a_session_dead(
    one: OpenSession, seen: HomeFacts, hold: Hold
) -> None:
    held = structs.replace(one, holds=[*one.holds, hold])
    assert verdict(held, seen) is not Verdict.DEAD
    blind = structs.replace(seen, blind=(*seen.blind, "permissions"))
    assert verdict(one, blind) is not Verdict.DEAD


@given(sessions, all_facts, st.floats(0, 1e6))
def test_a_dead_session_stays_dead_as_time_goes_by(
    one: OpenSession, seen: HomeFacts, later: float
) -> None:
    if verdict(one, seen) is Verdict.DEAD:
        assert conclude(one, Scene.of(seen, RULES, NOW + later)) is Verdict.DEAD
