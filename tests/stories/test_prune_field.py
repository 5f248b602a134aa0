"""A whole prune and its undo on a home like those of the field, counted by other programs."""

from __future__ import annotations

import filecmp
import hashlib
import os
import sqlite3
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.real.command import run_json
from tests.real.counts import allocated_bytes
from tests.support.field_home import FIELD, SMALL, Field, Size, make_field
from tests.support.session_pruning import dump_into, prunable_process

WORDS = ("invented", "terminal", "turn", "word1", "exit_code")
PATIENCE_SECONDS = 3000.0
OURS = ".hermes-exporter"


class Picture(NamedTuple):
    """A home as other programs see it."""

    dump: Path
    """The database, row by row, and what its search finds."""
    files: dict[str, tuple[object, ...]]
    refs: str
    """Of the store, with the commits they lead to."""


def look(home: Path, dump: Path) -> Picture:
    store = home / "checkpoints" / "store"
    listed = ["git", f"--git-dir={store}", "for-each-ref", "--format=%(refname) %(objectname)"]
    refs = subprocess.run(listed, check=True, capture_output=True, text=True).stdout
    return Picture(dump_into(dump, home, *WORDS), files_of(home), refs)


def files_of(home: Path) -> dict[str, tuple[object, ...]]:
    """Every file with its times and contents; of shadow repos the folders too."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, names in os.walk(home):
        place = os.path.relpath(folder, home)
        if place == ".":
            folders[:] = [name for name in folders if name != OURS]
            names = [name for name in names if not name.startswith("state.db")]
        for name in names:
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            content = b"" if os.path.islink(path) else Path(path).read_bytes()
            found[os.path.normpath(os.path.join(place, name))] = (
                seen.st_mode,
                seen.st_mtime_ns,
                hashlib.sha256(content).digest(),
            )
        if place.startswith("checkpoints/") and not place.startswith("checkpoints/store"):
            seen = os.lstat(folder)
            found[place] = (seen.st_mode, seen.st_mtime_ns)
    return found


def rows(home: Path, query: str) -> list[Any]:
    connection = sqlite3.connect(f"file:{home}/state.db?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def counts(home: Path) -> dict[str, int]:
    """How many rows each session has in each table that tells of sessions."""
    tables = {"sessions": "id", "messages": "session_id", "session_model_usage": "session_id"}
    return {
        f"{table} of {session}": number
        for table, column in tables.items()
        for session, number in rows(home, f"SELECT {column}, COUNT(*) FROM {table} GROUP BY 1")
    }


def journal(home: Path, run: str) -> list[dict[str, Any]]:
    """What the journal says of a run, read by another library."""
    (file,) = (home / OURS).rglob("journal.db")
    connection = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        query = "SELECT action, target, bytes, state, why FROM actions WHERE run = ?"
        return [dict(row) for row in connection.execute(query, (run,))]
    finally:
        connection.close()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(SMALL, id="small"),
        pytest.param(FIELD, id="field", marks=[pytest.mark.full]),
    ],
)
def field(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Field:
    size: Size = request.param
    return make_field(tmp_path_factory.mktemp("field"), size)


@pytest.mark.timeout(3600)
def test_a_home_of_the_field_is_pruned_as_planned_and_given_back_exactly(
    field: Field, tmp_path: Path
) -> None:
    home = field.path
    where = ("--home", home, "--state-dir", tmp_path / "state")
    before = look(home, tmp_path / "before")
    counted = counts(home)
    plan = run_json("prune", *where, timeout_seconds=PATIENCE_SECONDS)["plan"]
    sizes = {each["target"]: each["bytes"] for each in on_disk(plan)}
    assert sizes == allocated_each(home, sizes)
    room = allocated_bytes(*outside_store(home))

    done = run_json(
        "prune", "--plan", plan["hash"], "--yes", *where, timeout_seconds=PATIENCE_SECONDS
    )
    noted = journal(home, done["run"])
    taken = {each["target"] for each in noted if each["state"] == "done"}
    assert {each["target"] for each in noted} == {each["target"] for each in plan["actions"]}
    assert {each["target"] for each in done["skipped"]} == {
        each["target"] for each in noted if each["state"] == "skipped"
    }
    assert all(each["why"] for each in done["skipped"])
    assert len(taken) == done["done"] > len(plan["actions"]) / 2

    sessions = {each["target"] for each in noted if each["action"] == "delete_session"} & taken
    assert counts(home) == {
        name: number for name, number in counted.items() if name.split(" of ", 1)[1] not in sessions
    }
    left = files_of(home)
    assert before.files.keys() - left.keys() == lost(before, noted)
    assert room - allocated_bytes(*outside_store(home)) == sum(
        size for target, size in sizes.items() if target in taken
    )
    goes_on(field, home, tmp_path, sessions)

    undone = run_json("undo", done["run"], *where, timeout_seconds=PATIENCE_SECONDS)
    assert undone == {"run": done["run"], "restored": len(taken), "failed": []}
    after = look(home, tmp_path / "after")
    assert filecmp.cmp(before.dump, after.dump, shallow=False)
    assert after.files == before.files
    assert after.refs == before.refs
    store = home / "checkpoints" / "store"
    subprocess.run(["git", f"--git-dir={store}", "fsck", "--connectivity-only"], check=True)


def on_disk(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """What of a plan takes room of its own in the home."""
    return [each for each in plan["actions"] if each["action"] in ("delete_file", "delete_repo")]


def allocated_each(home: Path, names: Iterable[str]) -> dict[str, int]:
    """What du says that each of these takes."""
    du = subprocess.run(
        ["du", "--summarize", "--null", "--block-size=1", "--files0-from=-"],
        input="\0".join(names),
        cwd=home,
        check=True,
        capture_output=True,
        text=True,
    )
    sizes = (line.split("\t", 1) for line in du.stdout.split("\0") if line)
    return {name: int(size) for size, name in sizes}


def outside_store(home: Path) -> list[Path]:
    """Everything in a home but the database, the store and what is ours."""
    return [
        path
        for place in (home, home / "checkpoints")
        for path in place.iterdir()
        if not path.name.startswith("state.db") and path.name not in (OURS, "store", "checkpoints")
    ]


def lost(before: Picture, noted: list[dict[str, Any]]) -> set[str]:
    """The files that must have gone: those named, those in repos, those of projects."""
    done = [each for each in noted if each["state"] == "done"]
    places = {each["target"] for each in done if each["action"] in ("delete_file", "delete_repo")}
    projects = {each["target"] for each in done if each["action"] == "delete_project"}

    def is_lost(name: str) -> bool:
        parts = name.split("/")
        if parts[:2] == ["checkpoints", "store"]:
            return parts[-1].removesuffix(".json") in projects
        return any("/".join(parts[:length]) in places for length in range(1, len(parts) + 1))

    return {name for name in before.files if is_lost(name)}


def goes_on(field: Field, pruned: Path, folder: Path, gone: set[str]) -> None:
    """On a copy of what is left, Hermes lists, searches, resumes, exports, and prunes by itself."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    for path in pruned.iterdir():
        if path.name != OURS:
            subprocess.run(["cp", "--archive", path, home], check=True)
    left = {session for (session,) in rows(home, "SELECT id FROM sessions")}
    assert not left & gone
    with prunable_process(field.hermes, home) as hermes:
        assert hermes.ask("broken") == []
        listed = hermes.ask("listed")
        assert listed
        assert set(listed) <= left
        for word in WORDS:
            assert set(hermes.ask("search", text=word)) <= left
        for session in listed[:20]:
            found = len(hermes.ask("exported", session=session)["messages"])
            assert hermes.ask("resume", session=session) <= found
        hermes.ask("append", session=listed[0])
        hermes.ask("own_prune", days=30)
        assert hermes.ask("broken") == []
    answer = field.hermes.run("snapshot", home, prune={"retention_days": 7})
    assert answer["prune"]["errors"] == 0
    store = home / "checkpoints" / "store"
    subprocess.run(["git", f"--git-dir={store}", "fsck", "--connectivity-only"], check=True)
