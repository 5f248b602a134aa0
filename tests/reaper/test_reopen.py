"""A reap that was wrong is taken back by itself, within one pass."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from exporter.evidence.openers import KnownOpeners
from exporter.evidence.process import PinnedProcess
from exporter.hermes.database import leave_wal_in_place
from exporter.reaper import reopen
from exporter.reaper.plan import Blocked, JudgedHome, plan_reap
from exporter.reaper.reap import execute
from exporter.reaper.reopen import HealedReaps, reopen_active
from exporter.runs.breaker import close_breaker
from exporter.runs.folder import RunBusyError, RunError
from exporter.runs.journal import RunJournal, journal_of, running
from exporter.runs.models import RunKind, RunOutcome
from exporter.runs.summary import RunReader
from tests.real.hermes import python_for
from tests.support.evidence import evidence
from tests.support.home_scans import sql
from tests.support.reaping import (
    GATEWAY,
    ONE_SHOT,
    REASON,
    dump,
    hermes_process,
    history,
    judge,
    leaky_home,
    open_sessions,
    planned,
    processes,
    reap,
    target_of,
)

LEAKED = tuple(f"20260101_08000{number}_aaaaaa" for number in range(3))
FIRST = LEAKED[0]
VERSIONS = ("0.16.0", "0.18.2", "0.19.0")


@pytest.fixture(scope="module", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def template(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("heal")
    return leaky_home(python_for(version), folder / "home", LEAKED)


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


NOTHING = HealedReaps()


def healed(home: Path) -> HealedReaps:
    """Heal as the agent does after a scan."""
    place = target_of(home, KnownOpeners.of(evidence(home)))
    return reopen_active(place, processes(home))


def stopped(home: Path) -> bool:
    with journal_of(str(home), 0) as runs:
        return runs is not None and runs.tripped() is not None


def counted(home: Path, what: str) -> dict[str, int]:
    """How many reaps, or mistakes, the metrics would tell of, by proof."""
    report = RunReader(str(home)).read(0).report
    return {each.proof: each.sessions for each in getattr(report, what)}


def test_a_presumed_session_that_gets_a_message_is_open_again_within_one_pass(
    home: Path, version: str
) -> None:
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        assert healed(home) == NOTHING
        hermes.ask("append", session=FIRST)
        before = dump(home)
        assert healed(home) == HealedReaps(mistakes=(FIRST,))
        assert hermes.ask("show", session=FIRST)["ended_at"] is None
        assert open_sessions(home) == {FIRST}
        expected = before[FIRST] | {"ended_at": "NULL", "end_reason": "NULL"}
        assert dump(home) == before | {FIRST: expected}
        assert healed(home) == NOTHING
    assert [(run.kind, run.actions) for run in history(home)] == [
        (RunKind.HEAL, 1),
        (RunKind.REAP, 3),
    ]
    assert counted(home, "reaped") == {"presumed": 3}
    assert counted(home, "reopened") == {"presumed": 1}
    assert not stopped(home), "a presumption may be wrong"


def test_a_session_of_a_reap_that_could_not_be_noted_is_opened_again_too(
    home: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What such a reap did is found out first."""

    def refuse(*_: object) -> None:
        raise RunError("the journal cannot be written")

    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        with monkeypatch.context() as patched:
            patched.setattr(RunJournal, "settle", refuse)
            assert reap(home).outcome is RunOutcome.UNKNOWN
        assert open_sessions(home) == set()
        hermes.ask("append", session=FIRST)
        assert healed(home) == HealedReaps(mistakes=(FIRST,))
        assert open_sessions(home) == {FIRST}


def test_a_database_that_must_not_be_written_is_healed_once_it_may_and_no_run_is_noted_until_then(
    home: Path, version: str
) -> None:
    """Otherwise every scan would add a run to the journal."""
    other = home.parent / "second name"
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        hermes.ask("append", session=FIRST)
        os.link(home / "state.db", other)
        before = history(home)
        for _ in range(2):
            assert healed(home) == HealedReaps(complete=False)
        assert history(home) == before
        other.unlink()
        assert healed(home) == HealedReaps(mistakes=(FIRST,))


def test_a_proof_that_was_wrong_stops_automatic_reaping_until_a_person_reaps(
    home: Path, version: str
) -> None:
    with hermes_process(python_for(version), home, *ONE_SHOT) as hermes:
        reap(home)
        hermes.ask("append", session=FIRST)
        assert healed(home) == HealedReaps(mistakes=(FIRST,))
        assert counted(home, "reopened") == {"proven": 1}
        hermes.ask("leak", session="20260101_090000_aaaaaa")
        judged, _ = judge(home)
        with journal_of(str(home), 0) as runs:
            trip = runs.tripped() if runs else None
        assert trip is not None
        tripped = JudgedHome("home", judged, tripped=trip)
        assert plan_reap(tripped, time.time()).blocked is Blocked.TRIPPED
        plan, place = planned(home)
        assert execute(plan, place, end_reason=REASON, by_hand=True).done
        close_breaker(place, REASON)
        assert not stopped(home)


def test_a_session_that_another_process_takes_up_later_is_a_resume_and_stops_nothing(
    home: Path, version: str
) -> None:
    """An API client may go on with any ended row, and never opens it."""
    reap(home)
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        hermes.ask("append", session=FIRST)
        assert healed(home) == HealedReaps(resumed=(FIRST,))
        assert open_sessions(home) == {FIRST}
    assert counted(home, "reopened") == {}
    assert not stopped(home)


def test_activity_of_a_process_that_has_left_again_moves_the_end(home: Path, version: str) -> None:
    """A program may open the database for each turn: an open row would be a leak again."""
    run = reap(home).run or ""
    for _ in range(2):
        with hermes_process(python_for(version), home, *GATEWAY) as hermes:
            hermes.ask("append", session=FIRST)
        assert healed(home) == HealedReaps(resumed=(FIRST,))
        assert healed(home) == NOTHING
        row = dump(home)[FIRST]
        assert row["end_reason"] == "'reaped'"
        newest = sql(home, f"SELECT MAX(timestamp) FROM messages WHERE session_id = '{FIRST}';")
        assert float(row["ended_at"]) == pytest.approx(float(newest), abs=1e-3)
    assert counted(home, "reopened") == {}
    assert FIRST in reopen.undo(run, target_of(home)).done, "undo knows the end that was moved"
    assert FIRST in open_sessions(home)


def test_a_row_that_hermes_opened_itself_is_left_to_hermes(home: Path, version: str) -> None:
    reap(home)
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        hermes.ask("resume", session=FIRST)
        hermes.ask("append", session=FIRST)
        assert healed(home) == NOTHING
        hermes.ask("end", session=FIRST)
        hermes.ask("append", session=FIRST)
        assert healed(home) == NOTHING
    assert [run.kind for run in history(home)] == [RunKind.REAP]


def test_a_session_is_not_opened_again_merely_because_others_are_active(
    home: Path, version: str
) -> None:
    reap(home)
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        hermes.ask("append", session=FIRST)
        healed(home)
    assert open_sessions(home) == {FIRST}


def test_a_message_with_an_older_time_is_activity_too(home: Path) -> None:
    """The clock of the machine was set back."""
    reap(home)
    sql(
        home,
        "INSERT INTO messages (session_id, role, content, timestamp) "
        f"VALUES ('{FIRST}', 'user', 'hello', 1000000.0);",
    )
    assert healed(home) == HealedReaps(resumed=(FIRST,))
    assert healed(home) == NOTHING


def child(home: Path, name: str, text: str, **columns: str) -> None:
    """A child of the first session, as Hermes would add one."""
    values = {"id": name, "source": "cli", "parent_session_id": FIRST, **columns}
    names = ", ".join(values)
    quoted = ", ".join(f"'{value}'" for value in values.values())
    sql(
        home,
        f"INSERT INTO sessions ({names}, started_at) VALUES ({quoted}, 1800000000.5);"
        f"INSERT INTO messages (session_id, role, content, timestamp) VALUES "
        f"('{name}', 'user', '{text}', 1800000001.0);",
    )


SUMMARY = "[CONTEXT COMPACTION \N{EM DASH} REFERENCE ONLY] Earlier turns were compacted"


def test_a_child_that_goes_on_from_it_gives_the_session_the_end_that_hermes_writes(
    home: Path,
) -> None:
    reap(home)
    child(home, "20260101_100000_bbbbbb", SUMMARY)
    assert healed(home) == HealedReaps(resumed=(FIRST,))
    row = dump(home)[FIRST]
    assert (row["ended_at"], row["end_reason"]) == ("1800000000.5", "'compression'")
    assert healed(home) == NOTHING


def test_a_session_that_hermes_opens_while_its_end_is_about_to_be_changed_stays_open(
    home: Path, version: str
) -> None:
    """It had gone on in a child when it was looked at, before the wait for the write lock."""
    reap(home)
    child(home, "20260101_100000_bbbbbb", SUMMARY)
    blocker = apsw.Connection(str(home / "state.db"))
    leave_wal_in_place(blocker)
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:

        def wait(seconds: float) -> None:
            if blocker.in_transaction:
                blocker.execute("ROLLBACK")
                hermes.ask("resume", session=FIRST)

        blocker.execute("BEGIN IMMEDIATE")
        place = target_of(home, KnownOpeners((hermes.pid,)), sleep=wait)
        assert reopen_active(place, ()) == NOTHING
        assert not blocker.in_transaction
        assert hermes.ask("show", session=FIRST)["ended_at"] is None
    blocker.close()


def test_a_session_that_grows_after_all_is_opened_again_whatever_its_children_said(
    home: Path, version: str
) -> None:
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        child(home, "20260101_100000_bbbbbb", SUMMARY)
        assert healed(home) == HealedReaps(mistakes=(FIRST,))
        hermes.ask("append", session=FIRST)
        assert healed(home) == HealedReaps(mistakes=(FIRST,))
        assert open_sessions(home) >= {FIRST}


def test_a_child_that_was_there_before_the_reap_says_nothing(home: Path) -> None:
    child(home, "20260101_100000_bbbbbb", SUMMARY)
    reap(home)
    assert healed(home) == NOTHING


def test_a_helper_of_a_session_does_not_end_it(home: Path) -> None:
    reap(home)
    marker = '{"_delegate_from": "x", "max_tokens": 1}'
    child(home, "20260101_100000_bbbbbb", "do this", model_config=marker)
    child(home, "20260101_100000_cccccc", SUMMARY, source="subagent")
    assert healed(home) == NOTHING
    assert dump(home)[FIRST]["end_reason"] == "'reaped'"


def test_a_healed_session_can_be_reaped_again_when_its_process_is_gone(
    home: Path, version: str
) -> None:
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        hermes.ask("append", session=FIRST)
        healed(home)
    sql(home, f"UPDATE messages SET timestamp = timestamp - 7200 WHERE session_id = '{FIRST}';")
    assert reap(home).done == (FIRST,)
    assert healed(home) == NOTHING


def test_healing_without_a_journal_or_a_database_does_nothing(home: Path) -> None:
    assert healed(home) == NOTHING
    assert not (home / ".hermes-exporter").exists()
    reap(home)
    for file in home.glob("state.db*"):
        file.unlink()
    assert reopen_active(target_of(home), ()) == NOTHING


def test_healing_waits_for_no_other_run(home: Path, version: str) -> None:
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        hermes.ask("append", session=FIRST)
        with running(str(home), 0, "prune"), pytest.raises(RunBusyError):
            healed(home)
        assert healed(home) == HealedReaps(mistakes=(FIRST,))


def test_a_session_that_grew_right_before_it_went_on_in_a_child_is_corrected_once(
    home: Path, version: str
) -> None:
    """An automatic compression writes the question to the old session first."""
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        hermes.ask("append", session=FIRST)
        child(home, "20260101_100000_bbbbbb", SUMMARY)
        assert healed(home) == HealedReaps(mistakes=(FIRST,))
        end = sql(home, f"SELECT end_reason FROM sessions WHERE id = '{FIRST}';")
        assert end == "compression"
        assert healed(home) == NOTHING


def test_the_end_that_a_session_has_counts_and_not_the_one_with_the_latest_time(
    home: Path, version: str
) -> None:
    """The clock was a day ahead at a first reap, which Hermes has taken back since."""
    plan, place = planned(home)
    ahead = dataclasses.replace(place, clock=lambda: time.time() + 86400)
    execute(plan, ahead, end_reason="reaped")
    sql(home, "UPDATE sessions SET ended_at = NULL, end_reason = NULL;")
    sql(home, f"UPDATE messages SET timestamp = timestamp + 5 WHERE session_id = '{FIRST}';")
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        assert FIRST in reap(home).done
        hermes.ask("append", session=FIRST)
        assert FIRST in healed(home).mistakes
        assert dump(home)[FIRST]["end_reason"] == "NULL"


def test_a_session_that_is_written_to_after_it_went_on_in_a_child_is_corrected_once(
    home: Path, version: str
) -> None:
    """An editor's server up to 0.16 stores the whole conversation in the old session too.

    Hermes follows a child only if it did not begin before its parent's end.
    """
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        child(home, "20260101_100000_bbbbbb", SUMMARY)
        hermes.ask("append", session=FIRST)
        assert healed(home) == HealedReaps(mistakes=(FIRST,))
        rows = dump(home)
        assert rows[FIRST]["end_reason"] == "'compression'"
        assert rows[FIRST]["ended_at"] == rows["20260101_100000_bbbbbb"]["started_at"]
        assert healed(home) == NOTHING
        hermes.ask("append", session=FIRST)
        assert healed(home) == HealedReaps(mistakes=(FIRST,))
        assert dump(home)[FIRST]["end_reason"] == "NULL"


def test_a_child_whose_start_is_no_time_leaves_the_end_where_it_was(home: Path) -> None:
    reap(home)
    before = dump(home)[FIRST]["ended_at"]
    child(home, "20260101_100000_bbbbbb", SUMMARY)
    sql(home, "UPDATE sessions SET started_at = 'x' WHERE id = '20260101_100000_bbbbbb';")
    assert healed(home) == HealedReaps(resumed=(FIRST,))
    row = dump(home)[FIRST]
    assert (row["ended_at"], row["end_reason"]) == (before, "'compression'")


def test_what_could_not_be_put_right_is_said_and_tried_again(home: Path, version: str) -> None:
    """A message and a busy writer come together."""
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        hermes.ask("append", session=FIRST)
        with write_lock_held(home):
            place = target_of(home, KnownOpeners.of(evidence(home)), lock_wait_seconds=0.2)
            assert reopen_active(place, processes(home)) == HealedReaps(complete=False)
        assert healed(home) == HealedReaps(mistakes=(FIRST,))


_HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


@contextmanager
def write_lock_held(home: Path) -> Iterator[None]:
    """By another process, which then closes the database."""
    command = [sys.executable, "-c", _HOLD, str(home / "state.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield
        process.communicate()


def test_text_that_is_not_utf8_costs_no_other_session_its_healing(home: Path, version: str) -> None:
    odd, other, _ = LEAKED
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        sql(
            home,
            f"UPDATE messages SET timestamp = CAST(x'ff' AS TEXT) WHERE session_id = '{odd}';",
        )
        hermes.ask("append", session=odd)
        hermes.ask("append", session=other)
        assert healed(home) == HealedReaps(mistakes=(other,))


@pytest.mark.parametrize(
    "child",
    ["CAST(x'ff41' AS TEXT), 'a title'", "'a child', CAST(x'ff41' AS TEXT)"],
    ids=["id", "title"],
)
@pytest.mark.parametrize("when", ["before the reap", "after it"])
def test_a_child_that_is_not_utf8_costs_a_session_no_healing(
    home: Path, version: str, child: str, when: str
) -> None:
    broken = (
        "INSERT INTO sessions (id, title, source, started_at, ended_at, parent_session_id) "
        f"VALUES ({child}, 'cli', 1.0, 2.0, '{FIRST}');"
    )
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        if when == "before the reap":
            sql(home, broken)
        reap(home)
        if when == "after it":
            sql(home, broken)
        assert healed(home) == NOTHING
        hermes.ask("append", session=FIRST)
        assert healed(home) == HealedReaps(mistakes=(FIRST,))


def test_a_child_that_is_not_utf8_hides_no_continuation(home: Path, version: str) -> None:
    with hermes_process(python_for(version), home, *GATEWAY):
        sql(
            home,
            "INSERT INTO sessions (id, source, started_at, ended_at, parent_session_id) "
            f"VALUES (CAST(x'ff41' AS TEXT), 'cli', 1.0, 2.0, '{FIRST}');",
        )
        reap(home)
        sql(
            home,
            "INSERT INTO sessions (id, source, started_at, parent_session_id) "
            f"SELECT 'next', source, started_at + 60, id FROM sessions WHERE id = '{FIRST}';"
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "VALUES ('next', 'user', '[CONTEXT SUMMARY]: so far', 1.0);",
        )
        assert healed(home) == HealedReaps(mistakes=(FIRST,))
        end = sql(home, f"SELECT end_reason FROM sessions WHERE id = '{FIRST}';")
        assert end == "compression"


def test_a_chat_that_writes_after_the_verdict_is_no_longer_cleared(
    home: Path, version: str
) -> None:
    """The resume of an open session writes nothing into it, but something to the terminal."""
    with hermes_process(python_for(version), home, *ONE_SHOT) as hermes:
        with PinnedProcess("/proc", hermes.pid) as process:
            before = process.written() or 0
        plan, place = planned(home)
        hermes.ask("create", session="20260101_110000_dddddd")
        outcome = execute(plan, place, end_reason=REASON, silent=((hermes.pid, before),))
        assert outcome.done == ()
        assert "has written something since" in outcome.skipped[0].why


def test_an_undo_of_a_reap_that_was_healed_leaves_the_next_one_alone(
    home: Path, version: str
) -> None:
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        first = reap(home).run or ""
        hermes.ask("append", session=FIRST)
        assert healed(home).mistakes == (FIRST,)
    sql(home, f"UPDATE messages SET timestamp = timestamp - 7200 WHERE session_id = '{FIRST}';")
    assert reap(home).done == (FIRST,)
    assert FIRST not in reopen.undo(first, target_of(home)).done
    assert FIRST not in open_sessions(home)


# Sessions with our end reason that no journal lists


def healed_without_journal(home: Path, *suspects: str, enforcing: bool = False) -> HealedReaps:
    place = target_of(home, KnownOpeners.of(evidence(home)))
    return reopen_active(
        place, processes(home), frozenset(suspects), end_reason=REASON, enforcing=enforcing
    )


def test_a_session_in_use_is_opened_again_after_its_journal_was_lost(
    home: Path, version: str
) -> None:
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        (home / ".hermes-exporter/journal.db").unlink()
        assert healed_without_journal(home, *LEAKED, enforcing=True) == NOTHING
        hermes.ask("append", session=FIRST)
        found = healed_without_journal(home, *LEAKED, enforcing=True)
        assert found == HealedReaps(resumed=(FIRST,)), "whose mistake it was is not known"
        assert open_sessions(home) == {FIRST}
        assert healed_without_journal(home, *LEAKED, enforcing=True) == NOTHING
    assert [(run.kind, run.actions) for run in history(home)] == [(RunKind.HEAL, 1)]


def test_an_end_that_no_journal_lists_follows_a_process_that_has_left_again(
    home: Path, version: str
) -> None:
    reap(home)
    (home / ".hermes-exporter/journal.db").unlink()
    with hermes_process(python_for(version), home) as hermes:
        hermes.ask("append", session=FIRST)
    assert healed_without_journal(home, FIRST, enforcing=True) == HealedReaps(resumed=(FIRST,))
    assert open_sessions(home) == set()
    assert healed(home) == NOTHING, "the journal lists it now"


def test_a_restored_database_with_an_end_that_we_replaced_since_is_healed_too(
    home: Path, version: str
) -> None:
    reap(home)
    restored = dump(home)[FIRST]["ended_at"]
    with hermes_process(python_for(version), home) as hermes:
        hermes.ask("append", session=FIRST)
    assert healed(home) == HealedReaps(resumed=(FIRST,))
    assert dump(home)[FIRST]["ended_at"] != restored, "the end has moved"
    sql(home, f"UPDATE sessions SET ended_at = {restored} WHERE id = '{FIRST}'")
    with hermes_process(python_for(version), home) as hermes:
        hermes.ask("append", session=FIRST)
        found = healed_without_journal(home, FIRST)
        assert found == HealedReaps(resumed=(FIRST,))
        assert open_sessions(home) == {FIRST}


def test_a_restored_database_with_an_end_that_an_undo_took_back_is_healed_by_any_agent(
    home: Path, version: str
) -> None:
    run = reap(home).run or ""
    restored = dump(home)[FIRST]
    reopen.undo(run, target_of(home))
    sql(
        home,
        f"UPDATE sessions SET ended_at = {restored['ended_at']}, "
        f"end_reason = {restored['end_reason']} WHERE id = '{FIRST}'",
    )
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        hermes.ask("append", session=FIRST)
        assert FIRST in RunReader(str(home)).read(0).ended, "a worker that has just begun looks"
        assert healed(home) == HealedReaps(resumed=(FIRST,)), "the undo had taken our mistake back"
        assert hermes.ask("show", session=FIRST)["ended_at"] is None
        assert healed(home) == NOTHING


def test_a_process_that_came_later_and_uses_a_session_makes_no_proof_wrong(
    home: Path, version: str
) -> None:
    with hermes_process(python_for(version), home, *ONE_SHOT):
        reap(home)
        with hermes_process(python_for(version), home, *GATEWAY) as later:
            later.ask("append", session=FIRST)
            assert healed(home) == HealedReaps(resumed=(FIRST,))
            assert later.ask("show", session=FIRST)["ended_at"] is None
    assert counted(home, "reopened") == {}
    assert not stopped(home), "the one-shot was rightly cleared"


def test_an_end_that_no_journal_lists_becomes_the_one_that_hermes_writes(home: Path) -> None:
    reap(home)
    (home / ".hermes-exporter/journal.db").unlink()
    child(home, "20260101_100000_bbbbbb", SUMMARY)
    healed_without_journal(home, FIRST, enforcing=True)
    row = dump(home)[FIRST]
    assert (row["ended_at"], row["end_reason"]) == ("1800000000.5", "'compression'")


def test_a_home_that_we_only_observe_and_never_ran_in_is_not_touched(home: Path) -> None:
    sql(home, f"UPDATE sessions SET ended_at = 1.0, end_reason = 'reaped' WHERE id = '{FIRST}'")
    before = dump(home)
    assert healed_without_journal(home, FIRST) == NOTHING
    assert dump(home) == before
    assert not (home / ".hermes-exporter").exists()
