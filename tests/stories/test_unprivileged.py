"""The agent of a user who is not root: all of his own homes, and the truth about the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real.agent import Agent, Metrics, agent
from tests.real.command import PROGRAM
from tests.real.hermes import REPOSITORY
from tests.real.unprivileged import as_user
from tests.support.evidence import puppet
from tests.support.running_agent import complaints, configuration, is_up, scanned_again, when
from tests.support.small_homes import small_home

ADA, BOB, NOBODY = 54331, 54332, 54333


@pytest.fixture(scope="module")
def host() -> Iterator[Path]:
    """Where each user has a home of his own; Bob lets others look into one of his."""
    with tempfile.TemporaryDirectory(dir="/run", prefix="hermes-exporter-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for user, uid in (("ada", ADA), ("bob", BOB), ("open", BOB)):
            (folder / user).mkdir(mode=0o755)
            small_home(folder / user / ".hermes")
            _give(folder / user, uid)
        (folder / "open" / ".hermes").chmod(0o755)
        yield folder


def _give(folder: Path, uid: int) -> None:
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, uid, uid)


@pytest.fixture(scope="module")
def running(host: Path) -> Iterator[Agent]:
    """Ada's agent, told of all three homes."""
    folder = host / "agent"
    (folder / "state").mkdir(parents=True)
    _give(folder, ADA)
    homes = {user: host / user / ".hermes" for user in ("ada", "bob", "open")}
    with agent(
        folder,
        configuration=configuration(homes),
        environment={"HOME": str(host / "ada"), "HERMES_HOME": ""},
        wrapper=as_user(ADA),
    ) as started:
        yield started


def processes_of(agent: Agent) -> list[int]:
    """The effective uid of the agent and of each process it has started."""
    children = Path(f"/proc/{agent.pid}/task").glob("*/children")
    pids = [agent.pid, *(int(pid) for file in children for pid in file.read_text().split())]
    lines = (Path(f"/proc/{pid}/status").read_text().splitlines() for pid in pids)
    return [int(line.split()[2]) for each in lines for line in each if line.startswith("Uid:")]


def test_its_own_home_is_read_and_counted(running: Agent, host: Path) -> None:
    metrics = scanned_again(running, "ada")
    assert set(processes_of(running)) == {ADA}
    assert is_up(metrics, "ada")
    assert metrics.value("hermes_sessions_open", home="ada", source="cli") == 3
    assert metrics.value("hermes_messages_total", home="ada", source="cli") == 6
    assert sum(metrics.by("hermes_disk_bytes", "kind", home="ada").values()) > 0
    assert sorted(os.listdir(host / "ada" / ".hermes")) == ["sessions", "state.db"]


def test_it_says_that_it_cannot_see_everybody_and_calls_nothing_dead(running: Agent) -> None:
    """Root's processes hide what they have open; any of them might be running a session."""
    metrics = scanned_again(running, "ada")
    blind = {reason for (reason,) in metrics.by("hermes_exporter_blind", "reason", home="ada")}
    assert "permissions" in blind
    assert metrics.by("hermes_sessions_open_by_verdict", "verdict", home="ada") == {
        ("live",): 0,
        ("held",): 0,
        ("dead",): 0,
        ("exempt",): 0,
        ("unknown",): 3,
    }
    assert "hermes_sessions_leaked" not in metrics.names()


@pytest.mark.parametrize("name", ["bob", "open"])
def test_another_users_home_is_down_and_nothing_is_told_of_it(running: Agent, name: str) -> None:
    """Also one that it could look into: it would have to be its owner to read it safely."""
    metrics = scanned_again(running, "ada")
    assert is_up(metrics, name) is False
    told = {sample for sample, labels in metrics if ("home", name) in labels}
    assert told.isdisjoint({"hermes_sessions_open", "hermes_disk_bytes", "hermes_messages_total"})
    (complaint,) = complaints(running, name)
    assert "reason=permission" in complaint


def test_check_says_what_to_grant(host: Path) -> None:
    words = ["check", "--json", "--home", str(host / "ada" / ".hermes")]
    words += ["--home", str(host / "bob" / ".hermes"), "--state-dir", str(host / "none")]
    done = subprocess.run(
        [*as_user(ADA), sys.executable, "-m", "exporter", *words],
        cwd=REPOSITORY,
        env={**os.environ, "HOME": str(host / "ada")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    report = json.loads(done.stdout)
    assert not report["ok"]
    by_path = {home["path"]: home for home in report["homes"]}
    own, others = (by_path[str(host / user / ".hermes")] for user in ("ada", "bob"))
    assert "read the database" in own["can"]
    grants = [each["grant"] for each in own["cannot"]]
    assert any(each.startswith("run as root") for each in grants)
    assert "read the database" not in others["can"]
    assert any("root" in each["grant"] for each in others["cannot"])


@pytest.mark.parametrize("lost", ["setuid", "kill"])
def test_root_without_a_capability_is_told_which_one_it_lacks(host: Path, lost: str) -> None:
    home = host / "bob" / ".hermes"
    words = ["check", "--json", "--home", str(home), "--state-dir", str(host / "none")]
    done = subprocess.run(
        ["setpriv", f"--bounding-set=-{lost}", sys.executable, "-m", "exporter", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    (seen,) = json.loads(done.stdout)["homes"]
    (missing,) = (each for each in seen["cannot"] if each["what"] == "read the database")
    assert missing["why"] == (
        f"{home}: cannot act as uid {BOB}: this agent lacks CAP_{lost.upper()}"
    )
    assert "CapabilityBoundingSet=" in missing["grant"]


def test_homes_that_are_not_its_own_are_not_looked_for_in_vain(host: Path) -> None:
    """Without a word in the configuration only what it may read is there, and no noise."""
    folder = host / "found"
    (folder / "state").mkdir(parents=True)
    _give(folder, ADA)
    with agent(
        folder,
        environment={"HOME": str(host / "ada"), "HERMES_HOME": ""},
        wrapper=as_user(ADA),
    ) as started:
        assert is_up(started.metrics(), "default")
        assert str(host / "bob") not in started.log()
        assert len(started.metrics().by("hermes_messages_total", "home", source="cli")) == 1


@pytest.mark.parametrize("command", ["sessions", "history"])
def test_where_no_home_was_looked_at_nothing_is_claimed_of_it(host: Path, command: str) -> None:
    """A user without a home, who may not see those of others."""
    folder = host / f"nobody-{command}"
    folder.mkdir()
    _give(folder, NOBODY)
    words = [sys.executable, "-m", "exporter", command, "--state-dir", str(folder / "state")]
    done = subprocess.run(
        [*as_user(NOBODY), *words],
        cwd=REPOSITORY,
        env={**os.environ, "HOME": str(folder), "HERMES_HOME": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "No home was looked at; `hermes-exporter check` tells why.\n"


@pytest.fixture(scope="module")
def believing(host: Path) -> Iterator[Agent]:
    """Ada's agent, with `reaper.private_homes`, told of a private home and of one that is not."""
    folder = host / "believing"
    (folder / "state").mkdir(parents=True)
    small_home(folder / "open-home")
    _give(folder, ADA)
    (folder / "open-home").chmod(0o750)
    homes = {"ada": host / "ada" / ".hermes", "open": folder / "open-home"}
    with agent(
        folder,
        configuration=f"{configuration(homes)}\nreaper: {{private_homes: true}}\n",
        environment={"HOME": str(host / "ada"), "HERMES_HOME": ""},
        wrapper=as_user(ADA),
    ) as started:
        yield started


def verdicts(metrics: Metrics, home: str) -> dict[str, float]:
    found = metrics.by("hermes_sessions_open_by_verdict", "verdict", home=home)
    return {verdict: count for (verdict,), count in found.items() if count}


def test_the_owner_of_a_private_home_is_believed_to_see_all_but_root(believing: Agent) -> None:
    metrics = scanned_again(believing, "ada")
    assert metrics.by("hermes_exporter_blind", "reason", home="ada") == {}
    assert verdicts(metrics, "ada") == {"dead": 3}


def test_a_home_that_others_can_enter_is_not_private(believing: Agent) -> None:
    metrics = scanned_again(believing, "open")
    assert ("permissions",) in metrics.by("hermes_exporter_blind", "reason", home="open")
    assert verdicts(metrics, "open") == {"unknown": 3}


def test_a_process_of_root_shows_by_its_lock(believing: Agent, host: Path) -> None:
    """The lock table names it to every user, although its files are hidden."""
    with puppet() as root:
        root.do(f"connection = connect({str(host / 'ada' / '.hermes' / 'state.db')!r})")
        when(believing, lambda now: verdicts(now, "ada") == {"unknown": 3}, "all are unknown")
    when(believing, lambda now: verdicts(now, "ada") == {"dead": 3}, "all are dead again")


def test_the_demo_of_any_user_shows_dead_sessions(host: Path) -> None:
    folder = host / "demo"
    (folder / "tmp").mkdir(parents=True)
    _give(folder, ADA)
    command = (*as_user(ADA), *PROGRAM, "demo", "--web.listen-address", "127.0.0.1:0")
    with (
        (folder / "agent.log").open("w") as log,
        subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "HOME": str(folder), "TMPDIR": str(folder / "tmp")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            demo = Agent(process, folder / "agent.log")
            when(demo, lambda now: verdicts_of_all(now)["dead"] > 50, "dead sessions are shown")
        finally:
            process.terminate()
            process.wait(timeout=60)


def verdicts_of_all(metrics: Metrics) -> Counter[str]:
    found = metrics.by("hermes_sessions_open_by_verdict", "home", "source", "verdict")
    counts = Counter[str]()
    for (_, _, verdict), count in found.items():
        counts[verdict] += int(count)
    return counts


def test_its_owner_reaps_a_private_home(host: Path) -> None:
    home = small_home(host / "ada" / "private")
    _give(home, ADA)
    settings = host / "ada" / "private.yml"
    settings.write_text("reaper: {private_homes: true}\n")
    words = ["reap", "--yes", "--json", "--home", str(home), "--config.file", str(settings)]
    done = subprocess.run(
        [*as_user(ADA), sys.executable, "-m", "exporter", *words],
        cwd=REPOSITORY,
        env={**os.environ, "HOME": str(host / "ada"), "XDG_STATE_HOME": str(host / "ada")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == 3
    assert {path.stat().st_uid for path in home.rglob("*")} == {ADA}
