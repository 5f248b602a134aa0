"""A reader follows a database that a real Hermes rewrites: as exact as reading it all again."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import pytest

from exporter.agent.state_store import StateStore
from exporter.errors import DatabaseError
from exporter.hermes.database import read_commit_stamp, stat_files
from exporter.hermes.odd_rows import COST_COLUMNS, TOKEN_COLUMNS
from exporter.scan.database import StateReader
from exporter.snapshot import SessionUsage, Trouble, session_key
from tests.real.hermes import NEWEST, VERSIONS, python_for
from tests.real.holders import Holder, holder
from tests.support.home_scans import counted, rewriter, sql

NOW = 4_000_000_000.0
"""The clock of these readers: later than anything that Hermes writes."""
Ask = Callable[..., Any]


def allow() -> None:
    """A guard that allows every opening."""


def forbid() -> None:
    raise AssertionError("the database is opened")


def reader_of(home: Path, *, always_whole: int = 0) -> StateReader:
    """Return a reader that reads only changes, and never everything by itself: its clock stands."""
    return StateReader(
        str(home), always_whole_sessions=always_whole, clock=lambda: NOW, monotonic=lambda: 0.0
    )


def update(reader: StateReader) -> list[SessionUsage]:
    return list(reader.update(reader.watermark, allow))


def ancestors(reader: StateReader, session_id: str) -> Iterator[str]:
    """Yield what a session descends from, open or ended."""
    known = reader.parents | {each.id: each.parent_id for each in reader.table.open.values()}
    parent = known[session_id]
    while parent is not None:
        yield parent
        parent = known.get(parent)


def figures(reader: StateReader) -> dict[str, Any]:
    """Return everything that a reader knows of the sessions, without any order."""
    summary = reader.table.summary(NOW, trivial_max_messages=5, marathon_max=20, marathon_near=0.5)
    assert reader.routing is not None
    assert reader.health is not None
    return {
        "sessions": len(reader.table),
        "open": reader.table.open,
        "ancestors": {each: list(ancestors(reader, each)) for each in reader.table.open},
        "open_by_source": summary.open_by_source,
        "ended": {(e.source, e.end_reason): e.sessions for e in summary.ended},
        "messages": {h.source: (tuple(h.buckets), h.sum) for h in summary.messages},
        "idle": (summary.open_idle_buckets, pytest.approx(summary.open_idle_sum_seconds)),
        "sizes": (summary.empty, summary.trivial, summary.messages_max),
        "marathon": (summary.marathon_near, summary.marathon_over),
        "streaks": (summary.tool_error_streak_max, summary.tool_repeat_streak_max),
        "oldest": summary.open_oldest_started_at,
        "after_end": summary.written_after_end,
        "holds": reader.routing.holds,
        "watermark": reader.watermark,
        "pages": reader.health.pages,
    }


def assert_equal_to_sql(reader: StateReader, rows: list[dict[str, Any]]) -> None:
    """Compare what the reader has with what Hermes's own connection counts."""
    summary = reader.table.summary(NOW, trivial_max_messages=5, marathon_max=20, marathon_near=0.5)
    is_open = [row for row in rows if row["ended_at"] is None]
    ended = [row for row in rows if row["ended_at"] is not None]
    after = [row for row in ended if row["newest"] and row["newest"] > row["ended_at"]]
    assert summary.open_by_source == Counter(row["source"] for row in is_open)
    assert {(e.source, e.end_reason): e.sessions for e in summary.ended} == Counter(
        (row["source"], row["end_reason"] or "") for row in ended
    )
    assert counted(summary.messages) == {
        source: (
            sum(row["source"] == source for row in rows),
            sum(row["active"] for row in rows if row["source"] == source),
        )
        for source in {row["source"] for row in rows}
    }
    assert summary.empty == sum(row["active"] == 0 for row in ended)
    assert summary.trivial == sum(1 <= row["active"] <= 5 for row in ended)
    assert summary.messages_max == max((row["active"] for row in rows), default=0)
    assert summary.written_after_end == Counter(row["end_reason"] or "" for row in after)
    assert {each.id: (each.messages, each.rows) for each in reader.table.open.values()} == {
        row["id"]: (row["active"], row["rows"]) for row in is_open
    }


# A real Hermes at work, and a model of its messages


class Story:
    """Random actions of a real Hermes; knows how many messages were ever written."""

    def __init__(self, ask: Ask, seed: int) -> None:
        self._ask = ask
        self._random = random.Random(seed)
        self._sessions: dict[str, bool] = {}
        self._ids = (f"s{number:04}" for number in range(10_000))
        self.said = 0

    def step(self) -> bool:
        """Do one action; True if it can be seen without reading every session again."""
        some = list(self._sessions)
        deeds = [self._create, self._say, self._say, self._say, self._use_tools]
        if some:
            deeds += [self._end, self._reopen_and_say, self._rewind, self._compact, self._rotate]
            deeds += [self._replace, self._spend, self._delete, self._reopen]
        return self._random.choice(deeds)()

    def _pick(self) -> str:
        return self._random.choice(list(self._sessions)) if self._sessions else self._begin()

    def _begin(self) -> str:
        session = next(self._ids)
        self._ask("create", session=session, source=self._random.choice(["cli", "cron", "tui"]))
        self._sessions[session] = True
        return session

    def _create(self) -> bool:
        self._begin()
        return True

    def _say(self) -> bool:
        count = self._random.randint(1, 8)
        self._ask("append", session=self._pick(), text=self._text(), count=count)
        self.said += count
        return True

    def _use_tools(self) -> bool:
        session = self._pick()
        for _ in range(self._random.randint(1, 4)):
            answer = self._random.choice(["Error: no", '{"ok": true}'])
            self._ask("say", session=session, role="assistant", text=None, tool="look")
            self._ask("say", session=session, role="tool", text=answer, tool="look")
            self.said += 2
        return True

    def _end(self) -> bool:
        session = self._pick()
        self._ask("end", session=session, reason=self._random.choice(["cli_close", "reaped"]))
        self._sessions[session] = False
        return True

    def _reopen_and_say(self) -> bool:
        session = self._pick()
        self._ask("reopen", session=session)
        self._sessions[session] = True
        self._ask("append", session=session, text=self._text())
        self.said += 1
        return True

    def _reopen(self) -> bool:
        session = self._pick()
        self._ask("reopen", session=session)
        was_open, self._sessions[session] = self._sessions[session], True
        return was_open

    def _rewind(self) -> bool:
        session = self._pick()
        self._ask("rewind", session=session)
        return self._sessions[session]

    def _compact(self) -> bool:
        session = self._pick()
        keep = self._random.randint(0, 4)
        if self._ask("compact", session=session, keep=keep, summary=self._text()):
            self.said += 1
        return True

    def _rotate(self) -> bool:
        session, child = self._pick(), next(self._ids)
        keep = self._random.randint(0, 4)
        self._ask("reopen", session=session)
        self._ask("rotate", session=session, into=child, keep=keep, summary=self._text())
        self._sessions |= {session: False, child: True}
        self.said += 1
        return False  # the parent may have been an ended session that ends again

    def _replace(self) -> bool:
        session = self._pick()
        self._ask("replace", session=session, keep=self._random.randint(0, 3))
        return False  # an ended session may have nothing left that has changed

    def _spend(self) -> bool:
        session = self._pick()
        model = self._random.choice(["large-1", "small-1"])
        self._ask("spend", session=session, model=model, tokens=self._random.randint(1, 999))
        return self._sessions[session]

    def _delete(self) -> bool:
        session = self._pick()
        self._ask("delete", session=session)
        return self._sessions.pop(session)

    def _text(self) -> str:
        return f"{self._random.random()}"


def play(version: str, home: Path, seed: int, steps: int) -> None:
    home.mkdir(mode=0o700)
    moment = 0.0
    with rewriter(python_for(version), home) as hermes:
        keeping_up = StateReader(
            str(home), always_whole_sessions=0, clock=lambda: NOW, monotonic=lambda: moment
        )
        journal = StateStore.in_memory()
        journal.give_label("h", "h")
        story = Story(hermes.ask, seed)
        story.step()
        for step in range(steps):
            journal.count("h", list(keeping_up.update(journal.watermark("h"), allow)))
            journal.set_watermark("h", keeping_up.watermark)
            fresh = reader_of(home)
            update(fresh)
            assert figures(keeping_up) == figures(fresh), f"step {step}"
            if step % 10 == 9:
                assert_equal_to_sql(keeping_up, hermes.ask("figures"))
            messages = sum(c.value for c in journal.counters("h") if c.name == "messages")
            assert messages == story.said, f"step {step}"
            if not story.step():
                moment += 1000.0  # silent changes are seen at the next whole pass


@pytest.mark.parametrize("version", VERSIONS)
def test_reading_what_moved_equals_reading_everything(version: str, tmp_path: Path) -> None:
    play(version, tmp_path / "home", seed=int(version.replace(".", "")), steps=60)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("version", VERSIONS)
def test_reading_what_moved_equals_reading_everything_for_long(
    version: str, seed: int, tmp_path: Path
) -> None:
    play(version, tmp_path / "home", seed, steps=400)


# What is noticed when


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def hermes(home: Path) -> Iterator[Ask]:
    with rewriter(python_for(NEWEST), home) as process:
        yield process.ask


def test_nothing_is_opened_while_nothing_has_moved(home: Path) -> None:
    """Held by Hermes, left by a dead one, cold; openings by root change the WAL's times."""
    reader = reader_of(home)
    with holder(python_for(NEWEST), home) as process:
        process.ask("create", session="a")
        process.ask("append", session="a", count=3)
        for _ in range(3):
            update(reader)
        assert list(reader.update(reader.watermark, forbid)) == []
        process.kill()
    for _ in range(2):
        update(reader)
    assert list(reader.update(reader.watermark, forbid)) == []
    sql(home, "PRAGMA wal_checkpoint(TRUNCATE);")
    for _ in range(2):
        update(reader)
    assert list(reader.update(reader.watermark, forbid)) == []
    assert reader.table.open["a"].messages == 3


def test_a_commit_that_leaves_size_and_times_alone_is_noticed(home: Path) -> None:
    """Two commits within one tick of the clock have the same times."""
    with holder(python_for(NEWEST), home) as process:
        process.ask("create", session="a")
    sql(home, "PRAGMA journal_mode=DELETE;")
    reader = reader_of(home)
    update(reader)
    before = (home / "state.db").stat()
    sql(home, "UPDATE sessions SET ended_at = 5.0, end_reason = 'x';")
    os.utime(home / "state.db", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (home / "state.db").stat().st_size == before.st_size
    update(reader)
    assert not reader.table.open


def test_every_commit_of_a_live_hermes_leaves_its_mark(home: Path, hermes: Ask) -> None:
    hermes("create", session="a")
    path = str(home / "state.db")
    marks = {read_commit_stamp(path, stat_files(path))}
    for _ in range(20):
        hermes("append", session="a")
        marks.add(read_commit_stamp(path, stat_files(path)))
    assert len(marks) == 21


def test_routing_in_a_file_is_noticed_without_a_commit(home: Path, hermes: Ask) -> None:
    hermes("create", session="a", source="telegram")
    reader = reader_of(home)
    update(reader)
    assert reader.routing is not None
    assert reader.routing.holds == {}
    (home / "sessions").mkdir()
    (home / "sessions" / "sessions.json").write_text('{"k": {"session_id": "a"}}')
    update(reader)
    assert list(reader.routing.holds) == ["a"]


def test_a_routed_chat_is_held_along_its_compressions_without_reading_every_session(
    home: Path, hermes: Ask
) -> None:
    for name in ("a", "x"):
        hermes("create", session=name)
        hermes("append", session=name, count=3)
    routing = home / "sessions" / "sessions.json"
    routing.parent.mkdir(exist_ok=True)
    routing.write_text('{"chat": {"session_id": "a"}}')
    reader = reader_of(home)
    update(reader)

    def held() -> set[str]:
        assert reader.routing is not None
        return set(reader.routing.holds)

    assert held() == {"a"}
    hermes("rotate", session="a", into="b", keep=1, summary="so far")
    hermes("rotate", session="b", into="c", keep=1, summary="so far")
    hermes("rotate", session="x", into="y", keep=1, summary="so far")
    update(reader)
    assert held() == {"a", "b", "c"}
    routing.write_text('{"chat": {"session_id": "y"}}')
    update(reader)
    assert held() == {"x", "y"}


def test_a_small_database_is_read_whole_every_time(home: Path, hermes: Ask) -> None:
    reader = reader_of(home, always_whole=2000)
    for number in range(3):
        hermes("create", session=f"s{number}")
        hermes("end", session=f"s{number}")
    update(reader)
    hermes("reopen", session="s0")
    hermes("delete", session="s2")
    update(reader)
    assert list(reader.table.open) == ["s0"]
    assert len(reader.table) == 2


def test_what_a_continuation_descends_from_is_known_without_a_whole_pass(
    home: Path, hermes: Ask
) -> None:
    """A chat that names the first of a chain of compressions may be on the newest."""
    reader = reader_of(home)
    hermes("create", session="a")
    update(reader)
    for parent, child in ("ab", "bc", "cd"):
        hermes("rotate", session=parent, into=child, keep=1, summary="so far")
        update(reader)
    assert list(ancestors(reader, "d")) == ["c", "b", "a"]
    hermes("rotate", session="d", into="e", keep=1, summary="so far")
    hermes("rotate", session="e", into="f", keep=1, summary="so far")
    update(reader)
    assert list(ancestors(reader, "f")) == ["e", "d", "c", "b", "a"]


def test_what_changes_silently_is_noticed_within_a_minute(home: Path, hermes: Ask) -> None:
    moment = 0.0
    reader = StateReader(str(home), always_whole_sessions=0, monotonic=lambda: moment)
    for name in ("a", "b"):
        hermes("create", session=name)
        hermes("end", session=name)
    update(reader)
    hermes("reopen", session="a")
    update(reader)
    assert not reader.table.open
    moment += 61
    hermes("create", session="c")
    update(reader)
    assert sorted(reader.table.open) == ["a", "c"]


def test_a_large_deletion_is_noticed_at_once(home: Path, hermes: Ask) -> None:
    for name in ("a", "b"):
        hermes("create", session=name)
        hermes("append", session=name, text="x" * 3000, count=20)
        hermes("end", session=name)
    reader = reader_of(home)
    hermes("append", session="b")
    update(reader)
    hermes("delete", session="a")
    update(reader)
    assert len(reader.table) == 1


def test_a_new_session_in_the_place_of_a_deleted_one_is_noticed(home: Path, hermes: Ask) -> None:
    """SQLite gives the rowid of a deleted newest session to the next session."""
    hermes("create", session="a")
    hermes("create", session="b")
    hermes("end", session="b")
    reader = reader_of(home)
    update(reader)
    hermes("delete", session="b")
    hermes("create", session="c")
    update(reader)
    assert sorted(reader.table.open) == ["a", "c"]


def test_a_database_that_was_replaced_is_read_whole(home: Path, tmp_path: Path) -> None:
    with holder(python_for(NEWEST), home) as process:
        process.ask("create", session="a")
        process.ask("append", session="a")
    reader = reader_of(home)
    update(reader)
    restored = shutil.copy(home / "state.db", tmp_path / "restored.db")
    (tmp_path / "state.db").symlink_to(restored)
    sql(tmp_path, "UPDATE sessions SET ended_at = 5.0; UPDATE messages SET active = 0;")
    os.replace(restored, home / "state.db")
    update(reader)
    assert not reader.table.open
    assert len(reader.table) == 1


def test_idle_sessions_among_very_many_open_ones_are_read_again_in_time(home: Path) -> None:
    with holder(python_for(NEWEST), home):
        pass
    sql(
        home,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 600) INSERT INTO "
        f"sessions (id, source, started_at) SELECT 's' || i, 'cli', iif(i > 2, 1.0, {NOW}) FROM n;",
    )
    moment = 0.0
    reader = StateReader(
        str(home), always_whole_sessions=0, clock=lambda: NOW, monotonic=lambda: moment
    )
    update(reader)
    sql(home, "UPDATE sessions SET ended_at = 5.0 WHERE id IN ('s1', 's300');")
    update(reader)
    assert reader.table.open.keys() & {"s1", "s300"} == {"s300"}, "only those at work at once"
    moment += 61
    sql(home, "UPDATE sessions SET title = 'moved' WHERE id = 's5';")
    update(reader)
    assert not reader.table.open.keys() & {"s1", "s300"}


def test_rows_from_the_future_are_read_again_when_the_clock_has_passed_them(home: Path) -> None:
    """A board without a clock of its own starts in the past, and is set later."""
    with holder(python_for(NEWEST), home):
        pass
    sql(home, "INSERT INTO sessions (id, source, started_at) VALUES ('s', 'cli', 2000000000.0);")
    sql(home, "INSERT INTO sessions (id, source, started_at) VALUES ('odd', 'cli', 'never');")
    now = 1_000_000_000.0
    reader = StateReader(str(home), clock=lambda: now)
    update(reader)
    assert not reader.table.open["s"].clocks_sane
    assert list(reader.update(reader.watermark, forbid)) == [], "nothing has changed"
    now = 2_000_000_001.0
    update(reader)
    assert reader.table.open["s"].clocks_sane
    assert not reader.table.open["odd"].clocks_sane
    assert list(reader.update(reader.watermark, forbid)) == [], "once is enough"


@pytest.mark.parametrize(("seconds", "at_most"), [(0.0, 5), (1.0, 40)])
def test_a_slow_database_is_read_in_many_short_transactions(
    seconds: float, at_most: int, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process can checkpoint past a reader: long work is read in smaller and smaller parts."""
    with holder(python_for(NEWEST), home):
        pass
    sql(
        home,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 400) INSERT INTO "
        "sessions (id, source, started_at, ended_at) SELECT 's' || i, 'cli', 1.0, 2.0 FROM n;",
    )
    transactions: list[str] = []

    def note(_: object, statement: str, __: object) -> bool:
        transactions.extend([statement] if statement == "BEGIN" else [])
        return True

    def watch(connection: apsw.Connection) -> None:
        connection.exec_trace = note

    moments = count(0.0, seconds)
    reader = StateReader(str(home), clock=lambda: NOW, monotonic=lambda: next(moments))
    monkeypatch.setattr(apsw, "connection_hooks", [watch])
    update(reader)
    assert len(reader.table) == 400
    assert at_most / 2 < len(transactions) <= at_most


# Counting


def test_usage_is_told_once_and_all_of_it_again_to_an_agent_that_lost_count(
    home: Path, hermes: Ask
) -> None:
    for name in ("a", "b"):
        hermes("create", session=name)
        hermes("append", session=name, count=2)
    reader = reader_of(home)
    assert len(update(reader)) == 2
    hermes("append", session="a")
    (usage,) = update(reader)
    assert (usage.key, usage.rows, usage.active_rows) == (session_key("a"), 3, 3)
    assert len(list(reader.update(0, allow))) == 0, "the table has it, so the journal has too"
    assert len(list(reader_of(home).update(reader.watermark, allow))) == 2


def test_what_was_said_before_counts_again_when_it_is_said_again(home: Path, hermes: Ask) -> None:
    """Only rows that compaction itself wrote are copies; most people say "yes" more than once."""
    hermes("create", session="a")
    hermes("append", session="a", text="yes", count=4)
    reader = reader_of(home)
    update(reader)
    assert hermes("compact", session="a", keep=2, summary="what was agreed")
    (compaction,) = update(reader)
    assert (compaction.rows, compaction.active_rows, compaction.copied) == (7, 3, 2)
    hermes("append", session="a", text="yes")
    (later,) = update(reader)
    assert (later.rows, later.copied) == (8, 0)


def test_a_session_that_goes_on_in_another_is_not_counted_twice(home: Path, hermes: Ask) -> None:
    hermes("create", session="a")
    hermes("append", session="a", text="yes", count=4)
    reader = reader_of(home)
    update(reader)
    hermes("rotate", session="a", into="b", keep=3, summary="what was agreed")
    (child,) = update(reader)
    assert (child.key, child.rows, child.copied) == (session_key("b"), 4, 3)
    hermes("append", session="b", text="yes")
    (later,) = update(reader)
    assert (later.rows, later.copied) == (5, 0)


class Counted:
    """A reader and a state store that follow one home, as worker and agent do."""

    def __init__(self, home: Path) -> None:
        self._reader = reader_of(home)
        self._journal = StateStore.in_memory()
        self._journal.give_label("h", "h")

    def messages(self) -> float:
        watermark = self._journal.watermark("h")
        self._journal.count("h", list(self._reader.update(watermark, allow)))
        self._journal.set_watermark("h", self._reader.watermark)
        return sum(c.value for c in self._journal.counters("h") if c.name == "messages")


def test_a_compacted_session_that_is_rewound_and_told_the_same_again_is_counted_again(
    home: Path, hermes: Ask
) -> None:
    hermes("create", session="a")
    hermes("append", session="a", text="yes", count=4)
    counted = Counted(home)
    assert counted.messages() == 4
    hermes("compact", session="a", keep=2, summary="what was agreed")
    assert counted.messages() == 5
    assert hermes("rewind_all", session="a")
    assert counted.messages() == 5
    hermes("append", session="a", text="yes", count=3)
    assert counted.messages() == 8
    hermes("compact", session="a", keep=2, summary="once more")
    assert counted.messages() == 9


def test_what_is_rewound_and_told_again_between_two_scans_is_counted_if_it_is_new(
    home: Path, hermes: Ask
) -> None:
    """Only text that repeats the compacted part word for word cannot be told from a copy."""
    hermes("create", session="a")
    hermes("append", session="a", text="yes", count=2)
    counted = Counted(home)
    assert counted.messages() == 2
    hermes("compact", session="a", keep=1, summary="what was agreed")
    assert counted.messages() == 3
    hermes("rewind_all", session="a")
    hermes("append", session="a", text="what was agreed")
    hermes("append", session="a", text="no")
    assert counted.messages() == 5, "the summary was rewound, and is said by a person now"


def test_a_session_begun_by_compaction_that_is_emptied_and_told_the_same_is_counted_again(
    home: Path, hermes: Ask
) -> None:
    hermes("create", session="a")
    hermes("append", session="a", text="yes", count=4)
    counted = Counted(home)
    assert counted.messages() == 4
    hermes("rotate", session="a", into="b", keep=3, summary="what was agreed")
    assert counted.messages() == 5
    hermes("replace", session="b", keep=0)
    assert counted.messages() == 5
    hermes("append", session="b", text="yes", count=2)
    assert counted.messages() == 7


# Giving way


def test_nobody_waits_for_us_while_we_wait_for_the_agent(home: Path, hermes: Ask) -> None:
    """An agent that does not take our messages must not pin Hermes's WAL."""
    hermes("create", session="a")
    hermes("append", session="a", count=50)
    usage = reader_of(home).update(0, allow)
    next(usage)
    hermes("append", session="a", count=50)
    busy, *_ = hermes("checkpoint")
    assert busy == 0
    assert (home / "state.db-wal").stat().st_size == 0
    del usage


def test_a_writer_with_a_rollback_journal_does_not_wait_for_the_agent_either(home: Path) -> None:
    with holder(python_for(NEWEST), home) as process:
        process.ask("create", session="a")
        process.ask("append", session="a")
    sql(home, "PRAGMA journal_mode=DELETE;")
    usage = reader_of(home).update(0, allow)
    next(usage)
    sql(home, "UPDATE sessions SET title = 'written';")
    del usage


def moving(home: Path, statement: str) -> StateReader:
    """Return a reader whose first call of the clock, during the reading, writes to the database."""
    deeds = [statement]

    def clock() -> float:
        if deeds:
            sql(home, deeds.pop())
        return NOW

    return StateReader(str(home), clock=clock)


def test_a_cold_database_that_is_written_while_we_read_it_tells_us_nothing(home: Path) -> None:
    with holder(python_for(NEWEST), home) as process:
        process.ask("create", session="a")
        process.ask("append", session="a")
    reader = moving(home, "UPDATE sessions SET title = 'moved';")
    with pytest.raises(DatabaseError) as caught:
        update(reader)
    assert caught.value.trouble is Trouble.MOVED_WHILE_READING
    assert len(reader.table) == 0
    assert reader.health is None
    assert len(update(reader)) == 1
    assert len(reader.table) == 1


def test_of_a_cold_database_that_was_written_meanwhile_not_even_the_first_part_is_told(
    home: Path,
) -> None:
    """The agent counts what it is told at once; the end of the reading would be too late."""
    with holder(python_for(NEWEST), home) as process:
        process.ask("create", session="a")
        process.ask("append", session="a")
    reader = moving(home, "UPDATE sessions SET title = 'moved';")
    with pytest.raises(DatabaseError) as caught:
        next(reader.update(0, allow))
    assert caught.value.trouble is Trouble.MOVED_WHILE_READING


def test_a_wal_that_a_dead_hermes_left_tells_us_nothing_if_another_one_takes_it_up(
    home: Path,
) -> None:
    with holder(python_for(NEWEST), home) as process:
        process.ask("create", session="a")
        process.kill()
    reader = moving(home, "UPDATE sessions SET title = 'moved';")
    with pytest.raises(DatabaseError) as caught:
        update(reader)
    assert caught.value.trouble is Trouble.MOVED_WHILE_READING
    update(reader)
    assert list(reader.table.open) == ["a"]


def test_hermes_may_write_while_we_read_along_with_it(home: Path, hermes: Ask) -> None:
    hermes("create", session="a")
    reader = moving(home, "UPDATE sessions SET title = 'moved';")
    update(reader)
    assert list(reader.table.open) == ["a"]


def test_a_guard_is_asked_before_every_opening_and_its_word_is_final(
    home: Path, hermes: Ask
) -> None:
    hermes("create", session="a")
    reader = reader_of(home)
    update(reader)
    hermes("create", session="b")

    def guard() -> None:
        raise DatabaseError(Trouble.LOCKLESS_SHM_HOLDER, "no")

    with pytest.raises(DatabaseError):
        list(reader.update(reader.watermark, guard))
    assert list(reader.table.open) == ["a"], "the last reading stays"
    update(reader)
    assert sorted(reader.table.open) == ["a", "b"]


# What a poll asks

NAMES = ("'it''s \"so\"'", "char(92) || 'u0041'", "'ü' || char(128512)")


@pytest.mark.parametrize("name", [*NAMES, "'a' || char(10) || 'b'", "''"])
def test_a_session_of_any_name_is_kept_up_with(home: Path, hermes: Ask, name: str) -> None:
    hermes("create", session="a")
    says = f"INSERT INTO messages (session_id, role, content, timestamp) VALUES ({name}, 'user',"
    sql(home, f"INSERT INTO sessions (id, source, started_at) VALUES ({name}, 'cli', 1.0);")
    sql(home, f"{says} 'x', 2.0);")
    reader = reader_of(home)
    update(reader)
    sql(home, f"{says} 'y', 3.0);")
    (usage,) = update(reader)
    assert (usage.rows, usage.above_watermark) == (2, 1)
    fresh = reader_of(home)
    update(fresh)
    assert figures(reader) == figures(fresh)


def test_very_many_new_messages_are_counted_as_new(home: Path, hermes: Ask) -> None:
    for name in ("a", "b"):
        hermes("create", session=name)
        hermes("append", session=name, count=3)
    reader = reader_of(home)
    update(reader)
    more = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)"
    sql(
        home,
        "INSERT INTO messages (session_id, role, content, timestamp, active) "
        f"{more} SELECT iif(i % 5, 'a', 'b'), 'user', 'x', 4e9 + i, i % 2 FROM n;",
    )
    found = {each.key: each for each in update(reader)}
    many, few = found[session_key("a")], found[session_key("b")]
    assert (many.rows, many.above_watermark, few.rows, few.above_watermark) == (
        2003,
        2000,
        503,
        500,
    )


def test_a_poll_asks_no_more_of_many_sessions_than_of_one(
    home: Path, hermes: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        hermes("create", session=f"s{number}")
        hermes("append", session=f"s{number}")
    reader = reader_of(home)
    update(reader)

    def questions(sessions: int) -> int:
        """Return the number of statements to update this many sessions in the middle of a turn."""
        for number in range(sessions):
            hermes("say", session=f"s{number}", role="assistant", text=None, tool="look")
            hermes("say", session=f"s{number}", role="tool", text="Error", tool="look")
        asked: list[str] = []

        def note(_: object, statement: str, __: object) -> bool:
            asked.append(statement)
            return True

        def watch(connection: apsw.Connection) -> None:
            connection.exec_trace = note

        with monkeypatch.context() as patch:
            patch.setattr(apsw, "connection_hooks", [watch])
            assert len(update(reader)) == sessions
        return len(asked)

    questions(1)
    assert questions(12) == questions(1)


# Schemas


OPTIONAL_COLUMNS = (
    *("end_reason", "tool_call_count", "api_call_count", "model", *TOKEN_COLUMNS, *COST_COLUMNS),
    *("parent_session_id", "handoff_state"),
)


@pytest.mark.parametrize("column", OPTIONAL_COLUMNS)
def test_a_column_that_is_missing_takes_only_its_own_figures_along(home: Path, column: str) -> None:
    with rewriter(python_for("0.13.0"), home) as process:
        process.ask("create", session="a")
        process.ask("append", session="a", count=2)
        process.ask("spend", session="a", model="m", tokens=7)
    before = reader_of(home)
    (usage,) = update(before)
    sql(
        home,
        "DROP INDEX idx_sessions_parent; PRAGMA foreign_keys=OFF; PRAGMA writable_schema=ON;"
        "UPDATE sqlite_schema SET sql = replace(sql, "
        "'FOREIGN KEY (parent_session_id) REFERENCES sessions(id)', 'CHECK (1)') "
        "WHERE name = 'sessions'; PRAGMA writable_schema=RESET;"
        f"ALTER TABLE sessions DROP COLUMN {column};",
    )
    after = reader_of(home)
    (poorer,) = update(after)
    assert figures(after)["messages"] == figures(before)["messages"]
    assert (poorer.rows, poorer.active_rows) == (usage.rows, usage.active_rows)
    if column not in ("input_tokens", "model"):
        assert [model.input for model in poorer.models] == [7]


GROWING = ("messages", "sessions", "session_model_usage")


@pytest.mark.parametrize("version", VERSIONS)
def test_keeping_up_searches_and_never_scans_a_table_that_grows(
    version: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the query plans of every statement, on the schema of every release."""
    asked: dict[str, Any] = {}

    def note(_: object, statement: str, bindings: Any) -> bool:
        asked[statement] = bindings
        return True

    def watch(connection: apsw.Connection) -> None:
        connection.exec_trace = note

    with rewriter(python_for(version), home) as process:
        act(process)
        reader = reader_of(home)
        update(reader)
        mark = reader.watermark
        act_again(process)
        monkeypatch.setattr(apsw, "connection_hooks", [watch])
        update(reader)
        monkeypatch.undo()
    assert reader.watermark > mark
    plans = [
        (step, statement)
        for statement, bindings in asked.items()
        if statement.lstrip().startswith("SELECT")
        for step in plan(home, statement, bindings)
    ]
    assert any("FROM messages" in statement for _, statement in plans)
    growing = tuple(f"SCAN {table}" for table in GROWING)
    assert [(step, statement) for step, statement in plans if step.startswith(growing)] == []


def act(process: Holder) -> None:
    """Do everything that makes a reader run a query: turns, tools, children, routing."""
    for name in ("a", "b", "c"):
        process.ask("create", session=name)
        process.ask("append", session=name, count=3)
    process.ask("child", session="d", parent="a")


def act_again(process: Holder) -> None:
    process.ask("say", session="a", role="assistant", text=None, tool="look")
    process.ask("say", session="a", role="tool", text="Error", tool="look")
    process.ask("compact", session="b", keep=2, summary="so far")
    process.ask("rotate", session="c", into="e", keep=2, summary="so far")
    process.ask("create", session="f", source="telegram")
    home = Path(process.ask("home"))
    (home / "sessions").mkdir(exist_ok=True)
    (home / "sessions" / "sessions.json").write_text('{"k": {"session_id": "e"}}')


def plan(home: Path, statement: str, bindings: Any) -> list[str]:
    connection = apsw.Connection(str(home / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", bindings)
        return [detail for *_, detail in rows]
    finally:
        connection.close()
