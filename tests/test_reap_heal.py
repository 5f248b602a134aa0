"""A reap that was wrong is taken back by itself, within one pass."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from exporter.evidence.bystanders import Bystanders
from exporter.reaper.breaker import close
from exporter.reaper.heal import heal
from exporter.reaper.plan import Blocked, JudgedHome, plan_reap
from exporter.reaper.reap import execute
from exporter.runs import Kind, RunBusyError, journal_of, running
from tests.reader_harness import sql
from tests.real.hermes import python_for
from tests.reap_harness import (
    GATEWAY,
    REASON,
    dump,
    hermes_process,
    history,
    judge,
    leaky_home,
    open_sessions,
    planned,
    reap,
    site,
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


def test_a_reaped_session_that_gets_a_message_is_open_again_within_one_pass(
    home: Path, version: str
) -> None:
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        place = site(home, Bystanders((hermes.pid,)))
        assert heal(place) == []
        hermes.ask("append", session=FIRST)
        before = dump(home)
        assert heal(place) == [FIRST]
        assert hermes.ask("show", session=FIRST)["ended_at"] is None
        assert open_sessions(home) == {FIRST}
        expected = before[FIRST] | {"ended_at": "NULL", "end_reason": "NULL"}
        assert dump(home) == before | {FIRST: expected}
        assert heal(place) == []
    assert [(run.kind, run.actions) for run in history(home)] == [(Kind.HEAL, 1), (Kind.REAP, 3)]


def test_a_row_that_hermes_opened_itself_is_a_resume(home: Path, version: str) -> None:
    reap(home)
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        hermes.ask("resume", session=FIRST)
        hermes.ask("append", session=FIRST)
        assert heal(site(home, Bystanders((hermes.pid,)))) == []
        hermes.ask("end", session=FIRST)
        hermes.ask("append", session=FIRST)
        assert heal(site(home, Bystanders((hermes.pid,)))) == []
    assert [run.kind for run in history(home)] == [Kind.REAP]


def test_a_session_is_not_opened_again_merely_because_others_are_active(
    home: Path, version: str
) -> None:
    reap(home)
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        hermes.ask("append", session=FIRST)
        heal(site(home, Bystanders((hermes.pid,))))
    assert open_sessions(home) == {FIRST}


def test_a_message_with_an_older_time_is_activity_too(home: Path) -> None:
    """The clock of the machine was set back."""
    reap(home)
    sql(
        home,
        "INSERT INTO messages (session_id, role, content, timestamp) "
        f"VALUES ('{FIRST}', 'user', 'hello', 1000000.0);",
    )
    assert heal(site(home)) == [FIRST]


def test_a_healed_reap_stops_automatic_reaping_until_somebody_reaps_by_hand(
    home: Path, version: str
) -> None:
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        hermes.ask("append", session=FIRST)
        heal(site(home, Bystanders((hermes.pid,))))
        hermes.ask("leak", session="20260101_090000_aaaaaa")
        judged, _ = judge(home)
        with journal_of(str(home), 0) as runs:
            trip = runs.tripped() if runs else None
        assert trip is not None
        tripped = JudgedHome("home", judged, len(judged), tripped=trip.why)
        assert plan_reap([tripped], time.time()).of("home").blocked is Blocked.TRIPPED
        plan, place = planned(home)
        assert execute(plan, place, end_reason=REASON, by_hand=True).done
        close(place, REASON)
        with journal_of(str(home), 0) as runs:
            assert runs is not None
            assert runs.tripped() is None


def test_a_healed_session_can_be_reaped_again_when_its_process_is_gone(
    home: Path, version: str
) -> None:
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        reap(home)
        hermes.ask("append", session=FIRST)
        heal(site(home, Bystanders((hermes.pid,))))
    sql(home, f"UPDATE messages SET timestamp = timestamp - 7200 WHERE session_id = '{FIRST}';")
    assert reap(home).done == (FIRST,)
    assert heal(site(home)) == []


def test_healing_without_a_journal_or_a_database_does_nothing(home: Path) -> None:
    assert heal(site(home)) == []
    assert not (home / ".hermes-exporter").exists()
    reap(home)
    for file in home.glob("state.db*"):
        file.unlink()
    assert heal(site(home)) == []


def test_healing_waits_for_no_other_run(home: Path, version: str) -> None:
    reap(home)
    with hermes_process(python_for(version), home, *GATEWAY) as hermes:
        hermes.ask("append", session=FIRST)
        place = site(home, Bystanders((hermes.pid,)))
        with running(str(home), 0, "prune"), pytest.raises(RunBusyError):
            heal(place)
        assert heal(place) == [FIRST]
