"""Ending dead sessions beside real Hermes processes: those of the plan, and no other."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from exporter.evidence.openers import KnownOpeners
from exporter.hermes.database import leave_wal_in_place
from exporter.reaper.reap import execute
from exporter.reaper.reopen import undo
from exporter.runs.folder import RunBusyError
from exporter.runs.journal import running
from exporter.runs.models import RunOutcome, SpeaksFor
from exporter.workers.home import WorkerHome
from tests.real.hermes import NEWEST, Hermes, python_for
from tests.real.holders import Holder
from tests.support.evidence import Puppet, evidence, puppet
from tests.support.home_scans import scan, sql
from tests.support.reaping import (
    GATEWAY,
    REASON,
    dump,
    hermes_process,
    history,
    inodes,
    leaky_home,
    open_sessions,
    planned,
    reap,
    target_of,
    targets,
)
from tests.support.small_homes import small_home

VERSIONS = ("0.16.0", "0.18.2", "0.19.0")
LEAKED = ("20260101_080000_aaaaaa", "20260101_080000_aaaaab", "20260101_080000_aaaaac")
FIRST = LEAKED[0]
FAMILY = ("20260101_000000_aaaaaa", "20260101_000001_aaaaaa", "20260101_000002_aaaaaa")
"""Sessions of a small home: a parent, its child, and the child of that."""


class Leaky:
    """A release, and a home of it with three leaked sessions."""

    def __init__(self, hermes: Hermes, path: Path) -> None:
        self.hermes = hermes
        self.path = path


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def template(version: str) -> Path:
        if version not in made:
            folder = tmp_path_factory.mktemp(f"leaky-{version}")
            made[version] = leaky_home(python_for(version), folder / "home", LEAKED)
        return made[version]

    return template


@pytest.fixture(params=VERSIONS)
def leaky(
    request: pytest.FixtureRequest, templates: Callable[[str], Path], tmp_path: Path
) -> Leaky:
    home = shutil.copytree(templates(request.param), tmp_path / "home")
    return Leaky(python_for(request.param), home)


@pytest.fixture
def newest(templates: Callable[[str], Path], tmp_path: Path) -> Leaky:
    return Leaky(python_for(NEWEST), shutil.copytree(templates(NEWEST), tmp_path / "home"))


# What a reap does


def test_dead_sessions_end_at_their_last_activity_and_nothing_else_of_them_changes(
    leaky: Leaky,
) -> None:
    before = dump(leaky.path)
    plan, _ = planned(leaky.path)
    outcome = reap(leaky.path)
    assert (outcome.outcome, sorted(outcome.done)) == (RunOutcome.DONE, sorted(LEAKED))
    after = dump(leaky.path)
    for action in plan.actions:
        row = after[action.target]
        assert float(row["ended_at"]) == action.expected.last_activity_at
        assert row["end_reason"] == f"'{REASON}'"
        assert float(row["started_at"]) <= float(row["ended_at"])
        assert row | {"ended_at": "NULL", "end_reason": "NULL"} == before[action.target]


def test_hermes_lists_and_resumes_reaped_sessions(leaky: Leaky) -> None:
    reap(leaky.path)
    with hermes_process(leaky.hermes, leaky.path) as hermes:
        assert set(hermes.ask("listed")) == set(LEAKED)
        for session in LEAKED:
            assert hermes.ask("show", session=session)["end_reason"] == REASON
            assert hermes.ask("resume", session=session) == 3
            hermes.ask("append", session=session)
            assert hermes.ask("show", session=session)["ended_at"] is None
            assert hermes.ask("count", session=session) == 4


def test_a_living_gateway_keeps_its_files_and_all_it_writes(leaky: Leaky) -> None:
    with hermes_process(leaky.hermes, leaky.path, *GATEWAY) as gateway:
        gateway.ask("create", session="chat", source="telegram")
        gateway.ask("append", session="chat", count=5)
        before = inodes(leaky.path)
        outcome = reap(leaky.path)
        assert sorted(outcome.done) == sorted(LEAKED)
        assert inodes(leaky.path) == before
        gateway.ask("append", session="chat", count=5)
        assert gateway.ask("show", session=FIRST)["end_reason"] == REASON
    assert open_sessions(leaky.path) == {"chat"}
    with hermes_process(leaky.hermes, leaky.path) as hermes:
        assert hermes.ask("count", session="chat") == 10


def test_a_reap_while_hermes_writes_loses_none_of_it(newest: Leaky) -> None:
    with hermes_process(newest.hermes, newest.path, *GATEWAY) as gateway:
        gateway.ask("create", session="chat", source="telegram")
        gateway.ask("start_writing", session="chat")
        outcome = reap(newest.path)
        wrote = gateway.ask("stop_writing")
        assert sorted(outcome.done) == sorted(LEAKED)
        assert wrote["failure"] == ""
        assert gateway.ask("count", session="chat") == wrote["written"]


def test_the_run_is_in_the_history_with_its_evidence(newest: Leaky) -> None:
    outcome = reap(newest.path)
    (run,) = history(newest.path)
    assert run.row("home") == {
        "run": outcome.run,
        "kind": "reap",
        "home": "home",
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "outcome": "done",
        "actions": 3,
        "bytes": 0,
        "undoable_until": run.undoable_until,
    }
    with running(str(newest.path), newest.path.stat().st_uid, "test") as runs:
        for action in runs.actions(run.id):
            assert "no process on this host has the database open" in action.action.reason
            assert {piece.says for piece in action.action.evidence} == {SpeaksFor.DEAD}


def test_an_empty_plan_leaves_no_trace(newest: Leaky) -> None:
    reap(newest.path)
    shutil.rmtree(newest.path / ".hermes-exporter")
    outcome = reap(newest.path)
    assert (outcome.run, outcome.outcome, outcome.done) == (None, RunOutcome.DONE, ())
    assert not (newest.path / ".hermes-exporter").exists()


# Whoever comes between verdict and write wins

WINNERS = {
    "append": "active since",
    "end": "ended meanwhile: cli_close",
    "hand_off": "held: handoff",
    "compress": "held: compression_lock",
    "route_by_table": "held: routed",
    "route_by_file": "held: routed",
}


@pytest.mark.parametrize("command", WINNERS)
def test_what_hermes_does_between_verdict_and_write_wins(leaky: Leaky, command: str) -> None:
    with hermes_process(leaky.hermes, leaky.path, *GATEWAY) as gateway:
        plan, place = planned(leaky.path)
        assert targets(plan) == sorted(LEAKED)
        if gateway.ask(command, session=FIRST) is False:
            return  # this release cannot do that
        before = gateway.ask("show", session=FIRST)
        outcome = execute(plan, place, end_reason=REASON)
        assert sorted(outcome.done) == sorted(set(LEAKED) - {FIRST})
        ((target, reason),) = [(each.target, each.why) for each in outcome.skipped]
        assert target == FIRST
        assert WINNERS[command] in reason
        assert gateway.ask("show", session=FIRST) == before


def test_a_process_that_resumes_between_verdict_and_write_wins(leaky: Leaky) -> None:
    """It has changed nothing that anybody could see: the row was open before and is open now."""
    plan, place = planned(leaky.path)
    with hermes_process(leaky.hermes, leaky.path, "--resume", FIRST) as resumed:
        before = resumed.ask("show", session=FIRST)
        resumed.ask("resume", session=FIRST)
        outcome = execute(plan, place, end_reason=REASON)
        assert outcome.done == ()
        assert f"process {resumed.pid} has opened the database" in outcome.skipped[0].why
        assert resumed.ask("show", session=FIRST) == before
    assert open_sessions(leaky.path) == set(LEAKED)


def test_what_happens_between_the_last_look_and_the_write_lock_wins(newest: Leaky) -> None:
    """Sessions are looked at before the lock is taken, so that it is held for a moment only."""
    with hermes_process(newest.hermes, newest.path, *GATEWAY) as gateway:
        plan, place = planned(newest.path)
        meanwhile: list[object] = []

        def monotonic() -> float:
            """It is asked for the first time when all sessions have been looked at."""
            if not meanwhile:
                meanwhile.append(gateway.ask("append", session=FIRST))
            return time.monotonic()

        outcome = execute(plan, replace(place, monotonic=monotonic), end_reason=REASON)
        assert meanwhile
        assert sorted(outcome.done) == sorted(set(LEAKED) - {FIRST})
        assert [(each.target, each.why) for each in outcome.skipped] == [
            (FIRST, "it has been active since it was judged")
        ]
        assert gateway.ask("show", session=FIRST)["ended_at"] is None


def test_a_process_that_resumes_between_the_last_look_and_the_write_lock_wins(
    newest: Leaky,
) -> None:
    """It came while the reap waited for the lock, and the row is as open as it was."""
    plan, place = planned(newest.path)
    blocker = apsw.Connection(str(newest.path / "state.db"))
    leave_wal_in_place(blocker)
    with ExitStack() as stack:
        resumed: list[Holder] = []

        def wait(seconds: float) -> None:
            if not resumed:
                blocker.execute("ROLLBACK")
                came = hermes_process(newest.hermes, newest.path, "--resume", FIRST)
                resumed.append(stack.enter_context(came))
                resumed[0].ask("resume", session=FIRST)

        blocker.execute("BEGIN IMMEDIATE")
        # No time passes: a look at who is there would count if one were made before the lock.
        hurried = replace(place, sleep=wait, monotonic=lambda: 0.0)
        outcome = execute(plan, hurried, end_reason=REASON)
        assert outcome.done == ()
        assert f"process {resumed[0].pid} has opened the database" in outcome.skipped[0].why
        assert resumed[0].ask("show", session=FIRST)["ended_at"] is None
    blocker.close()


def _holds_write_lock(home: Path) -> bool:
    """True while this process is in a write transaction: SQLite then locks byte 120 of -shm."""
    shm = home / "state.db-shm"
    if not shm.exists():
        return False
    mine = re.compile(rf"WRITE {os.getpid()} \S+:{shm.stat().st_ino} 120 120$", re.MULTILINE)
    return mine.search(Path("/proc/locks").read_text()) is not None


def test_what_ended_while_a_process_opened_the_database_is_open_again(tmp_path: Path) -> None:
    """It came after the check under the write lock, and may have resumed any of the sessions."""
    home = small_home(tmp_path / "home")
    plan, place = planned(home)
    before = open_sessions(home)
    with ExitStack() as stack:
        came: list[Puppet] = []

        def clock() -> float:
            """It is asked under the write lock for each session, after the check."""
            if not came and _holds_write_lock(home):
                came.append(stack.enter_context(puppet()))
                came[0].do(f"connection = sqlite3.connect({str(home / 'state.db')!r})")
                came[0].do("connection.execute('SELECT id FROM sessions').fetchall()")
            return time.time()

        hurried = replace(place, clock=clock, monotonic=lambda: 0.0)  # the lock is held for long
        outcome = execute(plan, hurried, end_reason=REASON)
        assert came
        assert outcome.done == ()
        assert {each.why for each in outcome.skipped} == {
            f"process {came[0].pid} opened the database meanwhile, so it was opened again"
        }
    assert open_sessions(home) == before


def test_a_chat_that_leads_to_a_session_since_the_last_look_holds_it(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    plan, place = planned(home)
    chats = home / "sessions" / "sessions.json"

    def monotonic() -> float:
        if not chats.exists():
            chats.write_text(json.dumps({"chat": {"session_id": plan.actions[1].target}}))
        return time.monotonic()

    outcome = execute(plan, replace(place, monotonic=monotonic), end_reason=REASON)
    assert [(each.target, each.why) for each in outcome.skipped] == [
        (plan.actions[1].target, "it is held: routed")
    ]
    assert len(outcome.done) == 2


@pytest.mark.parametrize(
    "activity",
    [
        (
            "INSERT INTO sessions (id, source, started_at, parent_session_id) "
            f"VALUES ('new', 'cli', 1.0, '{FAMILY[1]}');"
        ),
        (
            "INSERT INTO messages (session_id, role, content, timestamp) "
            f"VALUES ('{FAMILY[2]}', 'user', 'more', 1.0);"
        ),
    ],
    ids=["it begins a session", "a session that it began gets a message"],
)
def test_what_a_descendant_does_since_the_verdict_keeps_its_ancestors_open(
    tmp_path: Path, activity: str
) -> None:
    home = small_home(tmp_path / "home", 4)
    for parent, child in itertools.pairwise(FAMILY):
        sql(home, f"UPDATE sessions SET parent_session_id = '{parent}' WHERE id = '{child}';")
    worker = WorkerHome(str(home))
    scan(worker, home)
    plan, place = planned(home)
    assert len(plan.actions) == 4
    sql(home, activity)
    outcome = execute(plan, place, end_reason=REASON, last_rows=worker.last_rows)
    assert {*FAMILY[:2]} <= {each.target for each in outcome.skipped}
    assert "20260101_000003_aaaaaa" in outcome.done
    assert {*FAMILY[:2]} <= open_sessions(home)
    unseen = execute(plan, place, end_reason=REASON)
    assert {*FAMILY[:2]} <= {*unseen.done}, "nothing else stands in the way"


def test_many_sessions_end_in_few_transactions_of_which_none_takes_long(tmp_path: Path) -> None:
    """Each row takes 50 µs by this clock: there is time for some hundred at once."""
    home = small_home(tmp_path / "home", 1_500)
    plan, place = planned(home)
    ticks = itertools.count()
    timed = replace(place, monotonic=lambda: next(ticks) * 50e-6)
    outcome = execute(plan, timed, end_reason=REASON)
    assert len(outcome.done) == 1_500
    assert 0 < outcome.longest_hold_seconds <= place.lock_budget_seconds
    assert _commits(home) < 20


def _commits(home: Path) -> int:
    """How many transactions the log holds: the last frame of each tells how large it leaves the
    database."""
    log = (home / "state.db-wal").read_bytes()
    frame = 24 + int.from_bytes(log[8:12])
    return sum(any(log[at + 4 : at + 8]) for at in range(32, len(log), frame))


def test_a_process_that_only_had_a_short_look_does_not_stop_a_reap(newest: Leaky) -> None:
    plan, place = planned(newest.path)
    with hermes_process(newest.hermes, newest.path, "sessions", "list") as visitor:
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            visitor.kill()

        outcome = execute(plan, replace(place, sleep=wait), end_reason=REASON)
    assert len(waits) == 1
    assert sorted(outcome.done) == sorted(LEAKED)


# Columns and tables of releases to come

NEWER = {
    "UPDATE sessions SET last_heartbeat_at = last_heartbeat_at + 1": "active since",
    "UPDATE sessions SET last_activity_at = strftime('%s') - 1": "active since",
    "UPDATE sessions SET pinned = 1": "held: pinned",
    "INSERT INTO session_turn_leases SELECT id, 'pid=1', 0, 1e11 FROM sessions": "of a turn",
}


@pytest.mark.parametrize("change", NEWER)
def test_signs_of_life_of_newer_releases_win_too(tmp_path: Path, change: str) -> None:
    home = small_home(tmp_path / "home")
    sql(
        home,
        "ALTER TABLE sessions ADD COLUMN last_heartbeat_at REAL;"
        "ALTER TABLE sessions ADD COLUMN last_activity_at REAL;"
        "ALTER TABLE sessions ADD COLUMN pinned INTEGER;"
        "CREATE TABLE session_turn_leases (conversation_id, holder, acquired_at, expires_at);"
        "UPDATE sessions SET last_heartbeat_at = started_at, last_activity_at = started_at;",
    )
    plan, place = planned(home)
    assert len(plan.actions) == 3
    sql(home, f"{change};")
    outcome = execute(plan, place, end_reason=REASON)
    assert outcome.done == ()
    assert all(NEWER[change] in each.why for each in outcome.skipped)


def test_a_row_whose_text_is_not_utf8_costs_no_other_session_its_end(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    plan, place = planned(home)
    odd, other, _ = targets(plan)
    sql(
        home,
        f"UPDATE sessions SET end_reason = CAST(x'ff' AS TEXT) WHERE id = '{odd}';"
        "INSERT INTO sessions (id, source, started_at, parent_session_id) "
        f"VALUES (CAST(x'ff41' AS TEXT), 'cli', 1.0, '{other}');",
    )
    outcome = execute(plan, place, end_reason=REASON)
    assert sorted(outcome.done) == targets(plan)[1:]
    assert [each.target for each in outcome.skipped] == [odd]


def test_once_it_cannot_be_read_where_chats_lead_nothing_ends(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home")
    plan, place = planned(home)
    (home / "sessions" / "sessions.json").write_text("{")
    outcome = execute(plan, place, end_reason=REASON)
    assert outcome.done == ()
    assert "which chats lead" in outcome.skipped[0].why


def test_nothing_is_asked_of_sqlite_but_to_write_two_columns(
    newest: Leaky, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by a trigger either: all that a statement would do is asked for."""
    written: set[tuple[int, str | None, str | None]] = set()
    harmless = (
        apsw.SQLITE_FUNCTION,
        apsw.SQLITE_PRAGMA,
        apsw.SQLITE_READ,
        apsw.SQLITE_SELECT,
        apsw.SQLITE_TRANSACTION,
    )

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action not in harmless:
            written.add((action, first, second))
        return apsw.SQLITE_OK

    def watch(connection: apsw.Connection) -> None:
        if connection.filename.endswith("state.db"):
            connection.authorizer = authorize

    monkeypatch.setattr(apsw, "connection_hooks", [watch])
    run = reap(newest.path).run
    undo(run or "", target_of(newest.path))
    assert written == {
        (apsw.SQLITE_UPDATE, "sessions", "ended_at"),
        (apsw.SQLITE_UPDATE, "sessions", "end_reason"),
    }


# Holders that have lost their locks


@pytest.mark.parametrize("lose", ["lose_database_lock", "lose_shm_lock"])
@pytest.mark.parametrize("when", ["before the verdict", "after the verdict"])
def test_beside_a_holder_that_lost_a_lock_nothing_is_written(
    leaky: Leaky, lose: str, when: str
) -> None:
    with hermes_process(leaky.hermes, leaky.path, *GATEWAY) as gateway:
        plan, place = planned(leaky.path)
        if when == "before the verdict":
            gateway.ask(lose)
            place = replace(place, openers=KnownOpeners.of(evidence(leaky.path)))
            assert place.openers.lockless
        gateway.ask("append", session=FIRST, count=3)
        if when == "after the verdict":
            gateway.ask(lose)
        before = {path.name: path.read_bytes() for path in leaky.path.glob("state.db*")}
        outcome = execute(plan, place, end_reason=REASON)
        assert (outcome.run, outcome.outcome) == (None, RunOutcome.FAILED)
        assert "lost its locks" in outcome.why
        assert {p.name: p.read_bytes() for p in leaky.path.glob("state.db*")} == before
        assert not (leaky.path / ".hermes-exporter").exists()
        gateway.ask("append", session=FIRST, count=3)
        assert gateway.ask("count", session=FIRST) == 9


# Slow machines


class SlowAtFirst:
    """A clock that goes on by a second each time it is asked, until it has been asked so often."""

    def __init__(self, often: int) -> None:
        self._often = often
        self._late = 0

    def __call__(self) -> float:
        self._late = min(self._late + 1, self._often)
        return time.monotonic() + self._late


@pytest.mark.parametrize("often", [4, 12])
def test_a_transaction_that_took_too_long_is_made_again_with_less_in_it(
    newest: Leaky, often: int
) -> None:
    plan, place = planned(newest.path)
    outcome = execute(plan, replace(place, monotonic=SlowAtFirst(often)), end_reason=REASON)
    assert (outcome.outcome, sorted(outcome.done)) == (RunOutcome.DONE, sorted(LEAKED))


def test_when_every_transaction_takes_too_long_nothing_ends(newest: Leaky) -> None:
    plan, place = planned(newest.path)
    ever_later = itertools.count()
    slow = replace(place, monotonic=lambda: float(next(ever_later)))
    outcome = execute(plan, slow, end_reason=REASON)
    assert (outcome.outcome, outcome.done) == (RunOutcome.FAILED, ())
    assert open_sessions(newest.path) == set(LEAKED)


# One run at a time


def test_a_second_run_is_refused_and_told_of_the_first(newest: Leaky) -> None:
    plan, place = planned(newest.path)
    with (
        running(str(newest.path), newest.path.stat().st_uid, "prune"),
        pytest.raises(RunBusyError, match=r"another run .* \(prune by process \d+\)"),
    ):
        execute(plan, place, end_reason=REASON)
    assert open_sessions(newest.path) == set(LEAKED)
    assert sorted(execute(plan, place, end_reason=REASON).done) == sorted(LEAKED)
