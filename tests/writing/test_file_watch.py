"""Another database takes the place of `state.db` while a run writes it: the run leaves it alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace as replaced_fields
from pathlib import Path
from typing import Any

import apsw
import pytest

from exporter.errors import DatabaseError
from exporter.evidence.openers import KnownOpeners
from exporter.pruner.apply import delete_sessions
from exporter.pruner.apply.execute import execute
from exporter.pruner.apply.undo import undo
from exporter.runs.journal import running_on
from exporter.runs.models import RunOutcome
from exporter.writing import connection
from exporter.writing.connection import Writer
from exporter.writing.file_watch import FileWatch, ReplacedError
from tests.support.evidence import puppet
from tests.support.home_scans import sql
from tests.support.reaping import dump, target_of
from tests.support.session_pruning import planned, prune
from tests.support.small_homes import small_home

SEEN = KnownOpeners(locks_seen=True)
Replace = Callable[[Path, bytes], None]


def rewrite(home: Path, content: bytes) -> None:
    """As `hermes import` does: the file stays the same, and no process is asked."""
    with (home / "state.db").open("wb") as database:
        database.write(content)


def rename(home: Path, content: bytes) -> None:
    new = home / "state.db.new"
    new.write_bytes(content)
    new.rename(home / "state.db")


def rename_and_remove_sidecars(home: Path, content: bytes) -> None:
    for sidecar in ("state.db-wal", "state.db-shm"):
        (home / sidecar).unlink()
    rename(home, content)


WAYS = pytest.mark.parametrize("replace", [rewrite, rename, rename_and_remove_sidecars])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = small_home(tmp_path / "home", sessions=20)
    sql(made, "UPDATE sessions SET ended_at = started_at + 3;")
    return made


@pytest.fixture
def other(tmp_path: Path) -> bytes:
    """The bytes of the database that takes its place."""
    return (small_home(tmp_path / "other", sessions=7) / "state.db").read_bytes()


def fill(writer: Writer, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Change many pages, those of the sessions too."""
    with writer.transaction():
        writer.connection.execute("CREATE TABLE IF NOT EXISTS large (content)")
        writer.connection.execute("INSERT INTO large VALUES (zeroblob(200000))")
        writer.connection.execute("UPDATE sessions SET end_reason = 'ours', ended_at = 1.0")
        meanwhile()


def before_a_transaction(writer: Writer, replace: Callable[[], object]) -> None:
    fill(writer)
    replace()
    fill(writer)


def in_a_transaction(writer: Writer, replace: Callable[[], object]) -> None:
    fill(writer)
    fill(writer, replace)


def before_a_checkpoint(writer: Writer, replace: Callable[[], object]) -> None:
    fill(writer)
    replace()
    writer.checkpoint()


def after_a_checkpoint_of_ours(writer: Writer, replace: Callable[[], object]) -> None:
    fill(writer)
    assert writer.checkpoint()
    fill(writer)
    replace()
    writer.truncate_wal()


def check_it_is_the_other(home: Path, tmp_path: Path) -> None:
    assert sql(home, "PRAGMA integrity_check") == "ok"
    assert dump(home) == dump(tmp_path / "other")
    assert sql(home, "SELECT COUNT(*) FROM messages") == "14"


@WAYS
@pytest.mark.parametrize(
    "moment",
    [
        before_a_transaction,
        in_a_transaction,
        before_a_checkpoint,
        after_a_checkpoint_of_ours,
    ],
)
def test_nothing_of_ours_gets_into_the_new_database(
    home: Path,
    other: bytes,
    tmp_path: Path,
    replace: Replace,
    moment: Callable[[Writer, Callable[[], object]], None],
) -> None:
    target = target_of(home, SEEN)
    with (
        running_on(target, "test"),
        pytest.raises(ReplacedError, match=r"was replaced or rewritten during the run; left"),
        target.writing() as writer,
    ):
        moment(writer, lambda: replace(home, other))
    check_it_is_the_other(home, tmp_path)


@WAYS
def test_after_the_last_transaction(
    home: Path, other: bytes, tmp_path: Path, replace: Replace
) -> None:
    target = target_of(home, SEEN)
    with running_on(target, "test"):
        with target.writing() as writer:
            fill(writer)
        replace(home, other)
        with pytest.raises(ReplacedError), target.reading():
            pass
        with pytest.raises(ReplacedError), target.writing():
            pass
    check_it_is_the_other(home, tmp_path)


def test_a_file_that_is_only_half_written_yet(home: Path, other: bytes, tmp_path: Path) -> None:
    """The process that rewrites it has it open, too. The old WAL is dropped all the same."""
    target = target_of(home, SEEN)
    with puppet() as process:
        begin = f"half = open({str(home / 'state.db')!r}, 'wb')"
        with running_on(target, "test"), pytest.raises(ReplacedError), target.writing() as writer:
            before_a_transaction(writer, lambda: process.do(begin))
        assert (home / "state.db-wal").stat().st_size == 0
        process.do("half.close()")
    (home / "state.db").write_bytes(other)
    check_it_is_the_other(home, tmp_path)


def test_the_next_run_writes_the_new_database(home: Path, other: bytes) -> None:
    target = target_of(home, SEEN)
    with running_on(target, "test"), pytest.raises(ReplacedError), target.writing() as writer:
        before_a_transaction(writer, lambda: rewrite(home, other))
    with running_on(target, "test"), target.writing() as writer:
        fill(writer)
    assert sql(home, "SELECT COUNT(*) FROM sessions WHERE end_reason = 'ours'") == "7"


def passing(home: Path, *statements: str) -> None:
    with puppet() as process:
        process.do(f"connection = connect({str(home / 'state.db')!r})")
        for each in statements:
            process.do(f"connection.execute({each!r}).fetchall()")
            process.do("connection.commit()")


@pytest.mark.parametrize("connected", [True, False])
def test_a_process_that_came_and_went_has_replaced_nothing(home: Path, connected: bool) -> None:
    """It wrote, and made a checkpoint; closing last, it removed the WAL."""
    target = target_of(home, SEEN)
    statements = ("CREATE TABLE theirs (n)", "PRAGMA wal_checkpoint(PASSIVE)")
    with running_on(target, "test"):
        with target.writing() as writer:
            fill(writer)
            if connected:
                passing(home, *statements)
                fill(writer)
        if not connected:
            passing(home, *statements)
        with target.writing() as writer:
            fill(writer)
    assert sql(home, "PRAGMA integrity_check") == "ok"
    assert sql(home, "SELECT COUNT(*) FROM theirs") == "0"
    assert sql(home, "SELECT COUNT(*) FROM large") == ("3" if connected else "2")


BEGUN_ANEW = pytest.mark.parametrize(
    "statements",
    [
        ("PRAGMA wal_checkpoint(TRUNCATE)",),  # as Hermes from 0.16 on, when it closes
        ("PRAGMA wal_checkpoint(RESTART)", "INSERT INTO theirs VALUES (zeroblob(300000))"),
        ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"),
    ],
)


@BEGUN_ANEW
@pytest.mark.parametrize("step", [fill, Writer.checkpoint])
def test_a_process_after_which_the_wal_began_anew_has_replaced_nothing(
    home: Path, step: Callable[[Writer], object], statements: Sequence[str]
) -> None:
    """The pages that its checkpoint wrote are not in the WAL any more."""
    target = target_of(home, SEEN)
    with running_on(target, "test"), target.writing() as writer:
        fill(writer)
        passing(home, "CREATE TABLE theirs (n)", *statements)
        step(writer)
        fill(writer)
    assert sql(home, "PRAGMA integrity_check") == "ok"
    assert sql(home, "SELECT COUNT(*) FROM large") == ("3" if step is fill else "2")


def test_a_process_that_came_and_went_before_our_first_transaction(home: Path) -> None:
    """As while a prune writes the trash: the WAL was empty, and is so again."""
    target = target_of(home, SEEN)
    with running_on(target, "test"), target.writing() as writer:
        assert not writer.connection.execute("SELECT 1 FROM sessions WHERE title = 'x'").fetchall()
        passing(home, "CREATE TABLE theirs (n)", "PRAGMA wal_checkpoint(TRUNCATE)")
        fill(writer)
    assert sql(home, "SELECT COUNT(*) FROM large") == "1"
    assert sql(home, "PRAGMA integrity_check") == "ok"


def test_a_process_that_came_and_went_while_we_connected(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No version of the database was known by then with which ours could be compared."""
    connect = connection._connect

    def after_another(path: str) -> apsw.Connection:
        passing(home, "CREATE TABLE theirs (n)", "PRAGMA wal_checkpoint(TRUNCATE)")
        return connect(path)

    target = target_of(home, SEEN)
    monkeypatch.setattr(connection, "_connect", after_another)
    with running_on(target, "test"), target.writing() as writer:
        monkeypatch.undo()
        fill(writer)
    assert sql(home, "SELECT COUNT(*) FROM large") == "1"


class WatchWithAMoment(FileWatch):
    """Lets something happen once, right before it notes how the WAL begins."""

    moment: Callable[[], object] | None = None

    def note_wal_start(self, path: str, *more: Any) -> bool:
        happen, self.moment = self.moment, None
        if happen is not None:
            happen()
        return super().note_wal_start(path, *more)


@BEGUN_ANEW
def test_a_process_that_came_and_went_right_after_a_commit(
    home: Path, statements: Sequence[str]
) -> None:
    """How the WAL began then was noted as ours, and the changed pages were not in it."""
    watch = WatchWithAMoment()
    target = replaced_fields(target_of(home, SEEN), watch=watch)
    later = "INSERT INTO theirs VALUES (1)"

    def note_moment() -> None:
        watch.moment = lambda: passing(home, "CREATE TABLE theirs (n)", *statements, later)

    with running_on(target, "test"), target.writing() as writer:
        fill(writer)
        fill(writer, note_moment)
        fill(writer)
    assert sql(home, "SELECT COUNT(*) FROM large") == "3"
    assert sql(home, "SELECT COUNT(*) FROM theirs WHERE n = 1") == "1"
    assert sql(home, "PRAGMA integrity_check") == "ok"


@WAYS
def test_before_our_first_transaction(
    home: Path, other: bytes, tmp_path: Path, replace: Replace
) -> None:
    """The WAL is empty, but our connection still has pages of the old database in memory."""

    def read_and_write(writer: Writer) -> None:
        assert writer.connection.execute("SELECT COUNT(*) FROM messages").fetchall() == [(40,)]
        replace(home, other)
        fill(writer)

    target = target_of(home, SEEN)
    with running_on(target, "test"), pytest.raises(ReplacedError), target.writing() as writer:
        read_and_write(writer)
    check_it_is_the_other(home, tmp_path)


@WAYS
@BEGUN_ANEW
def test_after_it_began_anew_another_database_is_found_again(
    home: Path, other: bytes, tmp_path: Path, replace: Replace, statements: Sequence[str]
) -> None:
    def came_and_went(writer: Writer) -> None:
        fill(writer)
        passing(home, "CREATE TABLE theirs (n)", *statements)
        fill(writer, lambda: replace(home, other))

    target = target_of(home, SEEN)
    with running_on(target, "test"), pytest.raises(ReplacedError), target.writing() as writer:
        came_and_went(writer)
    check_it_is_the_other(home, tmp_path)


def test_a_transaction_that_begins_the_wal_anew_by_itself(
    home: Path, other: bytes, tmp_path: Path
) -> None:
    """What does not fit into the cache is in the WAL before the commit."""

    def begins_it_anew(writer: Writer) -> None:
        fill(writer)
        assert writer.checkpoint()
        writer.connection.pragma("cache_size", 10)
        fill(writer, lambda: rewrite(home, other))

    target = target_of(home, SEEN)
    with running_on(target, "test"), pytest.raises(ReplacedError), target.writing() as writer:
        begins_it_anew(writer)
    check_it_is_the_other(home, tmp_path)


def test_a_copy_from_before_a_checkpoint_of_ours_has_its_old_time(
    home: Path, tmp_path: Path
) -> None:
    """`cp -p` of the same database, taken when the run began and put back into the same file."""
    copy = shutil.copy2(home / "state.db", tmp_path / "copy")
    before = dump(home)

    def put_back(writer: Writer) -> None:
        fill(writer)
        assert writer.checkpoint()
        fill(writer)
        shutil.copy2(copy, home / "state.db")
        fill(writer)

    target = target_of(home, SEEN)
    with running_on(target, "test"), pytest.raises(ReplacedError), target.writing() as writer:
        put_back(writer)
    assert sql(home, "PRAGMA integrity_check") == "ok"
    assert dump(home) == before


def test_a_touch_has_replaced_nothing(home: Path) -> None:
    target = target_of(home, SEEN)
    with running_on(target, "test"), target.writing() as writer:
        fill(writer)
        os.utime(home / "state.db")
        fill(writer)
    assert sql(home, "SELECT COUNT(*) FROM large") == "2"


def test_a_process_that_uses_the_wal_keeps_it(home: Path, other: bytes) -> None:
    target = target_of(home, SEEN)
    with puppet() as process:

        def come_and_replace() -> None:
            process.do(f"connection = connect({str(home / 'state.db')!r})")
            rename(home, other)

        with running_on(target, "test"), pytest.raises(DatabaseError), target.writing() as writer:
            before_a_transaction(writer, come_and_replace)
        assert (home / "state.db-wal").stat().st_size > 0


@WAYS
def test_an_undo_says_restored_only_of_what_the_new_database_has(
    home: Path, other: bytes, replace: Replace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one finds out what is there, and gives back the rest."""
    monkeypatch.setattr(delete_sessions, "_CHUNK_SESSIONS", 4)
    sessions = list(dump(home))[10:]
    done = prune(home, planned(home, sessions), target_of(home, SEEN))
    assert len(done.done) == len(sessions)
    run, settled = str(done.run), list[int]()

    def progress(count: int, total: int) -> None:
        settled.append(count)
        if len(settled) == 2:
            replace(home, other)

    back = undo(run, target_of(home, SEEN), progress=progress)
    assert 0 < settled[-1] < len(sessions)
    assert (back.outcome, back.done) == (RunOutcome.UNKNOWN, ())
    assert "was replaced or rewritten during the run" in back.why
    assert sql(home, "PRAGMA integrity_check") == "ok"
    assert len(dump(home)) == 7
    again = undo(run, target_of(home, SEEN))
    assert (again.outcome, len(again.done)) == (RunOutcome.DONE, len(sessions))
    assert dump(home).keys() >= set(sessions)


@WAYS
def test_a_prune_deletes_nothing_from_the_new_database(
    home: Path, other: bytes, tmp_path: Path, replace: Replace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete_sessions, "_CHUNK_SESSIONS", 4)

    plan = planned(home, list(dump(home)))
    done = execute(
        plan,
        target_of(home, SEEN),
        keep_seconds=3600.0,
        progress=lambda count, _: replace(home, other) if count == 4 else None,
    )
    assert done.outcome is RunOutcome.UNKNOWN
    assert len(done.done) == 4
    assert "was replaced or rewritten during the run" in done.why
    check_it_is_the_other(home, tmp_path)
