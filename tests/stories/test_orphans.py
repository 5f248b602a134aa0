"""The agent and a person beside transcripts without rows: on a full disk, after a real import."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.pruner.apply.execute import execute
from exporter.pruner.decide.inventory import Deletion
from exporter.pruner.models import Act, PrunePlan
from exporter.runs.journal import running_on
from exporter.runs.models import Action, RecordedAction, RunKind
from tests.pruner.decide.policies.test_orphan_files import NEW, OLD, TIGHT, Home
from tests.real.agent import Agent, agent
from tests.real.command import refusal, run, run_json
from tests.real.waiting import wait_until
from tests.stories.test_prune import HOME, enforcing, small_filesystem
from tests.support.prune_plans import inside, kept, plan, read_inventory, targets
from tests.support.reaping import target_of
from tests.support.running_agent import when

PACK = "checkpoints/store/objects/pack/tmp_pack_Ab12Cd"
DUMP = f"sessions/request_dump_{OLD[0]}_20250101_010101_123456.json"
MONTH = 30 * 86400.0


def grow_old(home: Path) -> None:
    for path in [*(home / "sessions").iterdir(), *home.glob(PACK)]:
        moment = path.stat().st_mtime - MONTH
        os.utime(path, (moment, moment))


def transcripts(home: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (home / "sessions").glob("session_*.json")}


def trash(home: Path) -> list[str]:
    return [path.name for path in (home / ".hermes-exporter/backups/trash").rglob("0*")]


@contextmanager
def looking(folder: Path, home: Path, marks: str) -> Iterator[Agent]:
    """An agent that has looked at the thresholds of the home at least once."""
    with agent(folder, configuration=enforcing(home, marks)) as running:
        when(
            running,
            lambda found: bool(found.by("hermes_prune_pressure", "threshold", home=HOME)),
            "the thresholds are known",
        )
        yield running


def fill(disk: Path) -> None:
    """98% and more, as df has it."""
    said = subprocess.check_output(["df", "--output=size,avail", "-B1", disk], text=True)
    size, available = map(int, said.split()[-2:])
    subprocess.run(["fallocate", "-l", str(available - size // 100), disk / "filler"], check=True)


@pytest.mark.parametrize("seen", [False, True], ids=["new agent", "agent that saw them"])
def test_on_a_full_disk_after_an_import_no_transcript_goes_and_old_trash_does(
    tmp_path: Path, seen: bool
) -> None:
    calm, tight = "{}", "{disk_used: {high: 3%, low: 2%, for: 1ms}}"
    with small_filesystem(tmp_path, 480) as disk:  # the reserve of a run is 1% of it, not 10%
        home = Home(disk / "home")
        home.chat(*OLD)
        inside(
            home.hermes,
            home.path,
            "db._execute_write(lambda c: c.execute('UPDATE sessions SET started_at = 1.7e9'))",
        )
        (home.path / DUMP).write_bytes(b"x" * 300_000)
        (home.path / PACK).parent.mkdir(parents=True)
        (home.path / PACK).write_bytes(b"x" * 300_000)
        archive = home.back_up()
        home.chat(*NEW)
        grow_old(home.path)
        where: list[str | Path] = ["--home", home.path, "--state-dir", tmp_path / "by-hand"]
        run("prune", "--policy", "request_dumps", "--yes", *where)
        if seen:
            with looking(tmp_path, home.path, calm):
                pass
        home.command("import", str(archive), "--force")
        (home.path / DUMP).unlink()  # it is there again, and would be taken again
        grow_old(home.path)
        before = transcripts(home.path)
        assert {f"session_{name}.json" for name in (*OLD, *NEW)} == set(before)
        assert trash(home.path)
        fill(disk)
        with looking(tmp_path, home.path, tight) as running:
            wait_until(lambda: not trash(home.path), "the trash of before is emptied")
            wait_until(lambda: not (home.path / PACK).exists(), "the half pack is gone")
            running.next_scan()
            running.next_scan()
        assert transcripts(home.path) == before
        assert trash(home.path) == []


def test_the_agent_takes_what_it_saw_go_to_the_trash_even_on_a_full_disk(tmp_path: Path) -> None:
    marks = "{disk_used: {high: 3%, low: 2%, for: 1ms}}"
    with small_filesystem(tmp_path) as disk:
        home = Home(disk / "home")
        home.chat(*OLD)
        grow_old(home.path)
        with looking(tmp_path, home.path, marks):
            pass
        home.delete(OLD[3])
        fill(disk)
        orphan = home.transcript(OLD[3])
        with looking(tmp_path, home.path, marks) as running:
            wait_until(lambda: not orphan.exists(), "the orphan is taken")
            running.next_scan()
            running.next_scan()
        assert trash(home.path) == [f"000000-{orphan.name}"]
        assert len(transcripts(home.path)) == len(OLD) - 1


# By hand


@pytest.fixture
def imported(tmp_path: Path) -> Home:
    """A home in which two transcripts are newer than the backup that was imported."""
    home = Home(tmp_path / "home")
    home.chat(*OLD)
    archive = home.back_up()
    home.chat(*NEW)
    home.command("import", str(archive), "--force")
    grow_old(home.path)
    return home


def test_a_person_may_name_last_copies_and_is_told_and_gets_them_back(
    imported: Home, tmp_path: Path
) -> None:
    where: list[str | Path] = ["--home", imported.path, "--state-dir", tmp_path / "state"]
    before = transcripts(imported.path)
    orphan_files = ["prune", "--policy", "orphan_files"]
    assert run_json(*orphan_files, *where)["plan"]["actions"] == []
    told = run(*orphan_files, "--unproven", *where).stdout
    assert "MAY BE A LAST COPY" in told
    assert "last copies of conversations" in told
    assert transcripts(imported.path) == before
    done = run_json(*orphan_files, "--unproven", "--yes", *where)
    assert (done["outcome"], done["done"]) == ("done", 2)
    assert len(transcripts(imported.path)) == len(OLD)
    assert sorted(trash(imported.path)) == [
        f"00000{number}-session_{name}.json" for number, name in enumerate(NEW)
    ]
    run("undo", "--last", *where)
    assert transcripts(imported.path) == before


def test_last_copies_are_named_with_their_policy_alone(imported: Home) -> None:
    both = ["--policy", "orphan_files", "--policy", "request_dumps"]
    for policies in ([], both):
        status, why = refusal("prune", *policies, "--unproven", "--home", imported.path)
        assert (status, "name `--policy orphan_files` alone" in why) == (2, True)


# Runs of ours that were stopped


def stopped_run(home: Home) -> PrunePlan:
    """All sessions end, and a run that deletes all but three rows stops before their files."""
    inside(
        home.hermes,
        home.path,
        f"for name in {OLD!r}: db.end_session(name, 'cli_close')\n"
        "db._execute_write(lambda c: c.execute("
        "'UPDATE sessions SET started_at = 1.7e9, ended_at = 1.7e9'))\n"
        "db._execute_write(lambda c: c.execute('UPDATE messages SET timestamp = 1.7e9'))",
    )
    made = plan(read_inventory(home.path, days_later=3).inventory, TIGHT)
    return PrunePlan(home=str(home.path), hash=made.hash, actions=made.actions)


def test_transcripts_that_a_stopped_run_left_go_with_the_next_and_block_nothing(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path / "home")
    home.chat(*OLD)
    made = stopped_run(home)
    taken = targets(made)[:9]
    execute(made, target_of(home.path), keep_seconds=3600, only=taken)
    assert len(transcripts(home.path)) == len(OLD)
    found = plan(read_inventory(home.path, days_later=3).inventory, TIGHT)
    assert found.blocked == ""
    orphans = [each.target for each in found.actions if each.policy == "orphan_files"]
    assert sorted(orphans) == sorted(f"sessions/session_{name}.json" for name in taken)


def test_what_an_unfinished_run_may_have_deleted_waits_for_its_recovery(tmp_path: Path) -> None:
    """Killed between the rows and the note that they are gone."""
    home = Home(tmp_path / "home")
    home.chat(*OLD)
    home.look()
    place = target_of(home.path)
    with running_on(place, "prune") as runs:
        runs.begin(
            RunKind.PRUNE,
            [RecordedAction(Action(Act.DELETE_SESSION.value, name, "old", {})) for name in OLD[:9]],
        )
    home.delete(*OLD[:9])
    stock = read_inventory(home.path, home.memory, days_later=3).inventory
    lost = [file.deletion for file in stock.files if file.session_id is None]
    assert lost == [Deletion.UNSETTLED] * 9
    found = plan(stock, TIGHT)
    assert (found.blocked, kept(found)["unfinished_run"]) == ("", 9)
    assert [each for each in found.actions if each.policy == "orphan_files"] == []
