"""Which interactive CLI writes which session, and what is not known from seeing it."""

from __future__ import annotations

from exporter.evidence.findings import Holder
from exporter.hermes.processes import ProcessKind
from exporter.reaper.findings import Verdict
from exporter.reaper.judge import Bench
from exporter.snapshot import OpenSession
from tests.test_verdict import NOW, RULES, facts, holder, session

TURN = 200_000
"""Bytes that a turn writes."""
Rows = dict[str, int]


def watch(bench: Bench, *scans: tuple[Rows, tuple[Holder, ...]], **more: OpenSession) -> None:
    """Let the bench sit once for each scan: rows of the open sessions, and the holders."""
    for rows, holders in scans:
        sessions = {name: session(name, rows=count) for name, count in rows.items()}
        bench.sit({**sessions, **more}, facts(*holders), RULES, NOW)


def cli(pid: int = 100, written: int | None = 0) -> Holder:
    return holder(ProcessKind.CLI, pid=pid, written=written)


def talking(rows: tuple[int, ...]) -> list[tuple[Rows, tuple[Holder, ...]]]:
    """One CLI, whose session `mine` grows."""
    return [({"mine": n, "a": 4}, (cli(written=n * TURN),)) for n in rows]


def test_a_cli_seen_twice_as_the_only_writer_is_on_that_session() -> None:
    bench = Bench()
    watch(bench, *talking((4, 6, 8, 8)))
    assert bench.verdict("a") is Verdict.UNKNOWN
    watch(bench, *talking((8,)))
    assert bench.verdict("a") is Verdict.DEAD
    assert bench.verdict("mine") is Verdict.UNKNOWN, "its own session is not dead while it is there"


def test_a_cli_that_wrote_nothing_did_not_make_a_session_grow() -> None:
    """A one-shot that resumes it comes and goes between two scans, and nobody sees it."""
    bench = Bench()
    watch(bench, *[({"cron job": n, "a": 4}, (cli(written=TURN),)) for n in range(4, 20, 2)])
    assert bench.verdict("a") is Verdict.UNKNOWN


def test_what_a_cli_shows_on_its_screen_is_no_message() -> None:
    bench = Bench()
    watch(bench, *[({"job": n, "a": 4}, (cli(written=n * 4000),)) for n in range(4, 20, 2)])
    assert bench.verdict("a") is Verdict.UNKNOWN


def test_long_typing_between_two_looks_is_no_message_either() -> None:
    """Every key draws a line anew; the looks at a large home are a minute apart."""
    bench = Bench()
    for number in range(4, 20, 2):
        sessions = {"job": session("job", rows=number), "a": session("a")}
        seen = facts(cli(written=number * 20_000))
        bench.sit(sessions, seen, RULES, NOW + 60 * number)
    assert bench.verdict("a") is Verdict.UNKNOWN


def test_where_writing_is_not_counted_nothing_is_witnessed() -> None:
    bench = Bench()
    watch(bench, *[({"mine": n, "a": 4}, (cli(written=None),)) for n in range(4, 20, 2)])
    assert bench.verdict("a") is Verdict.UNKNOWN


def test_of_two_clis_the_one_that_wrote_is_on_the_session() -> None:
    first = [({"x": n, "y": 4, "a": 4}, (cli(1, n * TURN), cli(2, 0))) for n in (4, 6, 8, 8)]
    then = [({"x": 8, "y": n, "a": 4}, (cli(1, 8 * TURN), cli(2, n * TURN))) for n in (6, 8, 8, 8)]
    bench = Bench()
    watch(bench, *first)
    assert bench.verdict("a") is Verdict.UNKNOWN, "nothing is known of the second"
    watch(bench, *then)
    assert bench.verdict("a") is Verdict.DEAD
    assert bench.verdict("x") is Verdict.UNKNOWN
    assert bench.verdict("y") is Verdict.UNKNOWN


def test_a_cli_that_is_known_to_be_elsewhere_did_not_write_it_either() -> None:
    """The first never rests; once it is known, the second can be told apart from it."""
    bench = Bench()
    watch(bench, *[({"x": n, "y": 4, "a": 4}, (cli(1, n * TURN), cli(2))) for n in range(4, 12, 2)])
    both = [
        ({"x": 10, "y": n, "a": 4}, (cli(1, (10 + n) * TURN), cli(2, n * TURN)))
        for n in range(6, 16, 2)
    ]
    watch(bench, *both)
    assert bench.verdict("a") is Verdict.DEAD


def test_growth_that_two_could_have_made_proves_nothing_about_either() -> None:
    bench = Bench()
    pairs = [
        ({"x": n, "y": n, "a": 4}, (cli(1, n * TURN), cli(2, n * TURN))) for n in range(4, 20, 2)
    ]
    watch(bench, *pairs)
    assert bench.verdict("a") is Verdict.UNKNOWN


def test_growth_seen_beside_somebody_who_came_or_went_proves_nothing() -> None:
    passing = [cli(7, written=0)]
    bench = Bench()
    for n in range(4, 20, 2):
        visitors = passing if n % 4 else []
        watch(bench, ({"mine": n, "a": 4}, (cli(written=n * TURN), *visitors)))
    assert bench.verdict("a") is Verdict.UNKNOWN


def test_two_sessions_that_grow_at_once_cannot_both_be_its_chat() -> None:
    bench = Bench()
    watch(bench, *[({"x": n, "y": n, "a": 4}, (cli(written=n * TURN),)) for n in range(4, 20, 2)])
    assert bench.verdict("a") is Verdict.UNKNOWN


def test_a_cli_that_writes_a_background_task_may_be_on_any_chat() -> None:
    bench = Bench()
    for n in range(4, 20, 2):
        watch(bench, ({"bg_123456_abcdef": n, "chat": 4}, (cli(written=n * TURN),)))
    assert bench.verdict("chat") is Verdict.UNKNOWN


def test_a_cli_whose_sub_agent_works_may_be_on_any_chat() -> None:
    bench = Bench()
    for n in range(4, 20, 2):
        child = session("sub", source="subagent", parent="chat", rows=n)
        watch(bench, ({"chat": 4, "a": 4}, (cli(written=n * TURN),)), sub=child)
    assert bench.verdict("chat") is Verdict.UNKNOWN


def test_a_cli_runs_more_than_its_chat() -> None:
    """Sub-agents of another session, background tasks and the curator are not its chat."""
    aside = {
        "bg_123456_abcdef": session("bg_123456_abcdef"),
        "sub": session("sub", source="subagent", parent="gone"),
        "old sub": session("old sub", parent="gone"),
        "curator": session("curator", source="curator"),
    }
    before_it = {"old": session("old", source="curator", idle=90_000.0, age=90_000.0)}
    bench = Bench()
    for rows, holders in talking((4, 6, 8, 8, 8)):
        watch(bench, (rows, holders), **aside, **before_it)
    assert bench.verdict("a") is Verdict.DEAD, "the CLI is accounted for"
    assert {bench.verdict(name) for name in aside} == {Verdict.UNKNOWN}
    assert bench.verdict("old") is Verdict.DEAD, "it was last active before the CLI began"


def test_a_cli_that_closed_its_row_is_unaccounted_for_again() -> None:
    bench = Bench()
    watch(bench, *talking((4, 6, 8, 8, 8)))
    assert bench.verdict("a") is Verdict.DEAD
    watch(bench, *[({"a": 4}, (cli(written=8 * TURN),))] * 3)
    assert bench.verdict("a") is Verdict.UNKNOWN


def test_while_somebody_is_hidden_nothing_is_witnessed() -> None:
    bench = Bench()
    for n in range(4, 20, 2):
        rows, holders = talking((n,))[0]
        sessions = {name: session(name, rows=count) for name, count in rows.items()}
        bench.sit(sessions, facts(*holders, blind=("permissions",)), RULES, NOW)
    watch(bench, *talking((18, 18, 18)))
    assert bench.verdict("a") is Verdict.UNKNOWN
