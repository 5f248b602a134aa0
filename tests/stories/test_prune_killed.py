"""A prune, an undo or a purge killed or stopped at any instant: nothing is lost, nothing half."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.pruner.apply.execute import execute
from exporter.pruner.models import Act, PruneAction, PrunePlan
from exporter.runs.journal import journal_of
from exporter.runs.models import ActionState, Frees, RunKind
from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.real.holders import Holder
from tests.real.waiting import wait_until
from tests.support.home_scans import sql
from tests.support.kill_times import Instants
from tests.support.killable_process import Crew, crew_that
from tests.support.reaping import GATEWAY, history, target_of
from tests.support.session_pruning import KEEP_SECONDS, dump_all, planned, prunable_process

SIZES = {f"20250101_08{number:04}_aaaaaa": 3 * number for number in range(5)}
LARGE = "20250102_080000_aaaaaa"
PARENT, DELEGATE = "20250103_080000_aaaaaa", "20250103_080000_aaaaab"
SESSIONS = (*SIZES, LARGE, DELEGATE, PARENT)
GROUPS = {DELEGATE: 1, PARENT: 1}
WORDS = ("word1", "terminal", "picture")

_ACT = """
import msgspec
from exporter.evidence.openers import KnownOpeners
from exporter.pruner.models import PrunePlan
from exporter.pruner.apply.execute import execute, purge
from exporter.pruner.apply.undo import undo
from exporter.writing.target import Target
def act(home, what, pid):
    # So little time for a transaction that there are many, and many instants to be killed at.
    known = KnownOpeners((int(pid),) if pid != "0" else ())
    site = Target(home, 0, known, lock_budget_seconds=0.004, pause_seconds=0.001)
    if what == "prune":
        plan = msgspec.json.decode(open(f"{home}-plan.json").read(), type=PrunePlan)
        execute(plan, site, keep_seconds=3600.0)
    elif what == "purge":
        purge(None, site)
    else:
        undo(what, site)
"""

_STOP = """
import os, signal, sys, apsw
left = [3]
def step(cursor, sql, values):
    if sql.startswith(sys.argv[4]):
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGSTOP)
    return True
apsw.connection_hooks.append(lambda connection: setattr(connection, "exec_trace", step))
act(*sys.argv[1:4])
"""


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    with crew_that(_ACT) as ready:
        yield ready


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("killed") / "home"
    home.mkdir(mode=0o700)
    with prunable_process(python_for(NEWEST), home) as writer:
        for session, count in SIZES.items():
            writer.ask("old", session=session, count=count, title=f"Title of {session}")
        writer.ask("old", session=LARGE, count=80, words="much " * 20)
        writer.ask("old", session=PARENT, count=3)
        writer.ask("old", session=DELEGATE, count=2, parent=PARENT, marker="_delegate_from")
    (home / "sessions").mkdir(exist_ok=True)
    (home / "sessions" / f"session_{LARGE}.json").write_text("{}")
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    home = shutil.copytree(template, tmp_path / "home")
    write_plan(home)
    return home


def write_plan(home: Path) -> PrunePlan:
    """To delete all sessions but those that are gone, and the transcript of one."""
    there = {bytes.fromhex(row[2]).decode() for row in dump_all(home)["sessions"]}
    plan = planned(home, [session for session in SESSIONS if session in there], GROUPS)
    file = home / "sessions" / f"session_{LARGE}.json"
    if file.exists() and LARGE in there:
        found = file.stat()
        transcript = PruneAction(
            kind=Act.DELETE_FILE,
            policy="old_sessions",
            target=f"sessions/{file.name}",
            reason="it is old",
            bytes=4096,
            frees=Frees.AT_PURGE,
            expected={
                "inode": found.st_ino,
                "size": found.st_size,
                "mtime_ns": found.st_mtime_ns,
                "session": LARGE,
            },
        )
        plan = msgspec.structs.replace(plan, actions=(*plan.actions, transcript))
    Path(f"{home}-plan.json").write_bytes(msgspec.json.encode(plan))
    return plan


def picture(home: Path) -> dict[str, Any]:
    """All of the database but what the gateway writes meanwhile, and the transcript."""
    found = dump_all(home, *WORDS)
    chat = b"chat".hex().upper()
    found["sessions"] = [row for row in found["sessions"] if row[2] != chat]
    written = {row[0] for row in found["messages"] if row[4] == chat}
    for table in (
        "messages",
        "messages_fts_content",
        "messages_fts_docsize",
        "messages_fts_trigram_content",
        "messages_fts_trigram_docsize",
    ):
        found[table] = [row for row in found[table] if row[0] not in written]
    del found["sqlite_sequence"]
    found["files"] = sorted(path.name for path in (home / "sessions").iterdir())
    return found


def measure(crew: Crew, home: Path, what: str) -> float:
    """How long it takes when it is not killed."""
    began = time.monotonic()
    crew.work(home, what)
    return time.monotonic() - began


def kill_again_and_again(crew: Crew, home: Path, tmp_path: Path, kills: int) -> None:
    """Prune and undo in turn, each killed at random instants until it gets through."""
    original = picture(home)
    spare = shutil.copytree(home, tmp_path / "spare")
    shutil.copyfile(tmp_path / "home-plan.json", tmp_path / "spare-plan.json")
    chance = random.Random(kills)
    prunes = Instants(chance, measure(crew, spare, "prune"))
    undos = Instants(chance, measure(crew, spare, history(spare)[0].id))
    purges = Instants(chance, 0.05)
    killed = 0
    with prunable_process(python_for(NEWEST), home, *GATEWAY) as gateway:
        gateway.ask("create", session="chat", source="telegram")
        while killed < kills:
            while crew.work_and_die(prunes, home, "prune", gateway.pid):
                killed += 1
                gateway.ask("append", session="chat")
                check_whole_or_gone(home, gateway, original)
                write_plan(home)
            check_pruned(home, gateway)
            for run in [run.id for run in history(home) if run.kind is RunKind.PRUNE]:
                if not has_trash(home, run):
                    continue
                while crew.work_and_die(undos, home, run, gateway.pid):
                    killed += 1
                    check_whole_or_gone(home, gateway, original)
            assert picture(home) == original
            check_journal(home)
            killed += crew.work_and_die(purges, home, "purge", gateway.pid)
            crew.work(home, "purge", gateway.pid)
            assert list((home / ".hermes-exporter/backups/trash").iterdir()) == []
            shutil.rmtree(home / ".hermes-exporter")
            write_plan(home)
        assert gateway.ask("broken") == []


def has_trash(home: Path, run: str) -> bool:
    return (home / ".hermes-exporter" / "backups" / "trash" / run).is_dir()


def check_whole_or_gone(home: Path, gateway: Holder, original: dict[str, Any]) -> None:
    """At any instant Hermes sees all of a session, or nothing of it."""
    counts = dict.fromkeys(SESSIONS, 0)
    for row in original["messages"]:
        counts[bytes.fromhex(row[4]).decode()] += 1
    for session in SESSIONS:
        there = gateway.ask("show", session=session) is not None
        assert gateway.ask("count", session=session) == (counts[session] if there else 0)


def check_pruned(home: Path, gateway: Holder) -> None:
    assert [gateway.ask("show", session=session) for session in SESSIONS] == [None] * len(SESSIONS)
    assert gateway.ask("broken") == []


def check_journal(home: Path) -> None:
    """Nothing is left open, and everything that was taken was given back once."""
    with journal_of(str(home), 0) as runs:
        assert runs is not None
        assert runs.unfinished_runs() == []
        states = [
            each.state
            for run in runs.list_runs()
            if run.kind is RunKind.PRUNE
            for each in runs.actions(run.id)
        ]
    assert ActionState.INTENDED not in states
    assert ActionState.DONE not in states
    assert states.count(ActionState.UNDONE) >= len(SESSIONS)


def test_killed_twenty_times_all_is_given_back_as_it_was(
    crew: Crew, home: Path, tmp_path: Path
) -> None:
    kill_again_and_again(crew, home, tmp_path, 20)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_killed_two_hundred_times_all_is_given_back_as_it_was(
    crew: Crew, home: Path, tmp_path: Path
) -> None:
    kill_again_and_again(crew, home, tmp_path, 200)


def test_the_same_plan_again_does_nothing_to_what_was_given_back_or_is_gone(home: Path) -> None:
    plan = write_plan(home)
    assert len(execute(plan, target_of(home), keep_seconds=KEEP_SECONDS).done) == len(plan.actions)
    again = execute(plan, target_of(home), keep_seconds=KEEP_SECONDS)
    assert again.done == ()
    assert len(again.skipped) == len(plan.actions)


STATEMENTS = {"prune": "DELETE FROM sessions", "undo": 'INSERT INTO "sessions"'}
"""Statements amid a transaction."""


@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL])
@pytest.mark.parametrize("what", STATEMENTS)
def test_stopped_amid_a_transaction_it_loses_nothing_and_hermes_writes_afterwards(
    crew: Crew, home: Path, what: str, then: signal.Signals
) -> None:
    """A frozen container does that. Until it goes on, or is killed, Hermes has to wait."""
    original = picture(home)
    with prunable_process(python_for(NEWEST), home, *GATEWAY) as gateway:
        gateway.ask("create", session="chat", source="telegram")
        if what == "undo":
            crew.work(home, "prune", gateway.pid)
        word = what if what == "prune" else history(home)[0].id
        arguments = [str(home), word, str(gateway.pid), STATEMENTS[what]]
        command = [sys.executable, "-c", _ACT + _STOP, *arguments]
        with subprocess.Popen(command, cwd=REPOSITORY) as worker:
            _, status = os.waitpid(worker.pid, os.WUNTRACED)
            try:
                assert os.WIFSTOPPED(status)
                with pytest.raises(AssertionError, match="locked"):
                    sql(home, "BEGIN IMMEDIATE;")
                gateway.ask("start_writing", session="chat")
                check_whole_or_gone(home, gateway, original)
            finally:
                worker.send_signal(then)
        assert worker.returncode == (0 if then is signal.SIGCONT else -then)
        wait_until(lambda: gateway.ask("count", session="chat"), "Hermes has written")
        assert gateway.ask("stop_writing")["failure"] == ""
        check_whole_or_gone(home, gateway, original)
        if then is signal.SIGKILL:
            write_plan(home)
            crew.work(home, word, gateway.pid)
        if what == "prune":
            check_pruned(home, gateway)
            for run in [run.id for run in history(home) if has_trash(home, run.id)]:
                crew.work(home, run, gateway.pid)
        assert gateway.ask("broken") == []
    assert picture(home) == original
    check_journal(home)
