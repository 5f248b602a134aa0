"""What is put into the text index again stays right, whichever release of SQLite merges it."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from exporter.hermes.schema import probe_schema
from exporter.hermes.table_rows import TableRows
from exporter.writing.search_index import (
    SearchIndex,
    add_to_index,
    probe_search_index,
    remove_from_index,
)

INDEX = SearchIndex(("plain", "trigram"), known=True)
TEXTS = {number: f"word{number} in 20250102_080000_aaaaaa " + "much " * 20 for number in range(120)}
MESSAGES = TableRows(("id", "content"), list(TEXTS.items()))


class Index:
    """One text index and two that write to it: our SQLite, and this Python's for Hermes's."""

    def __init__(self, path: Path) -> None:
        self.ours = apsw.Connection(str(path))
        self.ours.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        self.ours.execute("PRAGMA journal_mode=WAL").fetchall()
        self.ours.execute("CREATE VIRTUAL TABLE plain USING fts5(content)")
        self.ours.execute("CREATE VIRTUAL TABLE trigram USING fts5(content, tokenize='trigram')")
        self.hermes = sqlite3.connect(path, isolation_level=None)
        self.there: set[int] = set()
        self.written = 0

    def remove(self, message_ids: list[int]) -> None:
        with self.ours:
            remove_from_index(self.ours, INDEX, message_ids, {})
        self.there -= set(message_ids)

    def put_back(self, message_ids: list[int]) -> None:
        with self.ours:
            add_to_index(self.ours, INDEX, MESSAGES, message_ids, {})
        self.there |= set(message_ids)

    def chat(self) -> None:
        """Hermes writes a message of its own, and merges what is due."""
        self.written += 1
        self.hermes.execute("BEGIN IMMEDIATE")
        for table in INDEX.tables:
            self.hermes.execute(
                f"INSERT INTO {table}(rowid, content) VALUES (?, 'hello')", (1000 + self.written,)
            )
        self.hermes.execute("COMMIT")

    def check(self) -> None:
        for table in INDEX.tables:
            command = f"INSERT INTO {table}({table}) VALUES ('integrity-check')"
            self.hermes.execute(command)
            self.ours.execute(command)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    found = Index(tmp_path / "index.db")
    yield found
    found.hermes.close()
    found.ours.close()


@pytest.mark.parametrize("seed", range(6))
def test_removed_and_put_back_again_and_again_while_hermes_writes(index: Index, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(250):
        step = chance.choice(("remove", "put back", "chat", "chat"))
        if step == "remove":
            index.remove(sorted(index.there)[: chance.randint(1, 10)])
        elif step == "put back":
            index.put_back(sorted(set(TEXTS) - index.there)[: chance.randint(1, 20)])
        else:
            index.chat()
        index.check()
    assert {row for (row,) in index.ours.execute("SELECT rowid FROM trigram")} == {
        *index.there,
        *range(1001, 1001 + index.written),
    }


def test_what_is_in_the_index_already_is_not_counted_twice(index: Index) -> None:
    index.put_back([1, 2, 3])
    index.put_back([2, 3, 4])
    index.check()
    assert index.ours.execute("SELECT count(*) FROM plain('word3')").get == 1


def test_long_texts_and_many_are_counted_right(index: Index) -> None:
    chance = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyzäöü日本 "
    texts = ["".join(chance.choices(letters, k=size)) for size in (0, 2, 100_000, 70_000, 400_000)]
    rows = TableRows(("id", "content"), list(enumerate(texts, 1)))
    index.chat()
    for _ in range(2):
        with index.ours:
            add_to_index(index.ours, INDEX, rows, [1, 2, 3, 4, 5], {})
        index.check()
        with index.ours:
            remove_from_index(index.ours, INDEX, [1, 2, 3, 4, 5], {})
        index.check()
    assert index.ours.execute("SELECT count(*) FROM plain('hello')").get == 1


def test_a_transaction_that_is_rolled_back_leaves_the_counts(index: Index) -> None:
    index.put_back([1, 2])
    index.ours.execute("BEGIN IMMEDIATE")
    add_to_index(index.ours, INDEX, MESSAGES, [3, 4], {})
    index.ours.execute("ROLLBACK")
    index.check()
    index.remove([1, 2])
    index.check()
    assert index.ours.execute("SELECT count(*) FROM plain").get == 0
    with pytest.raises(apsw.SQLError, match="may not be modified"):
        index.ours.execute("UPDATE plain_content SET c0 = ''")


COLUMNS = ("content", "tool_name", "tool_calls")
TEXT = " || ' ' || ".join(f"COALESCE(new.{each}, '')" for each in COLUMNS)
INSERT = f"INSERT INTO messages_fts(rowid, content) VALUES (new.id, {TEXT});"
DELETE = "DELETE FROM messages_fts WHERE rowid = old.id;"


@pytest.mark.parametrize(
    ("options", "known"),
    [
        ("content", True),
        ("content, content='messages', content_rowid='id'", False),
        ("content, columnsize=0", False),
        ("content, more", False),
    ],
)
def test_only_an_index_that_keeps_one_text_and_its_size_is_changed_entry_by_entry(
    options: str, known: bool
) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE TABLE sessions(id TEXT PRIMARY KEY, source, started_at, ended_at);"
        "CREATE TABLE messages(id INTEGER PRIMARY KEY AUTOINCREMENT, session_id, content, "
        "tool_name, tool_calls);"
        f"CREATE VIRTUAL TABLE messages_fts USING fts5({options});"
        f"CREATE TRIGGER a AFTER INSERT ON messages BEGIN {INSERT} END;"
        f"CREATE TRIGGER b AFTER DELETE ON messages BEGIN {DELETE} END;"
        f"CREATE TRIGGER c AFTER UPDATE ON messages BEGIN {DELETE} {INSERT} END;"
    )
    assert probe_search_index(connection, probe_schema(connection)).known is known
