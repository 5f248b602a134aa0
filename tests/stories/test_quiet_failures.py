"""A home that cannot be written stays so for days: the log says it once, not at every scan. So it
does of a state file that was damaged while the agent ran.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.agent.state_store import StateStore
from tests.real.agent import agent
from tests.real.command import run, run_json
from tests.real.waiting import wait_until
from tests.support.old_sessions import old_sessions
from tests.support.small_homes import small_home

SETTINGS = """
scan: {interval: 1s}
reaper: {private_homes: true}
prune: {mode: enforce, interval: 1s, cooldown: 1s, thresholds: {empty_sessions: {high: 2, low: 1}}}
"""


READ_ONLY = "its filesystem is mounted read-only"


@contextmanager
def read_only(home: Path) -> Iterator[None]:
    subprocess.run(["mount", "--bind", home, home], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", home], check=True)
        yield
    finally:
        subprocess.run(["umount", home], check=True)


def test_an_agent_that_may_prune_a_read_only_home_says_once_that_it_cannot(tmp_path: Path) -> None:
    home = old_sessions(tmp_path / "home", 30, messages=0)
    with read_only(home), agent(tmp_path, [home], configuration=SETTINGS) as running:
        wait_until(lambda: "Read-only file system" in running.log(), "it says what is wrong")
        for _ in range(3):
            running.next_scan()
        told = [line for line in running.log().splitlines() if "level=info" not in line]
        page = running.get("/")[1].decode()
    assert len(told) == 1, told
    assert f"Nothing that is planned here can be done: {READ_ONLY}." in page


def test_every_report_says_why_a_plan_cannot_be_carried_out(tmp_path: Path) -> None:
    home = small_home(tmp_path / "home", 3)
    where = ["--home", str(home), "--state-dir", str(tmp_path / "state")]
    with read_only(home):
        assert run_json("status", *where)["homes"][0]["cannot_write"] == READ_ONLY
        status = run("status", *where).stdout
        assert f"cannot    change anything: {READ_ONLY}\n  otherwise reap 3 sessions" in status
        assert f"because      {READ_ONLY}\n" in run("check", *where).stdout
        assert f"--yes would change nothing: {READ_ONLY}; " in run("reap", *where).stderr
    assert "otherwise" not in run("status", *where).stdout


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: the name of a socket has at most 107 bytes."""
    made = Path(tempfile.mkdtemp(prefix="hx-"))
    yield made
    shutil.rmtree(made)


def test_where_the_service_may_not_write_a_command_acts_without_it(folder: Path) -> None:
    """As installed, the unit only observes: homes are read-only for it, not for root's shell."""
    home = small_home(folder / "home", 3)
    sandbox = f'mount --bind "{home}" "{home}" && mount -o remount,bind,ro "{home}" && exec "$@"'
    wrapper = ("unshare", "--mount", "sh", "-c", sandbox, "sh")
    socket = f"--agent.socket={folder}/agent.sock"
    state = ("--home", home, "--state-dir", folder / "hand")
    with agent(folder, [home], socket, wrapper=wrapper) as running:
        # It only observes and need not write, so it does not complain.
        assert "otherwise" not in run("status", socket).stdout
        reaped = run("reap", "--yes", socket, *state)
        assert "3 sessions ended" in reaped.stdout, reaped
        told = f"the agent cannot write there ({READ_ONLY}); done without it"
        assert reaped.stderr.count(told) == 1, reaped.stderr
        undone = run("undo", "--last", socket, *state)
        assert undone.returncode == 0, undone
        # What the agent tells of itself is about the address that it listens on.
        assert f"only this host can open {running.address};" in run("check", socket).stdout


@pytest.mark.parametrize(("homes", "counters"), [(0, "kept"), (20_000, "begin again")])
def test_a_state_file_that_is_damaged_under_the_agent_is_told_once(
    folder: Path, homes: int, counters: str
) -> None:
    """A small file is in SQLite's cache as a whole, a large one is not."""
    home, file = small_home(folder / "home", 3), folder / "state" / "agent.db"
    store = StateStore.open(str(file.parent))
    for number in range(homes):
        store.give_label(f"/home/{number:0100}", str(number))
    store.close()
    socket = f"--agent.socket={folder}/agent.sock"
    with agent(folder, [home], socket) as running:
        counted = running.next_scan().by("hermes_messages_total", "source")
        assert counted[("cli",)] == 6
        damage_all_but_the_first_page(file)
        wait_until(lambda: "state is damaged; going on in memory" in running.log(), "it says so")
        for _ in range(3):
            assert running.next_scan().by("hermes_messages_total", "source") == counted
        _, _, after = running.log().partition('msg="state is damaged; going on in memory"')
        told, *others = after.splitlines()
        assert [line for line in others if "level=info" not in line] == []
        assert f" file={file} " in told
        assert f"counters={counters} " in told.replace('"', "")
        assert 'fix="move it away; the next scan writes a new one"' in told
        assert f"{file} is damaged (" in run("check", socket).stdout

        file.rename(folder / "damaged.db")
        wait_until(lambda: "state file was moved away" in running.log(), "it writes a new one")
        assert running.next_scan().by("hermes_messages_total", "source") == counted
        assert "is damaged" not in run("check", socket).stdout
    again = StateStore.open(str(file.parent))
    assert again.labels()[str(home)] == "default"
    again.close()


def damage_all_but_the_first_page(file: Path) -> None:
    with file.open("r+b") as content:
        content.seek(4096)
        content.write(b"\xff" * (file.stat().st_size - 4096))
