"""Idleness that the agent watched itself: no clock step, no sleep and no restart adds to it."""

from __future__ import annotations

from msgspec import structs

from exporter.evidence.liveness import BootTime, read_boot_time
from exporter.evidence.models import Holder
from exporter.hermes.process_kinds import ProcessKind
from exporter.reaper.possible_hosts import NEVER_ABSENT, FirstSeen
from exporter.reaper.watched_idleness import SESSIONS_MAX, WatchedIdleness
from exporter.snapshot import OpenSession
from tests.reaper.test_verdict import NOW, holder, session

BOOT = "11111111-2222-3333-4444-555555555555"
NEXT_BOOT = "99999999-2222-3333-4444-555555555555"


class Host:
    """A host whose clocks the test moves, and an agent on it that is restarted at will."""

    def __init__(self) -> None:
        self.moment = BootTime(BOOT, 1000.0, 1000.0)
        self.watch = WatchedIdleness(lambda: self.moment)
        self.sessions = {"a": session("a")}
        self.holders: tuple[Holder, ...] = ()
        self.wall = 0.0
        self.grown: tuple[str, ...] = ()

    def scan(self, after: float = 0.0, *, asleep: float = 0.0) -> float:
        """Scan again; return for how long `a` was watched standing still."""
        self.moment = structs.replace(
            self.moment,
            monotonic=self.moment.monotonic + after,
            since_boot=self.moment.since_boot + after + asleep,
        )
        self.watch.observe(self.sessions, self.holders, now=self.wall, grown=self.grown)
        self.grown = ()
        return self.watch.idle_seconds("a")

    def write(self, name: str = "a") -> None:
        rows = self.sessions[name].rows
        self.sessions[name] = structs.replace(self.sessions[name], rows=rows + 1)

    def restart_agent(self) -> None:
        kept = self.watch.dump()
        self.watch = WatchedIdleness(lambda: self.moment)
        self.watch.load(kept)


def test_a_session_that_was_there_at_the_first_scan_counts_as_grown_then() -> None:
    host = Host()
    assert host.scan() == 0.0
    assert host.scan(after=60.0) == 60.0


def test_a_message_begins_the_watch_anew() -> None:
    host = Host()
    host.scan()
    host.scan(after=60.0)
    host.write()
    assert host.scan(after=10.0) == 0.0
    assert host.scan(after=10.0) == 10.0


def test_any_change_of_count_or_clock_is_growth() -> None:
    changes: tuple[dict[str, object], ...] = (
        {"rows": 9},
        {"messages": 9},
        {"last_activity_at": 1.0},
    )
    for change in changes:
        host = Host()
        host.scan()
        host.scan(after=60.0)
        host.sessions["a"] = structs.replace(host.sessions["a"], **change)
        assert host.scan(after=1.0) == 0.0, change


def test_a_weekend_asleep_is_not_idleness() -> None:
    host = Host()
    host.scan()
    assert host.scan(after=60.0, asleep=2 * 86400.0) == 60.0


def test_time_beside_a_stopped_process_does_not_count() -> None:
    host = Host()
    host.scan()
    host.scan(after=60.0)
    host.holders = (holder(ProcessKind.CLI, stopped=True),)
    host.scan(after=15.0)
    host.scan(after=3600.0)
    host.holders = (holder(ProcessKind.CLI),)
    assert host.scan(after=15.0) == 60.0, "it was stopped at one end of each of these"
    assert host.scan(after=15.0) == 75.0


def test_a_stopped_process_of_ours_or_of_a_stranger_stops_no_watch() -> None:
    host = Host()
    host.holders = (
        holder(ProcessKind.OTHER, stopped=True, ours=True),
        structs.replace(holder(ProcessKind.OTHER, pid=3, stopped=True), outsider=True),
    )
    host.scan()
    assert host.scan(after=60.0) == 60.0


def test_a_restart_of_the_agent_loses_nothing_and_time_without_it_counts() -> None:
    host = Host()
    host.scan()
    host.scan(after=60.0)
    host.restart_agent()
    assert host.scan(after=600.0) == 660.0


def test_time_beside_a_stopped_process_stays_uncounted_after_a_restart() -> None:
    host = Host()
    host.holders = (holder(ProcessKind.CLI, stopped=True),)
    host.scan()
    host.scan(after=600.0)
    host.holders = ()
    host.restart_agent()
    assert host.scan(after=70 * 3600.0) == 0.0, "it may have been stopped until just now"
    assert host.scan(after=5.0) == 5.0


def test_a_session_that_changed_while_no_agent_ran_counts_as_grown() -> None:
    host = Host()
    host.scan()
    host.scan(after=60.0)
    host.restart_agent()
    host.write()
    assert host.scan(after=600.0) == 0.0


def test_what_was_kept_too_long_ago_is_as_safe_as_what_was_kept_just_now() -> None:
    """The agent keeps the watch once a minute, and may be killed at any moment."""
    host = Host()
    host.scan()
    kept = host.watch.dump()
    host.write()
    host.scan(after=60.0)
    host.watch = WatchedIdleness(lambda: host.moment)
    host.watch.load(kept)
    assert host.scan(after=1.0) == 0.0


def test_a_process_that_is_stopped_is_kept_at_once() -> None:
    """A worker that ends before the minute is over leaves no watch that counts the stop as idle."""
    host = Host()
    host.scan()
    host.restart_agent()
    assert not host.watch.must_be_kept_now
    host.holders = (holder(ProcessKind.CLI, stopped=True),)
    host.scan(after=5.0)
    assert host.watch.must_be_kept_now
    host.restart_agent()
    host.scan(after=5.0)
    assert not host.watch.must_be_kept_now
    host.holders = ()
    assert host.scan(after=70 * 3600.0) == 0.0


def test_every_session_counts_as_grown_at_the_first_scan_of_a_boot() -> None:
    host = Host()
    host.scan()
    host.scan(after=86400.0)
    host.restart_agent()
    host.moment = BootTime(NEXT_BOOT, 30.0, 30.0)
    kept_before_boot = WatchedIdleness(lambda: host.moment)
    kept_before_boot.load(_dumped(host.sessions))
    host.watch = kept_before_boot
    assert host.scan() == 0.0


def _dumped(sessions: dict[str, OpenSession]) -> bytes:
    earlier = WatchedIdleness(lambda: BootTime(BOOT, 9000.0, 9000.0))
    earlier.observe(sessions, (), now=0.0)
    return earlier.dump()


def test_damaged_or_foreign_bytes_are_as_nothing() -> None:
    good = _dumped({"a": session("a")})
    for bad in (b"", b"x", good[:-1], good[:20], b"HEW9" + good[4:], good + b"x", b"\0" * 64):
        host = Host()
        host.watch.load(bad)
        assert host.scan() == 0.0


def test_where_the_boot_has_no_name_nothing_outlives_a_worker() -> None:
    watch = WatchedIdleness(lambda: BootTime("", 5.0, 5.0))
    watch.observe({"a": session("a")}, (), now=0.0)
    assert watch.dump() == b""


def test_what_is_kept_is_bounded_and_those_idle_for_longest_come_first() -> None:
    host = Host()
    host.sessions = {str(number): session(str(number)) for number in range(SESSIONS_MAX)}
    host.scan()
    host.sessions["a"] = session("a")
    host.scan(after=60.0)
    host.restart_agent()
    assert host.scan(after=60.0) == 0.0, "the newest had no place"
    assert host.watch.idle_seconds("7") == 120.0
    assert len(host.watch.dump()) < 700_000


def test_the_first_sight_of_a_session_is_kept_by_the_boot_clock() -> None:
    host = Host()
    host.scan()
    host.sessions["b"] = session("b")
    host.scan(after=60.0, asleep=100.0)
    assert host.watch.presence("a") == FirstSeen(1000.0, NEVER_ABSENT)
    assert host.watch.presence("b") == FirstSeen(1160.0, 0)
    host.restart_agent()
    host.scan(after=60.0)
    assert host.watch.presence("b") == FirstSeen(1160.0, 0)


def test_a_chat_that_wrote_nothing_while_no_worker_watched_is_still_silent() -> None:
    """The next worker, and a command that the agent runs, judge by the same evidence."""
    host = Host()
    silent, talking = (holder(ProcessKind.CLI, pid=pid, written=100) for pid in (5, 6))
    host.holders = (silent, talking)
    host.scan()
    host.sessions["b"] = session("b")
    host.scan(after=60.0)
    host.restart_agent()
    host.holders = (silent, structs.replace(talking, written=101))
    host.sessions["c"] = session("c")
    host.scan(after=60.0)
    since = host.watch.silent_since()
    assert since[silent.pid, silent.start_ticks] <= host.watch.presence("b").absent_scan
    assert since[talking.pid, talking.start_ticks] > host.watch.presence("b").absent_scan
    assert host.watch.presence("c").absent_scan == NEVER_ABSENT, "it may have been there all along"


def test_no_process_of_an_earlier_boot_is_silent_in_this_one() -> None:
    chat = holder(ProcessKind.CLI, pid=5, written=100)
    earlier = WatchedIdleness(lambda: BootTime(BOOT, 9000.0, 9000.0))
    earlier.observe({}, (chat,), now=0.0)
    earlier.observe({"a": session("a")}, (chat,), now=0.0)
    watch = WatchedIdleness(lambda: BootTime(NEXT_BOOT, 30.0, 30.0))
    watch.load(earlier.dump())
    watch.observe({"a": session("a")}, (chat,), now=0.0)
    assert watch.presence("a").absent_scan < watch.silent_since()[chat.pid, chat.start_ticks]


def test_what_was_seen_in_an_earlier_boot_was_seen_before_every_process_of_this_one() -> None:
    watch = WatchedIdleness(lambda: BootTime(NEXT_BOOT, 30.0, 30.0))
    watch.load(_dumped({"a": session("a")}))
    watch.observe({"a": session("a"), "b": session("b")}, (), now=0.0)
    assert watch.presence("a").seen_at == 0.0
    assert watch.presence("b").seen_at == 30.0


def test_a_session_that_was_reopened_existed_before() -> None:
    host = Host()
    host.scan()
    host.sessions["old"] = session("old")
    host.watch.observe(host.sessions, (), now=0.0, reopened={"old"})
    assert host.watch.presence("old").absent_scan == NEVER_ABSENT
    host.sessions["other"] = session("other")
    host.watch.observe(host.sessions, (), now=0.0, begun_anew=True)
    assert host.watch.presence("other").absent_scan == NEVER_ABSENT


def test_a_session_older_than_the_last_scan_was_not_absent_but_away_with_its_database() -> None:
    """A silent chat that was on it all the time must not be cleared of it."""
    host = Host()
    host.wall = NOW - 3600
    host.scan()
    away = host.sessions
    host.sessions = {}
    host.scan(after=15.0)
    host.sessions = away
    host.scan(after=15.0)
    assert host.watch.presence("a").absent_scan == NEVER_ABSENT
    host.sessions["new"] = session("new", age=1.0)
    host.scan(after=15.0)
    assert host.watch.presence("new").absent_scan == 2


def test_what_a_child_does_is_growth_of_its_ancestors_also_once_it_has_ended() -> None:
    host = Host()
    host.sessions["parent"] = session("parent", parent="a")
    host.scan()
    host.scan(after=60.0)
    host.grown = ("parent",)  # a child of it changed, and is not open any more
    assert host.scan(after=60.0) == 0.0
    assert host.watch.idle_seconds("parent") == 0.0
    assert host.scan(after=5.0) == 5.0


def test_a_process_found_stopped_after_a_restart_was_perhaps_stopped_all_the_time() -> None:
    host = Host()
    host.holders = (holder(ProcessKind.CLI),)
    host.scan()
    host.scan(after=60.0)
    host.restart_agent()
    host.holders = (holder(ProcessKind.CLI, stopped=True),)
    assert host.scan(after=70 * 3600.0) == 60.0


def test_a_process_is_silent_since_the_first_scan_with_its_present_count() -> None:
    host = Host()
    chat = holder(ProcessKind.CLI, pid=5, written=100)
    key = (chat.pid, chat.start_ticks)
    host.holders = (chat, holder(ProcessKind.CLI, pid=6))
    host.scan()
    host.scan()
    assert host.watch.silent_since() == {key: 0}, "of a process that tells no count it is not known"
    host.holders = (structs.replace(chat, written=101),)
    host.scan()
    host.scan()
    assert host.watch.silent_since() == {key: 2}


def test_the_real_clocks_can_be_read() -> None:
    moment = read_boot_time()
    assert moment.boot_id
    assert 0 < moment.monotonic <= moment.since_boot + 1
