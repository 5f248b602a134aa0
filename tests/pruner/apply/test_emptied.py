"""Beside a process that may have a session in memory its row stays until that has ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from exporter.pruner.apply import restore_sessions
from exporter.pruner.apply.execute import execute, purge
from exporter.pruner.apply.reborn import heal_reborn
from exporter.pruner.apply.recovery import BY_ACTION
from exporter.pruner.apply.undo import undo
from exporter.pruner.beside import ProcessesAtPrune
from exporter.pruner.decide import trash_wait
from exporter.pruner.models import Act, PruneAction, PrunePlan
from exporter.runs.models import Frees, Outcome, RunKind
from exporter.runs.recovery import recover_home
from exporter.runs.take_actions import RunRecord
from exporter.writing import index_upkeep
from tests.real.agent import agent
from tests.real.hermes import NEWEST, python_for
from tests.real.holders import Holder
from tests.support.evidence import evidence
from tests.support.pruned_chats import CHAT, COUNT, OTHER, chat, home_with_chats
from tests.support.reaping import hermes_process, history
from tests.support.running_agent import configuration, scanned_again, when
from tests.support.session_pruning import (
    KEEP_SECONDS,
    beside_all,
    dump_all,
    planned,
    prune,
)

VERSIONS = ("0.16.0", "0.18.2", NEWEST)
"""Those of which the row can be hidden, and a rotation, a compaction in place, both."""
NEXT = "20250101_080000_cccccc"
HOME = "emptied"


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(version: str, tmp_path: Path) -> Path:
    return home_with_chats(version, tmp_path, with_traces=True)


@pytest.fixture
def newest(tmp_path: Path) -> Path:
    return home_with_chats(NEWEST, tmp_path, with_traces=True)


def beside(home: Path, server_seconds: float | None = 3600.0) -> ProcessesAtPrune:
    found = ProcessesAtPrune.of(evidence(home).holders, server_seconds)
    assert found is not None
    return found


def emptied(home: Path, *sessions: str, groups: dict[str, int] | None = None) -> Outcome:
    """A prune of these beside the processes that have the database open now."""
    plan = planned(home, sessions, groups)
    outcome = prune(home, plan, processes_at_prune=beside(home))
    assert outcome.done == sessions
    return outcome


def given_back(home: Path, run: str | None) -> None:
    assert undo(run or "", beside_all(home)).outcome.value == "done"


def is_whole(hermes: Holder, turns: int = 0) -> bool:
    said = hermes.ask("conversation", session=CHAT)
    return len(said) == COUNT + 2 * turns and str(said[0][1]).startswith("word0")


def test_hermes_shows_nothing_of_it_and_undo_restores_it_exactly(home: Path, version: str) -> None:
    with chat(home, version) as hermes:
        before = dump_all(home, "word1")
        run = emptied(home, CHAT).run
        assert hermes.ask("show", session=CHAT)["title"] == f"title of {CHAT}"
        assert hermes.ask("count", session=CHAT) == 0
        assert hermes.ask("search", text="word1") == [OTHER]
        lists = hermes.ask("lists")
        assert (lists["shown"], lists["archived"], lists["total"], lists["empty"]) == (
            [OTHER],
            [],
            1,
            0,
        )
        assert heal_reborn(beside_all(home)).sessions == ()
        given_back(home, run)
        assert dump_all(home, "word1") == before
        assert hermes.ask("broken") == []


def test_its_row_goes_when_the_chat_has_ended_and_undo_restores_it_still(
    home: Path, version: str
) -> None:
    before = dump_all(home, "word1")
    with chat(home, version) as hermes:
        run = emptied(home, CHAT, OTHER).run
        assert heal_reborn(beside_all(home)).finished == 0
    assert heal_reborn(beside_all(home)).finished == 2
    with chat(home, version) as hermes:
        assert hermes.ask("show", session=CHAT) is None
        assert [(each.label, each.actions) for each in history(home)] == [
            ("finish", 2),
            ("prune", 2),
        ]
        given_back(home, run)
        after = dump_all(home, "word1")
        assert {name: after[name] for name in after if name != "sqlite_sequence"} == {
            name: before[name] for name in before if name != "sqlite_sequence"
        }
        assert hermes.ask("broken") == []


def test_a_chat_that_goes_on_with_it_gets_its_past_back(home: Path, version: str) -> None:
    with chat(home, version) as hermes:
        emptied(home, CHAT, OTHER)
        hermes.ask("go_on", session=CHAT, text="and now?")
        assert heal_reborn(beside_all(home)).sessions == (CHAT,)
        assert is_whole(hermes, turns=1)
        row = hermes.ask("show", session=CHAT)
        assert (row["message_count"], row["input_tokens"], row["archived"]) == (COUNT + 2, 15, 0)
        assert (row["source"], row["title"]) == ("cli", f"title of {CHAT}")
        assert hermes.ask("lists")["shown"] == [CHAT]
        assert hermes.ask("broken") == []
        assert heal_reborn(beside_all(home)).finished == 0
    assert heal_reborn(beside_all(home)).finished == 1
    assert history(home)[1].kind is RunKind.HEAL


@pytest.mark.parametrize("who", [CHAT, OTHER])
@pytest.mark.parametrize("what", ["go_on", "archive", "delete"])
def test_what_happens_to_one_between_index_and_rows_of_an_undo_stays(
    newest: Path, monkeypatch: pytest.MonkeyPatch, what: str, who: str
) -> None:
    """Both are restored in one transaction, after their messages are in the text index."""
    index = index_upkeep.reindex
    with chat(newest) as hermes:
        before = dump_all(newest, "word1")
        run = emptied(newest, CHAT, OTHER).run

        def indexed(*arguments: Any) -> None:
            index(*arguments)
            monkeypatch.setattr(restore_sessions, "reindex", index)
            if what == "go_on":
                hermes.ask("go_on", session=who, text="and now?")
            elif what == "archive":
                hermes.ask("archive", session=who, archived=True)
            else:
                hermes.ask("own_prune", days=1)

        monkeypatch.setattr(restore_sessions, "reindex", indexed)
        given_back(newest, run)
        after = dump_all(newest, "word1")
        new = 2 if what == "go_on" else 0
        assert hermes.ask("count", session=who) == COUNT + new
        assert len(after["messages"]) == len(before["messages"]) + new
        assert [row for row in after["messages"] if row in before["messages"]] == before["messages"]
        assert after["word1 in messages_fts"] == before["word1 in messages_fts"]
        assert hermes.ask("broken") == []
        assert hermes.ask("show", session=who)["archived"] == (1 if what == "archive" else 0)


@pytest.mark.parametrize("archived", [True, False])
def test_what_a_person_does_to_it_meanwhile_wins(home: Path, version: str, archived: bool) -> None:
    """Archived by a person it is theirs, and protected; shown by a person it is to be read."""
    with chat(home, version) as hermes:
        run = emptied(home, CHAT).run
        hermes.ask("archive", session=CHAT, archived=archived)
        assert heal_reborn(beside_all(home)).sessions == (CHAT,)
        assert is_whole(hermes)
        assert hermes.ask("show", session=CHAT)["archived"] == int(archived)
        assert undo(run or "", beside_all(home)).done == ()


def test_one_that_was_archived_before_is_archived_again(newest: Path) -> None:
    with chat(newest) as hermes:
        hermes.ask("archive", session=CHAT, archived=True)
        before = dump_all(newest)
        run = emptied(newest, CHAT).run
        given_back(newest, run)
        assert dump_all(newest) == before


def test_reopened_it_gets_its_past_back(newest: Path) -> None:
    with chat(newest) as hermes:
        emptied(newest, CHAT)
        hermes.ask("reopen", session=CHAT)
        assert heal_reborn(beside_all(newest)).sessions == (CHAT,)
        assert hermes.ask("show", session=CHAT)["ended_at"] is None


@pytest.mark.parametrize("undone", [False, True], ids=["healed", "undone"])
def test_handed_off_it_gets_its_past_back_and_stays_handed_off(
    home: Path, version: str, undone: bool
) -> None:
    """The gateway may take it up long after the chat that handed it off has ended."""
    with chat(home, version) as hermes:
        run = emptied(home, CHAT).run
        hermes.ask("hand_off", session=CHAT)
    if undone:
        given_back(home, run)
    else:
        assert heal_reborn(beside_all(home)).sessions == (CHAT,)
    with chat(home, version) as hermes:
        assert is_whole(hermes)
        row = hermes.ask("show", session=CHAT)
        assert (row["handoff_state"], row["archived"]) == ("pending", 0)


def test_a_continuation_of_it_keeps_its_link_and_brings_the_whole_conversation_back(
    home: Path, version: str
) -> None:
    """What a rotation does in a chat that has the last session of a conversation in memory."""
    with chat(home, version) as hermes:
        hermes.ask("old", session=NEXT, count=COUNT, parent=CHAT)
        emptied(home, NEXT, CHAT, groups={NEXT: 1, CHAT: 1})
        assert hermes.ask("show", session=NEXT)["parent_session_id"] == CHAT
        hermes.ask("bear", session="20260101_080000_dddddd", parent=NEXT)
        assert heal_reborn(beside_all(home)).sessions == (NEXT,)
        assert is_whole(hermes)
        assert hermes.ask("count", session=NEXT) == COUNT
        assert hermes.ask("show", session=CHAT)["archived"] == 0
        child = hermes.ask("show", session="20260101_080000_dddddd")
        assert child["parent_session_id"] == NEXT


def test_a_child_that_stays_is_orphaned_and_linked_again(newest: Path) -> None:
    with chat(newest) as hermes:
        hermes.ask("old", session=NEXT, count=COUNT, parent=CHAT, marker="_branched_from")
        before = dump_all(newest)
        run = emptied(newest, CHAT).run
        assert hermes.ask("show", session=NEXT)["parent_session_id"] is None
        assert heal_reborn(beside_all(newest)).sessions == ()
        given_back(newest, run)
        assert dump_all(newest) == before


def test_without_a_column_to_hide_it_a_session_stays_beside_a_chat(tmp_path: Path) -> None:
    home = home_with_chats("0.13.0", tmp_path, with_traces=True)
    with chat(home, "0.13.0") as hermes:
        outcome = prune(home, planned(home, [CHAT]), processes_at_prune=beside(home))
        assert outcome.done == ()
        assert "cannot be hidden" in outcome.skipped[0].why
        assert is_whole(hermes)
    with hermes_process(python_for("0.13.0"), home, "gateway", "run"):
        assert prune(home, planned(home, [CHAT]), processes_at_prune=beside(home)).done == (CHAT,)
    with chat(home, "0.13.0") as hermes:
        assert hermes.ask("show", session=CHAT) is None


def test_one_that_hermes_deletes_itself_is_only_noted_and_undo_restores_it(newest: Path) -> None:
    """Its own prune takes no heed of `archived`."""
    with chat(newest) as hermes:
        run = emptied(newest, CHAT).run
        hermes.ask("own_prune", days=1)
        assert hermes.ask("show", session=CHAT) is None
    assert heal_reborn(beside_all(newest)).finished == 1
    with chat(newest) as hermes:
        given_back(newest, run)
        assert is_whole(hermes)
        assert hermes.ask("show", session=CHAT)["archived"] == 0


def test_a_process_that_proc_hides_is_waited_for(
    newest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hidepid a process of another user looks as if it had ended."""
    with chat(newest):
        emptied(newest, CHAT)
        with monkeypatch.context() as patched:
            patched.setattr(trash_wait, "read_stat", lambda _proc, _pid: None)
            assert heal_reborn(beside_all(newest)).finished == 0
    with monkeypatch.context() as patched:
        patched.setattr(trash_wait, "read_stat", lambda _proc, _pid: None)
        assert heal_reborn(beside_all(newest)).finished == 1


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_for_a_server_its_row_waits_as_long_as_a_silent_turn_may_last(
    newest: Path, seconds: float
) -> None:
    with hermes_process(python_for(NEWEST), newest, "gateway", "run"):
        prune(newest, planned(newest, [CHAT]), processes_at_prune=beside(newest, seconds))
        assert heal_reborn(beside_all(newest)).finished == (0 if seconds else 1)


def test_a_person_who_purges_leaves_nothing_of_it(newest: Path) -> None:
    """For a privacy request: the title and the system prompt are in the row."""
    with chat(newest) as hermes:
        run = emptied(newest, CHAT).run or ""
        assert purge(run, beside_all(newest)).done == (run,)
        assert hermes.ask("show", session=CHAT) is None


def test_one_that_goes_on_after_an_emergency_has_purged_its_past_is_shown_again(
    newest: Path,
) -> None:
    with chat(newest) as hermes:
        run = emptied(newest, CHAT, OTHER).run or ""
        action = PruneAction(Act.PURGE_TRASH, run, "full", {}, frees=Frees.NOW)
        plan = PrunePlan(home="home", hash="a-plan", actions=(action,))
        outcome = execute(plan, beside_all(newest), keep_seconds=KEEP_SECONDS, emergency=True)
        assert outcome.done == (run,)
        hermes.ask("go_on", session=CHAT, text="and now?")
    assert heal_reborn(beside_all(newest)).finished == 2
    with chat(newest) as hermes:
        assert hermes.ask("lists")["shown"] == [CHAT]
        assert hermes.ask("show", session=OTHER) is None


@pytest.mark.parametrize("told", [False, True])
def test_killed_before_it_was_noted_it_counts_as_taken(
    newest: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """Also if a person has shown the row again before anything looked: its past is in the trash."""
    settle = RunRecord.settle

    def killed(record: RunRecord, settled: list[object]) -> None:
        if settled:
            raise KeyboardInterrupt
        settle(record, [])

    with chat(newest) as hermes:
        with monkeypatch.context() as patched:
            patched.setattr(RunRecord, "settle", killed)
            with pytest.raises(KeyboardInterrupt):
                emptied(newest, CHAT)
        if told:
            hermes.ask("archive", session=CHAT, archived=False)
        assert len(recover_home(beside_all(newest), BY_ACTION).settled) == 1
        assert history(newest)[0].actions == 1
        given_back(newest, history(newest)[0].id)
        assert is_whole(hermes)


def test_a_killed_end_of_rows_is_made_again(newest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = RunRecord.settle

    def killed(record: RunRecord, settled: list[object]) -> None:
        if settled and record.actions[0].action.kind == "finish_row":
            raise KeyboardInterrupt
        settle(record, settled)  # type: ignore[arg-type]

    with chat(newest):
        emptied(newest, CHAT, OTHER)
    with monkeypatch.context() as patched:
        patched.setattr(RunRecord, "settle", killed)
        with pytest.raises(KeyboardInterrupt):
            heal_reborn(beside_all(newest))
    assert len(recover_home(beside_all(newest), BY_ACTION).settled) == 1
    assert heal_reborn(beside_all(newest)).finished == 0
    assert history(newest)[0].actions == 2


def test_an_agent_counts_it_as_no_session_and_deletes_its_row_by_itself(
    newest: Path, tmp_path: Path
) -> None:
    with agent(tmp_path, configuration=configuration({HOME: newest})) as running_agent:
        first = scanned_again(running_agent, HOME)
        assert sum(first.by("hermes_sessions_ended", "source", home=HOME).values()) == 2
        with chat(newest) as hermes:
            plan = planned(newest, [CHAT])
            found = structs.replace(beside(newest), server_seconds=0.0)
            prune(newest, plan, processes_at_prune=found)
            second = scanned_again(running_agent, HOME)
            assert sum(second.by("hermes_sessions_ended", "source", home=HOME).values()) == 1
            assert second.value("hermes_sessions_empty", home=HOME) == 0
            assert hermes.ask("show", session=CHAT) is not None
            assert second.value("hermes_prune_reborn_total", home=HOME) == 0
        when(
            running_agent,
            lambda _: [each.label for each in history(newest)] == ["finish", "prune"],
            "its row is gone",
        )
        assert os.path.exists(newest / "state.db")
