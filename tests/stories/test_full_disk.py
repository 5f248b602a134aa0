"""On a disk that is full to the last byte what frees space still works, and is noted."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.pruner.models import PruneAction, PrunePlan
from exporter.runs.models import Frees, RecordedAction
from tests.real.elsewhere import as_user
from tests.real.hermes import REPOSITORY
from tests.support.disk_homes import make_shadow_repo
from tests.support.evidence import NOBODY
from tests.support.remover_process import Crew, crew
from tests.support.removers import picture, planned_file, planned_repo

OWNER = NOBODY
PACK = "checkpoints/store/objects/pack/tmp_pack_Ab12Cd"
REPO = "checkpoints/0123456789abcdef"
ORPHAN = "sessions/session_lost.json"

_RUN = """
import os, sys, msgspec
from exporter.pruner.apply.execute import execute
from exporter.pruner.models import PrunePlan
from exporter.writing.target import Target
from exporter.runs.folder import RunError
plan = msgspec.json.decode(sys.argv[1], type=PrunePlan)
site = Target(plan.home, os.geteuid())
try:
    done = execute(plan, site, keep_seconds=3600.0)
    said = [done.outcome, done.done, [each.why for each in done.skipped]]
    print(msgspec.json.encode(said).decode())
except RunError as error:
    print(msgspec.json.encode([type(error).__name__, str(error)]).decode())
"""

_RESERVE = """
import os, sys
from exporter.runs.journal import running
from exporter.runs.reserve import make_reserve
with running(sys.argv[1], os.geteuid(), "reserve") as runs:
    make_reserve(runs.folder)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home on a small filesystem of its own."""
    image = tmp_path / "image"
    place = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="hermes-exporter-test-"))
    with image.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-b", "4096", "-m", "0", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        place.chmod(0o755)
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
    """An ordinary user, who may not use the reserved blocks; started when the home is mounted."""
    assert home.exists()
    with crew(as_user(OWNER)) as started:
        yield started


def fill(home: Path) -> None:
    """Not one more block is free, not even of those that are given back a little later."""
    for attempt in range(50):
        for size in (1 << 20, 4096, 1):
            with (home.parent / f"filler-{attempt}-{size}").open("wb", buffering=0) as file:
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError as error:
                    assert error.errno == errno.ENOSPC  # noqa: PT017 - the loop ends by it
        subprocess.run(["sync", "--file-system", home], check=True)
        if free_bytes(home) == 0:
            return
    raise AssertionError("the filesystem does not get full")


def free_bytes(home: Path) -> int:
    said = subprocess.check_output(["df", "--output=avail", "-B1", home], text=True)
    return int(said.split()[-1])


def planned(each: RecordedAction, frees: Frees = Frees.AT_PURGE) -> PruneAction:
    """The same as a plan has it."""
    return msgspec.structs.replace(each.action, frees=frees)


def prune(home: Path, *actions: PruneAction) -> list[Any]:
    """What becomes of a plan that the owner executes."""
    plan = PrunePlan(home=str(home), hash="0123456789abcdef", actions=actions)
    said = subprocess.run(
        [*as_user(OWNER), sys.executable, "-c", _RUN, msgspec.json.encode(plan)],
        stdout=subprocess.PIPE,
        check=True,
        cwd=REPOSITORY,
    ).stdout
    answer: list[Any] = msgspec.json.decode(said)
    return answer


def test_a_home_with_a_reserve_notes_and_takes_without_space(home: Path, owner: Crew) -> None:
    subprocess.run(
        [*as_user(OWNER), sys.executable, "-c", _RESERVE, home], check=True, cwd=REPOSITORY
    )
    before = picture(home)
    actions = [planned_file(home, ORPHAN, 0), planned_repo(home, REPO, 1)]
    fill(home)
    assert prune(home, *map(planned, actions)) == ["done", [ORPHAN, REPO], []]
    [run] = [
        path.name
        for path in (home / ".hermes-exporter/backups/trash").iterdir()
        if (path / "000001-0123456789abcdef").exists()
    ]
    taken = [msgspec.structs.replace(each, run=run) for each in actions]
    assert owner.ask(home, "restore", taken) == ["", ""]
    assert picture(home) == before


def test_half_packs_alone_go_without_the_trash_and_space_comes_free(
    home: Path, owner: Crew
) -> None:
    orphan = planned_file(home, ORPHAN, 0, policy="orphan_files")
    pack = planned_file(home, PACK, 1, policy="orphan_checkpoints")
    repo = planned_repo(home, REPO, 2)
    fill(home)
    said = owner.ask(home, "delete", [orphan, pack, repo])
    assert said is not None
    assert said[1] == ""
    assert "certain garbage" in said[0]
    assert "certain garbage" in said[2]
    assert free_bytes(home) >= 5_000_000
    assert (home / REPO).exists()
    assert (home / ORPHAN).stat().st_size == 300_000


def test_purging_needs_no_space(home: Path, owner: Crew) -> None:
    actions = [planned_file(home, PACK, 0), planned_repo(home, REPO, 1)]
    assert owner.ask(home, "take", actions) == ["", ""]
    fill(home)
    assert owner.ask(home, "purge", actions) == [""]
    assert free_bytes(home) >= 5_000_000


def test_the_first_run_ever_makes_room_for_its_journal_by_half_packs_alone(home: Path) -> None:
    actions = [
        planned(planned_repo(home, REPO)),
        planned(planned_file(home, ORPHAN, policy="orphan_files")),
        planned(planned_file(home, PACK, policy="orphan_checkpoints"), Frees.NOW),
    ]
    fill(home)
    outcome, done, skipped = prune(home, *actions)
    assert (outcome, sorted(done), skipped) == ("done", sorted([REPO, ORPHAN, PACK]), [])
    assert free_bytes(home) >= 4_500_000  # the pack, less the journal
    [run] = (home / ".hermes-exporter/backups/trash").iterdir()
    assert sorted(path.name for path in run.iterdir()) == [
        "000000-0123456789abcdef",
        "000001-session_lost.json",
    ]


def test_a_plan_that_wants_a_transcript_gone_at_once_is_not_followed(home: Path) -> None:
    """Whatever made such a plan: on a full disk too, the file stays where it is."""
    lost = planned(planned_file(home, ORPHAN, policy="orphan_files"), Frees.NOW)
    fill(home)
    kind, why = prune(home, lost)
    assert (kind, "No space left" in why) == ("RunFullError", True)
    assert (home / ORPHAN).stat().st_size == 300_000


def test_the_first_run_ever_without_garbage_does_nothing_and_says_why(home: Path) -> None:
    actions = [planned(planned_repo(home, REPO)), planned(planned_file(home, ORPHAN))]
    fill(home)
    before = picture(home)
    kind, why = prune(home, *actions)
    assert kind == "RunFullError"
    assert "No space left" in why
    assert picture(home) == before
