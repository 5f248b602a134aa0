"""A pruned session that is born again gets its past back by itself, in every mode."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from exporter.errors import DatabaseError
from exporter.pruner.apply import merge_sessions
from exporter.pruner.apply import reborn as healing
from exporter.pruner.apply.execute import execute, purge
from exporter.pruner.apply.reborn import heal_reborn
from exporter.pruner.beside import ProcessesAtPrune
from exporter.pruner.expected import ExpectedFile, as_keys
from exporter.pruner.models import Act, PruneAction, PrunePlan
from exporter.runs.folder import RunBusyError
from exporter.runs.journal import running
from exporter.runs.models import Frees, RunKind
from exporter.runs.summary import RunReader
from exporter.writing.connection import Writer
from exporter.writing.pacing import Pacer
from tests.real.agent import Metrics, agent
from tests.real.command import run_json
from tests.real.hermes import NEWEST, python_for
from tests.real.holders import Holder
from tests.support.evidence import evidence
from tests.support.prune_plans import read_inventory
from tests.support.pruned_chats import CHAT, COUNT, OTHER, chat, home_with_chats
from tests.support.reaping import hermes_process, history
from tests.support.running_agent import configuration, scanned_again, when
from tests.support.session_pruning import (
    KEEP_SECONDS,
    beside_all,
    grow_old,
    planned,
    prune,
)

VERSIONS = ("0.13.0", "0.16.0", NEWEST)
HOME = "reborn"


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home(version: str, tmp_path: Path) -> Path:
    return home_with_chats(version, tmp_path)


@pytest.fixture
def newest(tmp_path: Path) -> Path:
    return home_with_chats(NEWEST, tmp_path)


def _is_whole(hermes: Holder, turns: int = 1) -> bool:
    said = hermes.ask("conversation", session=CHAT)
    starts = [str(content)[:5] for _, content in said[:3]]
    return len(said) == COUNT + 2 * turns and starts == ["word0", "word1", "word2"]


def test_a_session_that_hermes_goes_on_with_gets_its_past_back(home: Path, version: str) -> None:
    with chat(home, version) as hermes:
        assert prune(home, planned(home, [CHAT, OTHER])).done == (CHAT, OTHER)
        assert heal_reborn(beside_all(home)).sessions == ()
        hermes.ask("go_on", session=CHAT, text="and now?")
        assert heal_reborn(beside_all(home)).sessions == (CHAT,)
        assert _is_whole(hermes)
        assert heal_reborn(beside_all(home)).sessions == ()
        assert hermes.ask("show", session=OTHER) is None
        assert hermes.ask("broken") == []
    assert [(run.kind, run.actions) for run in history(home)] == [
        (RunKind.HEAL, 1),
        (RunKind.PRUNE, 2),
    ]
    report = RunReader(str(home)).read(os.getuid()).report
    assert (report.reborn, report.reopened) == (1, [])


def test_a_database_that_must_not_be_written_is_healed_once_it_may_and_no_run_is_noted_until_then(
    newest: Path,
) -> None:
    """Otherwise every scan would add a run to the journal."""
    other = newest.parent / "second name"
    with chat(newest) as hermes:
        prune(newest, planned(newest, [CHAT]))
        hermes.ask("go_on", session=CHAT, text="and now?")
        os.link(newest / "state.db", other)
        before = history(newest)
        with pytest.raises(DatabaseError, match="2 names"):
            heal_reborn(beside_all(newest))
        assert history(newest) == before
        other.unlink()
        assert heal_reborn(beside_all(newest)).sessions == (CHAT,)
        assert _is_whole(hermes)


def test_a_session_that_was_pruned_twice_gets_both_pasts_back_in_order(newest: Path) -> None:
    with chat(newest) as hermes:
        prune(newest, planned(newest, [CHAT]))
        hermes.ask("go_on", session=CHAT, text="second")
        hermes.ask("end", session=CHAT)
    grow_old(newest, 100)
    with chat(newest) as hermes:
        prune(newest, planned(newest, [CHAT]))
        hermes.ask("go_on", session=CHAT, text="third")
        assert heal_reborn(beside_all(newest)).sessions == (CHAT,)
        assert _is_whole(hermes, turns=2)
        said = [content for _, content in hermes.ask("conversation", session=CHAT)]
        assert said[COUNT::2] == ["second", "third"]
        row = hermes.ask("show", session=CHAT)
        assert (row["message_count"], row["input_tokens"]) == (COUNT + 4, 10 + 5 + 5)


def test_a_heal_that_is_killed_is_made_again(newest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(pacer: Pacer, writer: Writer) -> None:
        raise KeyboardInterrupt

    with chat(newest) as hermes:
        prune(newest, planned(newest, [CHAT]))
        hermes.ask("go_on", session=CHAT, text="and now?")
        with monkeypatch.context() as patched:
            patched.setattr(Pacer, "give_turn", killed)
            with pytest.raises(KeyboardInterrupt):
                heal_reborn(beside_all(newest, lock_budget_seconds=0.002))
        heal_reborn(beside_all(newest))
        assert _is_whole(hermes)
        row = hermes.ask("show", session=CHAT)
        assert (row["message_count"], row["input_tokens"]) == (COUNT + 2, 15)
    assert all(run.finished_at is not None for run in history(newest))


def test_nothing_is_healed_beside_a_run(newest: Path) -> None:
    prune(newest, planned(newest, [CHAT]))
    with chat(newest) as hermes:
        hermes.ask("go_on", session=CHAT, text="and now?")
        with running(str(newest), os.getuid(), "a test"), pytest.raises(RunBusyError):
            heal_reborn(beside_all(newest))
        assert heal_reborn(beside_all(newest)).sessions == (CHAT,)


# The trash of a session that needs its history


def _emptying(run: str) -> PrunePlan:
    action = PruneAction(
        kind=Act.PURGE_TRASH,
        policy="expired_trash",
        target=run,
        reason="its keep time is over",
        expected={},
        bytes=1,
        frees=Frees.NOW,
    )
    return PrunePlan(home="home", hash="a-plan", actions=(action,))


def test_the_past_of_a_session_that_is_there_again_is_not_purged_by_a_rule(newest: Path) -> None:
    run = prune(newest, planned(newest, [CHAT])).run or ""
    with chat(newest) as hermes:
        hermes.ask("go_on", session=CHAT, text="and now?")
        outcome = execute(_emptying(run), beside_all(newest), keep_seconds=KEEP_SECONDS)
        assert outcome.done == ()
        assert "needs its history" in outcome.skipped[0].why
        assert heal_reborn(beside_all(newest)).sessions == (CHAT,)
        outcome = execute(_emptying(run), beside_all(newest), keep_seconds=KEEP_SECONDS)
        assert outcome.done == (run,)
        assert _is_whole(hermes)


def test_a_person_may_purge_it(newest: Path) -> None:
    run = prune(newest, planned(newest, [CHAT])).run or ""
    with chat(newest) as hermes:
        hermes.ask("go_on", session=CHAT, text="and now?")
        assert purge(run, beside_all(newest)).done == (run,)
        assert heal_reborn(beside_all(newest)).sessions == ()
        assert hermes.ask("count", session=CHAT) == 2


def test_what_cannot_be_healed_is_said_and_waits(
    newest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prune(newest, planned(newest, [CHAT]))
    with chat(newest) as hermes:
        hermes.ask("go_on", session=CHAT, text="and now?")
        with monkeypatch.context() as patched:
            patched.setattr(merge_sessions, "_PLANS_MAX", 0)
            healed = healing.heal_reborn(beside_all(newest))
        assert healed.sessions == ()
        assert "try again later" in healed.left[0].why
        assert heal_reborn(beside_all(newest)).sessions == (CHAT,)


# By the agent, and by people


def _options(folder: Path, home: Path) -> list[str | Path]:
    file = folder / "prune.yml"
    file.write_text("prune: {keep: {newest: 1}}\n")
    return ["--home", home, "--state-dir", folder / "state", "--config.file", file]


def _transcript(home: Path) -> Path:
    folder = home / "sessions"
    folder.mkdir(exist_ok=True)
    file = folder / f"session_{CHAT}.json"
    file.write_text("{}")
    return file


def _pruned(home: Path, where: list[str | Path]) -> str:
    done = run_json("prune", "--policy", "old_sessions", "--yes", *where)
    assert done["outcome"] == "done"
    return str(done["run"])


@pytest.mark.parametrize("command", ["reap", "prune", "purge", "undo"])
def test_without_an_agent_the_next_command_heals(
    newest: Path, tmp_path: Path, command: str
) -> None:
    transcript = _transcript(newest)
    with chat(newest) as hermes:
        hermes.ask("old", session="20250102_080000_cccccc", count=COUNT, days=150.0)
        hermes.ask("old", session="20250103_080000_dddddd", count=COUNT, days=50.0)
    grow_old(newest, 100)
    where = _options(tmp_path, newest)
    run = _pruned(newest, where)
    assert not transcript.exists()
    with chat(newest) as hermes:
        hermes.ask("leak", session="20260101_080000_eeeeee", idle=7200.0)
        hermes.ask("go_on", session=CHAT, text="and now?")
        hermes.ask("end", session=CHAT)
    arguments = {"undo": [run]}.get(command, ["--yes"])
    run_json(command, *arguments, *where)
    with chat(newest) as hermes:
        assert _is_whole(hermes)
        assert hermes.ask("broken") == []
    assert transcript.exists()


def _total(metrics: Metrics, name: str) -> float:
    return sum(value for (each, _), value in metrics.items() if each == name)


def test_an_agent_that_only_observes_heals_within_a_scan_and_counts_nothing_twice(
    newest: Path, tmp_path: Path
) -> None:
    """The agent has seen the session before it was pruned; its counters go up by the new turn."""
    with chat(newest) as hermes:
        hermes.ask("old", session="20250102_080000_cccccc", count=COUNT, days=150.0)
    config = configuration({HOME: newest})
    with agent(tmp_path, configuration=config) as running_agent:
        first = scanned_again(running_agent, HOME)
        assert first.value("hermes_prune_reborn_total", home=HOME) == 0
        counted = {name: _total(first, name) for name in _COUNTED}
        _pruned(newest, _options(tmp_path, newest))
        scanned_again(running_agent, HOME)
        with chat(newest) as hermes:
            hermes.ask("go_on", session=CHAT, text="and now?")
            when(
                running_agent,
                lambda metrics: metrics.value("hermes_prune_reborn_total", home=HOME) == 1,
                "the session is healed",
            )
            assert _is_whole(hermes)
            last = scanned_again(running_agent, HOME)
    grown = {name: _total(last, name) - counted[name] for name in _COUNTED}
    assert grown == _COUNTED


_COUNTED: dict[str, Any] = {
    "hermes_messages_total": 2,
    "hermes_api_calls_total": 1,
    "hermes_tool_calls_total": 0,
    "hermes_tokens_total": 12,
}


def purged_by_rule(home: Path, *, emergency: bool = False) -> tuple[str, ...]:
    """What a run that finds the trash expired takes of it."""
    first = history(home)[-1].id
    plan, place = _emptying(first), beside_all(home)
    return execute(plan, place, keep_seconds=KEEP_SECONDS, emergency=emergency).done


def beside_now(home: Path, server_seconds: float | None) -> ProcessesAtPrune:
    found = ProcessesAtPrune.of(evidence(home).holders, server_seconds)
    assert found is not None
    return found


def test_the_trash_of_sessions_waits_for_a_chat_that_was_there_to_end(newest: Path) -> None:
    """It may have a session in memory, and go on with it next week."""
    with chat(newest):
        prune(newest, planned(newest, [CHAT]), processes_at_prune=beside_now(newest, 0.0))
        assert purged_by_rule(newest) == ()
    assert len(purged_by_rule(newest)) == 1


def test_the_files_beside_those_rows_do_not_wait(newest: Path) -> None:
    """The rows suffice to give a session its past back; a full disk needs the files' bytes."""
    dump = newest / "sessions/request_dump_20250101_080000_cccccc_20250101_090000_123456.json"
    dump.parent.mkdir(exist_ok=True)
    dump.write_bytes(b"x" * 50_000)
    taken = PruneAction(
        kind=Act.DELETE_FILE,
        policy="request_dumps",
        target=str(dump.relative_to(newest)),
        reason="old",
        expected=as_keys(ExpectedFile.of(dump.stat())),
    )
    with chat(newest) as hermes:
        made = planned(newest, [CHAT])
        made = structs.replace(made, actions=(*made.actions, taken))
        run = prune(newest, made, processes_at_prune=beside_now(newest, 0.0)).run
        (found,) = read_inventory(newest).inventory.trash
        assert 0 < found.waiting_bytes < 50_000 <= found.purgeable_bytes
        assert purged_by_rule(newest) == (run,)
        (left,) = read_inventory(newest).inventory.trash
        assert (left.waiting_bytes > 0, left.purgeable_bytes < 50_000) == (True, True)
        assert purged_by_rule(newest) == ()
        hermes.ask("go_on", session=CHAT, text="and now?")
        heal_reborn(beside_all(newest))
        assert _is_whole(hermes)


def test_only_an_emergency_empties_the_trash_beside_that_chat(newest: Path) -> None:
    with chat(newest):
        prune(newest, planned(newest, [CHAT]), processes_at_prune=beside_now(newest, 0.0))
        assert len(purged_by_rule(newest, emergency=True)) == 1


@pytest.mark.parametrize(
    ("version", "seconds", "waits"),
    [(NEWEST, 3600.0, True), (NEWEST, 0.0, False), (NEWEST, None, True), ("0.16.0", 0.0, True)],
)
def test_for_a_server_it_waits_as_long_as_a_silent_turn_may_last(
    tmp_path: Path, version: str, seconds: float | None, waits: bool
) -> None:
    """Up to 0.17 nothing of a turn is stored before its end, so there it waits for the server."""
    home = home_with_chats(version, tmp_path)
    with hermes_process(python_for(version), home, "gateway", "run"):
        processes_at_prune = beside_now(home, seconds)
        assert (len(processes_at_prune.servers), processes_at_prune.chats) == (1, ())
        prune(home, planned(home, [CHAT]), processes_at_prune=processes_at_prune)
        assert (purged_by_rule(home) == ()) == waits
    if waits:
        assert len(purged_by_rule(home)) == 1


def test_processes_of_another_boot_have_ended(newest: Path) -> None:
    with chat(newest):
        processes_at_prune = structs.replace(beside_now(newest, None), boot_id="another")
        prune(newest, planned(newest, [CHAT]), processes_at_prune=processes_at_prune)
        assert len(purged_by_rule(newest)) == 1
