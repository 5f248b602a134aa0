"""Sums that are updated must equal sums made from scratch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from exporter.hermes.message_queries import MessageStats
from exporter.hermes.session_queries import SessionRecord, SessionRow
from exporter.hermes.turns import Conversation
from exporter.scan.session_table import SessionTable
from exporter.snapshot import SessionSummary, TurnState, session_key

NOW = 1_800_000_000.0
SAID = Conversation(TurnState.AFTER_TURN, 0, 0)


def record(
    number: int,
    *,
    source: str = "cli",
    ended_at: float | None = None,
    end_reason: str = "",
    active: int = 0,
    newest: float | None = None,
) -> SessionRecord:
    row = SessionRow(
        id=f"20260101_000000_{number:06x}",
        source=source,
        started_at=NOW - 5000,
        ended_at=ended_at,
        is_open=ended_at is None,
        end_reason=end_reason,
        tool_calls=0,
        api_calls=0,
        model="m",
        input=0,
        output=0,
        cache_read=0,
        cache_write=0,
        reasoning=0,
        estimated_usd=0.0,
        actual_usd=0.0,
        last_activity_at=None,
        last_heartbeat_at=None,
        parent_id=None,
        handoff_state="",
        pinned=0,
    )
    return SessionRecord(row, MessageStats(active, active, newest, 0), [])


def summary(table: SessionTable) -> SessionSummary:
    return table.summary(NOW, trivial_max_messages=5, marathon_max=200, marathon_near=0.85)


def put(table: SessionTable, each: SessionRecord) -> bool:
    return bool(table.put([each], {each.row.id: SAID}, NOW))


records = st.builds(
    record,
    st.integers(0, 8),
    source=st.sampled_from(["cli", "telegram", "cron"]),
    ended_at=st.sampled_from([None, NOW - 100]),
    end_reason=st.sampled_from(["", "cli_close", "reaped"]),
    active=st.integers(0, 1500),
    newest=st.sampled_from([None, NOW - 200, NOW - 50]),
)


def ordered(found: SessionSummary) -> tuple[object, ...]:
    return (
        sorted(found.open_by_source.items()),
        sorted((e.source, e.end_reason, e.sessions) for e in found.ended),
        sorted((h.source, tuple(h.buckets), h.sum) for h in found.messages),
        found.open_idle_buckets,
        found.empty,
        found.trivial,
        found.marathon_near,
        found.marathon_over,
        found.messages_max,
        found.written_after_end,
    )


@given(st.lists(st.one_of(records, st.integers(0, 8)), max_size=40))
def test_changes_one_by_one_equal_a_fresh_count(
    steps: list[SessionRecord | int],
) -> None:
    table = SessionTable()
    last: dict[str, SessionRecord] = {}
    for step in steps:
        if isinstance(step, int):
            gone = record(step).row.id
            table.drop(gone)
            last.pop(gone, None)
        else:
            put(table, step)
            last[step.row.id] = step
    fresh = SessionTable()
    for each in last.values():
        put(fresh, each)
    assert ordered(summary(table)) == ordered(summary(fresh))
    assert len(table) == len(last)


def test_a_session_counts_as_changed_only_when_what_it_used_changed() -> None:
    table = SessionTable()
    assert put(table, record(1, active=3))
    assert not put(table, record(1, active=3))
    assert not put(table, record(1, active=3, ended_at=NOW - 10, end_reason="cli_close"))
    assert put(table, record(1, active=4))


def test_messages_are_put_into_the_bucket_that_holds_them() -> None:
    table = SessionTable()
    for number, active in enumerate((0, 1, 5, 6, 1000, 1001)):
        put(table, record(number, active=active))
    (histogram,) = summary(table).messages
    assert histogram.buckets == [1, 1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1]
    assert histogram.sum == 2013


def test_near_and_over_the_marathon_limit_are_told_apart() -> None:
    table = SessionTable()
    for number, active in enumerate((169, 170, 200, 201)):
        put(table, record(number, active=active))
    found = summary(table)
    assert (found.marathon_near, found.marathon_over) == (2, 1)


def test_a_session_written_to_after_its_end_is_counted_by_the_reason_of_its_end() -> None:
    table = SessionTable()
    put(table, record(1, active=2, ended_at=NOW - 100, end_reason="reaped", newest=NOW - 50))
    put(table, record(2, active=2, ended_at=NOW - 100, end_reason="reaped", newest=NOW - 150))
    assert summary(table).written_after_end == {"reaped": 1}


def test_future_and_missing_clocks_are_noticed() -> None:
    table = SessionTable()
    put(table, record(1, active=1, newest=NOW + 5000))
    (future,) = table.open.values()
    assert not future.clocks_sane
    assert future.last_activity_at == NOW + 5000


def test_keys_of_sessions_do_not_change_between_runs() -> None:
    assert session_key("20260101_000000_abcdef") == session_key("20260101_000000_abcdef")
    assert 0 <= session_key("*") < 2**63


def test_open_sessions_above_the_limit_are_counted_and_make_room_for_each_other() -> None:
    table = SessionTable(open_max=2)
    for number in range(4):
        put(table, record(number))
    assert (len(table.open), table.open_left_out) == (2, 2)
    assert summary(table).open_by_source == {"cli": 4}
    assert summary(table).open_left_out == 2
    put(table, record(0, ended_at=NOW - 60, end_reason="cli_close"))
    put(table, record(3))
    assert sorted(table.open) == [record(number).row.id for number in (1, 3)]
    assert (summary(table).open_left_out, table.open_left_out) == (1, 1)
    put(table, record(2, ended_at=NOW - 60, end_reason="cli_close"))
    assert table.open_left_out == 0
    assert summary(table).open_by_source == {"cli": 2}
