"""Homes of the size found in the field, made by a real release.

Sessions come from SessionDB's own import and counters, transcripts and request dumps from the
agent's own writers, the store's snapshots from CheckpointManager. No release available today writes
shadow repos of before 0.13. Some are made with git in the same way; the others are copies of these,
with the names of their own projects.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from exporter.demo.conversation import Prose, Story, tell
from exporter.demo.population import Outline, Shape, outlines
from tests.real.hermes import NEWEST, Hermes
from tests.real.homes import make_home
from tests.support.fabricate.field import FIELD as FIELD_SHAPE
from tests.support.session_pruning import grow_old, touch_project, turn_back

Each = TypeVar("Each")
DAYS = 300
PATIENCE_SECONDS = 1800.0
_DAY = 86400.0
_SESSIONS_AT_ONCE = 100
_PROMPT_CHARACTERS = 24_000
_MESSAGE_CHARACTERS = 365
_TRANSCRIPT_CHARACTERS = 80_000
_FILES_OF_A_PROJECT = 130
_PROJECTS_AT_ONCE = 20


class Size(NamedTuple):
    """How much of everything a home has."""

    shape: Shape
    transcripts: int
    orphans: int
    """How many of the transcripts have no session any more."""
    dumps: int
    repos: int
    templates: int
    """How many of the repos git made; the others are copies."""
    projects: int


FIELD = Size(FIELD_SHAPE._replace(messages=250_000), 5_000, 400, 180, 1_100, 44, 200)
SMALL = Size(Shape(100, 35, 67, 2, 400, 1_500, 30), 50, 5, 4, 11, 3, 3)


class Field(NamedTuple):
    """A home like those in the field, and the Hermes that made it."""

    hermes: Hermes
    path: Path


def make_field(folder: Path, size: Size) -> Field:
    """Make a home below `folder`, over the last `DAYS`; cold: no process holds it."""
    made = make_home(NEWEST, folder)
    grow_old(made.path, DAYS)
    rng = Random(1)
    people = outlines(size.shape, now=time.time() - _DAY / 24, days=DAYS, rng=rng)
    _import(made.hermes, made.path, people, rng)
    _write_files(made.hermes, made.path, people, size, rng)
    _snapshot(made.hermes, made.path, [folder / f"store-{n}" for n in range(size.projects)], rng)
    _make_repos(made.hermes, made.path, folder, size)
    return Field(made.hermes, made.path)


# Sessions


def _import(hermes: Hermes, home: Path, people: Sequence[Outline], rng: Random) -> None:
    prose = Prose(rng, vocabulary=20_000, length=1_000_000)
    with subprocess.Popen(
        hermes.command("import_sessions"),
        env=hermes.environment(home),
        cwd=home.parent,
        stdin=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        for some in _some(people, _SESSIONS_AT_ONCE):
            exported = [_exported(each, prose, rng) for each in some]
            process.stdin.write(json.dumps(exported) + "\n")
    assert process.returncode == 0


def _exported(outline: Outline, prose: Prose, rng: Random) -> dict[str, Any]:
    """Return a session in the form of an export, together with its usage."""
    story = tell(
        outline,
        prose=prose,
        rng=rng,
        message_size=_MESSAGE_CHARACTERS,
        prompt_size=_PROMPT_CHARACTERS,
    )
    session = story.session
    counted = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    kept = {name: value for name, value in session.items() if not name.endswith("_tokens")}
    return {
        **kept,
        "api_call_count": 0,
        "estimated_cost_usd": None,
        "last_at": outline.last_at,
        "used": {name: session[name] for name in (*counted, "model", "api_call_count")}
        if story.usage
        else {},
        "messages": list(_messages(story)),
    }


def _messages(story: Story) -> Iterator[dict[str, Any]]:
    for each in story.messages:
        calls = {"tool_calls": json.loads(each["tool_calls"])} if "tool_calls" in each else {}
        yield each | calls


# Files


def _write_files(
    hermes: Hermes, home: Path, people: Sequence[Outline], size: Size, rng: Random
) -> None:
    """Write transcripts as old as their sessions; some belong to deleted sessions."""
    spoken = [each for each in people if each.messages]
    here = {each.id: each.last_at for each in rng.sample(spoken, size.transcripts - size.orphans)}
    # The home was made this many days ago: the owner of older files is unknown.
    youngest, oldest = time.time() - 2 * _DAY, time.time() - (DAYS - 30) * _DAY
    gone = {
        time.strftime("%Y%m%d_%H%M%S", time.gmtime(at)) + f"_{number:06x}": at
        for number, at in enumerate(rng.uniform(oldest, youngest) for _ in range(size.orphans))
    }
    last_at = here | gone
    for some in _some(last_at, 500):
        dumped = [each for each in some if each in here][: -(-size.dumps * 500 // len(last_at))]
        hermes.run(
            "write_transcripts",
            home,
            sessions=some,
            dumped=dumped,
            characters=_TRANSCRIPT_CHARACTERS,
            patience_seconds=PATIENCE_SECONDS,
        )
    for path in (home / "sessions").glob("*.json"):
        written = path.stat().st_mtime
        at = next((last_at[name] for name in _names(path.name) if name in last_at), written)
        turn_back(path, written - at)


def _names(file: str) -> Iterator[str]:
    """Yield the ids that this transcript or request dump could belong to."""
    yield file.removeprefix("session_").removesuffix(".json")
    yield file.removeprefix("request_dump_").rsplit("_", 3)[0]


# Checkpoints


def _snapshot(hermes: Hermes, home: Path, folders: Sequence[Path], rng: Random) -> None:
    for some in _some(folders, _PROJECTS_AT_ONCE):
        snapshot = [[str(folder), 1 + (number % 10 == 0)] for number, folder in enumerate(some)]
        hermes.run("snapshot", home, snapshot=snapshot, patience_seconds=PATIENCE_SECONDS)
    store = home / "checkpoints" / "store"
    for number, folder in enumerate(folders):
        name = _name(folder)
        seconds = rng.random() * DAYS * _DAY
        touch_project(store / "projects" / f"{name}.json", seconds)
        for path in ("projects/{}.json", "indexes/{}", "refs/hermes/{}"):
            turn_back(store / path.format(name), seconds)
        if number % 3 == 0:
            shutil.rmtree(folder)


def _make_repos(hermes: Hermes, home: Path, folder: Path, size: Size) -> None:
    """Make repos of many ages; one in three has lost its project."""
    projects = [folder / f"legacy-{number}" for number in range(size.repos)]
    templates = projects[: size.templates]
    for some in _some(templates, _PROJECTS_AT_ONCE):
        hermes.run(
            "legacy_repos",
            home,
            folders=list(map(str, some)),
            files=_FILES_OF_A_PROJECT,
            patience_seconds=PATIENCE_SECONDS,
        )
    checkpoints = home / "checkpoints"
    for number, project in enumerate(projects):
        repo = checkpoints / _name(project)
        template = templates[number % len(templates)]
        if number < len(templates):
            seconds = (1 + number * DAYS / len(templates)) * _DAY
            for path in (repo, *repo.rglob("*")):
                turn_back(path, seconds)
        else:
            _copy_repo(checkpoints / _name(template), template, repo, project)
            project.mkdir()
    for project in projects[::3]:
        shutil.rmtree(project)


def _copy_repo(template: Path, its_project: Path, repo: Path, project: Path) -> None:
    subprocess.run(["cp", "--archive", template, repo], check=True)
    for name in ("HERMES_WORKDIR", "config"):
        was = (repo / name).stat()
        text = (repo / name).read_text().replace(f"{its_project}\n", f"{project}\n")
        (repo / name).write_text(text)
        os.utime(repo / name, ns=(was.st_atime_ns, was.st_mtime_ns))


def _name(project: Path) -> str:
    """Return the name of the project's checkpoints."""
    return hashlib.sha256(str(project).encode()).hexdigest()[:16]


def _some(items: Iterable[Each], count: int) -> Iterator[list[Each]]:
    """Yield lists of this many items."""
    rest = iter(items)
    while some := list(islice(rest, count)):
        yield some
