"""Damage in the trash or in the journal costs what it hit: all else comes back, and is said."""

from __future__ import annotations

import gzip
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from exporter.pruner.apply.execute import execute, purge
from exporter.pruner.apply.undo import undo
from exporter.pruner.models import Act, PruneAction, PrunePlan
from exporter.runs.models import Frees, Outcome, RunKind, RunOutcome
from tests.real.command import run, run_json
from tests.real.elsewhere import as_user
from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.real.waiting import wait_until
from tests.runs.test_salvage import file_of as journal
from tests.runs.test_salvage import (
    in_a_text,
    in_the_index,
    in_the_schema,
    in_the_write_version,
)
from tests.support.checkpoint_homes import Checkpoints
from tests.support.evidence import NOBODY
from tests.support.home_scans import sql
from tests.support.pruned_home import (
    TRASH,
    contents,
    make_home,
    plan_all,
    session_names,
    sessions,
    targets,
    transcript,
    transcripts,
    unfinished,
)
from tests.support.reaping import history, target_of
from tests.support.removers import planned_file
from tests.support.session_pruning import KEEP_SECONDS
from tests.support.small_homes import small_home
from tests.support.verdicts import watching

SESSIONS = 6
NAMES = session_names(SESSIONS)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damaged")
    return make_home(python_for(NEWEST), folder / "home", SESSIONS)


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


def prune(home: Path) -> str:
    """Take all sessions and transcripts; the id of the run."""
    outcome = execute(plan_all(home), target_of(home), keep_seconds=KEEP_SECONDS)
    assert (outcome.outcome, len(outcome.done)) == (RunOutcome.DONE, 2 * SESSIONS)
    assert outcome.run is not None
    return outcome.run


def rows_of(home: Path, run: str) -> Path:
    [rows] = (home / TRASH / run).glob("*.rows.gz")
    return rows


def change_bytes(file: Path, at: int, count: int = 4) -> None:
    content = bytearray(file.read_bytes())
    for place in range(at, at + count):
        content[place] ^= 0xFF
    file.write_bytes(content)


def check_usable(home: Path) -> None:
    """Every kind of run works in this home: prune, undo and purge."""
    again = execute(plan_all(home), target_of(home), keep_seconds=KEEP_SECONDS)
    assert again.outcome is RunOutcome.DONE
    if again.run is not None:
        assert undo(again.run, target_of(home)).skipped == ()
    assert purge(None, target_of(home)).outcome is RunOutcome.DONE
    assert unfinished(home) == []


def test_four_changed_bytes_cost_one_session_and_undo_names_it(home: Path) -> None:
    pruned = prune(home)
    change_bytes(rows_of(home, pruned), 100)
    returned = undo(pruned, target_of(home))
    [lost] = set(NAMES) - set(sessions(home))
    assert targets(returned.skipped) == [lost]
    assert "its rows are damaged" in returned.skipped[0].why
    assert len(returned.done) == 2 * SESSIONS - 1
    assert transcripts(home) == NAMES  # also that of the lost one: it is the last copy now
    check_usable(home)


def test_bytes_changed_anywhere_cost_at_most_two_sessions(home: Path, tmp_path: Path) -> None:
    """Where two members meet the change hits both."""
    pruned = prune(home)
    chance = random.Random(7)
    size = rows_of(home, pruned).stat().st_size
    for number in range(12):
        copy = shutil.copytree(home, tmp_path / f"copy{number}")
        change_bytes(rows_of(copy, pruned), chance.randrange(size - 4))
        returned = undo(pruned, target_of(copy))
        assert len(returned.skipped) <= 2
        assert sorted({*sessions(copy), *targets(returned.skipped)}) == NAMES
        shutil.rmtree(copy)


def truncated(rows: Path) -> None:
    os.truncate(rows, rows.stat().st_size // 2)


def emptied(rows: Path) -> None:
    os.truncate(rows, 0)


def missing(rows: Path) -> None:
    rows.unlink()


def nonsense(rows: Path) -> None:
    rows.write_bytes(b"nonsense " * 100)


@pytest.mark.parametrize("damage", [truncated, emptied, missing, nonsense])
def test_undo_gives_back_what_is_left_and_names_the_rest(
    home: Path, damage: Callable[[Path], None]
) -> None:
    pruned = prune(home)
    damage(rows_of(home, pruned))
    returned = undo(pruned, target_of(home))
    lost = targets(returned.skipped)
    assert 0 < len(lost) <= SESSIONS
    assert sorted([*sessions(home), *lost]) == NAMES
    assert transcripts(home) == NAMES
    check_usable(home)


def test_a_damaged_run_can_be_purged_by_its_name(home: Path, tmp_path: Path) -> None:
    where: list[str | Path] = ["--home", home, "--state-dir", tmp_path / "state"]
    pruned = prune(home)
    change_bytes(rows_of(home, pruned), 100)
    said = run("purge", pruned, "--yes", *where)
    assert said.returncode == 0
    assert f"{SESSIONS} sessions and {SESSIONS} other items" in said.stderr
    assert list((home / TRASH).iterdir()) == []


def test_trash_that_an_older_version_has_written_is_given_back(home: Path, template: Path) -> None:
    """There all sessions of a file are one gzip member."""
    pruned = prune(home)
    rows = rows_of(home, pruned)
    members = [zlib.decompress(each, 31) for each in _members(rows.read_bytes())]
    kept = [one for each in members for one in msgspec.msgpack.decode(each)]
    rows.write_bytes(gzip.compress(msgspec.msgpack.encode(kept), 1, mtime=0))
    assert (len(members), undo(pruned, target_of(home)).skipped) == (SESSIONS, ())
    assert contents(home) == contents(template)


def _members(content: bytes) -> list[bytes]:
    starts = [each.start() for each in re.finditer(re.escape(content[:10]), content)]
    ends = [*starts[1:], len(content)]
    return [content[start:end] for start, end in zip(starts, ends, strict=True)]


def test_undo_says_on_the_terminal_what_is_damaged_and_how_much_came_back(
    home: Path, tmp_path: Path
) -> None:
    pruned = prune(home)
    change_bytes(rows_of(home, pruned), 100)
    said = run("undo", pruned, "--home", home, "--state-dir", tmp_path / "state")
    assert said.returncode == 3
    assert f"{2 * SESSIONS - 1} items of run {pruned} given back." in said.stdout
    assert "damaged" in said.stdout
    assert "nothing was given back" not in said.stdout


# Runs that were killed

_DIE = """
import os, signal, sys
import msgspec
from exporter.pruner.apply.execute import execute
from exporter.pruner.models import PrunePlan
from exporter.writing.target import Target
from exporter.runs.journal import RunJournal
def die(*words):
    os.kill(os.getpid(), signal.SIGKILL)
RunJournal.settle = die
plan = msgspec.json.decode(sys.stdin.buffer.read(), type=PrunePlan)
execute(plan, Target(plan.home, os.geteuid()), keep_seconds=3600.0)
"""


def prune_and_die(home: Path, some: slice) -> str:
    """Killed when the rows of some sessions were deleted, and nothing was noted."""
    plan = plan_all(home)
    wanted = NAMES[some]
    files = [transcript(each) for each in wanted]
    actions = tuple(each for each in plan.actions if each.target in (*wanted, *files))
    killed = subprocess.run(
        [sys.executable, "-c", _DIE],
        input=msgspec.json.encode(msgspec.structs.replace(plan, actions=actions)),
        cwd=REPOSITORY,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    return unfinished(home)[-1]


def test_recovery_of_a_damaged_run_goes_on_with_the_next(home: Path) -> None:
    first = prune_and_die(home, slice(0, 3))
    shutil.copytree(home / ".hermes-exporter", home.parent / "aside")
    change_bytes(rows_of(home, first), 100)
    returned = undo(first, target_of(home))
    assert unfinished(home) == []
    [lost] = [each for each in targets(returned.skipped) if each in NAMES]
    assert sorted([*sessions(home), lost]) == NAMES
    assert transcripts(home) == NAMES
    check_usable(home)


def test_a_run_that_cannot_be_settled_is_in_the_way_of_none(home: Path) -> None:
    """Its trash may not be opened; a later prune, undo and purge work."""
    stuck = prune_and_die(home, slice(0, 2))
    (home / TRASH / stuck).rename(home / "elsewhere")
    (home / TRASH / stuck).symlink_to(home / "elsewhere")
    plan = plan_all(home)
    pruned = execute(plan, target_of(home), keep_seconds=KEEP_SECONDS)
    assert (pruned.outcome, len(pruned.done)) == (RunOutcome.DONE, len(plan.actions))
    assert unfinished(home) == [stuck]
    assert pruned.run is not None
    assert undo(pruned.run, target_of(home)).skipped == ()
    (home / TRASH / stuck).unlink()
    (home / "elsewhere").rename(home / TRASH / stuck)
    assert undo(stuck, target_of(home)).skipped == ()
    assert (sessions(home), transcripts(home)) == (NAMES, NAMES)


def test_what_cannot_be_settled_can_be_given_up_by_a_purge(home: Path, tmp_path: Path) -> None:
    stuck = prune_and_die(home, slice(0, 2))
    (home / TRASH / stuck).rename(home / "elsewhere")
    (home / TRASH / stuck).symlink_to(home / "elsewhere")
    where: list[str | Path] = ["--home", home, "--state-dir", tmp_path / "state"]
    said = run("purge", stuck, "--yes", *where)
    assert (said.returncode, unfinished(home)) == (0, [])
    assert f"run {stuck} was not finished" in said.stderr
    assert (home / "elsewhere").is_dir()  # nothing is deleted through a link


def test_trash_that_is_gone_is_said_to_be_and_blocks_nothing(home: Path) -> None:
    pruned = prune(home)
    shutil.rmtree(home / TRASH / pruned)
    with pytest.raises(Exception, match=f"the trash of run {pruned} is gone"):
        undo(pruned, target_of(home))
    check_usable(home)


def test_a_killed_run_whose_trash_is_gone_is_settled(home: Path) -> None:
    prune_and_die(home, slice(0, 3))
    shutil.rmtree(home / ".hermes-exporter/backups")
    check_usable(home)
    assert sessions(home) == NAMES[3:]


# Checkpoints


@pytest.fixture
def made(tmp_path: Path) -> Checkpoints:
    made = Checkpoints(python_for(NEWEST), tmp_path / "home")
    made.snapshot("one", "two", turns=2)
    return made


def prune_projects(made: Checkpoints) -> str:
    actions = tuple(
        PruneAction(
            kind=Act.DELETE_PROJECT,
            policy="stale_checkpoints",
            target=made.name(each),
            reason="it is old",
            frees=Frees.AFTER_UPKEEP,
            expected=made.planned(each).action.expected,
        )
        for each in ("one", "two")
    )
    plan = PrunePlan(home=str(made.home), hash="a-plan", actions=actions)
    outcome = execute(plan, target_of(made.home), keep_seconds=KEEP_SECONDS)
    assert (outcome.outcome, len(outcome.done)) == (RunOutcome.DONE, 2)
    assert outcome.run is not None
    return outcome.run


def undone_beside(made: Checkpoints, pruned: str, file: str, *, collected: bool) -> Outcome:
    """Undo with a damaged file of the first project; perhaps after git has collected garbage."""
    if collected:
        subprocess.run(
            ["git", "gc", "--quiet", "--prune=now"],
            check=True,
            env={**os.environ, "GIT_DIR": str(made.store)},
        )
    [damaged] = (made.home / TRASH / pruned).glob(f"*{made.name('one')}/{file}")
    change_bytes(damaged, damaged.stat().st_size // 2)
    return undo(pruned, target_of(made.home))


@pytest.mark.parametrize("file", ["snapshots.bundle", "about.json"])
def test_a_damaged_project_stays_in_the_trash_and_the_other_comes_back(
    made: Checkpoints, file: str
) -> None:
    pruned = prune_projects(made)
    returned = undone_beside(made, pruned, file, collected=True)
    assert targets(returned.skipped) == [made.name("one")]
    assert returned.done == (made.name("two"),)
    assert len(made.snapshots("two")) == 2
    assert list((made.home / TRASH / pruned).glob(f"*{made.name('one')}/snapshots.bundle"))
    check_usable_purge(made.home)


def check_usable_purge(home: Path) -> None:
    assert purge(None, target_of(home)).outcome is RunOutcome.DONE


def test_recovery_deletes_no_project_whose_record_is_damaged(made: Checkpoints) -> None:
    pruned = prune_projects(made)
    database = made.home / ".hermes-exporter/journal.db"
    with apsw.Connection(str(database)) as connection:  # as if killed before it was noted
        connection.execute("UPDATE actions SET state = 'intended'")
        connection.execute("UPDATE runs SET finished_at = NULL")
    returned = undone_beside(made, pruned, "about.json", collected=True)
    assert targets(returned.skipped) == [made.name("one")]
    assert "damaged" in returned.skipped[0].why
    [bundle] = (made.home / TRASH / pruned).glob(f"*{made.name('one')}/snapshots.bundle")
    assert bundle.stat().st_size > 0
    assert unfinished(made.home) == []


# Permissions, as a user who is bound by them

_ACT = """
import os, sys, msgspec
from exporter.pruner.apply.execute import purge
from exporter.pruner.apply.undo import undo
from exporter.writing.target import Target
from exporter.runs.folder import RunError
site = Target(sys.argv[1], os.geteuid())
try:
    if sys.argv[2] == "purge":
        print(msgspec.json.encode(purge(sys.argv[3], site).outcome).decode())
    else:
        done = undo(sys.argv[3], site)
        print(msgspec.json.encode([done.done, done.skipped]).decode())
except RunError as error:
    print(msgspec.json.encode(str(error)).decode())
"""


@pytest.fixture
def owned(home: Path) -> Iterator[tuple[Path, str]]:
    """A home of an ordinary user, pruned."""
    pruned = prune(home)
    place = Path("/var/tmp") / f"hermes-exporter-test-{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    moved = shutil.copytree(home, place / "home")
    subprocess.run(["chown", "-hR", f"{NOBODY}:{NOBODY}", place], check=True)
    yield moved, pruned
    shutil.rmtree(place)


def act(home: Path, what: str, run: str) -> Any:
    command = [*as_user(NOBODY), sys.executable, "-c", _ACT, str(home), what, run]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=REPOSITORY).stdout
    return msgspec.json.decode(said)


def test_rows_that_may_not_be_read_are_named_and_come_back_when_they_may(
    owned: tuple[Path, str],
) -> None:
    home, pruned = owned
    rows = rows_of(home, pruned)
    rows.chmod(0)
    restored, failed = act(home, "undo", pruned)
    assert sorted(restored) == [transcript(each) for each in NAMES]
    assert {each["target"] for each in failed} == set(NAMES)
    assert all("Permission denied" in each["why"] for each in failed)
    rows.chmod(0o600)
    restored, failed = act(home, "undo", pruned)
    assert sorted(restored) == NAMES


def test_trash_that_may_not_be_opened_is_said_to_be_and_can_be_purged(
    owned: tuple[Path, str],
) -> None:
    home, pruned = owned
    (home / TRASH / pruned).chmod(0)
    said = act(home, "undo", pruned)
    assert f"{pruned}" in said
    assert "Permission denied" in said
    assert act(home, "purge", pruned) == "done"
    assert list((home / TRASH).iterdir()) == []


# The journal itself


def journal_of_many(home: Path) -> tuple[str, str]:
    """A run with more in the journal than fits on a page of it, and a small one after it."""
    first = prune(home)
    database = home / ".hermes-exporter/journal.db"
    with apsw.Connection(str(database)) as connection:
        connection.execute(
            "WITH RECURSIVE series(value) AS "
            "(SELECT 1 UNION ALL SELECT value + 1 FROM series WHERE value < 400) "
            "INSERT INTO actions SELECT run, number + 1000 + value, action, policy, "
            "target || value, reason, bytes, before, after, "
            "json_array(hex(randomblob(400))), NULL, NULL, 'skipped', 'for the test', settled_at "
            "FROM actions, series WHERE number = 0"
        )
    dump = home / "sessions/request_dump_20250101_080009_aaaaaa_20250101_010101_123456.json"
    dump.write_text("{}")
    wanted = planned_file(home, f"sessions/{dump.name}").action
    action = PruneAction(
        kind=Act.DELETE_FILE,
        policy="request_dumps",
        target=wanted.target,
        reason="it is old",
        frees=Frees.AT_PURGE,
        expected=wanted.expected,
    )
    plan = PrunePlan(home=str(home), hash="dumps", actions=(action,))
    second = execute(plan, target_of(home), keep_seconds=KEEP_SECONDS)
    assert second.run is not None
    return first, second.run


def damage_row(home: Path, first: str) -> None:
    """What one action says of its target is no JSON any more."""
    with apsw.Connection(str(home / ".hermes-exporter/journal.db")) as connection:
        connection.execute("UPDATE actions SET before = '{' WHERE run = ? AND number = 0", (first,))


def damage_page(home: Path, first: str) -> None:
    """A page in the middle of the actions is overwritten."""
    database = home / ".hermes-exporter/journal.db"
    with apsw.Connection(str(database)) as connection:
        pages: list[Any] = connection.execute(
            "SELECT pageno, pgsize FROM dbstat WHERE name = 'actions' AND pagetype = 'leaf' "
            "ORDER BY path"
        ).fetchall()
    number, size = pages[len(pages) // 2]
    with database.open("r+b") as file:
        file.seek((number - 1) * size)
        file.write(b"\xff" * size)


@pytest.mark.parametrize("damage", [damage_row, damage_page])
def test_a_damaged_journal_does_not_keep_a_purge_from_its_work(
    home: Path, tmp_path: Path, damage: Callable[[Path, str], None]
) -> None:
    first, _ = journal_of_many(home)
    damage(home, first)
    said = run_json("purge", "--yes", "--home", home, "--state-dir", tmp_path / "state")
    assert (said["outcome"], said["done"]) == ("done", 2)
    assert list((home / TRASH).iterdir()) == []


@pytest.mark.parametrize("damage", [damage_row, damage_page])
def test_a_damaged_journal_keeps_what_can_be_read_and_blocks_nothing(
    home: Path, tmp_path: Path, damage: Callable[[Path, str], None]
) -> None:
    where: list[str | Path] = ["--home", home, "--state-dir", tmp_path / "state"]
    first, second = journal_of_many(home)
    damage(home, first)
    assert run_json("undo", second, *where)["restored"] == 1
    said = run("undo", first, *where)
    assert said.returncode in (0, 3), said.stdout + said.stderr
    assert {*sessions(home)} >= set(NAMES[1:])
    assert {each.id for each in history(home) if each.kind is RunKind.PRUNE} == {first, second}
    assert (home / ".hermes-exporter/journal.db.damaged").exists()
    run_json("prune", "--yes", *where)
    assert run_json("purge", "--yes", *where)["outcome"] == "done"
    assert contents(home)["sessions"]


def test_a_run_whose_own_entry_is_damaged_can_still_be_undone(home: Path, tmp_path: Path) -> None:
    """It also has to be known as undoable: only then Hermes's further use of a session heals it."""
    taken = prune(home)
    with apsw.Connection(str(home / ".hermes-exporter/journal.db")) as connection:
        connection.execute("UPDATE runs SET kind = 'x'")
    where: list[str | Path] = ["--home", home, "--state-dir", tmp_path / "state"]
    run("purge", taken[:-1], "--yes", *where)  # any run replaces the journal by what is readable
    assert [each.id for each in history(home) if each.undoable_until is not None] == [taken]
    assert run_json("undo", "--last", *where)["run"] == taken
    assert sessions(home) == NAMES


def no_json(home: Path) -> None:
    with apsw.Connection(str(journal(home))) as connection:
        connection.set_busy_timeout(5000)
        connection.execute("UPDATE actions SET before = '{' WHERE number = 0")


DAMAGES = [no_json, in_a_text, in_the_index, in_the_schema, in_the_write_version]


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_agent_that_heals_repairs_a_damaged_journal_first(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    """Not every scan reads all of it, and here nothing but healing would."""
    home, session = small_home(tmp_path / "home", 1), "20260101_000000_aaaaaa"
    with watching(tmp_path / "agent", home, reaper="mode: enforce") as watch:
        wait_until(watch.reaped, "it is ended")
        damage(home)
        sql(
            home,
            "INSERT INTO messages (session_id, role, content, timestamp) "
            f"VALUES ('{session}', 'user', 'and now?', {time.time()})",
        )
        wait_until(lambda: "reaped sessions were resumed" in watch.agent.log(), "it is healed")
    assert (home / ".hermes-exporter/journal.db.damaged").exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_undo_and_prune_repair_a_damaged_journal_first(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    where: list[str | Path] = ["--state-dir", tmp_path / "state", "--home"]
    home = small_home(tmp_path / "home", 2)
    run_json("reap", "--yes", *where, home)
    copy = shutil.copytree(home, tmp_path / "copy")
    damage(home)
    damage(copy)
    assert run("undo", "--last", *where, home).returncode in (0, 3)
    assert run("prune", "--yes", *where, copy).returncode == 0
    assert journal(home).with_name("journal.db.damaged").exists()
    for each in (home, copy):
        assert run("history", *where, each).returncode == 0
