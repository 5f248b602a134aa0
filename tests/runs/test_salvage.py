"""A damaged run journal is replaced by its readable part, and a whole one never is."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from exporter.evidence.openers import KnownOpeners
from exporter.runs.folder import RunError, RunFullError
from exporter.runs.journal import journal_of, mend_journal, running
from exporter.runs.models import Run, RunKind
from exporter.workers import protocol
from exporter.workers.home import WorkerHome
from exporter.workers.worker import answer
from tests.real.command import run_json
from tests.runs.test_trim import BEGAN, deletions, ends, much, noted, seen, trimmed, without_lines
from tests.support.home_scans import sql
from tests.support.small_homes import small_home

OPENERS = KnownOpeners(locks_seen=True)
SESSIONS = 3
FUZZED = 60


class Silent:
    """Takes what a handler reports."""

    def part(self, part: object) -> None:
        del part

    def progress(self, settled: int, total: int) -> None:
        del settled, total

    def cancelled(self) -> bool:
        return False


def file_of(home: Path) -> Path:
    return home / ".hermes-exporter/journal.db"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of three sessions that were reaped; its journal also has older and trimmed runs."""
    home = small_home(tmp_path_factory.mktemp("salvage") / "home")
    much(home)
    trimmed(home)
    noted(home, time.time() - 3600, RunKind.PRUNE, deletions("pruned", "another"))
    state = tmp_path_factory.mktemp("state")
    run_json("reap", "--yes", "--home", home, "--state-dir", state)
    assert still_ended(home) == SESSIONS
    return home


@pytest.fixture
def home(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "home")


def ask(call: protocol.Call[Any, Any, Any], home: Path, request: object) -> Any:
    """What the agent gets from its worker, which it checks."""
    reply = answer(call, WorkerHome(str(home)), request, Silent())
    return call.decode_reply(msgspec.json.encode(reply))


def runs_of(home: Path) -> list[Run]:
    found: list[Run] = ask(protocol.LIST_RUNS, home, protocol.RunsRequest(str(home), os.geteuid()))
    return found


def settle(home: Path) -> None:
    ask(protocol.SETTLE, home, protocol.RecoverRequest(str(home), os.geteuid(), OPENERS))


def undo(home: Path, run: str) -> None:
    ask(protocol.UNDO, home, protocol.UndoRequest(str(home), os.geteuid(), run, OPENERS, 0.05))


def still_ended(home: Path) -> int:
    return int(sql(home, "SELECT COUNT(*) FROM sessions WHERE ended_at IS NOT NULL"))


def change_byte(home: Path, at: int, to: int) -> None:
    with file_of(home).open("r+b") as file:
        file.seek(at)
        file.write(bytes([to]))


# Single bytes


def in_a_text(home: Path) -> None:
    """The text is no UTF-8 any more."""
    content = file_of(home).read_bytes()
    at = content.rindex(b'[{"kind":')  # the evidence of an end
    change_byte(home, at + 3, content[at + 3] | 0x80)


def in_the_index(home: Path) -> None:
    """Of all that says what is where, only the index is wrong: nothing but its readers fail."""
    with closing(apsw.Connection(str(file_of(home)))) as connection:
        [(page, size)] = connection.execute(
            "SELECT pageno, pgsize FROM dbstat WHERE name = 'actions_by_state'"
        )
    content = file_of(home).read_bytes()
    start = (page - 1) * size
    cell = start + int.from_bytes(content[start + 8 : start + 10])
    change_byte(home, cell + 1, content[cell + 1] ^ 0xFE)


def in_the_schema(home: Path) -> None:
    """A column has another name."""
    content = file_of(home).read_bytes()
    at = content.index(b"reverses_run TEXT")
    change_byte(home, at, content[at] ^ 0x02)


def in_the_header(home: Path) -> None:
    """The file does not begin as an SQLite database does."""
    change_byte(home, 0, 0)


def in_the_write_version(home: Path) -> None:
    """SQLite reads it, and refuses to write it."""
    change_byte(home, 18, 9)


def in_the_version(home: Path) -> None:
    """It is taken for a journal in which no run was ever noted."""
    change_byte(home, 63, 0)


def in_the_totals(home: Path) -> None:
    sql_of_journal(home, "UPDATE trimmed SET totals = x'ff' || substr(totals, 2)")


def sql_of_journal(home: Path, statement: str) -> None:
    with closing(apsw.Connection(str(file_of(home)))) as connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    "damage",
    [
        in_a_text,
        in_the_index,
        in_the_schema,
        in_the_header,
        in_the_write_version,
        in_the_version,
        in_the_totals,
    ],
)
def test_one_changed_byte_costs_nothing_but_what_it_hit(
    home: Path, damage: Callable[[Path], None]
) -> None:
    before = runs_of(home)
    damage(home)
    settle(home)
    assert [each.id for each in runs_of(home)] == [each.id for each in before]
    assert (seen(home).readable, seen(home).report.readable) == (True, True)
    undo(home, before[0].id)
    assert still_ended(home) == (damage is in_a_text)
    assert file_of(home).with_name("journal.db.damaged").exists()


STATEMENTS = {
    "infinite": "UPDATE runs SET started_at = 9e999 WHERE kind = 'reap'",
    "settled in no year": "UPDATE actions SET settled_at = 1e300 WHERE action = 'end_session'",
    "negative bytes": "UPDATE actions SET bytes = -100",
    "too many bytes": "UPDATE actions SET bytes = 9223372036854775807",
    "number": "UPDATE actions SET number = 1 << 40 WHERE number = 1",
    "deep": "UPDATE actions SET after = '{\"a\":' || replace(hex(zeroblob(9000)), '0', '[')",
    "no text": "UPDATE actions SET after = '{\"frees\": {}}' WHERE number = 1",
    "breaker": "INSERT INTO breaker VALUES (1.0, CAST(x'ff41' AS TEXT))",
    "breaker of bytes": "INSERT INTO breaker VALUES ('q', x'ff')",
    "id": "UPDATE runs SET id = CAST(x'ff41' AS TEXT) WHERE id = (SELECT MAX(id) FROM runs)",
    "renamed": "UPDATE runs SET id = 'x' || id WHERE kind = 'prune'",
    "why": "UPDATE runs SET why = hex(randomblob(5000))",
    "past runs": "UPDATE trimmed_runs SET actions = -500",
    "past of no number": "UPDATE trimmed_runs SET actions = 'x'",
    "past of no text": "UPDATE trimmed_runs SET sole_action = CAST(x'ff' AS TEXT)",
    "totals of no bytes": "UPDATE trimmed SET totals = 'x'",
    "stranger": "INSERT INTO strangers VALUES (x'ff', 'reaped', 1.0)",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS.keys())
def test_what_no_run_writes_is_repaired_once(home: Path, statement: str) -> None:
    sql_of_journal(home, statement)
    settle(home)
    assert runs_of(home)
    assert (seen(home).readable, seen(home).report.readable) == (True, True)
    repaired = file_of(home).stat().st_ino
    settle(home)
    assert file_of(home).stat().st_ino == repaired


def test_any_changed_byte_leaves_a_journal_that_works(template: Path, tmp_path: Path) -> None:
    """What is left undone was lost with a page of the journal, or is in a run of another name."""
    content = file_of(template).read_bytes()
    written = [at for at, byte in enumerate(content) if byte]
    chance, worked = random.Random(11), 0
    reaped = runs_of(template)[0].id
    for number in range(FUZZED):
        home = shutil.copytree(template, tmp_path / f"copy{number}")
        at = chance.choice(written)
        change_byte(home, at, content[at] ^ chance.randrange(1, 256))
        settle(home)
        with suppress(RunError):
            undo(home, reaped)
        worked += still_ended(home) == 0
        assert seen(home).report.readable, at
        later = noted(home, BEGAN, RunKind.REAP, ends("later"))
        assert later in [each.id for each in runs_of(home)], at
        assert not mend_journal(str(home), os.geteuid()), at
        shutil.rmtree(home)
    assert worked > FUZZED * 0.8


def test_a_journal_whose_past_is_damaged_keeps_the_rest_of_it(home: Path) -> None:
    before = without_lines(seen(home))
    in_the_schema(home)
    settle(home)
    assert without_lines(seen(home)) == before


class CountingRow(tuple[Any, ...]):
    """A row that counts how often one was compared with another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        CountingRow.compared += 1
        return super().__eq__(other)

    __hash__ = tuple.__hash__


def test_a_run_of_very_many_actions_is_not_compared_row_by_row(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 3_000
    run = noted(home, time.time(), RunKind.PRUNE, deletions(*map(str, range(many))))
    with closing(apsw.Connection(str(file_of(home)))) as connection:
        pages: list[Any] = connection.execute(
            "SELECT pageno, pgsize FROM dbstat "
            "WHERE name = 'actions' AND pagetype = 'leaf' ORDER BY path"
        ).fetchall()
    page, size = pages[len(pages) // 2]
    with file_of(home).open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(bytes(size))
    monkeypatch.setattr(CountingRow, "compared", 0)
    traced = [lambda each: each.set_row_trace(lambda _, row: CountingRow(row))]
    monkeypatch.setattr(apsw, "connection_hooks", traced)
    assert mend_journal(str(home), os.geteuid())
    assert CountingRow.compared < many
    with journal_of(str(home), os.geteuid()) as journal:
        assert journal is not None
        assert many * 0.9 < len(journal.actions(run)) <= many


LARGE_BYTES = 64 << 20
REPAIR = """
import os, re, resource, sys
from pathlib import Path
from exporter.runs.journal import mend_journal
used = int(re.search(r"VmData:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
most = used + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
print(mend_journal(sys.argv[1], os.geteuid()))
"""


def test_the_repair_of_a_large_journal_takes_memory_of_twice_its_size(home: Path) -> None:
    sql_of_journal(home, "CREATE TABLE added_later (a)")
    sql_of_journal(home, f"INSERT INTO added_later VALUES (zeroblob({LARGE_BYTES}))")
    before = [each.id for each in runs_of(home)]
    in_a_text(home)
    limited = [sys.executable, "-c", REPAIR, str(home), str(LARGE_BYTES * 5 // 2)]
    answered = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert (answered.returncode, answered.stdout) == (0, "True\n"), answered.stderr
    assert [each.id for each in runs_of(home)] == before


# A journal that is whole


@pytest.fixture
def whole(home: Path) -> Iterator[Path]:
    """It must be the same file afterwards, with the same content."""
    before = file_of(home).stat().st_ino, file_of(home).read_bytes()
    yield home
    assert (file_of(home).stat().st_ino, file_of(home).read_bytes()) == before


def test_a_whole_journal_is_not_replaced(whole: Path) -> None:
    assert not mend_journal(str(whole), os.geteuid())


@pytest.mark.parametrize(
    "error", [RunError("EIO"), RunFullError("full"), ValueError("x"), RecursionError()]
)
def test_no_other_error_of_a_call_replaces_it(
    whole: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*words: object) -> None:
        raise error

    monkeypatch.setattr("exporter.workers.acting.recover_home", fail)
    with pytest.raises(type(error)):
        settle(whole)


@pytest.mark.parametrize("error", [UnicodeDecodeError("utf-8", b"", 0, 1, ""), apsw.SQLError()])
def test_an_error_of_something_else_in_a_run_does_not_replace_it(
    whole: Path, error: Exception
) -> None:
    with pytest.raises(RunError), running(str(whole), os.geteuid(), "test"):
        raise error


def test_what_a_newer_version_wrote_or_another_holds_is_not_replaced(home: Path) -> None:
    sql_of_journal(home, "PRAGMA user_version = 7")
    before = file_of(home).stat().st_ino
    with pytest.raises(RunError, match="newer"):
        mend_journal(str(home), os.geteuid())
    sql_of_journal(home, "PRAGMA user_version = 1")
    sql_of_journal(home, "CREATE TABLE added_later (a)")
    assert not mend_journal(str(home), os.geteuid())
    assert file_of(home).stat().st_ino == before


def test_a_file_that_cannot_be_read_now_is_not_replaced(
    whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*words: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("exporter.runs.salvage.open", fail, raising=False)
    with pytest.raises(RunError, match="Input/output"):
        mend_journal(str(whole), os.geteuid())


def test_an_empty_journal_is_a_lost_one(home: Path) -> None:
    file_of(home).write_bytes(b"")
    assert not mend_journal(str(home), os.geteuid())
    with journal_of(str(home), os.geteuid()) as journal:
        assert journal is None
