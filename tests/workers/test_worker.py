"""A root agent reads each user's home as that user, from a process with no other rights."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from exporter.agent.scan_loop import ScanLoop
from exporter.agent.state_store import StateStore
from exporter.config.settings import Settings
from exporter.evidence.openers import KnownOpeners
from exporter.pruner.requests import UpkeepRequest
from exporter.snapshot import Trouble
from exporter.workers import protocol
from exporter.workers.early_server import own_program
from exporter.workers.pool import Pool
from exporter.workers.process import Worker, start_worker
from tests.real.agent import Agent, Metrics, agent
from tests.real.waiting import wait_until
from tests.support.disk_homes import make_store
from tests.support.home_scans import sql
from tests.support.running_agent import (
    children,
    configuration,
    scanned_again,
    when,
    when_up,
)
from tests.support.small_homes import small_home

ADA, BOB = 54321, 54322
IN_A_GROUP = "import os, sys; os.setgroups([4]); os.execvp(sys.argv[1], sys.argv[1:])"
"""Starts a program with a supplementary group, which a worker must not keep."""


@pytest.fixture(scope="module")
def homes() -> Iterator[dict[int, Path]]:
    """Make a private home for each of two users."""
    with tempfile.TemporaryDirectory(prefix="hermes-exporter-test-") as folder:
        os.chmod(folder, 0o755)
        made = {}
        for user in (ADA, BOB):
            above = Path(folder, f"user{user}")
            made[user] = small_home(above / ".hermes")
            (made[user] / "logs").mkdir()
            for path in [above, *above.rglob("*")]:
                os.chown(path, user, user)
            above.chmod(0o700)
        yield made


@pytest.fixture(scope="module")
def running(homes: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("agent")
    named = {f"user{user}": home for user, home in homes.items()}
    secret = {"SECRET_TOKEN": "sk-secret", "LD_PRELOAD": "", "PYTHONPATH": "/nonexistent"}
    in_a_group = (sys.executable, "-I", "-c", IN_A_GROUP)
    with agent(
        folder, configuration=configuration(named), environment=secret, wrapper=in_a_group
    ) as started:
        when_up(started, *named)
        yield started


def workers(running: Agent) -> dict[int, psutil.Process]:
    """Return the agent's workers, by the user they run as."""
    return {worker.uids().real: worker for worker in children(running)}


def status_of(worker: psutil.Process) -> dict[str, list[str]]:
    lines = Path(f"/proc/{worker.pid}/status").read_text().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


def test_each_worker_runs_as_the_owner_with_no_way_back(running: Agent) -> None:
    assert workers(running).keys() == {ADA, BOB}
    assert status_of(psutil.Process(running.process.pid))["Groups"] == ["4"]
    for user, worker in workers(running).items():
        status = status_of(worker)
        assert status["Uid"] == status["Gid"] == [str(user)] * 4
        assert status["Groups"] == []
        assert status["NoNewPrivs"] == ["1"]
        assert int(status["CapEff"][0], 16) == int(status["CapPrm"][0], 16) == 0


def test_a_worker_has_nothing_of_the_agents_but_its_channel(running: Agent) -> None:
    for worker in workers(running).values():
        assert worker.environ() == {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        assert worker.cwd() == "/"
        wait_until(partial(has_only_its_channel, worker.pid), "nothing else is open between scans")


def has_only_its_channel(pid: int) -> bool:
    """True if it has only its channel and copies of it; during a scan the home's files are open."""
    try:
        targets = {name.name: os.readlink(name) for name in Path(f"/proc/{pid}/fd").iterdir()}
    except FileNotFoundError:  # a descriptor was closed meanwhile
        return False
    channel = targets.pop("0")
    assert channel.startswith("socket:")
    assert {targets.pop("1"), targets.pop("2")} == {"/dev/null"}
    return set(targets.values()) <= {channel}


def test_the_scout_has_the_agents_privileges_and_opens_nothing(running: Agent) -> None:
    (prober,) = children(running, "exporter.workers.path_probe")
    assert status_of(prober)["Uid"] == ["0"] * 4
    assert status_of(prober)["NoNewPrivs"] == ["1"]
    assert "SECRET_TOKEN" not in prober.environ()
    assert prober.open_files() == []


def test_the_fork_server_holds_nothing_that_is_secret(running: Agent) -> None:
    (server,) = children(running, "exporter.workers.fork_server")
    assert status_of(server)["NoNewPrivs"] == ["1"]
    assert server.environ() == {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    assert server.cwd() == "/"
    assert has_only_its_channel(server.pid)
    assert server.children() == [], "what it forks belongs to the agent"


def test_nothing_in_a_home_becomes_anybody_elses(running: Agent, homes: dict[int, Path]) -> None:
    """Also while another process has the database open, and SQLite keeps files beside it."""
    with subprocess.Popen(
        ["sqlite3", homes[ADA] / "state.db"],
        stdin=subprocess.PIPE,
        text=True,
        user=ADA,
        group=ADA,
        extra_groups=[],
    ) as writer:
        assert writer.stdin is not None
        writer.stdin.write("PRAGMA journal_mode=WAL; UPDATE sessions SET source = 'tui';\n")
        writer.stdin.flush()

        def is_seen(metrics: Metrics) -> bool:
            seen = metrics.by("hermes_sessions_open", "source", home=f"user{ADA}")
            return seen.get(("tui",)) == 3

        when(running, is_seen, "what is in the write-ahead log is seen")
        scanned_again(running, f"user{ADA}")
        assert (homes[ADA] / "state.db-wal").stat().st_size > 0
        for user, home in homes.items():
            assert {path.lstat().st_uid for path in home.rglob("*")} == {user}


def test_figures_of_both_users_are_told(running: Agent) -> None:
    metrics = scanned_again(running, f"user{BOB}", 1)
    assert metrics.value("hermes_messages_total", home=f"user{BOB}", source="cli") == 6
    assert metrics.by("hermes_exporter_blind", "home", "reason") == {}


def test_a_worker_has_loaded_all_it_needs_before_it_is_nobody(running: Agent) -> None:
    """Its owner may not be able to read the agent's installation, nor Python's."""
    scanned_again(running, f"user{ADA}")
    assert "ModuleNotFoundError" not in running.log()
    assert "ImportError" not in running.log()


def test_a_worker_may_not_take_all_memory(running: Agent) -> None:
    for worker in workers(running).values():
        limits = Path(f"/proc/{worker.pid}/limits").read_text()
        assert re.search(rf"^Max data size +{1 << 30} +{1 << 30} ", limits, re.MULTILINE)
        assert Path(f"/proc/{worker.pid}/oom_score_adj").read_text() == "500\n"


SMALL = ("prlimit", f"--data={80 << 20}")
"""Less than a worker usually has, so that it is quickly full."""


def test_a_home_that_eats_memory_loses_its_own_metrics_and_nobody_elses(tmp_path: Path) -> None:
    homes = [small_home(tmp_path / "good"), small_home(tmp_path / "greedy")]
    sql(
        homes[1],
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 70000) "
        "INSERT INTO sessions (id, source, started_at) "
        "SELECT printf('%0400d', i), printf('%0120d', i), i FROM n;",
    )
    pool = Pool(lambda _: Worker([*SMALL, *own_program("exporter.workers.worker")]))
    journal = StateStore.in_memory()
    rounds = ScanLoop(Settings(), journal, named=[str(home) for home in homes], pool=pool)
    try:
        good, greedy = sorted(rounds.run(120).homes, key=lambda view: view.path)
        assert good.up
        assert not greedy.up
        assert greedy.trouble in (Trouble.WORKER_DIED, Trouble.IO_ERROR)
        assert "memory" in greedy.detail.lower()
    finally:
        rounds.close()
        journal.close()


def test_a_worker_runs_git_as_the_user_it_has_become() -> None:
    """Even if that user cannot read the installation, which contains GitPython."""
    with tempfile.TemporaryDirectory(prefix="hermes-exporter-test-") as folder:
        os.chmod(folder, 0o755)
        home = Path(folder, "home")
        store = make_store(home / "checkpoints/store", ["0123456789abcdef"])
        for path in (home, *home.rglob("*")):
            os.chown(path, ADA, ADA)
        worker = start_worker(ADA)
        try:
            request = UpkeepRequest(str(home), ADA, KnownOpeners(), quiet=True, gc=True)
            (done,) = worker.call(protocol.UPKEEP, request)
        finally:
            worker.end()
            assert worker.is_gone(30)
        assert (done.work, done.why) == ("gc", "")
        assert (store / "packed-refs").stat().st_uid == ADA
