"""Ways in which an attacker, or a bad day, could make a living session look dead.

Each was tried on the real package, with the source at hand. Those of which a module's own tests
tell are not repeated here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.evidence.openers import KnownOpeners
from exporter.pruner.apply.undo import undo
from exporter.reaper.models import Verdict
from exporter.reaper.reap import execute
from exporter.reaper.reopen import reopen_active
from tests.real.command import run, run_json
from tests.real.hermes import NEWEST, python_for
from tests.support.evidence import evidence
from tests.support.home_scans import sql
from tests.support.pruned_home import TRASH, contents, make_home, session_names
from tests.support.reaping import (
    REASON,
    dump,
    hermes_process,
    judge,
    leaky_home,
    open_sessions,
    planned,
    processes,
    reap,
    target_of,
)
from tests.support.session_pruning import beside_all, prune
from tests.support.session_pruning import planned as prune_plan

SESSION = "20260101_080000_aaaaaa"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return leaky_home(python_for(NEWEST), tmp_path / "home", [SESSION])


def verdict(home: Path) -> Verdict:
    (found,) = judge(home)[0]
    return found.verdict


@contextmanager
def program(home: Path, code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs this and says when it is ready; it ends when its input does."""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(home), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


OPEN = """
import sqlite3
def opened(path):
    connection = sqlite3.connect(path, check_same_thread=False)
    connection.execute("SELECT count(*) FROM sessions").fetchall()
    return connection
"""
OWN_TABLE = f"""
import ctypes, sys, threading
{OPEN}
def run():
    assert ctypes.CDLL(None, use_errno=True).unshare(0x400) == 0  # CLONE_FILES
    global connection
    connection = opened(sys.argv[1] + "/state.db")
    print("ready", flush=True)
    threading.Event().wait()
threading.Thread(target=run, daemon=True).start()
sys.stdin.read()
"""
HEIR = f"""
import os, sys, time
{OPEN}
connection = opened(sys.argv[1] + "/state.db")
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
print("ready", flush=True)
sys.stdin.read()
"""
FIRST_THREAD_GONE = f"""
import ctypes, sys, threading
{OPEN}
def run():
    global connection
    connection = opened(sys.argv[1] + "/state.db")
    with open(f"/proc/self/stat") as stat:
        while stat.read().rpartition(")")[2].split()[0] != "Z":
            stat.seek(0)
    print("ready", flush=True)
    threading.Event().wait()
threading.Thread(target=run).start()
ctypes.CDLL(None).pthread_exit(None)
"""
LATE_HEIR = f"""
import os, sys, time
{OPEN}
connection = opened(os.environ["HERMES_HOME"] + "/state.db")
sys.stdin.readline()
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
print("ready", flush=True)
sys.stdin.read()
"""
ELSEWHERE = f"""
import sys
{OPEN}
connection = opened(sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_thread_with_descriptors_of_its_own_is_not_overlooked(home: Path) -> None:
    """/proc/PID/fd shows those of the first thread alone; the lock contradicts it."""
    with program(home, OWN_TABLE):
        assert seen_as(home) == "unknown"
    assert seen_as(home) == "dead"


def seen_as(home: Path) -> str:
    """What the commands say of the session, with all that the agent asks the kernel."""
    settings = home.parent / "settings.yml"
    settings.write_text("reaper: {min_idle: 1s}\n")
    place = ("--config.file", str(settings), "--state-dir", str(home.parent / "state"))
    (found,) = run_json("sessions", "--home", str(home), *place)
    return str(found["verdict"])


@pytest.mark.parametrize("way", ["own descriptors", "first thread gone", "other name"])
def test_a_process_that_is_seen_hides_no_other_that_is_not(home: Path, way: str) -> None:
    """Its lock explains that the database is in use, but not the other's lock."""
    other = home.parent / "link.db"
    os.link(home / "state.db", other)
    code = {"own descriptors": OWN_TABLE, "first thread gone": FIRST_THREAD_GONE}
    with (
        hermes_process(python_for(NEWEST), home, "sessions", "list"),  # it runs no session
        program(home, code.get(way, ELSEWHERE), str(other)),
    ):
        assert seen_as(home) == "unknown"


def test_a_forked_heir_of_a_process_that_has_ended_is_not_overlooked(home: Path) -> None:
    """It has the descriptors, and no lock: locks are not inherited."""
    with program(home, HEIR):
        assert verdict(home) is not Verdict.DEAD


def test_a_late_heir_of_a_one_shot_may_have_the_session_of_its_parent(home: Path) -> None:
    """The session was seen before the heir began, and the heir has the words of a one-shot."""
    hermes = home.parent / "bin" / "hermes"
    hermes.parent.mkdir()
    hermes.write_text(LATE_HEIR)
    words = [sys.executable, str(hermes), "chat", "-q", "hello"]
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"HERMES_HOME": str(home)},
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        parent.stdin.write("fork\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "ready\n"
        assert verdict(home) is not Verdict.DEAD
        parent.stdin.close()


def test_a_process_that_came_by_another_name_of_the_file_is_not_overlooked(home: Path) -> None:
    """SQLite gives it a WAL and a -shm of that name; its lock is on the same file."""
    other = home.parent / "link.db"
    os.link(home / "state.db", other)
    with program(home, ELSEWHERE, str(other)):
        assert seen_as(home) == "unknown"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_process_that_came_by_another_mount_of_the_home_is_seen(home: Path) -> None:
    place = home.parent / "mounted"
    place.mkdir()
    subprocess.run(["mount", "--bind", home, place], check=True)
    try:
        with program(home, ELSEWHERE, f"{place}/state.db"):
            assert verdict(home) is not Verdict.DEAD
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.parametrize("gone", ["state.db-shm", "state.db-wal"])
def test_a_file_that_is_deleted_under_a_chat_hides_it_not(home: Path, gone: str) -> None:
    with program(home, ELSEWHERE, str(home / "state.db")):
        (home / gone).unlink()
        assert all(each is not Verdict.DEAD for each in (verdict(home), verdict(home)))


ODD_NAMES = ("a\nb", "'; DROP TABLE sessions; --", "é\u202e")


@pytest.mark.parametrize(
    "name", ["../../victim", *(pytest.param(name, marks=pytest.mark.full) for name in ODD_NAMES)]
)
def test_odd_ids_are_reaped_and_healed_as_they_are(tmp_path: Path, name: str) -> None:
    hermes = python_for(NEWEST)
    home = leaky_home(hermes, tmp_path / "home", [name])
    with hermes_process(hermes, home, "gateway", "run") as chat:
        assert reap(home).done == (name,)
        chat.ask("append", session=name)
        place = target_of(home, KnownOpeners.of(evidence(home)))
        assert reopen_active(place, processes(home)).mistakes == (name,)
        assert open_sessions(home) == {name}


def test_a_home_that_another_takes_the_place_of_is_not_reaped_by_the_old_verdict(
    home: Path,
) -> None:
    """The same session goes on in the copy that is moved in."""
    plan, place = planned(home)
    copy = shutil.copytree(home, home.parent / "copy")
    sql(copy, f"INSERT INTO messages (session_id, role, timestamp) VALUES ('{SESSION}', 'user', 9)")
    home.rename(home.parent / "old")
    copy.rename(home)
    outcome = execute(plan, place, end_reason=REASON)
    assert outcome.done == ()
    assert open_sessions(home) == {SESSION}


def test_a_reaped_end_that_a_person_wrote_by_hand_is_not_ours_in_a_home_we_only_observe(
    home: Path,
) -> None:
    sql(home, f"UPDATE sessions SET ended_at = 1.0, end_reason = '{REASON}' WHERE id = '{SESSION}'")
    before = dump(home)
    place = target_of(home, KnownOpeners.of(evidence(home)))
    found = reopen_active(place, (), frozenset({SESSION}), end_reason=REASON)
    assert (found.resumed, found.mistakes) == ((), ())
    assert dump(home) == before


def test_a_message_of_many_megabytes_holds_no_lock_and_its_session_stays(tmp_path: Path) -> None:
    """FTS5 cannot be interrupted in a message: 40 MB held the write lock for 12 seconds."""
    home = make_home(python_for(NEWEST), tmp_path / "home", 2)
    first, second = session_names(2)
    text = f"zeroblob({6 << 20})"
    sql(
        home,
        "INSERT INTO messages (session_id, role, content, timestamp) "
        f"VALUES ('{first}', 'tool', replace(hex({text}), '00', 'word '), 1.0)",
    )
    before = contents(home)
    taken = prune(home, prune_plan(home, [first, second]))
    assert taken.done == (second,)
    assert [each.why for each in taken.skipped] == [
        "a message of it is too long to leave the text index in a short transaction"
    ]
    assert undo(taken.run or "", beside_all(home)).skipped == ()
    assert contents(home) == before


@pytest.mark.full
def test_parents_in_a_circle_are_pruned_and_given_back(tmp_path: Path) -> None:
    home = make_home(python_for(NEWEST), tmp_path / "home", 3)
    first, second, _ = session_names(3)
    for one, other in ((first, second), (second, first)):
        sql(home, f"UPDATE sessions SET parent_session_id = '{other}' WHERE id = '{one}'")
    before = contents(home)
    place = ("--home", str(home), "--state-dir", str(tmp_path / "state"))
    assert run("prune", "--yes", *place).returncode in (0, 3)
    run("undo", "--last", *place)
    assert contents(home) == before


@pytest.mark.parametrize(
    "kind",
    ["symlink", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("fifo", "folder"))],
)
def test_a_journal_that_is_no_file_stops_a_run_and_nothing_else_is_touched(
    tmp_path: Path, kind: str
) -> None:
    home = make_home(python_for(NEWEST), tmp_path / "home", 1)
    folder = home / ".hermes-exporter"
    folder.mkdir(mode=0o700)
    journal, elsewhere = folder / "journal.db", tmp_path / "elsewhere.db"
    if kind == "symlink":
        journal.symlink_to(elsewhere)
    elif kind == "fifo":
        os.mkfifo(journal)
    else:
        journal.mkdir()
    before = contents(home)
    place = ("--home", str(home), "--state-dir", str(tmp_path / "state"))
    done = run("prune", "--yes", *place)
    assert done.returncode in (1, 3)
    assert "Traceback" not in done.stderr
    assert contents(home) == before
    assert not elsewhere.exists()


@pytest.mark.full
def test_trash_that_leads_elsewhere_is_not_emptied(tmp_path: Path) -> None:
    home = make_home(python_for(NEWEST), tmp_path / "home", 2)
    taken = prune(home, prune_plan(home, session_names(1))).run or ""
    trash, victim = home / TRASH / taken, tmp_path / "victim"
    victim.mkdir()
    (victim / "keep.txt").touch()
    trash.rename(tmp_path / "moved")
    trash.symlink_to(victim)
    place = ("--home", str(home), "--state-dir", str(tmp_path / "state"))
    for words in (("purge", taken, "--yes"), ("undo", taken)):
        assert "Traceback" not in run(*words, *place).stderr
    assert (victim / "keep.txt").exists()


@pytest.mark.full
def test_three_runs_at_once_take_each_session_once_and_lose_none(tmp_path: Path) -> None:
    """As agents of root and of the owner would, each with a state directory of its own."""
    home = make_home(python_for(NEWEST), tmp_path / "home", 6)
    before = contents(home)
    with ThreadPoolExecutor(3) as pool:
        place = ("--home", str(home), "--state-dir")
        runs = [pool.submit(run, "prune", "--yes", *place, tmp_path / f"s{n}") for n in range(3)]
    assert all("Traceback" not in each.result().stderr for each in runs)
    for _ in range(3):
        run("undo", "--last", *place, tmp_path / "s0")
    assert contents(home) == before
