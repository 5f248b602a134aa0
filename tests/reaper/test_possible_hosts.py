"""Which structure clears a process of which session; the times of the table are in test_verdict."""

from __future__ import annotations

from msgspec import structs

from exporter.evidence.models import Holder
from exporter.hermes.process_kinds import ProcessKind
from exporter.reaper.possible_hosts import UNSEEN, FirstSeen, HostClass, hosts_of
from tests.reaper.test_verdict import holder


def line(
    presence: FirstSeen, *holders: Holder, silent: int | None = None, **more: bool
) -> HostClass:
    """`silent`: the scan since which the first process has written nothing."""
    since = {} if silent is None else {holders[0].key: silent}
    return hosts_of(holders, silent_since=since, **more).class_for(presence)


ONE_SHOT = holder(ProcessKind.ONESHOT, pid=500)
"""It began 50 seconds after boot."""


def test_no_process_leaves_every_session_cleared() -> None:
    assert line(UNSEEN) is HostClass.CLEARED
    assert line(FirstSeen(10.0, 3)) is HostClass.CLEARED


def test_a_one_shot_is_cleared_of_what_was_seen_before_it_began() -> None:
    assert line(FirstSeen(49.9), ONE_SHOT) is HostClass.CLEARED
    assert line(FirstSeen(50.0), ONE_SHOT) is HostClass.CHAT
    assert line(FirstSeen(51.0), ONE_SHOT) is HostClass.CHAT
    assert line(UNSEEN, ONE_SHOT) is HostClass.CHAT


def test_a_one_shot_that_resumes_is_cleared_of_nothing() -> None:
    resuming = holder(ProcessKind.ONESHOT, pid=500, may_resume=True)
    assert line(FirstSeen(1.0), resuming) is HostClass.CHAT


def test_of_several_one_shots_the_first_decides() -> None:
    later = holder(ProcessKind.ONESHOT, pid=900)
    assert line(FirstSeen(60.0), later) is HostClass.CLEARED
    assert line(FirstSeen(60.0), later, ONE_SHOT) is HostClass.CHAT


CHAT = holder(ProcessKind.CLI, pid=7, written=1000)


def test_a_chat_is_cleared_of_a_session_that_came_while_it_wrote_nothing() -> None:
    assert line(FirstSeen(absent_scan=4), CHAT, silent=4) is HostClass.CLEARED
    assert line(FirstSeen(absent_scan=9), CHAT, silent=4) is HostClass.CLEARED
    assert line(FirstSeen(absent_scan=3), CHAT, silent=4) is HostClass.CHAT


def test_a_chat_is_not_cleared_of_a_session_that_was_always_there() -> None:
    assert line(FirstSeen(1.0), CHAT, silent=0) is HostClass.CHAT


def test_a_chat_whose_writing_cannot_be_counted_is_cleared_of_nothing() -> None:
    assert line(FirstSeen(absent_scan=9), CHAT) is HostClass.CHAT


def test_of_several_chats_the_last_to_fall_silent_decides() -> None:
    other = holder(ProcessKind.CLI, pid=8, written=1)
    since = {CHAT.key: 2, other.key: 5}
    found = hosts_of((CHAT, other), silent_since=since)
    assert found.class_for(FirstSeen(absent_scan=4)) is HostClass.CHAT
    assert found.class_for(FirstSeen(absent_scan=5)) is HostClass.CLEARED


def test_silence_clears_no_other_kind() -> None:
    for kind in (ProcessKind.TUI, ProcessKind.ACP, ProcessKind.DASHBOARD, ProcessKind.OTHER):
        silent = holder(kind, pid=7, written=1)
        assert line(FirstSeen(1.0, 9), silent, silent=0) is not HostClass.CLEARED, kind


def test_with_plugins_no_time_clears_anything() -> None:
    assert line(FirstSeen(1.0), ONE_SHOT, plugins=True) is HostClass.CHAT
    assert line(FirstSeen(absent_scan=9), CHAT, silent=0, plugins=True) is HostClass.CHAT
    assert line(UNSEEN, holder(ProcessKind.MAINTENANCE), plugins=True) is HostClass.CLEARED


def test_a_reader_of_another_user_stands_in_no_way() -> None:
    reader = structs.replace(holder(ProcessKind.OTHER), outsider=True)
    assert line(UNSEEN, reader) is HostClass.CLEARED


def test_stopped_processes_are_named() -> None:
    stopped = holder(ProcessKind.GATEWAY, pid=9, stopped=True)
    cleared = holder(ProcessKind.MAINTENANCE, pid=10, stopped=True)
    assert hosts_of((stopped, cleared, CHAT)).stopped == (9,)
