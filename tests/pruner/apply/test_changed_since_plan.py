"""Between the plan and the deed, and between the deed and its undo, Hermes goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import pytest
from msgspec import structs

from exporter.evidence.openers import KnownOpeners
from exporter.hermes.database import leave_wal_in_place
from exporter.pruner.apply import delete_sessions, restore_sessions
from exporter.pruner.apply.execute import execute, purge
from exporter.pruner.apply.recheck import DeletedByThisRun, Recheck
from exporter.pruner.apply.undo import undo
from exporter.runs.folder import RunBusyError, RunError
from exporter.runs.journal import RunJournal, running
from exporter.runs.models import RunOutcome
from exporter.runs.take_actions import AbortedError, RunRecord
from exporter.writing import index_upkeep
from exporter.writing.connection import Writer
from exporter.writing.pacing import Pacer
from tests.real.hermes import NEWEST, python_for
from tests.real.holders import Holder
from tests.support.evidence import puppet
from tests.support.home_scans import sql
from tests.support.reaping import GATEWAY, history, leaky_home, reap, target_of
from tests.support.session_pruning import (
    KEEP_SECONDS,
    beside_all,
    dump_all,
    planned,
    prunable_process,
    prune,
)

FIRST, SECOND, LARGE, PARENT, DELEGATE = (f"20250101_080000_aaaaa{number}" for number in range(5))
EVERYTHING = [FIRST, SECOND, LARGE, DELEGATE, PARENT]
WORDS = ("word1", "terminal", "picture")
HERMES = python_for(NEWEST)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("changed") / "home"
    home.mkdir(mode=0o700)
    with prunable_process(HERMES, home) as writer:
        writer.ask("old", session=FIRST, count=4, title="The first")
        writer.ask("old", session=SECOND, count=4)
        writer.ask("old", session=LARGE, count=150, words="much " * 40)
        writer.ask("old", session=PARENT, count=3)
        writer.ask("old", session=DELEGATE, count=2, parent=PARENT, marker="_delegate_from")
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


CHANGES: dict[str, tuple[Callable[[Holder], object], str]] = {
    "written to": (lambda hermes: hermes.ask("append", session=FIRST), "written to"),
    "resumed": (lambda hermes: hermes.ask("resume", session=FIRST), "open"),
    "deleted": (lambda hermes: hermes.ask("forget", session=FIRST), "gone"),
    "routed by table": (lambda hermes: hermes.ask("route_by_table", session=FIRST), "held"),
    "routed by file": (lambda hermes: hermes.ask("route_by_file", session=FIRST), "held"),
    "being compressed": (lambda hermes: hermes.ask("compress", session=FIRST), "held"),
    "handed off": (lambda hermes: hermes.ask("hand_off", session=FIRST), "handoff_state"),
    "branched": (
        lambda hermes: hermes.ask(
            "old", session="branch", count=1, parent=FIRST, marker="_branched_from"
        ),
        "children",
    ),
    "its title taken away": (
        lambda hermes: hermes.ask("set_title", session=FIRST, title=""),
        "title",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_session_that_has_changed_since_the_plan_is_left_alone(home: Path, change: str) -> None:
    make, reason = CHANGES[change]
    plan = planned(home, [FIRST, SECOND])
    with prunable_process(HERMES, home, *GATEWAY) as gateway:
        make(gateway)
        before = gateway.ask("show", session=FIRST)
        outcome = prune(home, plan)
        assert outcome.done == (SECOND,)
        (left,) = outcome.skipped
        assert left.target == FIRST
        assert reason in left.why
        assert gateway.ask("show", session=FIRST) == before
        assert gateway.ask("broken") == []


def test_a_group_of_which_one_has_changed_is_left_alone_whole(home: Path) -> None:
    plan = planned(home, [DELEGATE, PARENT, SECOND], {DELEGATE: 1, PARENT: 1})
    with prunable_process(HERMES, home, *GATEWAY) as gateway:
        gateway.ask("append", session=PARENT)
        outcome = prune(home, plan)
        assert outcome.done == (SECOND,)
        assert {left.target for left in outcome.skipped} == {DELEGATE, PARENT}
        (why,) = {left.why for left in outcome.skipped}
        assert why.endswith(f"({PARENT}, one of 2 that go together)")
        assert gateway.ask("count", session=DELEGATE) == 2


def test_a_parent_is_not_deleted_without_its_delegates(home: Path) -> None:
    outcome = prune(home, planned(home, [PARENT]))
    assert outcome.done == ()
    assert "delegated" in outcome.skipped[0].why


def test_a_parent_may_go_before_or_after_its_child(home: Path) -> None:
    """What the run does to relatives itself is no change of others, and undo restores it."""
    with prunable_process(HERMES, home) as writer:
        for number, parent in enumerate((FIRST, SECOND)):
            writer.ask("old", session=f"child{number}", count=1, parent=parent)
    before = dump_all(home, *WORDS)
    order = ["child0", FIRST, SECOND, "child1"]
    outcome = prune(home, planned(home, order))
    assert outcome.done == tuple(order)
    returned = undo(outcome.run or "", target_of(home))
    assert (len(returned.done), returned.notes) == (4, ())
    assert dump_all(home, *WORDS) == before


def test_once_it_cannot_be_read_where_chats_lead_nothing_is_deleted(home: Path) -> None:
    plan = planned(home, [FIRST, SECOND])
    (home / "sessions").mkdir(exist_ok=True)
    (home / "sessions" / "sessions.json").write_text("{")
    outcome = prune(home, plan, target_of(home, sleep=lambda seconds: None))
    assert outcome.done == ()
    assert all("which chats lead to which session" in left.why for left in outcome.skipped)


def test_a_process_that_came_while_the_write_lock_was_awaited_calls_it_off(home: Path) -> None:
    """The check before the lock is old by then, so it is made again under the lock."""
    clock, blocker = [0.0], apsw.Connection(str(home / "state.db"))
    leave_wal_in_place(blocker)
    with ExitStack() as stack:

        def wait(seconds: float) -> None:
            blocker.execute("ROLLBACK")
            stack.enter_context(prunable_process(HERMES, home))
            clock[0] += 1.0

        target = target_of(home, monotonic=lambda: clock[0], sleep=wait)
        with target.writing() as writer:
            recheck = Recheck(target, DeletedByThisRun(), writer)
            blocker.execute("BEGIN IMMEDIATE")
            with (
                pytest.raises(AbortedError, match="has opened"),
                writer.transaction() as transaction,
            ):
                recheck.check_under_lock(transaction)
        blocker.close()


def test_a_session_that_is_changed_after_it_was_put_into_the_trash_is_left_alone(
    home: Path,
) -> None:
    """Also in what no rule asks for: an undo would give it back as it was before."""
    change = f"UPDATE sessions SET model = 'another' WHERE id = '{FIRST}'"
    plan = planned(home, [FIRST, SECOND])
    with puppet() as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        process.do("connection.execute('BEGIN IMMEDIATE')")

        def wait(seconds: float) -> None:
            if process.do("connection.in_transaction") == "True":
                process.do(f"connection.execute({change!r})")
                process.do("connection.commit()")

        outcome = prune(home, plan, target_of(home, KnownOpeners((process.pid,)), sleep=wait))
    assert outcome.done == (SECOND,)
    assert [(each.target, each.why) for each in outcome.skipped] == [
        (FIRST, "it has been written to since it was put into the trash")
    ]
    assert sql(home, f"SELECT model FROM sessions WHERE id = '{FIRST}';") == "another"


def test_a_process_that_came_since_calls_it_off(home: Path) -> None:
    plan, place = planned(home, [FIRST, SECOND]), target_of(home, sleep=lambda seconds: None)
    with prunable_process(HERMES, home):
        outcome = prune(home, plan, place)
    assert outcome.done == ()
    assert all("has opened the database since" in left.why for left in outcome.skipped)


def test_a_person_whose_run_was_called_off_is_told_that_nothing_was_done(home: Path) -> None:
    """The agent, which tries again by itself, has no failure to report."""
    plan, place = planned(home, [FIRST, SECOND]), target_of(home, sleep=lambda seconds: None)
    with prunable_process(HERMES, home):
        by_hand = execute(plan, place, keep_seconds=3600.0, by_hand=True)
        by_agent = execute(plan, place, keep_seconds=3600.0)
    assert (by_hand.outcome, by_agent.outcome) == (RunOutcome.FAILED, RunOutcome.DONE)
    assert [each.outcome for each in history(home)] == [RunOutcome.DONE, RunOutcome.FAILED]


def test_a_large_session_that_comes_to_life_halfway_is_found_by_search_again(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is taken out of the text index in slices; then a person resumes it."""
    plan = planned(home, [LARGE])
    slices = 0
    with prunable_process(HERMES, home, *GATEWAY) as gateway:

        def resumed_after_two(pacer: Pacer, writer: Writer) -> None:
            nonlocal slices
            del pacer, writer
            slices += 1
            if slices == 2:
                assert 13 < len(dump_all(home)["messages_fts_content"]) < 163
                assert gateway.ask("resume", session=LARGE) == 150

        monkeypatch.setattr(Pacer, "give_turn", resumed_after_two)
        outcome = prune(home, plan, beside_all(home, lock_budget_seconds=0.01))
        assert slices >= 2
        assert outcome.done == ()
        assert "open" in outcome.skipped[0].why
        gateway.ask("append", session=LARGE)
        assert gateway.ask("count", session=LARGE) == 151
        assert gateway.ask("broken") == []
        assert LARGE in gateway.ask("search", text="word148")


# Undo


def test_undo_gives_all_back_and_leaves_what_is_newer(home: Path) -> None:
    """Hermes gave the title of one to another session and began another anew."""
    run = prune(home, planned(home, [FIRST, SECOND, LARGE])).run or ""
    with prunable_process(HERMES, home) as hermes:
        hermes.ask("create", session=SECOND)
        hermes.ask("append", session=SECOND, text="a new beginning")
        hermes.ask("old", session="another", count=1, title="The first")
    returned = undo(run, target_of(home))
    assert set(returned.done) == {FIRST, SECOND, LARGE}
    assert returned.skipped == ()
    assert [note.target for note in returned.notes] == [FIRST]
    with prunable_process(HERMES, home) as hermes:
        assert hermes.ask("count", session=SECOND) == 4 + 1
        assert hermes.ask("show", session=FIRST)["title"] == "The first (restored)"
        assert hermes.ask("show", session="another")["title"] == "The first"
        assert hermes.ask("broken") == []


@pytest.mark.parametrize(
    ("module", "step"), [(index_upkeep, "until_due"), (restore_sessions, "_restored")]
)
def test_an_undo_goes_on_in_smaller_steps_when_it_is_cut_short(
    home: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str
) -> None:
    """A transaction that lasts too long is taken back whole, for the text index and for rows."""
    before = dump_all(home, *WORDS)
    run = prune(home, planned(home, [FIRST, SECOND, LARGE])).run or ""
    go_on, times = getattr(module, step), 0

    def too_long_at_first(*arguments: Any) -> Any:
        nonlocal times
        times += 1
        answer = go_on(*arguments)
        if times <= 3:
            raise apsw.InterruptError
        return answer

    monkeypatch.setattr(module, step, too_long_at_first)
    returned = undo(run, target_of(home, sleep=lambda seconds: None))
    assert times > 3
    assert (len(returned.done), returned.skipped) == (3, ())
    assert dump_all(home, *WORDS) == before
    with prunable_process(HERMES, home) as hermes:
        assert hermes.ask("broken") == []


def test_an_undo_that_never_has_the_time_leaves_no_trace(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prune(home, planned(home, [FIRST, LARGE])).run or ""
    after = dump_all(home, *WORDS)

    def too_long(*arguments: Any) -> Any:
        raise apsw.InterruptError

    with monkeypatch.context() as patched:
        patched.setattr(restore_sessions, "_restored", too_long)
        returned = undo(run, target_of(home, sleep=lambda seconds: None))
    assert returned.done == ()
    assert all("one short transaction" in left.why for left in returned.skipped)
    assert dump_all(home, *WORDS) == after
    assert len(undo(run, target_of(home)).done) == 2


def test_what_comes_back_finds_another_place_where_hermes_gave_its_row_ids_out_again(
    home: Path,
) -> None:
    """Those of all tables but messages are numbers that SQLite uses again."""
    used = f"SELECT model, input_tokens FROM session_model_usage WHERE session_id = '{FIRST}';"
    before = sql(home, used)
    run = prune(home, planned(home, EVERYTHING, {DELEGATE: 1, PARENT: 1})).run or ""
    with prunable_process(HERMES, home) as hermes:
        hermes.ask("old", session="new", count=1)
    returned = undo(run, target_of(home))
    assert (len(returned.done), returned.skipped) == (len(EVERYTHING), ())
    assert sql(home, used) == before != ""
    with prunable_process(HERMES, home) as hermes:
        assert hermes.ask("count", session="new") == 1
        assert hermes.ask("broken") == []


def test_beside_a_killed_undo_hermes_writes_on_in_a_database_begun_anew(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the next number of a message may be one that the text index has, ahead of its row."""
    prune(home, planned(home, [LARGE, DELEGATE, PARENT], {DELEGATE: 1, PARENT: 1}))
    run = prune(home, planned(home, [FIRST, SECOND])).run or ""
    sql(home, "UPDATE sqlite_sequence SET seq = 0 WHERE name = 'messages';")

    def killed(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    with prunable_process(HERMES, home, *GATEWAY) as gateway:
        with monkeypatch.context() as patched:
            patched.setattr(restore_sessions, "_restored", killed)
            with pytest.raises(KeyboardInterrupt):
                undo(run, beside_all(home))
        assert dump_all(home)["messages_fts_content"]
        gateway.ask("old", session="new", count=3)
        assert gateway.ask("count", session="new") == 3
        assert len(undo(run, beside_all(home)).done) == 2
        assert gateway.ask("broken") == []


def test_a_trigger_that_is_not_known_fires_when_a_session_comes_back(home: Path) -> None:
    """It may keep an index of its own, which has lost what was deleted."""
    sql(
        home,
        "CREATE TABLE titles (session TEXT);"
        "CREATE TRIGGER came AFTER INSERT ON sessions BEGIN "
        "INSERT INTO titles VALUES (new.id); END;",
    )
    run = prune(home, planned(home, [FIRST, SECOND])).run or ""
    assert len(undo(run, target_of(home)).done) == 2
    assert sql(home, "SELECT session FROM titles ORDER BY session;").split() == [FIRST, SECOND]


def test_a_killed_undo_leaves_no_text_behind_of_a_session_that_hermes_began_anew(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was put into the text index ahead of its rows goes, for they never come."""
    run = prune(home, planned(home, [FIRST, SECOND])).run or ""

    def killed(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(restore_sessions, "_restored", killed)
        with pytest.raises(KeyboardInterrupt):
            undo(run, target_of(home))
    with prunable_process(HERMES, home) as hermes:
        hermes.ask("create", session=FIRST)
        hermes.ask("append", session=FIRST, text="a new beginning")
    purge(run, target_of(home))
    with prunable_process(HERMES, home) as hermes:
        assert hermes.ask("count", session=FIRST) == 1
        assert hermes.ask("broken") == []


def test_what_comes_back_is_found_though_the_text_index_was_made_anew_meanwhile(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Hermes does when it finds triggers missing, or the index broken."""
    before = dump_all(home, *WORDS)
    run = prune(home, planned(home, [FIRST, SECOND, LARGE])).run or ""
    go_on = restore_sessions.SessionRestorer._restore

    def after_a_rebuild(*arguments: Any) -> Any:
        for table in ("messages_fts", "messages_fts_trigram"):
            sql(
                home,
                f"DELETE FROM {table}; INSERT INTO {table}(rowid, content) "
                "SELECT id, COALESCE(content, '') || ' ' || COALESCE(tool_name, '') || ' ' || "
                "COALESCE(tool_calls, '') FROM messages;",
            )
        return go_on(*arguments)

    monkeypatch.setattr(restore_sessions.SessionRestorer, "_restore", after_a_rebuild)
    assert len(undo(run, target_of(home)).done) == 3
    assert dump_all(home, *WORDS) == before


@pytest.mark.parametrize(
    ("module", "step"), [(delete_sessions, "delete_session"), (restore_sessions, "_restored")]
)
def test_small_sessions_that_never_have_the_time_are_given_up_too(
    home: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, step: str
) -> None:
    """Of those several fit into the smallest transaction that there is."""
    small = [f"20250101_080000_bbbbb{number}" for number in range(4)]
    with prunable_process(HERMES, home) as writer:
        for session in small:
            writer.ask("old", session=session, count=1)
    plan, times = planned(home, small), 0
    run = (prune(home, plan).run or "") if module is restore_sessions else ""
    before = dump_all(home, *WORDS)

    def too_long(*arguments: Any) -> Any:
        nonlocal times
        times += 1
        assert times < 500
        raise apsw.InterruptError

    monkeypatch.setattr(module, step, too_long)
    place = target_of(home, sleep=lambda seconds: None)
    left = undo(run, place).skipped if run else prune(home, plan, place).skipped
    assert {each.target for each in left} == set(small)
    assert all("one short transaction" in each.why for each in left)
    assert dump_all(home, *WORDS) == before


def test_undo_after_an_upgrade_fills_new_columns_and_refuses_to_lose_old_ones(home: Path) -> None:
    run = prune(home, planned(home, [FIRST, SECOND])).run or ""
    sql(home, "ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';")
    sql(home, "ALTER TABLE messages RENAME COLUMN finish_reason TO why_finished;")
    assert len(undo(run, target_of(home)).done) == 2
    assert sql(home, f"SELECT mood FROM sessions WHERE id = '{FIRST}';") == "calm"
    run = prune(home, planned(home, [FIRST])).run or ""
    sql(home, "ALTER TABLE messages RENAME COLUMN role TO who;")
    (left,) = undo(run, target_of(home)).skipped
    assert "no column messages.role" in left.why


def test_text_that_is_no_text_and_values_of_other_types_come_back_as_they_were(
    home: Path,
) -> None:
    sql(
        home,
        f"UPDATE messages SET content = CAST(x'ff00fe' AS TEXT), tool_name = x'0001' "
        f"WHERE session_id = '{FIRST}' AND role = 'user' AND id % 2 = 0;"
        f"UPDATE messages SET token_count = 'many', reasoning = 7 WHERE session_id = '{FIRST}';"
        f"UPDATE sessions SET user_id = x'ff', cwd = CAST(x'c3' AS TEXT) WHERE id = '{FIRST}';",
    )
    before = dump_all(home, *WORDS)
    outcome = prune(home, planned(home, [FIRST]))
    assert outcome.done == (FIRST,)
    assert undo(outcome.run or "", target_of(home)).done == (FIRST,)
    assert dump_all(home, *WORDS) == before
    with prunable_process(HERMES, home) as hermes:
        assert hermes.ask("broken") == []


def test_what_was_given_back_is_not_given_back_twice(home: Path) -> None:
    run = prune(home, planned(home, [FIRST])).run or ""
    undo(run, target_of(home))
    again = undo(run, target_of(home))
    assert again.done == ()
    assert "given back already" in again.skipped[0].why


def test_a_prune_first_settles_what_another_could_not_note(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RunError("the journal cannot be written")

    with monkeypatch.context() as patched:
        patched.setattr(RunJournal, "settle", refuse)
        assert prune(home, planned(home, [FIRST])).outcome is RunOutcome.UNKNOWN
    assert [each.outcome for each in history(home)] == [None]
    assert prune(home, planned(home, [SECOND])).done == (SECOND,)
    second, first = history(home)
    assert (second.outcome, first.outcome) == (RunOutcome.DONE, RunOutcome.PARTIAL)
    assert undo(first.id, target_of(home)).done == (FIRST,)


def test_a_purge_that_cannot_be_noted_in_the_journal_deletes_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prune(home, planned(home, [FIRST])).run or ""

    def refuse(*_: object, **__: object) -> None:
        raise RunError("the journal cannot be written")

    with monkeypatch.context() as patched:
        patched.setattr(RunRecord, "begin", refuse)
        with pytest.raises(RunError, match="cannot be written"):
            purge(run, target_of(home))
    assert undo(run, target_of(home)).done == (FIRST,)


def test_a_purge_ends_what_can_be_undone(home: Path) -> None:
    first = prune(home, planned(home, [FIRST])).run or ""
    second = prune(home, planned(home, [SECOND])).run or ""
    outcome = purge(first, target_of(home))
    assert (outcome.outcome, outcome.done) == (RunOutcome.DONE, (first,))
    assert sum(outcome.freed.values()) > 0
    undoable = {run.id: run.undoable_until for run in history(home)}
    assert undoable[first] is None
    assert undoable[second] is not None
    with pytest.raises(RunError, match="is gone"):
        undo(first, target_of(home))
    with pytest.raises(RunError, match="has no trash"):
        purge(first, target_of(home))
    assert undo(second, target_of(home)).done == (SECOND,)


def test_a_reap_is_not_undone_as_a_prune(tmp_path: Path) -> None:
    home = leaky_home(HERMES, tmp_path / "home", ["20260101_080000_aaaaaa"])
    run = reap(home).run or ""
    with pytest.raises(RunError, match="no prune"):
        undo(run, target_of(home))


# What must not be written


def test_only_part_of_a_plan_takes_no_group_apart(home: Path) -> None:
    plan = planned(home, [FIRST, DELEGATE, PARENT], {DELEGATE: 1, PARENT: 1})
    outcome = execute(plan, target_of(home), keep_seconds=KEEP_SECONDS, only={FIRST, PARENT})
    assert outcome.done == (FIRST,)


def test_a_plan_that_does_not_say_what_it_expects_deletes_nothing(home: Path) -> None:
    plan = planned(home, [FIRST])
    careless = structs.replace(plan, actions=(structs.replace(plan.actions[0], expected={}),))
    outcome = prune(home, careless)
    assert outcome.done == ()
    assert "does not say" in outcome.skipped[0].why


def test_beside_a_holder_without_its_locks_nothing_is_deleted(home: Path) -> None:
    plan = planned(home, [FIRST])
    with prunable_process(HERMES, home, *GATEWAY) as gateway:
        place = beside_all(home)
        gateway.ask("lose_database_lock")
        outcome = prune(home, plan, place)
        assert (outcome.outcome, outcome.done) == (RunOutcome.FAILED, ())
        assert "lost its locks" in outcome.why
        gateway.kill()


def test_the_loser_of_two_runs_says_so(home: Path) -> None:
    plan = planned(home, [FIRST])
    with running(str(home), home.stat().st_uid, "prune"), pytest.raises(RunBusyError):
        prune(home, plan)


def test_an_index_that_this_sqlite_cannot_keep_is_left_alone(home: Path) -> None:
    """As with a tokenizer that Hermes loads from a library of its own."""
    plan = planned(home, [FIRST])
    sql(
        home,
        "CREATE VIRTUAL TABLE messages_fts_cjk USING fts5(content);"
        "PRAGMA writable_schema=ON;"
        "UPDATE sqlite_schema SET sql = replace(sql, 'fts5(content)', "
        "'fts5(content, tokenize=''cjk'')') WHERE name = 'messages_fts_cjk';",
    )
    outcome = prune(home, plan, target_of(home, KnownOpeners()))
    assert (outcome.outcome, outcome.done) == (RunOutcome.FAILED, ())
    assert "cannot be kept by this SQLite" in outcome.why


def test_a_session_that_another_table_refers_to_is_left_alone(home: Path) -> None:
    sql(
        home,
        "CREATE TABLE invoices (session_id TEXT REFERENCES sessions(id));"
        f"INSERT INTO invoices VALUES ('{FIRST}');",
    )
    outcome = prune(home, planned(home, [FIRST, SECOND]))
    assert outcome.done == (SECOND,)
    assert "invoices" in outcome.skipped[0].why


def test_where_the_trash_cannot_be_written_nothing_is_deleted(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(delete_sessions, "write_sessions", full)
    outcome = prune(home, planned(home, [FIRST]))
    assert (outcome.outcome, outcome.done) == (RunOutcome.FAILED, ())
    assert "No space left on device" in outcome.why
    assert sql(home, "SELECT COUNT(*) FROM sessions;") == "5"


def test_progress_is_told_and_comes_to_its_end(home: Path) -> None:
    told: list[tuple[int, int]] = []
    plan = planned(home, [FIRST, SECOND, LARGE])
    execute(
        plan,
        target_of(home),
        keep_seconds=KEEP_SECONDS,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told[-1] == (3, 3)


def test_sqlite_calls_an_index_malformed_where_a_nul_is_counted_otherwise() -> None:
    """Why messages with a NUL are taken out of the index as they came in."""
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE VIRTUAL TABLE words USING fts5(content, tokenize='trigram')")
    connection.execute("INSERT INTO words(rowid, content) VALUES (1, CAST(x'0061626364' AS TEXT))")
    assert connection.execute("SELECT hex(sz) FROM words_docsize").get == "02"
