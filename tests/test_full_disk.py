"""On a disk that is full to the last byte what frees space still works, and is noted."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from exporter.pruner.words import Act, Frees, Policy
from exporter.runs import Action, Intent
from tests.disk_harness import make_shadow_repo
from tests.effects_crew import Crew, crew
from tests.effects_harness import action, picture, planned_file, planned_repo
from tests.evidence_harness import NOBODY, REPOSITORY
from tests.real.elsewhere import as_user

OWNER = NOBODY
PACK = "checkpoints/store/objects/pack/tmp_pack_Ab12Cd"
REPO = "checkpoints/0123456789abcdef"
ORPHAN = "sessions/session_lost.json"

_RUN = """
import os, sys, msgspec
from exporter.pruner.effects.files import FileEffect
from exporter.pruner.emergency import garbage_first
from exporter.runs import Intent, Kind, RunError, RunOutcome, Settlement, ActionState, running
home, intents = sys.argv[1], msgspec.json.decode(sys.argv[2], type=list[Intent])
def journal():
    return running(home, os.geteuid(), "prune")
try:
    taken = garbage_first(home, os.geteuid(), intents, journal)
    with journal() as runs:
        run = runs.begin(Kind.PRUNE, intents)
        runs.settle(run, [Settlement(number, ActionState.DONE) for number in taken])
        runs.finish(run, RunOutcome.DONE)
    print(msgspec.json.encode(["done", taken]).decode())
except RunError as error:
    print(msgspec.json.encode([type(error).__name__, str(error)]).decode())
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home on a small filesystem of its own."""
    image, place = tmp_path / "image", Path("/var/tmp") / f"hermes-exporter-{tmp_path.name}"
    with image.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-b", "4096", "-m", "0", "-F", image], check=True)
    place.mkdir()
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        home = place / "home"
        (home / "sessions").mkdir(parents=True)
        home.chmod(0o700)
        (home / ORPHAN).write_bytes(b"x" * 300_000)
        (home / PACK).parent.mkdir(parents=True)
        (home / PACK).write_bytes(b"x" * 5_000_000)
        make_shadow_repo(home / "checkpoints", Path(REPO).name, tmp_path / "work")
        subprocess.run(["chown", "-hR", f"{OWNER}:{OWNER}", home], check=True)
        yield home
    finally:
        subprocess.run(["umount", place], check=True)
        place.rmdir()


@pytest.fixture
def owner(home: Path) -> Iterator[Crew]:
    """An ordinary user, for whom no blocks are set aside; started when the home is mounted."""
    assert home.exists()
    with crew(as_user(OWNER)) as started:
        yield started


def fill(home: Path) -> None:
    """Not one more block is free."""
    for number, size in enumerate((1 << 20, 4096, 1)):
        with (home.parent / f"filler-{number}").open("wb", buffering=0) as file:
            try:
                while file.write(b"x" * size):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 - the loop ends by it
    assert free_bytes(home) == 0


def free_bytes(home: Path) -> int:
    said = subprocess.check_output(["df", "--output=avail", "-B1", home], text=True)
    return int(said.split()[-1])


def intent(each: Action, frees: Frees = Frees.AT_PURGE) -> Intent:
    return msgspec.structs.replace(each.intent, after={"frees": frees.value, "group": 0})


def run_as_owner(home: Path, intents: Sequence[Intent]) -> list[object]:
    said = subprocess.run(
        [*as_user(OWNER), sys.executable, "-c", _RUN, str(home), msgspec.json.encode(intents)],
        stdout=subprocess.PIPE,
        check=True,
        cwd=REPOSITORY,
    ).stdout
    answer: list[object] = msgspec.json.decode(said)
    return answer


def test_a_home_that_had_a_run_before_notes_takes_and_gives_back_without_space(
    home: Path, owner: Crew
) -> None:
    assert run_as_owner(home, [])[0] == "done"
    before = picture(home)
    actions = [planned_file(home, ORPHAN, 0), planned_repo(home, REPO, 1)]
    fill(home)
    assert run_as_owner(home, [intent(each) for each in actions]) == ["done", []]
    assert owner.ask(home, "take", actions) == ["", ""]
    assert owner.ask(home, "give_back", actions) == ["", ""]
    assert picture(home) == before


def test_garbage_goes_without_the_trash_and_space_comes_free(home: Path, owner: Crew) -> None:
    orphan = planned_file(home, ORPHAN, 0, policy=Policy.ORPHAN_FILES)
    pack = planned_file(home, PACK, 1, policy=Policy.STALE_CHECKPOINTS)
    repo = planned_repo(home, REPO, 2)
    fill(home)
    said = owner.ask(home, "delete", [orphan, pack, repo])
    assert said is not None
    assert said[:2] == ["", ""]
    assert "surely garbage" in said[2]
    assert free_bytes(home) >= 5_300_000
    assert (home / REPO).exists()


def test_purging_needs_no_space(home: Path, owner: Crew) -> None:
    actions = [planned_file(home, PACK, 0), planned_repo(home, REPO, 1)]
    assert owner.ask(home, "take", actions) == ["", ""]
    fill(home)
    purged = owner.ask(home, "purge", actions)
    assert purged is not None
    assert purged[2] == []
    assert free_bytes(home) >= 5_000_000


def test_the_first_run_ever_makes_room_for_its_journal_by_garbage_alone(home: Path) -> None:
    orphan = planned_file(home, ORPHAN, 0, policy=Policy.ORPHAN_FILES)
    intents = [
        intent(planned_repo(home, REPO)),
        intent(action(Act.DELETE_FILE, "sessions/gone.json", {}), Frees.NOW),
        intent(orphan, Frees.NOW),
        intent(planned_file(home, PACK), Frees.NOW),
    ]
    fill(home)
    assert run_as_owner(home, intents) == ["done", [2]]
    assert not (home / ORPHAN).exists()
    assert (home / PACK).exists()
    assert (home / REPO).exists()


def test_the_first_run_ever_without_garbage_does_nothing_and_says_why(home: Path) -> None:
    intents = [intent(planned_repo(home, REPO)), intent(planned_file(home, ORPHAN))]
    fill(home)
    before = picture(home)
    kind, why = run_as_owner(home, intents)
    assert kind == "RunFullError"
    assert "No space left" in str(why)
    assert picture(home) == before
