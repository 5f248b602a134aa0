"""What runs did is counted on when the run journal is lost, damaged, or older than it was."""

from __future__ import annotations

from pathlib import Path

from exporter.agent.run_counters import RunCounters, load_counters
from exporter.reaper.reap import execute
from exporter.runs.models import Run, RunKind, RunOutcome
from exporter.runs.summary import DeletedByPolicy, PruneRunCount, ReapCount, RunSummary
from tests.real.agent import Metrics, agent
from tests.real.hermes import python_for
from tests.real.waiting import wait_until
from tests.support.home_scans import sql
from tests.support.reaping import REASON, hermes_process, leaky_home, open_sessions, planned

SESSION = "20260101_080000_aaaaaa"


def run(number: int) -> Run:
    made = f"20300101T0000{number:02}-aaaa"
    return Run(made, RunKind.REAP, "", False, 1.0, 2.0, RunOutcome.DONE, "", None, 1, 0)


def journal(reaped: int, *runs: int, pruned: int = 0) -> RunSummary:
    """A journal with these runs, the newest first."""
    return RunSummary(
        reaped=[ReapCount("cli", "proven", reaped)],
        reborn=pruned,
        pruned=[PruneRunCount(RunOutcome.DONE, pruned, 5.0)],
        deleted=[DeletedByPolicy("old_sessions", pruned, 10 * pruned)],
        last=[run(number) for number in runs],
    )


def shown(counters: RunCounters, read: RunSummary) -> tuple[int, int]:
    found = counters.shown(read)
    assert found.reborn == sum(each.runs for each in found.pruned)
    assert [each.freed_bytes for each in found.deleted] == [10 * found.reborn][: len(found.deleted)]
    return sum(each.sessions for each in found.reaped), found.reborn


def counted(*read: RunSummary) -> list[tuple[int, int]]:
    counters, said = RunCounters(), []
    for each in read:
        counters = load_counters(counters.add(each).dump())
        said.append(shown(counters, each))
    return said


def test_a_lost_journal_lowers_no_counter_and_the_next_one_is_counted_on_top() -> None:
    assert counted(
        journal(7, 2, 1, pruned=3), RunSummary(), journal(2, 3), journal(4, 4, 3, pruned=1)
    ) == [(7, 3), (7, 3), (9, 3), (11, 4)]


def test_a_journal_that_is_put_back_is_not_counted_twice() -> None:
    assert counted(journal(7, 2, 1), RunSummary(), journal(7, 2, 1)) == [(7, 0)] * 3


def test_an_older_copy_of_the_journal_is_counted_on_from_where_it_is() -> None:
    assert counted(journal(7, 3, 2, 1), journal(4, 2, 1), journal(5, 4, 2, 1)) == [
        (7, 0),
        (7, 0),
        (8, 0),
    ]


def test_a_journal_that_cannot_be_read_changes_nothing() -> None:
    counters = RunCounters().add(journal(7, 1))
    assert counters.add(RunSummary(readable=False)) is counters


def test_counters_that_cannot_be_decoded_begin_again() -> None:
    assert load_counters(b"\xc1") == RunCounters() == load_counters(b"")


def test_counters_of_an_agent_do_not_fall_when_a_home_loses_its_journal(tmp_path: Path) -> None:
    """And a session that is used goes on to be healed, though no journal says who ended it."""
    hermes = python_for("0.19.0")
    home = leaky_home(hermes, tmp_path / "home", [SESSION])
    settings = """
scan: {interval: 300ms}
reaper: {mode: enforce, interval: 300ms, min_idle: 1s}
"""
    with agent(tmp_path, [home], configuration=settings) as running:
        wait_until(lambda: reaped(running.metrics()) == 1, "the session is ended")
        (home / ".hermes-exporter/journal.db").unlink()
        assert reaped(running.next_scan()) == 1
        with hermes_process(hermes, home, "gateway", "run") as chat:
            chat.ask("append", session=SESSION)
            wait_until(lambda: SESSION in open_sessions(home), "it is open again")
            assert reaped(running.next_scan()) == 1
    with agent(tmp_path, [home], configuration=settings) as running:
        assert reaped(running.metrics()) == 1, "the state directory keeps it"


def test_a_counter_keeps_its_source_when_all_sessions_of_that_source_are_gone(
    tmp_path: Path,
) -> None:
    """A new agent first sees the source in the run journal, and later a session that has it."""
    home = leaky_home(python_for("0.19.0"), tmp_path / "home", [SESSION])
    plan, target = planned(home)
    assert execute(plan, target, end_reason=REASON).done == (SESSION,)
    sql(home, "DELETE FROM sessions;")
    with agent(tmp_path, [home]) as running:
        name, by = "hermes_reaper_reaped_total", ("source", "proof")
        assert running.metrics().by(name, *by)["cli", "proven"] == 1
        sql(home, "INSERT INTO sessions (id, source, started_at) VALUES ('new', 'cli', 1.0);")
        found = running.next_scan()
        assert found.by("hermes_sessions_open", "source")
        assert found.by(name, *by) == {("cli", "proven"): 1, ("cli", "presumed"): 0}


def reaped(metrics: Metrics) -> float:
    return sum(metrics.by("hermes_reaper_reaped_total", "source", "proof").values())
