"""A session that Hermes goes on with after it was pruned gets its past back, and gets it once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from exporter.pruner.apply.undo import undo
from exporter.writing.connection import Writer
from exporter.writing.pacing import Pacer
from exporter.writing.target import Target
from tests.real.hermes import NEWEST, Hermes, python_for
from tests.real.holders import Holder
from tests.support.home_scans import sql
from tests.support.reaping import target_of
from tests.support.session_pruning import beside_all, planned, prunable_process, prune

VERSIONS = ("0.13.0", "0.16.0", NEWEST)
CHAT, OTHER, CHILD = "20250101_080000_aaaaaa", "20250101_080000_bbbbbb", "20250101_080000_cccccc"


class Case:
    """A home of one release with an old session, and a process that has it in memory."""

    def __init__(self, hermes: Hermes, home: Path) -> None:
        self.hermes = hermes
        self.home = home
        self.before: list[list[Any]] = []
        self.row: dict[str, Any] = {}

    def process(self, *arguments: str) -> AbstractContextManager[Holder]:
        return prunable_process(self.hermes, self.home, *arguments, module="go_on")

    def make(self, count: int = 8, source: str = "cli") -> None:
        self.home.mkdir(mode=0o700)
        with self.process() as hermes:
            hermes.ask("old", session=OTHER, count=2)
            hermes.ask("old", session=CHAT, count=count, title="The chat", source=source)
            hermes.ask("leave_traces", session=CHAT)
            hermes.ask("bear", session=CHILD, parent=CHAT)
            self.before = hermes.ask("conversation", session=CHAT)
            self.row = hermes.ask("show", session=CHAT)

    def prune(self, *sessions: str) -> str:
        outcome = prune(self.home, planned(self.home, sessions or [CHAT]))
        assert outcome.skipped == ()
        return outcome.run or ""

    def undo(self, run: str, place: Target | None = None) -> list[str]:
        """Give all back; return the notes."""
        returned = undo(run, place or beside_all(self.home))
        assert returned.skipped == ()
        return [each.why for each in returned.notes]


@pytest.fixture(params=VERSIONS)
def every(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return _case(request.param, tmp_path)


@pytest.fixture
def newest(tmp_path: Path) -> Case:
    return _case(NEWEST, tmp_path)


def _case(version: str, folder: Path, **how: Any) -> Case:
    case = Case(python_for(version), folder / "home")
    case.make(**how)
    return case


def _turn(text: str) -> list[list[str]]:
    return [["user", text], ["assistant", f"answer to {text}"]]


def _whole(case: Case, hermes: Holder) -> None:
    assert hermes.ask("broken") == []
    assert CHAT in hermes.ask("search", text="word1")
    assert hermes.ask("show", session=CHILD)["parent_session_id"] == CHAT
    assert "done" in sql(case.home, f"SELECT value FROM state_meta WHERE key = 'goal:{CHAT}';")


def test_a_session_that_hermes_went_on_with_gets_its_past_back(every: Case) -> None:
    with every.process() as hermes:
        hermes.ask("remember", session=CHAT)
        run = every.prune()
        hermes.ask("go_on", session=CHAT, text="and now?")
        assert hermes.ask("show", session=CHAT)["source"] == "unknown"
        assert every.undo(run) == []
        assert hermes.ask("conversation", session=CHAT) == [*every.before, *_turn("and now?")]
        row, old = hermes.ask("show", session=CHAT), every.row
        for column in ("source", "title", "started_at", "system_prompt", "model"):
            assert row[column] == old[column]
        assert (row["ended_at"], row["end_reason"]) == (None, None)
        assert row["message_count"] == old["message_count"] + 2
        assert row["input_tokens"] == old["input_tokens"] + 5
        assert row["api_call_count"] == old["api_call_count"] + 1
        assert row["tool_call_count"] == old["tool_call_count"]
        assert hermes.ask("used", session=CHAT) in ({}, {"large-1": row["input_tokens"]})
        hermes.ask("go_on", session=CHAT, text="and then?")
        assert hermes.ask("conversation", session=CHAT)[-2:] == _turn("and then?")
        _whole(every, hermes)


def test_an_end_that_hermes_has_written_since_stays(every: Case) -> None:
    with every.process() as hermes:
        run = every.prune()
        hermes.ask("go_on", session=CHAT, text="bye")
        hermes.ask("end", session=CHAT, reason="new_session")
        end = hermes.ask("show", session=CHAT)["ended_at"]
        every.undo(run)
        row = hermes.ask("show", session=CHAT)
        assert (row["ended_at"], row["end_reason"]) == (end, "new_session")


def test_the_past_is_not_doubled_after_a_compaction_in_place(newest: Case) -> None:
    """The summary stands for the old messages: they come back as compacted ones, and are found."""
    with newest.process() as hermes:
        hermes.ask("remember", session=CHAT)
        run = newest.prune()
        hermes.ask("go_on", session=CHAT, text="and now?")
        hermes.ask("compact_in_place", session=CHAT, keep=3)
        context, row = hermes.ask("conversation", session=CHAT), hermes.ask("show", session=CHAT)
        newest.undo(run)
        assert hermes.ask("conversation", session=CHAT) == context
        assert hermes.ask("show", session=CHAT)["message_count"] == row["message_count"]
        rows = hermes.ask("rows", session=CHAT)
        old = rows[: len(newest.before)]
        assert all((each["active"], each["compacted"]) == (0, 1) for each in old)
        assert len(rows) == len(newest.before) + 2 + len(context)
        _whole(newest, hermes)


@pytest.mark.parametrize("version", ["0.13.0", "0.16.0"])
def test_the_past_is_not_doubled_after_a_compaction_by_rewriting(
    version: str, tmp_path: Path
) -> None:
    """Where the schema has `active` the old messages come back as inactive ones."""
    case = _case(version, tmp_path)
    with case.process() as hermes:
        hermes.ask("remember", session=CHAT)
        run = case.prune()
        hermes.ask("compact_by_rewriting", session=CHAT, keep=3)
        context = hermes.ask("conversation", session=CHAT)
        notes = case.undo(run)
        assert hermes.ask("conversation", session=CHAT) == context
        rows = hermes.ask("rows", session=CHAT)
        assert hermes.ask("show", session=CHAT)["message_count"] == len(context)
        if version == "0.13.0":
            assert len(rows) == len(context)
            assert "8 messages that Hermes has compacted stay in the trash" in notes[0]
        else:
            assert len(rows) == len(context) + len(case.before)
            assert notes == []
        assert hermes.ask("show", session=CHAT)["title"] == "The chat"
        assert hermes.ask("broken") == []


def test_the_past_is_not_doubled_where_an_editor_writes_its_whole_history(
    every: Case,
) -> None:
    with every.process() as hermes:
        hermes.ask("remember", session=CHAT)
        run = every.prune()
        hermes.ask("persist_as_acp", session=CHAT, text="from the editor")
        context = hermes.ask("conversation", session=CHAT)
        assert context[:-1] == every.before
        every.undo(run)
        assert hermes.ask("conversation", session=CHAT) == context
        assert len(hermes.ask("rows", session=CHAT)) == len(context)
        row = hermes.ask("show", session=CHAT)
        assert row["message_count"] == len(context)
        assert (row["source"], row["title"]) == ("cli", "The chat")
        _whole(every, hermes)


def test_the_past_is_not_doubled_where_the_history_was_repaired_before_it_was_written(
    newest: Case,
) -> None:
    """Hermes joins two questions without an answer when it loads them; no message gets lost."""
    with newest.process() as hermes:
        hermes.ask("remember", session=CHAT, joined=True)
        run = newest.prune()
        hermes.ask("persist_as_acp", session=CHAT, text="from the editor")
        context = hermes.ask("conversation", session=CHAT)
        assert len(context) < len(newest.before)
        newest.undo(run)
        assert hermes.ask("conversation", session=CHAT) == context
        hidden = [each for each in hermes.ask("rows", session=CHAT) if not each["active"]]
        assert len(hidden) == len(newest.before)
        _whole(newest, hermes)


def test_what_was_taken_back_before_the_prune_is_given_back_beside_a_rewritten_history(
    newest: Case,
) -> None:
    """An editor writes only what is active; the rest is missing, and no more than that."""
    taken_back = f"UPDATE messages SET active = 0 WHERE session_id = '{CHAT}' AND content LIKE "
    sql(newest.home, f"{taken_back} 'word2%';")
    with newest.process() as hermes:
        hermes.ask("remember", session=CHAT)
        run = newest.prune()
        hermes.ask("persist_as_acp", session=CHAT, text="from the editor")
        context = hermes.ask("conversation", session=CHAT)
        newest.undo(run)
        assert hermes.ask("conversation", session=CHAT) == context
        hidden = [each for each in hermes.ask("rows", session=CHAT) if not each["active"]]
        assert [(each["content"][:5], each["compacted"]) for each in hidden] == [("word2", 0)]
        assert hermes.ask("broken") == []


def test_the_past_is_not_doubled_after_an_import(newest: Case) -> None:
    """Hermes's own export, imported again: messages and what they cost are all there already."""
    with newest.process() as hermes:
        exported = hermes.ask("exported", session=CHAT)
        run = newest.prune()
        assert hermes.ask("import_again", exported=exported)["imported"] == 1
        hermes.ask("go_on", session=CHAT, text="and now?")
        row = hermes.ask("show", session=CHAT)
        newest.undo(run)
        assert hermes.ask("conversation", session=CHAT) == [*newest.before, *_turn("and now?")]
        after = hermes.ask("show", session=CHAT)
        for column in ("message_count", "input_tokens", "api_call_count", "title"):
            assert after[column] == row[column]
        assert hermes.ask("broken") == []


def _begin_anew(case: Case) -> None:
    """The database is lost; Hermes makes another, in which it gives the ids out again."""
    for file in case.home.glob("state.db*"):
        file.unlink()
    with case.process() as hermes:
        hermes.ask("old", session="new", count=20)


def test_undo_into_a_new_database_gives_back_sessions_whose_ids_are_taken(every: Case) -> None:
    run = every.prune(CHAT, OTHER)
    _begin_anew(every)
    every.undo(run, target_of(every.home))
    with every.process() as hermes:
        assert hermes.ask("conversation", session=CHAT) == every.before
        assert {**hermes.ask("show", session=CHAT)} == every.row
        assert hermes.ask("count", session="new") == 20
        assert hermes.ask("count", session=OTHER) == 2
        assert CHAT in hermes.ask("search", text="word1")
        hermes.ask("go_on", session=CHAT, text="and now?")
        assert hermes.ask("conversation", session=CHAT) == [*every.before, *_turn("and now?")]
        assert hermes.ask("broken") == []


@pytest.mark.parametrize("count", [0, 20])
def test_old_messages_come_first_in_a_new_database_where_hermes_went_on(
    every: Case, count: int
) -> None:
    """Their ids are taken, or are free and higher than those of the new messages."""
    run = every.prune()
    for file in every.home.glob("state.db*"):
        file.unlink()
    with every.process() as hermes:
        hermes.ask("go_on", session=CHAT, text="first")
        hermes.ask("old", session="new", count=count)
        hermes.ask("go_on", session=CHAT, text="second")
        every.undo(run)
        said = [*every.before, *_turn("first"), *_turn("second")]
        assert hermes.ask("conversation", session=CHAT) == said
        hermes.ask("go_on", session=CHAT, text="third")
        assert hermes.ask("conversation", session=CHAT) == [*said, *_turn("third")]
        assert hermes.ask("show", session=CHAT)["message_count"] == len(said) + 2
        assert hermes.ask("count", session="new") == count
        assert hermes.ask("broken") == []


def test_a_title_that_was_given_since_then_stays(every: Case) -> None:
    with every.process() as hermes:
        hermes.ask("remember", session=CHAT)
        run = every.prune()
        hermes.ask("go_on", session=CHAT, text="and now?")
        hermes.ask("set_title", session=CHAT, title="A better name")
        assert every.undo(run) == []
        assert hermes.ask("show", session=CHAT)["title"] == "A better name"
        assert hermes.ask("conversation", session=CHAT) == [*every.before, *_turn("and now?")]


def test_a_title_that_another_session_has_by_now_is_changed_a_little(newest: Case) -> None:
    run = newest.prune()
    with newest.process() as hermes:
        hermes.ask("old", session="new", count=1, title="The chat")
        notes = newest.undo(run)
        assert hermes.ask("show", session=CHAT)["title"] == "The chat (restored)"
        assert hermes.ask("show", session="new")["title"] == "The chat"
    assert "another session has its title now" in notes[0]


# A long past


LONG = 120


@pytest.fixture
def long(tmp_path: Path) -> Case:
    return _case(NEWEST, tmp_path, count=LONG)


def test_a_reader_sees_an_end_without_a_gap_while_a_long_past_comes_back(
    long: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In several transactions, the newest messages first; Hermes reads in between."""
    seen: list[int] = []
    with long.process() as hermes:
        run = long.prune()
        hermes.ask("go_on", session=CHAT, text="and now?")
        whole = [*long.before, *_turn("and now?")]

        def look(pacer: Pacer, writer: Writer) -> None:
            del pacer, writer
            found = hermes.ask("conversation", session=CHAT)
            assert found == whole[len(whole) - len(found) :]
            seen.append(len(found))

        monkeypatch.setattr(Pacer, "give_turn", look)
        long.undo(run, beside_all(long.home, lock_budget_seconds=0.002))
        assert len(seen) > 3
        assert seen == sorted(seen)
        assert hermes.ask("conversation", session=CHAT) == whole
        _whole(long, hermes)


@pytest.mark.parametrize("anew", [False, True])
def test_a_merge_that_is_killed_goes_on_where_it_was(
    long: Case, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """Nothing is doubled by the second try, neither messages nor what they cost."""
    run = long.prune()
    if anew:
        _begin_anew(long)
    steps = 0

    def killed_at_the_third(pacer: Pacer, writer: Writer) -> None:
        nonlocal steps
        steps += 1
        if steps == 3:
            raise KeyboardInterrupt

    with long.process() as hermes:
        hermes.ask("go_on", session=CHAT, text="and now?")
        with monkeypatch.context() as patched:
            patched.setattr(Pacer, "give_turn", killed_at_the_third)
            with pytest.raises(KeyboardInterrupt):
                undo(run, beside_all(long.home, lock_budget_seconds=0.002))
        hermes.ask("go_on", session=CHAT, text="and then?")
        long.undo(run)
        whole = [*long.before, *_turn("and now?"), *_turn("and then?")]
        assert hermes.ask("conversation", session=CHAT) == whole
        row = hermes.ask("show", session=CHAT)
        assert row["message_count"] == len(whole)
        assert row["input_tokens"] == long.row["input_tokens"] + 10
        assert hermes.ask("broken") == []


@pytest.mark.parametrize("step", [1, 3])
def test_hermes_may_compact_while_a_long_past_comes_back(
    long: Case, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    steps = 0
    with long.process() as hermes:
        hermes.ask("remember", session=CHAT)
        run = long.prune()
        hermes.ask("go_on", session=CHAT, text="and now?")

        def compact(pacer: Pacer, writer: Writer) -> None:
            nonlocal steps
            steps += 1
            if steps == step:
                hermes.ask("compact_in_place", session=CHAT, keep=3)

        monkeypatch.setattr(Pacer, "give_turn", compact)
        long.undo(run, beside_all(long.home, lock_budget_seconds=0.002))
        assert steps > step
        context = hermes.ask("conversation", session=CHAT)
        assert len(context) == 2 + 1 + 3
        rows = hermes.ask("rows", session=CHAT)
        assert len(rows) == LONG + 2 + len(context)
        assert [each["compacted"] for each in rows] == [1] * (LONG + 2) + [0] * len(context)
        _whole(long, hermes)
