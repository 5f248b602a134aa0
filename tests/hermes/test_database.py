"""A scan leaves a database in any state unchanged, and reports that state correctly."""

from __future__ import annotations

import ast
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import apsw
import pytest

from exporter.errors import DatabaseError
from exporter.hermes import database
from exporter.snapshot import Snapshot, Trouble
from exporter.workers import protocol
from exporter.workers.home import WorkerHome
from exporter.workers.process import start_worker
from tests.real.hermes import NEWEST, REPOSITORY, python_for
from tests.real.holders import holder
from tests.real.homes import make_home
from tests.support.home_scans import Scan, counted, python, read_request, scan, sql, trace
from tests.support.session_pruning import prunable_process

NOBODY = 65534
PACKAGE = REPOSITORY / "exporter"
TOLD = {"cli": (2, 5), "cron": (1, 2)}
"""The content of the home in these tests: sessions and messages by source."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home made by the newest Hermes, and closed by it: cold."""
    home = tmp_path_factory.mktemp("template") / "home"
    home.mkdir(mode=0o700)
    with holder(python_for(NEWEST), home) as hermes:
        for session, source, messages in (("a", "cli", 3), ("b", "cron", 2), ("c", "cli", 2)):
            hermes.ask("create", session=session, source=source)
            hermes.ask("append", session=session, count=messages)
        hermes.ask("end", session="c")
    assert not (home / "state.db-wal").exists()
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


def scan_twice(home: Path) -> Scan:
    """The first scan reads everything. The second is the first that may check integrity."""
    reader = WorkerHome(str(home))
    scan(reader, home)
    return scan(reader, home, quiet=True)


# The states that a database can be in; `READABLE` has the expected figures of each.


@contextmanager
def cold(home: Path) -> Iterator[None]:
    """Closed by Hermes: only the database file."""
    yield


@contextmanager
def held(home: Path) -> Iterator[None]:
    """Open in Hermes, with the last message only in the WAL."""
    with holder(python_for(NEWEST), home) as hermes:
        _say_more(hermes.ask)
        yield


@contextmanager
def held_unwritten(home: Path) -> Iterator[None]:
    """Open in Hermes, and nothing written: the WAL is empty."""
    with holder(python_for(NEWEST), home) as hermes:
        hermes.ask("count", session="a")
        yield


@contextmanager
def killed(home: Path) -> Iterator[None]:
    """Hermes was killed with everything in the WAL."""
    with holder(python_for(NEWEST), home) as hermes:
        _say_more(hermes.ask)
        hermes.kill()
    yield


@contextmanager
def killed_without_wal_index(home: Path) -> Iterator[None]:
    with killed(home):
        (home / "state.db-shm").unlink()
        yield


@contextmanager
def killed_with_garbage_wal_index(home: Path) -> Iterator[None]:
    with killed(home):
        (home / "state.db-shm").write_bytes(os.urandom(32768))
        yield


@contextmanager
def rollback_header_beside_a_wal(home: Path) -> Iterator[None]:
    """SQLite reads such a WAL too, and would create a WAL index for it."""
    with killed_without_wal_index(home):
        with (home / "state.db").open("r+b") as file:
            file.seek(18)
            file.write(b"\x01\x01")
        yield


@contextmanager
def empty_wal(home: Path) -> Iterator[None]:
    (home / "state.db-wal").touch()
    yield


@contextmanager
def garbage_wal(home: Path) -> Iterator[None]:
    (home / "state.db-wal").write_bytes(os.urandom(20_000))
    yield


@contextmanager
def wal_index_alone(home: Path) -> Iterator[None]:
    (home / "state.db-shm").write_bytes(bytes(32768))
    yield


@contextmanager
def rollback_journal(home: Path) -> Iterator[None]:
    sql(home, "PRAGMA journal_mode=DELETE;")
    yield


@contextmanager
def rollback_journal_with_empty_wal(home: Path) -> Iterator[None]:
    with rollback_journal(home):
        (home / "state.db-wal").touch()
        yield


@contextmanager
def persistent_journal(home: Path) -> Iterator[None]:
    """The file that PERSIST mode leaves behind is not a hot journal."""
    sql(home, "PRAGMA journal_mode=PERSIST; UPDATE sessions SET title = 't' WHERE id = 'a';")
    assert (home / "state.db-journal").exists()
    yield


@contextmanager
def read_only_file(home: Path) -> Iterator[None]:
    (home / "state.db").chmod(0o400)
    yield


def _say_more(ask: Callable[..., object]) -> None:
    """Add a session with one message. It stays in the WAL."""
    ask("create", session="d", source="cli")
    ask("append", session="d", count=1)


MORE = {"cli": (3, 6), "cron": (1, 2)}
READABLE: list[tuple[Callable[[Path], AbstractContextManager[None]], dict[str, tuple[int, int]]]]
READABLE = [
    (cold, TOLD),
    (held, MORE),
    (held_unwritten, TOLD),
    (killed, MORE),
    (killed_without_wal_index, MORE),
    (killed_with_garbage_wal_index, MORE),
    (rollback_header_beside_a_wal, MORE),
    (empty_wal, TOLD),
    (garbage_wal, TOLD),
    (wal_index_alone, TOLD),
    (rollback_journal, TOLD),
    (rollback_journal_with_empty_wal, TOLD),
    (persistent_journal, TOLD),
    (read_only_file, TOLD),
]


@pytest.mark.parametrize(
    ("state", "told"), READABLE, ids=lambda value: getattr(value, "__name__", "")
)
def test_a_sound_database_is_read_and_left_unchanged(
    home: Path,
    state: Callable[[Path], AbstractContextManager[None]],
    told: dict[str, tuple[int, int]],
) -> None:
    with state(home):
        before = trace(home)
        found = scan_twice(home)
        assert trace(home) == before
    assert (found.snapshot.trouble, found.snapshot.detail) == (Trouble.NONE, "")
    assert counted(found.summary.messages) == told
    assert found.snapshot.health is not None
    assert found.snapshot.health.integrity_ok is not False


# Hermes may open and close the database at any time


def test_no_empty_wal_remains_if_hermes_closes_between_plan_and_open(home: Path) -> None:
    with holder(python_for(NEWEST), home):
        opening = database.plan_open(str(home / "state.db"))
        assert opening.access is database.OpenMode.SHARED
    before = trace(home)
    assert "state.db-wal" not in before
    with (
        pytest.raises(DatabaseError) as refused,
        database.reading(opening, deadline_seconds=30),
    ):
        raise AssertionError("read what is not there")
    assert refused.value.trouble is Trouble.BUSY
    assert trace(home) == before


def test_the_sidecars_stay_if_hermes_closes_just_before_sqlite_opens(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last possible moment: the plan is correct, and SQLite is about to open the database."""
    really_connect = database._connect
    with ExitStack() as stack:
        hermes = stack.enter_context(holder(python_for(NEWEST), home))
        _say_more(hermes.ask)
        wal = (home / "state.db-wal").stat().st_ino

        def close_then_connect(opening: database.OpenPlan) -> apsw.Connection:
            stack.close()
            assert hermes.process.poll() is not None
            return really_connect(opening)

        monkeypatch.setattr(database, "_connect", close_then_connect)
        opening = database.plan_open(str(home / "state.db"))
        with database.reading(opening, deadline_seconds=30) as connection:
            told = connection.execute("SELECT COUNT(*) FROM messages").get
    assert (home / "state.db-wal").stat().st_ino == wal, "Hermes's own, not one of ours"
    monkeypatch.undo()
    assert told == int(sql(home, "SELECT COUNT(*) FROM messages"))


# Databases that cannot be read


def directory(home: Path) -> None:
    (home / "state.db").unlink()
    (home / "state.db").mkdir()


def symlink(home: Path) -> None:
    """The target is a valid database, but it is in another user's place."""
    (home / "state.db").rename(home / "elsewhere.db")
    (home / "state.db").symlink_to("elsewhere.db")


def symlink_loop(home: Path) -> None:
    (home / "state.db").unlink()
    (home / "state.db").symlink_to("state.db")


def fifo(home: Path) -> None:
    """Opening it without O_NONBLOCK would block for ever."""
    (home / "state.db").unlink()
    os.mkfifo(home / "state.db")


def unix_socket(home: Path) -> None:
    (home / "state.db").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(home / "state.db"))


def symlinked_wal(home: Path) -> None:
    (home / "state.db-wal").symlink_to("/etc/hostname")


def wal_index_is_a_directory(home: Path) -> None:
    (home / "state.db-wal").touch()
    (home / "state.db-shm").mkdir()


def foreign_database(home: Path) -> None:
    os.chown(home / "state.db", NOBODY, NOBODY)


def foreign_wal(home: Path) -> None:
    (home / "state.db-wal").touch()
    os.chown(home / "state.db-wal", NOBODY, NOBODY)


def foreign_wal_index(home: Path) -> None:
    with killed(home):
        os.chown(home / "state.db-shm", NOBODY, NOBODY)


def garbage(home: Path) -> None:
    (home / "state.db").write_bytes(os.urandom(100_000))


def encrypted_behind_its_header(home: Path) -> None:
    content = (home / "state.db").read_bytes()
    (home / "state.db").write_bytes(content[:20] + os.urandom(len(content) - 20))


def cut_within_the_header(home: Path) -> None:
    os.truncate(home / "state.db", 10)


def cut_after_the_header(home: Path) -> None:
    os.truncate(home / "state.db", 100)


def cut_in_half(home: Path) -> None:
    os.truncate(home / "state.db", (home / "state.db").stat().st_size // 2)


def broken_page(home: Path) -> None:
    """In the middle of the table that every scan reads."""
    page = int(sql(home, "SELECT rootpage FROM sqlite_schema WHERE name = 'sessions';"))
    with (home / "state.db").open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)


def broken_schema(home: Path) -> None:
    with (home / "state.db").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3996)


def cut_short_write(home: Path) -> None:
    """A hot rollback journal: only a process that may write can recover the database."""
    sql(home, "PRAGMA journal_mode=DELETE;")
    python(
        "import os, sqlite3, sys\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "connection.execute('PRAGMA cache_size=2')\n"
        "connection.execute('BEGIN')\n"
        "for number in range(300):\n"
        "    connection.execute('INSERT INTO state_meta VALUES (?, zeroblob(3000))', (number,))\n"
        "os._exit(0)\n",
        home / "state.db",
    )
    assert (home / "state.db-journal").stat().st_size > 0


def another_program(home: Path) -> None:
    (home / "state.db").unlink()
    sql(home, "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT);")


def empty_schema(home: Path) -> None:
    (home / "state.db").unlink()
    sql(home, "CREATE TABLE t (a); DROP TABLE t;")


@pytest.mark.parametrize(
    ("spoil", "trouble"),
    [
        (directory, Trouble.NOT_A_FILE),
        (symlink, Trouble.NOT_A_FILE),
        (symlink_loop, Trouble.NOT_A_FILE),
        (fifo, Trouble.NOT_A_FILE),
        (unix_socket, Trouble.NOT_A_FILE),
        (symlinked_wal, Trouble.NOT_A_FILE),
        (wal_index_is_a_directory, Trouble.NOT_A_FILE),
        (foreign_database, Trouble.FOREIGN_OWNER),
        (foreign_wal, Trouble.FOREIGN_OWNER),
        (foreign_wal_index, Trouble.FOREIGN_OWNER),
        (garbage, Trouble.NOT_A_DATABASE),
        (encrypted_behind_its_header, Trouble.NOT_A_DATABASE),
        (cut_within_the_header, Trouble.NOT_A_DATABASE),
        (cut_after_the_header, Trouble.CORRUPT),
        (cut_in_half, Trouble.CORRUPT),
        (broken_page, Trouble.CORRUPT),
        (broken_schema, Trouble.CORRUPT),
        (cut_short_write, Trouble.BUSY),
        (another_program, Trouble.NO_SESSIONS_TABLE),
        (empty_schema, Trouble.NO_SESSIONS_TABLE),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_database_is_reported_with_its_reason_and_left_unchanged(
    home: Path, spoil: Callable[[Path], None], trouble: Trouble
) -> None:
    spoil(home)
    before = trace(home)
    found = scan_twice(home)
    assert trace(home) == before
    assert found.snapshot.trouble is trouble, found.snapshot.detail
    assert "state.db" in found.snapshot.detail
    assert found.snapshot.sessions is None
    broken = trouble in (Trouble.CORRUPT, Trouble.NOT_A_DATABASE)
    health = found.snapshot.health
    assert (health is not None and health.integrity_ok is False) == broken


def empty_file(home: Path) -> None:
    os.truncate(home / "state.db", 0)


def empty_file_beside_a_wal(home: Path) -> None:
    """SQLite deletes the WAL of an empty database, even in read-only mode."""
    with killed(home):
        os.truncate(home / "state.db", 0)


def missing(home: Path) -> None:
    (home / "state.db").unlink()


def test_an_emptied_database_with_a_wal_is_trouble_and_keeps_its_wal(home: Path) -> None:
    empty_file_beside_a_wal(home)
    before = trace(home)
    found = scan_twice(home)
    assert trace(home) == before
    assert found.snapshot.trouble is Trouble.NOT_A_DATABASE


@pytest.mark.parametrize("lose", [empty_file, missing])
def test_a_database_that_disappears_after_a_scan_is_trouble(
    home: Path, lose: Callable[[Path], None]
) -> None:
    reader = WorkerHome(str(home))
    assert scan(reader, home).snapshot.trouble is Trouble.NONE
    lose(home)
    assert scan(reader, home).snapshot.trouble is Trouble.NOT_A_DATABASE


@pytest.mark.parametrize("empty", [empty_file, missing])
def test_a_home_without_a_database_yet_is_no_trouble_and_has_no_sessions(
    home: Path, empty: Callable[[Path], None]
) -> None:
    empty(home)
    before = trace(home)
    found = scan_twice(home)
    assert trace(home) == before
    assert found.snapshot.trouble is Trouble.NONE
    assert found.snapshot.sessions is None
    assert found.snapshot.database_present == (home / "state.db").exists()


def test_the_integrity_check_finds_a_broken_page_that_no_scan_reads(home: Path) -> None:
    page = int(sql(home, "SELECT rootpage FROM sqlite_schema WHERE name = 'idx_sessions_started';"))
    with (home / "state.db").open("r+b") as file:
        file.seek((page - 1) * 4096 + 8)
        file.write(b"\xff" * 20)
    before = trace(home)
    found = scan_twice(home)
    assert trace(home) == before
    assert counted(found.summary.messages) == TOLD
    assert found.snapshot.health is not None
    assert found.snapshot.health.integrity_ok is False


def test_integrity_is_checked_only_while_no_process_has_the_database_open(home: Path) -> None:
    reader = WorkerHome(str(home))
    for _ in range(3):
        found = scan(reader, home, quiet=False).snapshot
    assert found.health is not None
    assert found.health.integrity_ok is None
    found = scan(reader, home, quiet=True).snapshot
    assert found.health is not None
    assert found.health.integrity_ok


def test_a_picture_in_a_conversation_does_not_count_as_damage(home: Path) -> None:
    """Hermes's SQLite and ours index its text differently, and ours calls that malformed."""
    with prunable_process(python_for(NEWEST), home) as hermes:
        hermes.ask("old", session="20260101_090000_abcdef", count=8)
    found = scan_twice(home).snapshot
    assert found.health is not None
    assert found.health.integrity_ok


def test_a_restored_database_is_reported_sound_in_the_next_scan(home: Path) -> None:
    good = (home / "state.db").read_bytes()
    reader = WorkerHome(str(home))
    scan(reader, home)
    (home / "state.db").write_bytes(os.urandom(50_000))
    assert scan(reader, home, quiet=True).snapshot.trouble is Trouble.NOT_A_DATABASE
    (home / "state.db").write_bytes(good)
    found = scan(reader, home, quiet=True).snapshot
    assert found.trouble is Trouble.NONE
    assert found.health is not None
    assert found.health.integrity_ok


def test_an_exclusive_writer_makes_the_database_busy_and_the_last_figures_stay(home: Path) -> None:
    sql(home, "PRAGMA journal_mode=DELETE;")
    reader = WorkerHome(str(home))
    scan(reader, home)
    sql(home, "INSERT INTO sessions (id, source, started_at) VALUES ('e', 'cli', 1.0);")
    with subprocess.Popen(
        ["sqlite3", home / "state.db"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write("BEGIN EXCLUSIVE; SELECT 'locked';\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "locked\n"
        before = trace(home)
        found = scan(reader, home)
        assert trace(home) == before
        writer.stdin.close()
    assert found.snapshot.trouble is Trouble.BUSY
    assert counted(found.summary.messages) == TOLD
    assert scan(reader, home).snapshot.trouble is Trouble.NONE


# As another user: through a worker that has dropped its privileges


@contextmanager
def home_of_nobody(template: Path) -> Iterator[Path]:
    """A copy of the home that belongs to the user `nobody`, in a folder that `nobody` can reach."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        home = shutil.copytree(template, Path(folder, "home"))
        give_to_nobody(home)
        yield home
        home.chmod(0o700)


def give_to_nobody(home: Path) -> None:
    for path in (home, *home.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def scan_as_nobody(home: Path) -> Snapshot:
    worker = start_worker(NOBODY)
    try:
        worker.call(protocol.PROBE, protocol.ProbeRequest(str(home), NOBODY), 30)
        parts: list[protocol.ScanPart] = []
        worker.call(protocol.SCAN, read_request(home, NOBODY), 30, part=parts.append)
        assert isinstance(parts[-1], protocol.ScanReply)
        return parts[-1].snapshot
    finally:
        worker.end()
        assert worker.is_gone(30)


@pytest.mark.parametrize("mode", [0o600, 0o400])
@pytest.mark.parametrize(
    ("state", "told"),
    [
        (cold, TOLD),
        (killed, MORE),
        (killed_without_wal_index, MORE),
        (empty_wal, TOLD),
        (rollback_journal, TOLD),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_read_only_home_is_read(
    template: Path,
    state: Callable[[Path], AbstractContextManager[None]],
    told: dict[str, tuple[int, int]],
    mode: int,
) -> None:
    """Nothing can be created in the directory; its files may or may not be writable."""
    with home_of_nobody(template) as home, state(home):
        give_to_nobody(home)
        for path in home.iterdir():
            path.chmod(mode | (0o100 if path.is_dir() else 0))
        home.chmod(0o500)
        before = trace(home)
        found = scan_as_nobody(home)
        assert trace(home) == before
    assert found.trouble is Trouble.NONE, found.detail
    assert found.sessions is not None
    assert counted(found.sessions.messages) == told


_HOLD_AS_NOBODY = """
import os, sqlite3, sys
os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("UPDATE sessions SET title = 'only in the WAL' WHERE id = 'a'")
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_another_users_open_database_is_read_with_that_users_privileges(template: Path) -> None:
    with (
        home_of_nobody(template) as home,
        subprocess.Popen(
            [sys.executable, "-c", _HOLD_AS_NOBODY, home / "state.db", str(NOBODY)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        before = trace(home)
        found = scan_as_nobody(home)
        assert trace(home) == before
        assert {owner for _, owner, *_ in before.values()} == {NOBODY}
        assert "state.db-shm" in before
        process.communicate()
    assert found.trouble is Trouble.NONE, found.detail
    assert found.sessions is not None
    assert counted(found.sessions.messages) == TOLD


@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "."])
def test_unreadable_files_are_reported_as_permission_and_not_as_corruption(
    template: Path, name: str
) -> None:
    with home_of_nobody(template) as home, killed(home):
        give_to_nobody(home)
        (home / name).chmod(0)
        before = trace(home)
        found = scan_as_nobody(home)
        assert trace(home) == before
    assert found.trouble is Trouble.PERMISSION, found.detail
    assert found.health is None


# No write is possible

WRITES = (
    "UPDATE sessions SET ended_at = 1.0",
    "DELETE FROM messages",
    "INSERT INTO state_meta VALUES ('k', 'v')",
    "INSERT INTO messages_fts (messages_fts) VALUES ('optimize')",
    "CREATE TABLE t (a)",
    "DROP TABLE messages",
    "PRAGMA user_version = 7",
    "PRAGMA journal_mode = DELETE",
    "PRAGMA journal_mode = WAL",
    "PRAGMA wal_checkpoint(TRUNCATE)",
    "PRAGMA incremental_vacuum",
    "PRAGMA writable_schema = ON",
    "VACUUM",
    "REINDEX",
    "ANALYZE",
    "ATTACH 'file:new.db?mode=rwc' AS new",
)


@pytest.mark.parametrize("sly", ["", "PRAGMA query_only = OFF"], ids=["", "query_only off"])
@pytest.mark.parametrize(
    "state",
    [cold, held, killed, killed_without_wal_index, rollback_journal],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_statement_can_write_through_our_connection(
    home: Path, state: Callable[[Path], AbstractContextManager[None]], sly: str
) -> None:
    with state(home):
        before = trace(home)
        opening = database.plan_open(str(home / "state.db"))
        with database.reading(opening, deadline_seconds=30) as connection:
            connection.execute("COMMIT")
            connection.execute(sly)
            for statement in WRITES:
                try:
                    connection.execute(statement)
                except apsw.Error:
                    continue
        assert trace(home) == before
        assert not Path("new.db").exists()


def test_a_fifo_that_replaces_the_database_after_the_plan_blocks_no_worker(home: Path) -> None:
    plan = database.plan_open(str(home / "state.db"))
    (home / "state.db").unlink()
    os.mkfifo(home / "state.db")
    with pytest.raises(DatabaseError), database.reading(plan, deadline_seconds=5.0):
        pass


MAY_OPEN = {
    "hermes/database.py": "to read homes",
    "writing/connection.py": "to write to them",
    "writing/vacuum.py": "to shrink one that nobody has open",
    "demo/database.py": "to make a new home",
    "demo/trends.py": "to read the home that it has just made",
    "agent/state_file.py": "the agent's own",
    "runs/salvage.py": "to read what is left of a damaged run journal",
    "runs/journal_file.py": "ours, in a home",
}


def test_only_the_listed_modules_open_databases() -> None:
    """The linter bans the standard library's module."""
    opened = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "apsw.Connection"
    }
    assert opened <= MAY_OPEN.keys()


READING = {
    apsw.SQLITE_FUNCTION,
    apsw.SQLITE_PRAGMA,
    apsw.SQLITE_READ,
    apsw.SQLITE_RECURSIVE,
    apsw.SQLITE_SELECT,
    apsw.SQLITE_TRANSACTION,
}


def test_every_statement_of_a_full_scan_only_reads(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home has a gateway, a board and compaction, so every kind of statement runs."""
    asked: set[tuple[int, str | None, str | None]] = set()

    def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
        asked.add((action, first, second))
        return apsw.SQLITE_OK

    def watch(connection: apsw.Connection) -> None:
        connection.authorizer = authorize

    monkeypatch.setattr(apsw, "connection_hooks", [*apsw.connection_hooks, watch])
    made = make_home(NEWEST, home.parent, "everything")
    reader = WorkerHome(str(made.path))
    first = scan(reader, made.path, openable=("state.db", "kanban.db"))
    sql(made.path, "INSERT INTO sessions (id, source, started_at) VALUES ('new', 'cli', 1.0);")
    mark = first.snapshot.message_watermark
    second = scan(reader, made.path, watermark=mark, openable=("state.db", "kanban.db"), quiet=True)
    assert second.snapshot.kanban
    assert {action for action, *_ in asked} <= READING
    pragmas = {(name, value) for action, name, value in asked if action == apsw.SQLITE_PRAGMA}
    settings = {pragma for pragma in pragmas if pragma[1] is not None}
    assert {name for name, _ in settings} <= {
        "cache_size",
        "query_only",
        "locking_mode",
        "mmap_size",
        "quick_check",
        "table_info",
    }
    assert ("query_only", "ON") in settings
