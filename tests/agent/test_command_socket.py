"""Commands ask the agent over its socket: the same answers, for each user only their own homes."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from exporter import __version__
from tests.real.agent import Agent, agent
from tests.real.command import PROGRAM, run, run_json
from tests.real.unprivileged import as_user
from tests.real.waiting import wait_until
from tests.support.running_agent import children, configuration, scanned_again
from tests.support.small_homes import small_home

pytestmark = pytest.mark.xdist_group("command_socket")
OTHER_USER = 61_234


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A short path: the name of a socket has at most 107 bytes."""
    made = Path(tempfile.mkdtemp(prefix="hx-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def at(folder: Path) -> str:
    return str(folder / "agent.sock")


@pytest.fixture(scope="module")
def running(folder: Path, at: str) -> Iterator[Agent]:
    mine, theirs = small_home(folder / "mine"), small_home(folder / "theirs", sessions=5)
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, OTHER_USER, OTHER_USER)
    homes = {"mine": mine, "theirs": theirs}
    with agent(folder, (), f"--agent.socket={at}", configuration=configuration(homes)) as started:
        scanned_again(started, "mine")
        scanned_again(started, "theirs")
        yield started


def ask(at: str, question: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(at)
        client.sendall(struct.pack("!I", len(question)) + question)
        with client.makefile("rb") as stream:
            (length,) = struct.unpack("!I", stream.read(4))
            answer: dict[str, Any] = json.loads(stream.read(length))
            return answer


def asked(command: str, **more: Any) -> bytes:
    return json.dumps({"version": __version__, "command": command, **more}).encode()


@pytest.mark.usefixtures("running")
def test_commands_show_what_the_agent_knows(at: str, folder: Path) -> None:
    by_agent = ("--agent.socket", at)
    status = run_json("status", *by_agent)
    assert [home["home"] for home in status["homes"]] == ["mine", "theirs"]
    assert status["agent"]["started_at"] is None
    assert status["homes"][0]["path"] == str(folder / "mine")
    rows = run_json("sessions", *by_agent, "--home", folder / "theirs")
    assert len(rows) == 5
    explained = run_json("explain", rows[0]["id"], *by_agent, "--home", folder / "theirs")
    assert explained["verdict"] == rows[0]["verdict"]
    assert explained["rules"]
    assert run_json("history", *by_agent) == []
    assert run_json("check", *by_agent)["ok"]


@pytest.mark.usefixtures("running")
def test_check_says_what_the_agent_with_its_workers_costs(at: str, folder: Path) -> None:
    pattern = r"^agent: (\d+) processes, [\d.]+ MiB of memory, [\d.]+% of a core since it started "
    found = re.search(pattern, run("check", "--agent.socket", at).stdout, re.MULTILINE)
    assert found is not None
    assert int(found[1]) >= 3  # the agent, and a worker for each of two owners
    alone = run("check", "--no-agent", "--home", folder / "mine", "--state-dir", folder / "hand")
    assert "of a core" not in alone.stdout


@pytest.mark.usefixtures("running")
def test_the_answers_are_those_of_a_scan(at: str, folder: Path) -> None:
    homes = ("--home", folder / "mine", "--home", folder / "theirs")
    state = ("--state-dir", folder / "hand")
    told = run_json("sessions", "--agent.socket", at)
    scanned = run_json("sessions", *homes, *state, "--no-agent")
    for rows in (told, scanned):
        for row in rows:
            del row["home"], row["evidence"]
    assert sorted(told, key=repr) == sorted(scanned, key=repr)


def test_while_a_scan_of_a_home_lasts_the_command_reads_it_itself(
    running: Agent, at: str, folder: Path
) -> None:
    """Nothing is said to be unreadable, or not there, because a worker is busy."""
    [worker] = [each for each in children(running) if each.uids().real == OTHER_USER]
    worker.suspend()
    try:
        for command, more in (("history", {}), ("explain", {"session": "20990101_000000_ffffff"})):
            wait_until(
                lambda: ask(at, asked(command, **more))["kind"] == "busy",  # noqa: B023
                f"{command} is refused while a home is being scanned",
            )
        assert run_json("history", "--agent.socket", at, "--home", folder / "theirs") == []
    finally:
        worker.resume()
    scanned_again(running, "theirs")
    assert run_json("history", "--agent.socket", at) == []


def test_an_error_is_that_of_the_command(running: Agent, at: str) -> None:
    assert running.pid
    done = run("explain", "20990101_000000_ffffff", "--agent.socket", at)
    assert done.returncode == 1
    assert "no open session 20990101_000000_ffffff" in done.stderr


@pytest.mark.usefixtures("running")
def test_fresh_shows_what_was_written_a_moment_ago(at: str, folder: Path) -> None:
    before = ask(at, asked("status"))["seen_at"]
    after = ask(at, asked("status", fresh=True))["seen_at"]
    assert after > before
    assert run_json("status", "--agent.socket", at, "--fresh")["homes"]


@pytest.mark.usefixtures("running")
def test_a_user_sees_only_their_own_homes(at: str, folder: Path) -> None:
    def run_as_user(*words: str | Path) -> Any:
        done = run(*words, "--agent.socket", at, "--json", program=(*as_user(OTHER_USER), *PROGRAM))
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    status = run_as_user("status")
    assert [home["home"] for home in status["homes"]] == ["theirs"]
    assert status["refused"] == []
    assert {row["home"] for row in run_as_user("sessions")} == {"theirs"}
    mine = ask(at, asked("sessions", homes=[str(folder / "mine")]))["result"]["rows"]
    assert "no open session" in run_as_user("explain", next(r["id"] for r in mine) + "x")
    # Of a home of another user the agent says nothing; the command looks itself, and may not.
    assert "cannot be read" in run_as_user("sessions", "--home", folder / "mine")


@pytest.mark.usefixtures("running")
def test_an_agent_of_another_version_says_to_restart_it(at: str) -> None:
    question = json.dumps({"version": "0.0.1", "command": "status"}).encode()
    answer = ask(at, question)
    assert answer["kind"] == "version"
    assert answer["error"].endswith("restart the agent")


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff\xff\xff" + b"x" * 1000,
        struct.pack("!I", 10) + b"{}",
        struct.pack("!I", 2) + b"{}",
        struct.pack("!I", 7) + b"garbage",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!I", len(asked("burn"))) + asked("burn"),
        struct.pack("!I", len(asked("status", homes=[1]))) + asked("status", homes=[1]),
    ],
)
def test_garbage_is_answered_by_silence(at: str, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(at)
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""
    assert ask(at, asked("status"))["result"]["homes"]


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.full)])
@pytest.mark.parametrize("how", ["idle", "half-closed", "half a question", "gone"])
def test_many_connections_keep_no_one_out_for_long(
    running: Agent, at: str, how: str, count: int
) -> None:
    before = len(os.listdir(f"/proc/{running.pid}/fd"))
    question = asked("reap")
    with ExitStack() as clients:
        for _ in range(count):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(60)
            with suppress(BlockingIOError, BrokenPipeError):  # the kernel's queue is full
                client.connect(at)
                if how == "half-closed":
                    client.shutdown(socket.SHUT_WR)
                elif how == "half a question":
                    client.sendall(struct.pack("!I", len(question)) + question[:10])
                elif how == "gone":
                    client.sendall(struct.pack("!I", len(question)) + question)
                    client.close()
        assert running.get("/metrics")[0] == 200

    def answers() -> bool:
        try:
            return bool(ask(at, asked("status"))["result"])
        except (OSError, struct.error):
            return False

    wait_until(answers, "the socket answers again")
    wait_until(
        lambda: len(os.listdir(f"/proc/{running.pid}/fd")) <= before + 8, "descriptors come back"
    )


def test_a_dead_agents_socket_is_the_same_as_none(folder: Path) -> None:
    home = small_home(folder / "orphaned")
    at = folder / "dead.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(at))
    named = {"HERMES_EXPORTER_AGENT_SOCKET": str(at)}
    for command in ("sessions", "prune"):
        done = run(command, "--json", "--home", home, environment=named)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)


def test_commands_say_in_one_line_that_an_agent_of_another_version_must_restart(
    folder: Path,
) -> None:
    home = small_home(folder / "newer")
    place = folder / "newer-agent"
    place.mkdir()
    other = "import exporter; exporter.__version__ = '99.0'; import sys; sys.argv[0] = 'exporter'; "
    other += "from exporter.cli.main import main; sys.exit(main())"
    at = folder / "newer.sock"
    program = (PROGRAM[0], "-c", other)
    with agent(place, [home], f"--agent.socket={at}", program=program):
        for command in ("sessions", "prune"):
            done = run(command, "--json", "--home", home, "--agent.socket", at)
            assert done.returncode == 0
            assert json.loads(done.stdout)
            (said,) = done.stderr.splitlines()
            assert f"the agent is version 99.0, this command is {__version__}" in said
            assert "restart the agent" in said


def test_a_stale_socket_is_replaced_and_a_used_one_is_not(folder: Path) -> None:
    home = small_home(folder / "stale-home")
    place = folder / "stale"
    place.mkdir()
    at = folder / "stale.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(at))
    with agent(place, [home], f"--agent.socket={at}") as first:
        assert ask(str(at), asked("status"))["result"]["homes"]
        assert stat_mode(at) == 0o666
        other = folder / "second"
        other.mkdir()
        with agent(other, [home], f"--agent.socket={at}") as second:
            assert "no socket for commands" in second.log()
        assert ask(str(at), asked("status"))["result"]["homes"]
        assert first.stop() == 0
    assert not at.exists()


def stat_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_without_an_agent_a_command_scans(folder: Path) -> None:
    home = small_home(folder / "alone")
    state = ("--state-dir", folder / "alone-state")
    assert len(run_json("sessions", "--home", home, *state)) == 3
    named = run("status", "--home", home, "--agent.socket", folder / "none.sock")
    assert named.returncode == 1
    assert "no agent answers" in named.stderr


def test_the_environment_names_the_socket(running: Agent, at: str) -> None:
    assert running.pid
    named = {"HERMES_EXPORTER_AGENT_SOCKET": at}
    done = run("status", "--json", environment=named)
    assert [home["home"] for home in json.loads(done.stdout)["homes"]] == ["mine", "theirs"]
