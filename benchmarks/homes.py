"""Make the homes that benchmarks read, once, under .cache/bench/.

`python -m benchmarks.homes SCALE [PART ...]` makes one ahead of time. Scale 1 is the size found in
the field. The parts of a home (database, transcripts, checkpoints) can be made one by one: ten
times the field size takes 30 GB and some minutes. Each part is made beside its place and then
renamed, so an existing part is complete. Benchmarks may add a little to a home; they remove
nothing. One whose figure depends on what others have added takes a copy (`copied`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from random import Random

from exporter.demo import checkpoints, files
from exporter.demo.conversation import Prose, tell
from exporter.demo.database import Row, insert, new_state
from exporter.demo.population import Outline, outlines
from tests.support.fabricate.field import field_shape

VERSION = 1
"""Raise it when the contents made here change; old homes are then kept but not used."""
CACHE = (Path(__file__).parents[1] / ".cache").resolve() / "bench"
NOW = 1_760_000_000.0
"""The time of every made home."""

_DAYS = 300
_PROMPT_CHARACTERS = 24_000
_MESSAGE_CHARACTERS = 365
_TRANSCRIPTS = 5_000
_TRANSCRIPT_CHARACTERS = 80_000
_REQUEST_DUMPS = 180
_LEGACY_REPOS = 1_100
_LEGACY_OBJECTS = 133
"""Loose objects of one shadow repo; with git's own files 156 files in 117 folders."""
_STORE_PROJECTS = 200
_STORE_SNAPSHOTS = 12
_GIT_ENVIRONMENT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}


class Part(StrEnum):
    """The parts of a home that a benchmark needs; each value is a name in the home."""

    DATABASE = "state.db"
    TRANSCRIPTS = "sessions"
    CHECKPOINTS = "checkpoints"


def home(scale: float, *parts: Part, seed: int = 1, cache: Path = CACHE) -> Path:
    """Return the home at this scale with these parts (default: all); missing parts are made now."""
    place = cache / f"v{VERSION}-seed{seed}-scale{scale:g}" / "home"
    place.mkdir(parents=True, exist_ok=True)
    place = place.resolve()  # .cache may be a link to a larger disk; no home below a link
    for part in parts or tuple(Part):
        if not (place / part).exists():
            with _beside(place / part) as unfinished:
                _MAKERS[part](unfinished, scale, Random(f"{seed} {part}"))
    return place


@contextmanager
def copied(source: Path, part: Part) -> Iterator[Path]:
    """Yield a home that has only a copy of this part, which is a file."""
    place = source.parent / f"copy.{os.getpid()}"
    place.mkdir()
    try:
        shutil.copy(source / part, place)
        yield place
    finally:
        shutil.rmtree(place)


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """Yield a path to build at; it is renamed to its place when the block succeeds."""
    started = time.monotonic()
    unfinished = place.parent.parent / f"{place.name}.{os.getpid()}"
    try:
        yield unfinished
        unfinished.rename(place)
    except BaseException:
        if unfinished.is_dir():
            shutil.rmtree(unfinished)
        unfinished.unlink(missing_ok=True)
        raise
    print(f"made {place} in {time.monotonic() - started:.0f} s", flush=True)


def open_sessions(scale: float) -> int:
    """Return how many sessions of a home at this scale were never ended."""
    return field_shape(scale).open


def _outlines(scale: float) -> list[Outline]:
    """Return the same sessions for every part of a home, in any order of making the parts."""
    return outlines(field_shape(scale), now=NOW, days=_DAYS, rng=Random(scale))


def _prose(rng: Random) -> Prose:
    return Prose(rng, vocabulary=20_000, length=1_000_000)


def _make_database(place: Path, scale: float, rng: Random) -> None:
    prose = _prose(rng)
    routed: list[Row] = []
    with new_state(str(place)) as database:
        for outline in _outlines(scale):
            story = tell(
                outline,
                prose=prose,
                rng=rng,
                message_size=_MESSAGE_CHARACTERS,
                prompt_size=_PROMPT_CHARACTERS,
            )
            story.insert_into(database)
            routed += files.routes("sessions", [story])
        insert(database, "gateway_routing", routed)


def _make_transcripts(place: Path, scale: float, rng: Random) -> None:
    prose = _prose(rng)
    spoken = [outline for outline in _outlines(scale) if outline.messages]
    place.mkdir()
    for outline in rng.sample(spoken, round(_TRANSCRIPTS * scale)):
        _write_text(place / f"session_{outline.id}.json", outline, prose, _TRANSCRIPT_CHARACTERS)
    for outline in rng.sample(spoken, round(_REQUEST_DUMPS * scale)):
        name = f"request_dump_{outline.id}_20250101_000000_000000.json"
        _write_text(place / name, outline, prose, 2 * _TRANSCRIPT_CHARACTERS)
    files.write_routing_mirror(str(place), [], NOW)


def _write_text(path: Path, outline: Outline, prose: Prose, mean: int) -> None:
    content = {"session_id": outline.id, "messages": [prose.about(mean)]}
    path.write_text(json.dumps(content), encoding="ascii")
    os.utime(path, (outline.last_at, outline.last_at))


def _make_checkpoints(place: Path, scale: float, rng: Random) -> None:
    prose = _prose(rng)
    sizes = (int(rng.lognormvariate(8.5, 1)) for _ in range(2_000))
    blobs = [checkpoints.blob(prose.passage(size).encode()) for size in sizes]
    projects = place.parent / "projects"
    place.mkdir()
    for number in range(round(_LEGACY_REPOS * scale)):
        checkpoints.write_legacy(
            str(place),
            _workdir(projects, f"legacy-{number}", rng),
            blobs=blobs,
            objects=_LEGACY_OBJECTS,
            when=NOW - rng.random() * _DAYS * 86400,
            rng=rng,
        )
    touched = {
        _workdir(projects, f"store-{number}", rng): NOW - rng.random() * _DAYS * 86400
        for number in range(round(_STORE_PROJECTS * scale))
    }
    store = checkpoints.write_store(
        str(place), touched, blobs=blobs, snapshots_each=_STORE_SNAPSHOTS, rng=rng
    )
    # Hermes packs its store at each of its own prunes.
    subprocess.run(
        ["git", "--git-dir", store, "gc", "--quiet"], env=os.environ | _GIT_ENVIRONMENT, check=True
    )


def _workdir(projects: Path, name: str, rng: Random) -> str:
    """Return a project's folder; two thirds of them still exist."""
    if rng.random() < 2 / 3:
        (projects / name).mkdir(parents=True, exist_ok=True)
    return str(projects / name)


_MAKERS: dict[Part, Callable[[Path, float, Random], None]] = {
    Part.DATABASE: _make_database,
    Part.TRANSCRIPTS: _make_transcripts,
    Part.CHECKPOINTS: _make_checkpoints,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.homes", description=__doc__)
    parser.add_argument("scale", type=float)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(Part))
    arguments = parser.parse_args()
    print(home(arguments.scale, *map(Part, arguments.parts)))


if __name__ == "__main__":
    main()
