"""Commands that act through a running agent: as without one, and on the user's own homes only."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from exporter import __version__
from exporter.runs.models import Run, RunKind, RunOutcome
from tests.real.agent import Agent, agent
from tests.real.command import PROGRAM, run, run_json
from tests.real.hermes import REPOSITORY
from tests.real.unprivileged import as_user
from tests.real.waiting import wait_until
from tests.support.home_picture import picture
from tests.support.old_sessions import old_sessions
from tests.support.reaping import history
from tests.support.running_agent import children, configuration, when_up
from tests.support.small_homes import small_home

pytestmark = pytest.mark.xdist_group("command_runs")
OTHER_USER = 61_235
_INTERRUPTED = re.compile(r"Interrupted: ([\d,]+) of ([\d,]+) .*?(\d{8}T\d{6}-\w{4})")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: the name of a socket has at most 107 bytes."""
    made = Path(tempfile.mkdtemp(prefix="hx-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@contextmanager
def agent_of(folder: Path, homes: dict[str, Path], more: str = "") -> Iterator[Agent]:
    at = folder / "agent.sock"
    text = configuration(homes, more)
    with agent(folder, (), f"--agent.socket={at}", configuration=text) as started:
        when_up(started, *homes)
        yield started


def by_agent(folder: Path) -> tuple[str, str]:
    return "--agent.socket", str(folder / "agent.sock")


def give(home: Path, uid: int) -> Path:
    for path in (home, *home.rglob("*")):
        os.chown(path, uid, uid)
    return home


def as_other(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return run(*words, *by_agent(folder), program=(*as_user(OTHER_USER), *PROGRAM))


# The same as without an agent


def test_what_a_run_did_is_seen_as_soon_as_its_command_returns(folder: Path) -> None:
    """The agent would scan next in an hour; more sessions than it judges and lists at each scan."""
    home = small_home(folder / "home", 600)
    text = configuration({"home": home}).replace("interval: 1s", "interval: 1h")
    flag = f"--agent.socket={folder}/agent.sock"
    with agent(folder, (), flag, configuration=text) as started:
        when_up(started, "home")

        def dead() -> tuple[int, int, int]:
            (status,) = run_json("status", *by_agent(folder))["homes"]
            (shown,) = json.loads(started.get("/api/v1/status")[1])["homes"]
            listed = json.loads(started.get("/api/v1/sessions")[1])
            of_verdict = sum(each["verdict"] == "dead" for each in listed)
            return status["verdicts"]["dead"], shown["verdicts"]["dead"], of_verdict

        run_json("status", "--fresh", *by_agent(folder))
        reaped = run_json("reap", "--yes", *by_agent(folder))
        assert reaped["done"] == 600
        assert dead() == (0, 0, 0)
        assert f"hermes-exporter undo {reaped['run']}" in started.get("/")[1].decode()
        run("undo", reaped["run"], *by_agent(folder))
        (status,) = json.loads(started.get("/api/v1/status")[1])["homes"]
        assert status["verdicts"]["held"] == 600  # what an undo opened is kept open
        assert f"hermes-exporter undo {reaped['run']}" not in started.get("/")[1].decode()


def test_prune_undo_and_purge_by_the_agent_are_those_of_the_command(folder: Path) -> None:
    home = old_sessions(folder / "home", 30)
    before = picture(home)
    alone = ("--home", home, "--state-dir", folder / "hand", "--no-agent")
    with agent_of(folder, {"home": home}) as started:
        told, made = (run_json("prune", *how) for how in (by_agent(folder), alone))
        assert told["plan"]["hash"] == made["plan"]["hash"]
        assert [each["target"] for each in told["plan"]["actions"]] == [
            each["target"] for each in made["plan"]["actions"]
        ]
        assert picture(home) == before

        shown = run("prune", *by_agent(folder)).stdout
        plan = told["plan"]["hash"]
        assert f"--plan {plan} --yes --agent.socket {folder}/agent.sock\n" in shown
        pruned = run_json("prune", "--plan", plan, "--yes", *by_agent(folder))
        assert (pruned["outcome"], pruned["done"]) == ("done", len(told["plan"]["actions"]))
        assert [each["run"] for each in run_json("history", *by_agent(folder))] == [pruned["run"]]
        assert 'msg="command"' in started.log() or "msg=command" in started.log()
        assert f"hermes-exporter undo {pruned['run']}" in started.get("/")[1].decode()

        undone = run("undo", "--last", *by_agent(folder))
        assert undone.returncode == 0, undone.stderr
        assert pruned["run"] in undone.stderr  # which run it undoes is said first
        assert picture(home) == before
        assert "nothing can be given back" in run("undo", "--last", *by_agent(folder)).stderr

        again = run_json("prune", "--yes", "--include-undone", *by_agent(folder))
        purged = run("purge", again["run"], "--yes", *by_agent(folder))
        assert purged.returncode == 0
        assert f"the trash of 1 run ({again['run']})" in purged.stderr
        assert run("undo", again["run"], *by_agent(folder)).returncode == 1


def figures(folder: Path, *more: str) -> tuple[int, int]:
    """Return how many items thresholds demand, and how many `prune` could take, by `status`."""
    (home,) = run_json("status", *more, *by_agent(folder))["homes"]
    return home["would_prune"]["items"], home["could_prune"]["items"]


def test_status_shows_at_once_what_a_run_or_an_undo_has_changed(folder: Path) -> None:
    home = old_sessions(folder / "home", 60)
    marks = "prune: {interval: 1h, thresholds: {transcripts: {high: 180KiB, low: 140KiB}}}\n"
    alone = ("--home", home, "--state-dir", folder / "hand", "--no-agent")
    with agent_of(folder, {"home": home}, marks):
        could = len(run_json("prune", *by_agent(folder))["plan"]["actions"])
        demanded = len(run_json("prune", "--pressure", *by_agent(folder))["plan"]["actions"])
        assert 0 < demanded < could
        wait_until(lambda: figures(folder) == (demanded, could), "the agent has its first figures")
        run_json("prune", "--yes", *by_agent(folder))
        assert figures(folder) == (0, 0)
        assert run("undo", "--last", *by_agent(folder)).returncode == 0
        assert figures(folder) == (0, 0)  # held, because an undo gave it back

        dump = home / "sessions/request_dump_20250101_000000_bbbbbb_20250101_080000_000000.json"
        dump.write_text("{}")
        os.utime(dump, (1.7e9, 1.7e9))
        # The files that came back are above the mark, and the dump is all that may lower it.
        assert figures(folder, "--fresh") == (1, 1)
        assert run_json("prune", "--yes", *alone)["done"] == 1
        wait_until(lambda: figures(folder) == (0, 0), "scans see what a run without the agent did")


def test_errors_and_exit_statuses_are_those_of_the_command(folder: Path) -> None:
    home = small_home(folder / "home")
    with agent_of(folder, {"home": home}):
        for words, status, said in (
            (("prune", "--plan", "0" * 16, "--yes"), 1, "no plan 0000000000000000 is kept"),
            (("prune", "--policy", "request_dumps", "--unproven"), 2, "--unproven takes last"),
            (("undo", "20990101T000000-ffff"), 1, "no run 20990101T000000-ffff in any home"),
            (("purge", "20990101T000000-ffff", "--yes"), 1, "has no trash in any home"),
            (("prune", "--source", "clii"), 0, "did you mean 'cli'?"),
        ):
            done = run(*words, *by_agent(folder))
            assert (done.returncode, said in done.stderr) == (status, True), done


def test_a_home_of_root_is_only_observed_unless_it_is_named(folder: Path) -> None:
    # Below a folder that no other user can write: or it would not be found.
    with tempfile.TemporaryDirectory(dir=Path.home(), prefix=".hermes-exporter-test-") as above:
        home = small_home(Path(above) / ".hermes")
        own = {"HOME": above, "HERMES_HOME": str(home)}
        socket_flag = f"--agent.socket={folder}/agent.sock"
        with agent(folder, (), socket_flag, environment=own) as started:
            when_up(started, "default")
            found = run("reap", "--yes", "--json", *by_agent(folder))
            assert "only observed unless it is named" in found.stdout, found
            assert found.returncode == 1
            assert run_json("reap", "--yes", *by_agent(folder), "--home", home)["done"] == 3


def stop_while_reading(worker: psutil.Process, database: Path) -> None:
    """Stop a worker at a moment when it has this database open."""
    lock = re.compile(rf" {worker.pid} \S+:{database.stat().st_ino} ")
    until = time.monotonic() + 25
    while True:
        worker.suspend()
        while worker.status() != psutil.STATUS_STOPPED:
            pass
        if lock.search(Path("/proc/locks").read_text()):
            return
        os.utime(database)  # the next scan reads it again
        worker.resume()
        assert time.monotonic() < until, "no scan has it open"


@pytest.mark.parametrize("command", ["reap", "prune"])
def test_a_scan_of_the_agent_is_not_in_the_way_of_a_run(folder: Path, command: str) -> None:
    """The scan has the database open from before the run writes until after its end."""
    home = (small_home if command == "reap" else old_sessions)(folder / "home", 1500)
    with agent_of(folder, {"home": home}) as started:
        (scanner,) = children(started)
        with send(folder / "agent.sock", command, execute=True) as client:
            for said in messages(client):
                if said["type"] == "begins":
                    stop_while_reading(scanner, home / "state.db")
                    client.sendall(b"g")
        scanner.resume()
    result = said["result"]
    assert (result["outcome"], result["skipped"]) == ("done", [])
    assert result["done"] == sum(len(each["plan"]["actions"]) for each in result["plans"]) > 0


# Each user has their own homes


def test_a_user_acts_on_their_own_home_with_what_the_agent_sees(folder: Path) -> None:
    mine = small_home(folder / "mine", sessions=2)
    theirs = give(small_home(folder / "theirs", sessions=3), OTHER_USER)
    before = picture(mine)
    with agent_of(folder, {"mine": mine, "theirs": theirs}):
        ended = json.loads(as_other(folder, "reap", "--yes", "--json").stdout)
        assert (ended["outcome"], ended["done"]) == ("done", 3)
        assert {each["home"] for each in ended["plan"]["actions"]} == {"theirs"}
        assert picture(mine) == before
        journal = theirs / ".hermes-exporter"
        assert {path.stat().st_uid for path in journal.rglob("*")} == {OTHER_USER}
        assert as_other(folder, "undo", "--last").returncode == 0
        # Root sees what the user did, and the user does not see what root did.
        ours = run_json("reap", "--yes", *by_agent(folder), "--home", mine)
        assert ours["done"] == 2, ours
        runs = {each["home"] for each in run_json("history", *by_agent(folder))}
        assert runs == {"mine", "theirs"}
        seen = json.loads(as_other(folder, "history", "--json").stdout)
        assert {each["home"] for each in seen} == {"theirs"}


def exchange(at: Path, program: str, uid: int) -> list[Any]:
    """Run a program as a user that is given `ask` and `ours`, and prints JSON."""
    source = f"""
import json, socket, struct, sys

def ask(command, **more):
    question = json.dumps({{"version": "{__version__}", "command": command, **more}}).encode()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(120)
        client.connect("{at}")
        client.sendall(struct.pack("!I", len(question)) + question)
        with client.makefile("rb") as stream:
            while head := stream.read(4):
                said = json.loads(stream.read(*struct.unpack("!I", head)))
                if said["type"] == "begins":
                    client.sendall(b"g")
                if said["type"] == "reply":
                    return [said["kind"], said["error"], said["result"]]
    return ["silence", "", None]

{program}
"""
    done = subprocess.run(
        [*as_user(uid), PROGRAM[0], "-c", source], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    return found


def test_no_forged_message_reaches_another_users_home(folder: Path) -> None:
    mine = old_sessions(folder / "mine", 30)
    theirs = give(old_sessions(folder / "theirs", 30), OTHER_USER)
    with agent_of(folder, {"mine": mine, "theirs": theirs}):
        plan = run_json("prune", *by_agent(folder))["plan"]["hash"]
        taken = run_json("prune", "--yes", *by_agent(folder), "--home", mine)["run"]
        before = picture(mine)
        named = {"homes": [str(mine)]}
        commands = ("status", "sessions", "check", "history", "reap", "prune", "undo", "purge")
        told = exchange(
            folder / "agent.sock",
            f"""
named, run, plan = {named!r}, {taken!r}, {plan!r}
yes = {{"execute": True, "plan_hash": plan}}
print(json.dumps([
    *(ask(each, **named) for each in {commands!r}),
    ask("lost_by_purge", **named),
    ask("prune", homes=["{mine}", "{theirs}"]),
    ask("prune", homes=["{theirs}/../mine"]),
    ask("prune", arguments=yes),
    ask("undo", arguments={{"run": run}}),
    ask("purge", arguments={{"run": run}}),
    ask("history", arguments={{"run": run}}),
    ask("undo", arguments={{"run": "../../" + run}}),
    ask("prune", arguments={{"execute": True, "plan_hash": "../../../plans/" + plan}}),
    ask("prune", arguments={{"filter_by": {{"older_than_seconds": 1e-9}}}}),
    ask("prune", arguments={{"filter_by": {{"policies": ["/etc"]}}}}),
]))
""",
            OTHER_USER,
        )
        kinds = [each[0] for each in told]
        assert kinds[: len(commands) + 3] == ["unwatched"] * (len(commands) + 3)
        assert set(kinds[len(commands) + 3 :]) == {"failed", "usage", "silence"}
        assert str(mine) not in json.dumps(told)
        assert picture(mine) == before
        # A user's purge of everything, and prune of everything, are those of one home.
        done = json.loads(as_other(folder, "prune", "--yes", "--json").stdout)
        assert {each["home"] for each in done["plan"]["actions"]} == {"theirs"}
        assert as_other(folder, "purge", "--yes").returncode == 0
        assert picture(mine) == before
        assert run("undo", taken, *by_agent(folder)).returncode == 0


# Interruptions


@contextmanager
def acting(home: Path, kind: RunKind, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a command, and go on when its run has begun."""
    assert history(home) == []
    with subprocess.Popen(
        [*PROGRAM, *words],
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(
            lambda: process.poll() is not None or any(each.actions for each in history(home)),
            f"{kind} has taken something",
        )
        yield process


def newest(home: Path, kind: RunKind) -> Run:
    return next(each for each in history(home) if each.kind is kind)


def finished(home: Path, kind: RunKind) -> Run:
    wait_until(lambda: newest(home, kind).finished_at is not None, f"{kind} has ended")
    return newest(home, kind)


def test_ctrl_c_stops_the_agents_run_and_tells_what_was_done(folder: Path) -> None:
    home = old_sessions(folder / "home", 300)
    before = picture(home)
    with agent_of(folder, {"home": home}) as started:
        with acting(home, RunKind.PRUNE, "prune", "--yes", *by_agent(folder)) as process:
            process.send_signal(signal.SIGINT)
            assert started.get("/metrics")[0] == 200
            output, errors = process.communicate(timeout=120)
        noted = newest(home, RunKind.PRUNE)
        if process.returncode:  # or it was quicker than we are
            assert process.returncode == 130, errors
            assert "stopping at the next safe point" in errors
            told = _INTERRUPTED.search(output)
            assert told is not None, output
            assert (told[1].replace(",", ""), told[3]) == (str(noted.actions), noted.id)
            assert noted.outcome is RunOutcome.INTERRUPTED
        assert run("undo", noted.id, *by_agent(folder)).returncode == 0
        assert picture(home) == before


@pytest.mark.parametrize("how", ["killed", pytest.param("impatient", marks=pytest.mark.full)])
def test_the_run_of_a_command_that_is_gone_is_stopped(folder: Path, how: str) -> None:
    home = old_sessions(folder / "home", 300)
    before = picture(home)
    with agent_of(folder, {"home": home}):
        with acting(home, RunKind.PRUNE, "prune", "--yes", *by_agent(folder)) as process:
            process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGINT)
            if how == "impatient" and process.poll() is None:
                process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)
        if "no longer waiting" in errors:
            assert process.returncode == 130
            assert newest(home, RunKind.PRUNE).id in errors
        noted = finished(home, RunKind.PRUNE)
        assert noted.outcome in (RunOutcome.INTERRUPTED, RunOutcome.DONE)
        assert run("undo", noted.id, *by_agent(folder)).returncode == 0
        assert picture(home) == before


@pytest.mark.full
def test_an_agent_that_stops_ends_its_runs_at_a_safe_point(folder: Path) -> None:
    home = old_sessions(folder / "home", 300)
    before = picture(home)
    with agent_of(folder, {"home": home}) as started:
        with acting(home, RunKind.PRUNE, "prune", "--yes", *by_agent(folder)) as process:
            assert started.stop() == 0
            output, _ = process.communicate(timeout=120)
        assert process.returncode in (0, 130), output
        noted = finished(home, RunKind.PRUNE)
        assert noted.outcome in (RunOutcome.INTERRUPTED, RunOutcome.DONE)
    assert run("undo", noted.id, "--home", home, "--state-dir", folder / "hand").returncode == 0
    assert picture(home) == before


def test_the_command_says_so_if_the_agent_dies_in_the_middle(folder: Path) -> None:
    home = old_sessions(folder / "home", 300)
    before = picture(home)
    with (
        agent_of(folder, {"home": home}) as started,
        acting(home, RunKind.PRUNE, "prune", "--yes", *by_agent(folder)) as process,
    ):
        started.kill()
        _, errors = process.communicate(timeout=120)
    noted = newest(home, RunKind.PRUNE)
    if process.returncode:
        assert process.returncode == 3
        assert f"the agent went away in the middle of run {noted.id}" in errors
    assert run("undo", noted.id, "--home", home, "--state-dir", folder / "hand").returncode == 0
    assert picture(home) == before


def send(at: Path, command: str, **arguments: Any) -> socket.socket:
    question = json.dumps(
        {"version": __version__, "command": command, "arguments": arguments}
    ).encode()
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(120)
    client.connect(str(at))
    client.sendall(struct.pack("!I", len(question)) + question)
    return client


def messages(client: socket.socket) -> Iterator[dict[str, Any]]:
    with client.makefile("rb") as stream:
        while head := stream.read(4):
            yield json.loads(stream.read(*struct.unpack("!I", head)))


def test_nothing_is_done_for_a_command_that_leaves_before_its_run(folder: Path) -> None:
    home = old_sessions(folder / "home", 30)
    at = folder / "agent.sock"
    with agent_of(folder, {"home": home}):
        with send(at, "prune", execute=True) as client:
            assert next(each for each in messages(client) if each["type"] == "begins")["run"]
        with send(at, "prune", execute=True) as client:
            for each in messages(client):
                if each["type"] == "begins":
                    client.sendall(b"x")  # anything but the word to go
                assert each["type"] != "reply" or each["kind"] == "failed"
        assert history(home) == []
        assert run_json("prune", "--yes", *by_agent(folder))["outcome"] == "done"


def test_a_user_has_a_few_runs_at_a_time_and_others_have_theirs(folder: Path) -> None:
    mine = old_sessions(folder / "mine", 30)
    theirs = give(old_sessions(folder / "theirs", 30), OTHER_USER)
    at = folder / "agent.sock"
    with agent_of(folder, {"mine": mine, "theirs": theirs}) as started, ExitStack() as waiting:
        for _ in range(2):
            client = waiting.enter_context(send(at, "prune", execute=True))
            next(each for each in messages(client) if each["type"] == "begins")
        refused = run("prune", *by_agent(folder))
        assert refused.returncode == 1
        assert "try again when one of them has finished" in refused.stderr
        assert json.loads(as_other(folder, "prune", "--json").stdout)["plan"]["actions"]
        assert run_json("status", *by_agent(folder))["homes"]
        assert started.get("/metrics")[0] == 200
