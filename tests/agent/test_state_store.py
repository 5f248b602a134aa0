"""Counters never fall and never count twice; labels and admitted values are remembered."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.agent.state_store import StateStore, copy_memories
from exporter.collectors.labels import LIMITS, LabelFamily
from exporter.pruner.models import PruneMemory
from exporter.snapshot import ModelUsage, SessionUsage

HOME = "/home/ada/.hermes"


def usage(
    key: int = 1,
    rows: int = 0,
    *,
    source: str = "cli",
    active: int | None = None,
    above: int | None = None,
    copied: int = 0,
    tools: int = 0,
    calls: int = 0,
    models: list[ModelUsage] | None = None,
) -> SessionUsage:
    return SessionUsage(
        key=key,
        source=source,
        active_rows=rows if active is None else active,
        rows=rows,
        above_watermark=rows if above is None else above,
        copied=copied,
        tool_calls=tools,
        api_calls=calls,
        models=models or [],
    )


def journal(directory: Path) -> StateStore:
    opened = StateStore.open(str(directory))
    opened.give_label(HOME, "default")
    return opened


def scan(journal: StateStore, *page: SessionUsage, watermark: int = 1) -> None:
    journal.count(HOME, page)
    journal.set_watermark(HOME, watermark)


def value(journal: StateStore, name: str, **labels: str) -> float:
    found = [
        counter.value
        for counter in journal.counters(HOME)
        if counter.name == name
        and all(getattr(counter, label) == wanted for label, wanted in labels.items())
    ]
    return sum(found)


def test_counters_start_at_the_sum_found_at_first_sight(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    scan(opened, usage(1, rows=7, active=5, tools=2, calls=3), usage(2, rows=4))
    assert value(opened, "messages") == 9, "in metrics, messages are active rows"
    assert value(opened, "tool_calls") == 2
    assert value(opened, "api_calls") == 3


def test_only_what_is_new_is_added(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    scan(opened, usage(1, rows=10))
    scan(opened, usage(1, rows=13), usage(2, rows=2))
    assert value(opened, "messages") == 15


def test_a_restart_goes_on_where_the_last_agent_stopped(tmp_path: Path) -> None:
    first = journal(tmp_path)
    scan(first, usage(1, rows=10), watermark=10)
    first.close()
    second = StateStore.open(str(tmp_path))
    assert second.watermark(HOME) == 10
    scan(second, usage(1, rows=10), watermark=10)
    assert value(second, "messages") == 10


def test_a_crash_in_the_middle_of_the_first_pass_doubles_nothing(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.count(HOME, [usage(1, rows=10, active=6)])
    first.close()  # it died before the pass was complete
    second = StateStore.open(str(tmp_path))
    scan(second, usage(1, rows=10, active=6), usage(2, rows=4, active=3))
    assert value(second, "messages") == 9


class Days:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.day = 20_000

    def __call__(self) -> float:
        return self.day * 86400.0


def test_a_home_long_gone_is_forgotten_and_until_then_its_label_is_its_own(tmp_path: Path) -> None:
    days = Days()
    opened = StateStore.open(str(tmp_path), days)
    for name in ("kept", "gone"):
        opened.give_label(f"/home/{name}", name)
        opened.count(f"/home/{name}", [usage(1, rows=3)])
    opened.keep_homes({"/home/kept": 1000, "/home/gone": 1000})
    assert opened.labels_by_owner() == {1000: 2}
    days.day += 90
    opened.keep_homes({"/home/kept": 1000})
    assert opened.labels() == {"/home/kept": "kept", "/home/gone": "gone"}
    days.day += 1
    opened.keep_homes({"/home/kept": 1000})
    assert opened.labels() == {"/home/kept": "kept"}
    assert opened.labels_by_owner() == {1000: 1}
    opened.give_label("/home/gone", "gone")
    assert opened.counters("/home/gone") == []
    assert len(opened.counters("/home/kept")) > 0


def rows_of(opened: StateStore, table: str) -> int:
    connection = apsw.Connection(opened.path, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").get)
    finally:
        connection.close()


def test_sessions_long_gone_are_forgotten_and_no_counter_falls_or_doubles(tmp_path: Path) -> None:
    days = Days()
    opened = StateStore.open(str(tmp_path), days)
    opened.give_label(HOME, "default")
    spent = [ModelUsage("large", 10, 1, 0, 0, 0, 0.0, 0.0)]
    page = [usage(key, rows=4, tools=1, models=spent) for key in (1, 2)]
    scan(opened, *page, watermark=8)
    days.day += 80
    scan(opened, page[0], watermark=8)  # a new worker has reported all sessions: session 2 is gone
    opened.forget_sessions(HOME, days())
    assert rows_of(opened, "session_counted") == rows_of(opened, "model_counted") == 2
    scan(opened, *(usage(k, rows=4, above=0, tools=1, models=spent) for k in (1, 2)), watermark=8)
    assert value(opened, "tokens", kind="input") == 20, "an undo gave it back, and it was known"
    days.day += 91
    scan(opened, usage(1, rows=4, above=0, tools=1, models=spent), watermark=8)
    opened.forget_sessions(HOME, days())
    assert rows_of(opened, "session_counted") == rows_of(opened, "model_counted") == 1
    assert value(opened, "messages") == 8
    assert value(opened, "tokens", kind="input") == 20


VERSION_1 = """
CREATE TABLE homes (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, label TEXT NOT NULL UNIQUE,
    watermark INTEGER NOT NULL DEFAULT 0, counted INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE boots (id TEXT PRIMARY KEY, began_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE admitted (home, family, value, PRIMARY KEY (home, family, value)) WITHOUT ROWID;
CREATE TABLE counters (
    home INTEGER NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL, model TEXT NOT NULL,
    kind TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (home, name, source, model, kind)
) WITHOUT ROWID;
CREATE TABLE session_counted (
    home INTEGER NOT NULL, session INTEGER NOT NULL, message_rows INTEGER NOT NULL,
    tool_calls INTEGER NOT NULL, api_calls INTEGER NOT NULL, PRIMARY KEY (home, session)
) WITHOUT ROWID;
CREATE TABLE model_counted (
    home INTEGER NOT NULL, session INTEGER NOT NULL, model INTEGER NOT NULL, input, output,
    cache_read, cache_write, reasoning, estimated, actual, PRIMARY KEY (home, session, model)
) WITHOUT ROWID;
INSERT INTO homes VALUES (1, '/home/ada/.hermes', 'default', 10, 1);
INSERT INTO counters VALUES (1, 'messages', 'cli', '', '', 10);
INSERT INTO session_counted VALUES (1, 1, 10, 0, 0);
PRAGMA user_version = 1;
"""


def test_a_state_directory_of_an_older_agent_goes_on_counting(tmp_path: Path) -> None:
    older = apsw.Connection(str(tmp_path / "agent.db"))
    older.execute(VERSION_1)
    older.close()
    opened = StateStore.open(str(tmp_path))
    assert opened.labels() == {HOME: "default"}
    scan(opened, usage(1, rows=12, above=2))
    assert value(opened, "messages") == 12


def test_pruned_sessions_stay_counted_and_restored_ones_are_not_counted_again(
    tmp_path: Path,
) -> None:
    opened = journal(tmp_path)
    scan(opened, usage(1, rows=10), usage(2, rows=5))
    scan(opened, usage(2, rows=6))  # session 1 is gone
    assert value(opened, "messages") == 16
    scan(opened, usage(1, rows=10), usage(2, rows=6))  # an undo restored it
    assert value(opened, "messages") == 16


def test_rows_given_back_after_a_prune_that_was_seen_half_done_are_not_counted_again(
    tmp_path: Path,
) -> None:
    opened = journal(tmp_path)
    scan(opened, usage(1, rows=100))
    scan(opened, usage(1, rows=40, above=0))
    scan(opened, usage(1, rows=100, above=0))
    assert value(opened, "messages") == 100


def test_copies_made_by_compaction_are_not_counted(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    scan(opened, usage(1, rows=100))
    scan(
        opened, usage(1, rows=112, above=12, copied=10, active=12)
    )  # a summary and one new message
    assert value(opened, "messages") == 102
    scan(opened, usage(1, rows=113, active=13))
    assert value(opened, "messages") == 103


def test_a_rewritten_transcript_takes_nothing_back(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    scan(opened, usage(1, rows=100, tools=40))
    scan(opened, usage(1, rows=20, tools=5))
    assert value(opened, "messages") == 100
    scan(opened, usage(1, rows=21, tools=6))
    assert value(opened, "messages") == 101
    assert value(opened, "tool_calls") == 41


def test_tokens_and_cost_are_split_by_model(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    scan(
        opened,
        usage(1, models=[ModelUsage("a", input=10, estimated_usd=0.5), ModelUsage("b", output=3)]),
    )
    scan(opened, usage(1, models=[ModelUsage("a", input=15, estimated_usd=0.75)]))
    assert value(opened, "tokens", model="a", kind="input") == 15
    assert value(opened, "tokens", model="b", kind="output") == 3
    assert value(opened, "cost_usd", model="a", kind="estimated") == 0.75


def test_label_values_are_bounded_and_the_first_seen_keep_their_places(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    sources = [f"source{number}" for number in range(40)]
    scan(opened, *(usage(n, rows=1, source=source) for n, source in enumerate(sources)))
    shown = {counter.source for counter in opened.counters(HOME) if counter.name == "messages"}
    assert len(shown) == LIMITS[LabelFamily.SOURCE] + 1
    assert "other" in shown
    assert value(opened, "messages") == 40, "what has no place of its own is still counted"
    opened.close()
    again = StateStore.open(str(tmp_path))
    kept = again.admit(HOME, LabelFamily.SOURCE, [("newcomer",)])
    assert kept("newcomer") == ("other",)
    assert kept(sources[0]) == (sources[0],)


def test_a_value_out_of_use_gives_its_place_to_a_new_one_and_comes_back_with_its_total(
    tmp_path: Path,
) -> None:
    """Next year's model has a name; that of last year ends, and `other` does not take it over."""
    day = 1000

    def used(model: str, key: int, tokens: int) -> SessionUsage:
        spent = ModelUsage(model=model, input=tokens)
        return usage(key, rows=tokens, models=[spent])

    def shown() -> dict[str, float]:
        tokens = (each for each in opened.counters(HOME) if each.name == "tokens")
        return {each.model: each.value for each in tokens if each.kind == "input"}

    opened = StateStore.open(str(tmp_path), clock=lambda: day * 86400.0)
    opened.give_label(HOME, "default")
    limit = LIMITS[LabelFamily.SOURCE_MODEL]
    scan(opened, *(used(f"old{n}", n, 10) for n in range(limit)))
    scan(opened, used("next", 90, 5))
    assert shown() == {f"old{n}": 10 for n in range(limit)} | {"other": 5}, "all are in use"
    day += 31
    scan(opened, *(used(f"old{n}", n, 11) for n in range(1, limit)))
    scan(opened, *(used(f"old{n}", n, 10) for n in range(limit)))
    assert "old0" in shown(), "an idle value keeps its place while no other needs it"
    scan(opened, used("next", 91, 7))
    scan(opened, used("next", 92, 1))
    assert shown() == {f"old{n}": 11 for n in range(1, limit)} | {"next": 1, "other": 12}
    scan(opened, used("old0", 0, 10))
    assert "old0" not in shown(), "rows of long ago are no activity"
    day += 31
    scan(opened, *(used(f"old{n}", n, 12) for n in range(1, limit)))
    scan(opened, used("old0", 0, 14))
    scan(opened, used("old0", 0, 15))
    assert shown()["old0"] == 11, (
        "it goes on from its total; what came before its return is other's"
    )
    assert shown()["other"] == 16
    assert "next" not in shown()


def test_a_store_that_was_deleted_is_written_anew_with_all_it_had(tmp_path: Path) -> None:
    opened = journal(tmp_path / "state")
    scan(opened, usage(1, rows=3))
    assert not opened.write_anew_if_gone()
    shutil.rmtree(tmp_path / "state")
    assert opened.write_anew_if_gone()
    scan(opened, usage(1, rows=5))
    opened.close()
    again = StateStore.open(str(tmp_path / "state"))
    assert value(again, "messages") == 5
    assert again.labels() == {HOME: "default"}


def test_damage_that_leaves_no_trace_in_the_file_is_found_by_what_reads_it(tmp_path: Path) -> None:
    """As a bad disk does it: the time of the last write stays the same."""
    opened = journal(tmp_path)
    for number in range(20_000):
        opened.give_label(f"/home/{number:0100}", str(number))
    opened.close()
    opened, file = StateStore.open(str(tmp_path)), tmp_path / "agent.db"
    opened.boot_began_at("boot", 100.0)
    before = file.stat()
    with file.open("r+b") as content:
        content.seek(4096)
        content.write(b"\xff" * (before.st_size - 4096))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not opened.leave_if_damaged()
    with pytest.raises(apsw.CorruptError):
        opened.labels()
    assert opened.leave_if_damaged()
    assert (bool(opened.damage), opened.is_whole) == (True, False)
    assert opened.labels() == {}, "it goes on as a new store"
    assert opened.boot_began_at("boot", 9000.0) == 100.0, "a clock that was stepped still shows"
    assert not opened.leave_if_damaged(), "it is told once"
    opened.close()


def test_only_a_file_that_another_program_changed_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = list[str]()

    def sound(path: str) -> str:
        checked.append(path)
        return ""

    monkeypatch.setattr("exporter.agent.state_store.find_damage", sound)
    opened, file = journal(tmp_path), tmp_path / "agent.db"
    size = file.stat().st_size
    for number in range(3000):
        opened.give_label(f"/home/{number:0100}", str(number))
    assert file.stat().st_size > size, "its own checkpoints have changed the file"
    assert not opened.leave_if_damaged()
    assert checked == []
    os.utime(file, (1, 1))
    opened.give_label("/home/new", "new")
    assert not opened.leave_if_damaged()
    assert not opened.leave_if_damaged()
    assert checked == [str(file)]
    opened.close()


def test_the_sources_that_leak_get_their_places_before_any_others(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    crowd = [usage(n, rows=1, source=f"a{n % 20}") for n in range(200)]
    scan(opened, *crowd, *(usage(900 + n, rows=1, source=s) for n, s in enumerate(("tui", "cron"))))
    assert value(opened, "messages", source="cron") == 1
    assert value(opened, "messages", source="tui") == 1


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=30
    )
)
def test_counters_never_fall(steps: list[tuple[int, int, int]]) -> None:
    opened = StateStore.in_memory()
    opened.give_label(HOME, "default")
    before = 0.0
    for key, rows, tools in steps:
        scan(opened, usage(key, rows=rows, tools=tools))
        now = sum(counter.value for counter in opened.counters(HOME))
        assert now >= before
        before = now


def test_the_clock_as_it_was_at_first_is_remembered_for_the_boot_and_no_longer(
    tmp_path: Path,
) -> None:
    first = journal(tmp_path)
    assert first.boot_began_at("one", 1000.0) == 1000.0
    first.close()
    second = StateStore.open(str(tmp_path))
    assert second.boot_began_at("one", 8200.0) == 1000.0
    assert second.boot_began_at("one", 8300.0) == 1000.0
    assert second.boot_began_at("two", 9000.0) == 9000.0
    assert second.boot_began_at("two", 9900.0) == 9000.0


def test_labels_are_kept_and_another_process_can_read_them(tmp_path: Path) -> None:
    opened = journal(tmp_path)
    assert opened.labels() == {HOME: "default"}
    opened.keep_prune_memory(HOME, PruneMemory(last_run_at=17.0))
    opened.boot_began_at("this boot", 1000.0)
    other = StateStore.in_memory()
    copy_memories(str(tmp_path / "nothing"), other)
    assert other.labels() == {}
    copy_memories(str(tmp_path), other)
    assert other.labels() == {HOME: "default"}
    assert other.prune_memory(HOME) == PruneMemory(last_run_at=17.0)
    assert other.prune_memory("/elsewhere") == PruneMemory()
    # By the clock as it is now the boot began later: it was stepped.
    assert other.boot_began_at("this boot", 9000.0) == 1000.0


def test_a_label_given_to_another_home_leaves_the_first_with_one_of_its_own(
    tmp_path: Path,
) -> None:
    opened = journal(tmp_path)
    opened.give_label("/srv/new", "default")
    labels = opened.labels()
    assert labels["/srv/new"] == "default"
    assert labels[HOME].startswith("default-")
