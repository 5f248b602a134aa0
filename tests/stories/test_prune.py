"""Pruning as people and the agent do it: plan, yes, undo, purge, thresholds; on real homes."""

from __future__ import annotations

import hashlib
import os
import shlex
import sqlite3
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.real.agent import Metrics, agent
from tests.real.command import refusal, run, run_json
from tests.real.hermes import NEWEST, VERSIONS
from tests.real.homes import MadeHome, make_home
from tests.real.waiting import wait_until
from tests.support.running_agent import configuration, when
from tests.support.session_pruning import dump_all, grow_old, prunable_process

DAYS = 200
SECONDS = DAYS * 86400
HOME = "pruned"
WORDS = ("turn", "hello", "message")


@pytest.fixture(scope="module", params=VERSIONS)
def aged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MadeHome:
    made = make_home(request.param, tmp_path_factory.mktemp("prune"))
    grow_old(made.path, DAYS)
    return made


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> MadeHome:
    made = make_home(NEWEST, tmp_path_factory.mktemp("prune"))
    grow_old(made.path, DAYS)
    return made


def copy_of(made: MadeHome, folder: Path) -> Path:
    subprocess.run(["cp", "-a", made.path, folder / "home"], check=True)
    return folder / "home"


def options(folder: Path, home: Path, more: str = "") -> list[str | Path]:
    file = folder / "prune.yml"
    file.write_text(f"prune: {{keep: {{newest: 1}}{more}}}\n")
    return ["--home", home, "--state-dir", folder / "state", "--config.file", file]


def contents(home: Path) -> dict[str, Any]:
    """Every file by its bytes and time, the database by its rows and what is found in it."""
    files = {
        str(path.relative_to(home)): (path.stat().st_mtime_ns, digest_of(path))
        for path in home.rglob("*")
        if path.is_file()
        and not path.is_symlink()
        and not path.name.startswith("state.db")
        and ".hermes-exporter" not in path.parts
    }
    return {**dump_all(home, *WORDS), "files": files}


def digest_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def write_dumps(home: Path, count: int, size: int) -> None:
    """Old request dumps of sessions that there never were."""
    for number in range(count):
        name = f"request_dump_20250101_0000{number:02}_abcdef_20250101_010101_123456.json"
        dump = home / "sessions" / name
        dump.write_bytes(b"x" * size)
        os.utime(dump, (0, dump.stat().st_mtime - SECONDS))


def allocated(path: Path) -> int:
    """Bytes on disk, by another program."""
    done = subprocess.run(
        ["du", "-s", "--block-size=1", path], check=True, capture_output=True, text=True
    )
    return int(done.stdout.split()[0])


def test_what_was_planned_is_done_and_given_back_exactly(aged: MadeHome, tmp_path: Path) -> None:
    home = copy_of(aged, tmp_path)
    where = options(tmp_path, home)
    before = contents(home)
    plan = run_json("prune", *where)["plan"]
    assert contents(home) == before
    done = run_json("prune", "--plan", plan["hash"], "--yes", *where)
    assert (done["outcome"], done["plan"]["hash"]) == ("done", plan["hash"])
    assert done["done"] == len(plan["actions"]) - len(done["skipped"]) > 0
    assert all(each["why"] for each in done["skipped"])

    after = contents(home)
    gone = {each["target"] for each in plan["actions"]} - {
        each["target"] for each in done["skipped"]
    }
    for each in plan["actions"]:
        if each["target"] in gone:
            assert not is_there(each, home), each
    lost = {name for name in before["files"] if name not in after["files"]}
    assert lost == {
        name
        for name in before["files"]
        if any(name == target or name.startswith(f"{target}/") for target in gone)
        or any(f"/{target}" in f"/{name}" for target in projects(plan, gone))
    }
    assert len(before["sessions"]) - len(after["sessions"]) == len(
        [each for each in plan["actions"] if each["action"] == "delete_session"]
    ) - len([each for each in done["skipped"] if "/" not in each["target"]])

    undone = run_json("undo", done["run"], *where)
    assert undone == {"run": done["run"], "restored": done["done"], "failed": []}
    assert contents(home) == before
    targets = {each["target"] for each in run_json("prune", *where)["plan"]["actions"]}
    assert not targets & gone, "what was given back is held"
    again = run_json("prune", "--include-undone", *where)["plan"]["actions"]
    assert {each["target"] for each in again} >= gone
    (undo, prune) = run_json("history", *where)
    assert (undo["kind"], prune["kind"], prune["actions"]) == ("undo", "prune", done["done"])


def projects(plan: dict[str, Any], gone: set[str]) -> set[str]:
    """The hashes of store projects: their ref, index and file are named so."""
    return {
        each["target"]
        for each in plan["actions"]
        if each["action"] == "delete_project" and each["target"] in gone
    }


def is_there(action: dict[str, Any], home: Path) -> bool:
    target = action["target"]
    match action["action"]:
        case "delete_session":
            with sqlite3.connect(f"file:{home}/state.db?mode=ro", uri=True) as connection:
                query = "SELECT 1 FROM sessions WHERE id = ?"
                found = connection.execute(query, (target,)).fetchone()
            connection.close()
            return found is not None
        case "delete_project":
            target = f"checkpoints/store/projects/{target}.json"
    return (home / str(target)).exists()


def test_hermes_goes_on_with_what_is_left(aged: MadeHome, tmp_path: Path) -> None:
    home = copy_of(aged, tmp_path)
    done = run_json("prune", "--yes", *options(tmp_path, home))
    gone = {
        each["target"] for each in done["plan"]["actions"] if each["action"] == "delete_session"
    }
    with prunable_process(aged.hermes, home) as hermes:
        assert hermes.ask("broken") == []
        assert not gone & set(hermes.ask("listed"))
        for word in WORDS:
            assert not gone & set(hermes.ask("search", text=word))
        for session in hermes.ask("listed"):
            assert hermes.ask("resume", session=session) >= 0
        hermes.ask("own_prune", days=1)
        assert hermes.ask("broken") == []


def test_what_is_purged_is_gone_and_gives_its_bytes_back(newest: MadeHome, tmp_path: Path) -> None:
    home = copy_of(newest, tmp_path)
    where = options(tmp_path, home)
    done = run_json("prune", "--yes", *where)
    (trash,) = (home / ".hermes-exporter").rglob(done["run"])
    size = allocated(trash)
    assert size > 0
    before = allocated(home)
    assert run_json("purge", done["run"], "--yes", *where)["done"] == 1
    assert not trash.exists()
    assert before - allocated(home) >= size - 16384  # the journal has grown by a few lines
    again = run("undo", done["run"], *where)
    assert again.returncode == 1
    assert "trash" in again.stdout


def test_filters_narrow_the_plan(newest: MadeHome, tmp_path: Path) -> None:
    home = copy_of(newest, tmp_path)
    where = options(tmp_path, home)
    dumps = run_json("prune", "--policy", "request_dumps", *where)["plan"]["actions"]
    assert {each["policy"] for each in dumps} == {"request_dumps"}
    none = run_json("prune", "--policy", "request_dumps", "--older-than", "300d", *where)
    assert none["plan"]["actions"] == []
    of_cron = run_json("prune", "--source", "cron", *where)["plan"]["actions"]
    sessions = [each["target"] for each in of_cron if each["action"] == "delete_session"]
    with sqlite3.connect(f"file:{home}/state.db?mode=ro", uri=True) as connection:
        sources = dict(connection.execute("SELECT id, source FROM sessions"))
    connection.close()
    assert sessions
    assert {sources[session] for session in sessions} == {"cron"}
    assert run_json("prune", "--pressure", *where)["plan"]["actions"] == []


def test_the_command_that_a_narrowed_plan_ends_with_does_exactly_that(
    newest: MadeHome, tmp_path: Path
) -> None:
    """It names the plan alone: what the plan was narrowed by is kept with it."""
    home = copy_of(newest, tmp_path)
    where = options(tmp_path, home, more=", policies: {old_sessions: {older_than: 900d}}")
    narrowed = ("--policy", "old_sessions", "--older-than", "20d", "--source", "cron")
    assert run_json("prune", "--policy", "old_sessions", *where)["plan"]["actions"] == []
    plan = run_json("prune", *narrowed, *where)["plan"]
    assert plan["actions"]
    (line,) = (
        line for line in run("prune", *narrowed, *where).stdout.splitlines() if "--plan" in line
    )
    program, *words = shlex.split(line)
    assert (program, words[:4]) == ("hermes-exporter", ["prune", "--plan", plan["hash"], "--yes"])
    done = run_json(*words)
    assert (done["outcome"], done["skipped"]) == ("done", [])
    assert done["plan"]["actions"] == plan["actions"]
    assert done["done"] == len(plan["actions"])
    assert not any(is_there(each, home) for each in plan["actions"])


def test_a_plan_that_is_not_known_or_has_expired_is_refused(
    newest: MadeHome, tmp_path: Path
) -> None:
    home = copy_of(newest, tmp_path)
    where = options(tmp_path, home, more=", plan_ttl: 1ms")
    plan = run_json("prune", *where)["plan"]["hash"]
    status, why = refusal("prune", "--plan", plan, "--yes", *where)
    assert (status, "has expired" in why) == (1, True)
    status, why = refusal("prune", "--plan", "0123456789abcdef", "--yes", *where)
    assert (status, "no plan 0123456789abcdef" in why) == (1, True)
    assert refusal("prune", "--plan", plan, *where)[0] == 2
    assert refusal("prune", "--older-than", "3d", *where)[0] == 2


def test_the_terminal_tells_totals_protection_and_the_way_back(
    newest: MadeHome, tmp_path: Path
) -> None:
    home = copy_of(newest, tmp_path)
    where = options(tmp_path, home)
    plan = run("prune", *where).stdout
    assert "Nothing was changed." in plan
    assert "kept: 2 archived sessions, " in plan
    assert "request_dumps" in plan
    done = run("prune", "--yes", *where).stdout
    assert "hermes-exporter undo " in done


# The agent


def enforcing(home: Path, thresholds: str, more: str = "") -> str:
    prune = (
        "{mode: enforce, interval: 300ms, cooldown: 1s, keep: {newest: 1}, "
        f"thresholds: {thresholds}{more}}}"
    )
    return configuration({HOME: home}, f"prune: {prune}\n").replace(
        "interval: 1s", "interval: 300ms", 1
    )


def threshold(metrics: Metrics, name: str) -> tuple[float, float]:
    """The value of a threshold and whether it presses."""
    labels = {"home": HOME, "threshold": name}
    return (
        metrics.value("hermes_prune_threshold_value", **labels),
        metrics.value("hermes_prune_pressure", **labels),
    )


def runs_done(metrics: Metrics) -> float:
    return metrics.by("hermes_prune_runs_total", "outcome", home=HOME).get(("done",), 0)


def test_automatic_runs_take_the_caps_of_a_day_and_a_restart_begins_no_new_day(
    newest: MadeHome, tmp_path: Path
) -> None:
    home = copy_of(newest, tmp_path)
    write_dumps(home, 40, 65536)
    dumps = len(list(home.glob("sessions/request_dump_*")))
    settings = enforcing(home, "{transcripts: {high: 2MiB, low: 1MiB}}", ", caps: {items: 3}")
    for _ in range(2):
        with agent(tmp_path, configuration=settings) as running:
            metrics = when(
                running,
                lambda found: (
                    runs_done(found) == 1
                    and found.by("hermes_prune_unreachable_bytes", "reason", home=HOME).get(
                        ("caps",), 0
                    )
                    > 0
                ),
                "it has taken a day's part, and says what waits",
            )
            assert metrics.value("hermes_prune_capped_items", home=HOME) > 10
            deleted = running.next_scan().by("hermes_prune_deleted_total", "policy", home=HOME)
            assert sum(deleted.values()) == 3
            (row,) = run_json("status", *options(tmp_path, home))["homes"]
            assert row["capped"] is None, "a command by hand without these settings waits for none"
    assert len(list(home.glob("sessions/request_dump_*"))) == dumps - 3
    done = run_json("prune", "--policy", "request_dumps", "--yes", *options(tmp_path, home))
    assert done["done"] >= dumps - 4, "a person takes all at once"


def test_under_pressure_the_agent_takes_what_brings_it_to_the_low_mark(
    newest: MadeHome, tmp_path: Path
) -> None:
    home = copy_of(newest, tmp_path)
    write_dumps(home, 40, 65536)
    marks = "{transcripts: {high: 2MiB, low: 1MiB}}"
    settings = enforcing(home, marks, ", caps: {share: 100%}")
    with agent(tmp_path, configuration=settings) as running:
        metrics = when(
            running,
            lambda found: runs_done(found) >= 1 and threshold(found, "transcripts")[1] == 0,
            "the agent has pruned",
        )
        value, _ = threshold(metrics, "transcripts")
        assert value <= 1024 * 1024
        deleted = metrics.by("hermes_prune_deleted_total", "policy", home=HOME)
        assert {policy for (policy,), count in deleted.items() if count} == {"request_dumps"}
        assert metrics.value("hermes_prune_enforcing", home=HOME) == 1
        left = sum(path.stat().st_size for path in home.glob("sessions/request_dump_*"))
        assert left >= 500 * 1024, "no more than the low watermark asks for"
        assert runs_done(running.next_scan()) == 1
        told = wait_until(
            lambda: [line for line in running.log().splitlines() if "msg=pruned" in line],
            "the run is in the log",
        )
        count = int(deleted["request_dumps",])
        assert "thresholds=transcripts" in told[0]
        assert f"policies=request_dumps:{count} " in told[0]


def test_an_agent_that_observes_plans_and_touches_nothing(newest: MadeHome, tmp_path: Path) -> None:
    home = copy_of(newest, tmp_path)
    before = contents(home)
    settings = enforcing(home, "{transcripts: {high: 2B, low: 1B}}").replace("enforce", "observe")
    with agent(tmp_path, configuration=settings) as running:
        metrics = when(
            running,
            lambda found: bool(found.by("hermes_prune_pressure", "threshold", home=HOME)),
            "the thresholds are known",
        )
        assert threshold(metrics, "transcripts")[1] == 1
        reclaimable = metrics.by("hermes_disk_reclaimable_bytes", "policy", home=HOME)
        assert reclaimable["request_dumps",] > 0
        running.next_scan()
    assert contents(home) == before
    assert not (home / ".hermes-exporter").exists()


@contextmanager
def small_filesystem(folder: Path, mebibytes: int = 48) -> Iterator[Path]:
    """A filesystem of its own, in a file."""
    image, place = folder / "disk.img", folder / "disk"
    with image.open("wb") as file:
        file.truncate(mebibytes * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True, capture_output=True)
    place.mkdir()
    subprocess.run(["mount", "-o", "loop", image, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill_with_repos(home: Path, mebibytes: int, count: int) -> None:
    """Shadow repositories that no chat has used for long; their blocks are allocated."""
    for number in range(count):
        repo = home / "checkpoints" / f"{number:016x}"
        (repo / "objects").mkdir(parents=True)
        (repo / "HEAD").write_text("ref: refs/heads/main\n")
        (repo / "HERMES_WORKDIR").write_text("/nowhere\n")
        (repo / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")
        with (repo / "objects" / "blob").open("wb") as blob:
            os.posix_fallocate(blob.fileno(), 0, mebibytes * 1024 * 1024 // count)
        for path in (*repo.rglob("*"), repo):
            os.utime(path, (0, path.stat().st_mtime - SECONDS))


def used_share(disk: Path) -> float:
    """As df reckons it."""
    found = os.statvfs(disk)
    used = found.f_blocks - found.f_bfree
    return used / (used + found.f_bavail)


def fill_to(disk: Path, share: float) -> None:
    """Take the rest with a file that belongs to no home."""
    found = os.statvfs(disk)
    used = found.f_blocks - found.f_bfree
    missing = int((share * (used + found.f_bavail) - used) * found.f_frsize)
    with (disk / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, missing)


def fill_with_transcripts(home: Path, mebibytes: int, sessions: Collection[str]) -> None:
    """Large transcripts of old sessions that are in the database."""
    for session in sessions:
        transcript = home / "sessions" / f"session_{session}.json"
        with transcript.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, mebibytes * 1024 * 1024 // len(sessions))
        os.utime(transcript, (0, transcript.stat().st_mtime - SECONDS))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mebibytes", [128, pytest.param(6144, marks=pytest.mark.full)])
def test_a_full_filesystem_is_below_its_low_mark_after_min_keep(
    mebibytes: int, newest: MadeHome, tmp_path: Path
) -> None:
    """What waits in the trash takes as much room as before; only emptying that gives it back.

    In the long form five gigabytes of old checkpoints and transcripts, of which both are needed.
    """
    with small_filesystem(tmp_path, mebibytes) as disk:
        home = copy_of(newest, disk)
        hand = options(tmp_path, home)
        write_dumps(home, 10, mebibytes * 256)
        fill_with_repos(home, mebibytes // 25, 8)
        old = [
            each["target"]
            for each in run_json("prune", "--policy", "old_sessions", *hand)["plan"]["actions"]
            if each["action"] == "delete_session"
        ]
        fill_with_transcripts(home, mebibytes * 19 // 24 - 24, old)
        last_copy = home / "sessions/session_20250101_000000_abcdef.json"
        last_copy.write_text("{}")
        os.utime(last_copy, (0, last_copy.stat().st_mtime - SECONDS))
        fill_to(disk, 0.92)
        before = contents(home)
        allowed = {each["target"] for each in run_json("prune", *hand)["plan"]["actions"]}
        # The disk alone presses: five gigabytes of transcripts would be too many by themselves.
        full, large = "{high: 90%, low: 85%, for: 1ms}", "{high: 90GiB, low: 80GiB}"
        marks = f"{{disk_used: {full}, transcripts: {large}}}"
        settings = enforcing(home, marks, ", trash: {min_keep: 4s}")
        with agent(tmp_path, configuration=settings) as running:
            metrics = when(
                running,
                lambda found: (
                    found.by("hermes_prune_unreachable_bytes", "reason", home=HOME).get(
                        ("trash",), 0
                    )
                    > 0
                    and runs_done(found) == 1
                ),
                "the trash is said to stand in the way for a moment",
            )
            assert threshold(metrics, "disk_used")[0] > 0.9, "nothing skips the trash"
            metrics = when(
                running,
                lambda found: (
                    threshold(found, "disk_used") <= (0.85, 0)
                    and found.by("hermes_prune_unreachable_bytes", "reason", home=HOME) == {}
                ),
                "the low watermark is reached, and nothing is in the way any more",
            )
            assert used_share(disk) <= 0.85
            after = contents(home)
            gone = {name for name in before["files"] if name not in after["files"]}
            assert any(name.startswith("checkpoints/") for name in gone)
            assert any(name.startswith("sessions/session_") for name in gone)
            unnamed = {
                name for name in gone if not any(f"/{each}" in f"/{name}" for each in allowed)
            }
            assert unnamed == set()
            assert last_copy.exists()
            left = [each for each in old if f"sessions/session_{each}.json" in after["files"]]
            assert left, "no more than was asked for"
            assert used_share(disk) > 0.5
            done = run_json("prune", "--policy", "old_sessions", "--yes", *hand)
            assert done["done"] > 0
            assert run_json("undo", done["run"], *hand)["failed"] == []
            assert contents(home) == after
    assert "Traceback" not in (tmp_path / "agent.log").read_text()


def local_time(hour: int, minute: int) -> dict[str, str]:
    """A time zone in which it is about this time now."""
    wanted, now = hour * 60 + minute, time.gmtime()
    behind = (now.tm_hour * 60 + now.tm_min - wanted) % (24 * 60)
    if behind > 12 * 60:
        behind -= 24 * 60
    sign = "-" if behind < 0 else ""
    return {"TZ": f"XXX{sign}{abs(behind) // 60}:{abs(behind) % 60:02}"}


def test_with_age_the_agent_cleans_up_once_a_night_and_not_by_day(
    newest: MadeHome, tmp_path: Path
) -> None:
    home = copy_of(newest, tmp_path)
    write_dumps(home, 10, 4096)
    settings = enforcing(home, "{}", ", when: [pressure, age], caps: {share: 100%}")
    with agent(tmp_path, configuration=settings, environment=local_time(12, 0)) as running:
        metrics = when(
            running,
            lambda found: found.by("hermes_retention_eligible", "policy", home=HOME) != {},
            "the pruner has looked",
        )
        assert metrics.value("hermes_prune_by_age", home=HOME) == 1
        assert runs_done(running.next_scan()) == 0
    with agent(tmp_path, configuration=settings, environment=local_time(4, 52)) as running:
        metrics = when(
            running,
            lambda found: (
                runs_done(found) == 1
                and set(found.by("hermes_retention_eligible", "policy", home=HOME).values()) == {0}
            ),
            "nothing is past its policy any more",
        )
        deleted = metrics.by("hermes_prune_deleted_total", "policy", home=HOME)
        assert deleted["request_dumps",] >= 10
        assert deleted["old_sessions",] > 0
        assert runs_done(running.next_scan()) == 1
    (run_row,) = run_json("history", *options(tmp_path, home))
    undone = run_json("undo", run_row["run"], *options(tmp_path, home))
    assert (undone["failed"], undone["restored"]) == ([], run_row["actions"])
